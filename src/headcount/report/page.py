"""The content of a report, before it becomes Markdown or HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from headcount.report.contrastive import ALL, Cell, contrastive_cells
from headcount.report.drawing import Plot
from headcount.report.endpoint import Endpoint, bleu_endpoint
from headcount.report.flags import as_words, flagged
from headcount.report.lengths import by_length
from headcount.report.margins import Margins
from headcount.report.next_steps import next_steps
from headcount.report.plots import (
    contrastive_plots,
    cost_plots,
    curve_plots,
    length_plots,
    published_plots,
    quality_plots,
)
from headcount.report.published import Published, published
from headcount.report.statistics.comparison import Comparison, compare
from headcount.report.study import RunResult, Sweep, Unfinished, corpus_name
from headcount.report.tables import (
    Table,
    contrastive_table,
    differing_table,
    length_table,
    loss_table,
    pair_table,
    published_table,
    result_table,
)
from headcount.report.verdicts import Names, counted, needed, summary, tally

SEVERAL = "Means over seeds ± half a 95 % interval (Student's t, on these very sentences; not for comparing rows)."
QUALITY = "A dot is a run; a diamond the mean of its row"
CONTRASTIVE = "The right translation is more probable than the wrong one in so many percent; chance is 50 %."
CORRECTED = (
    "Secondary, over seeds, on these very sentences. Intervals and p-values hold for all pairs of rows ({how}) in all "
    "phenomena and grades at once (Bonferroni); the means over phenomena are a family of their own. Near 100 % a cell "
    "shows no difference."
)
BESIDE = (
    "Set beside ours, and not subtracted from it: each was counted in its own way, on its own test set. What can be "
    "compared is the shape."
)


@dataclass(frozen=True)
class Section:
    """What stands under a heading: a note, plots, a table with a note of its own."""

    title: str
    note: str = ""
    plots: tuple[Plot, ...] = ()
    table: Table | None = None
    table_note: str = ""
    small: bool = False  # the plots


@dataclass(frozen=True)
class Beside:
    """A paper's table, with its plot if it has rows to draw."""

    published: Published
    note: str
    table: Table | None
    plot: Plot | None


@dataclass(frozen=True)
class Page:
    """The whole report, from top to bottom."""

    title: str
    verdict: str
    about: str | None
    progress: str
    unfinished: tuple[Unfinished, ...]
    flags: tuple[str, ...]
    results: Table
    signatures: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    beside: tuple[Beside, ...]
    measured: tuple[tuple[str, str], ...]
    differing: Table | None
    settings: str
    next: tuple[tuple[str, str], ...]
    results_note: str
    beside_note: str = BESIDE

    @property
    def plots(self) -> list[Plot]:
        """All that are to be files."""
        own = [plot for section in self.sections for plot in section.plots]
        return own + [beside.plot for beside in self.beside if beside.plot]


def make_page(sweep: Sweep, effect: float, resamples: int, margins: Margins) -> Page:
    """effect: the BLEU difference that one would like to see. resamples: of the held-out sentences. margins: within
    which rows are equal. Raises InputError."""
    names = Names.of(sweep)
    flags = list(sweep.notes)
    endpoint = bleu_endpoint(sweep, resamples, flags)
    bleu = endpoint.comparison
    chrf = compare([row.figures("test.chrf") for row in sweep.rows])
    losses = [row.figures("valid.loss") for row in sweep.rows]
    loss = compare(losses) if all(losses) else None
    return Page(
        title=sweep.study.title or f"Runs in {sweep.directory.name}",
        verdict=_capital(summary(bleu, names, endpoint.name, margins.bleu)),
        about=sweep.study.about,
        progress=_progress(sweep),
        unfinished=sweep.unfinished,
        flags=(*flags, *flagged(sweep)),
        results=result_table(sweep, endpoint, chrf, loss),
        results_note=_results_note(endpoint),
        signatures=_signatures(sweep.runs[0]),
        sections=_sections(sweep, endpoint, loss, names, effect, margins),
        beside=_beside(published(sweep.study.published)),
        measured=_measured(sweep.runs),
        differing=differing_table(sweep) if sweep.differing else None,
        settings=yaml.safe_dump(_nested(sweep.shared), sort_keys=False, allow_unicode=True),
        next=next_steps(sweep, endpoint, effect, margins.bleu),
    )


def _sections(
    sweep: Sweep, endpoint: Endpoint, loss: Comparison | None, names: Names, effect: float, margins: Margins
) -> tuple[Section, ...]:
    """Those that have something to show."""
    bleu = endpoint.comparison
    lengths = by_length(endpoint.counted) if endpoint.counted else []
    cells = contrastive_cells(sweep.rows)
    interval = ", with the 95 % interval over seeds" if bleu.spread else ""
    sections = (
        Section("Quality", f"{QUALITY}{interval}.", tuple(quality_plots(sweep, endpoint, loss))),
        Section(
            f"Every pair of rows: {endpoint.name}",
            table=pair_table(bleu, names, margins.bleu) if bleu.differences else None,
            table_note=f"{_pairs_note(endpoint)} {needed(bleu, effect, 'BLEU')}".strip(),
        ),
        Section(
            "Every pair of rows: validation loss",
            table=loss_table(loss, names, margins.loss) if loss and loss.differences else None,
            table_note=_loss_note(loss, margins.loss) if loss else "",
        ),
        Section(
            "By length",
            _lengths_note(endpoint),
            tuple(length_plots(sweep, lengths)) if lengths else (),
            length_table(lengths, names) if lengths else None,
        ),
        Section("Quality against cost", plots=tuple(cost_plots(sweep, endpoint))),
        Section("Learning curves", plots=tuple(curve_plots(sweep))),
        Section(
            "Contrastive accuracy",
            f"{_contrastive_verdict(cells, names, margins.accuracy)} {CONTRASTIVE}",
            tuple(contrastive_plots(sweep, cells)),
            contrastive_table(cells, names, margins.accuracy) if cells else None,
            CORRECTED.format(how=_how([cell.comparison for cell in cells])),
            small=True,
        ),
    )
    return tuple(section for section in sections if section.plots or section.table)


def _beside(tables: Sequence[Published]) -> tuple[Beside, ...]:
    drawn = {plot.name.removeprefix("published_"): plot for plot in published_plots(tables)}
    found = []
    for table in tables:
        known = "Read off the paper." if table.seen else "Recalled, not read off the paper."
        convention = f" Convention: {table.convention}." if table.convention else ""
        cells = published_table(table) if table.rows else None
        found.append(Beside(table, f"{_capital(table.about)}. {known}{convention}", cells, drawn.get(table.key)))
    return tuple(found)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _progress(sweep: Sweep) -> str:
    finished = sweep.jobs - len(sweep.unfinished)
    if not sweep.unfinished:
        return f"All {sweep.jobs} runs are finished."
    return f"{finished} of {sweep.jobs} runs are finished. The others are not, and what follows may change:"


def _signatures(run: RunResult) -> tuple[tuple[str, str], ...]:
    return tuple(
        (label, str(run.figure(f"test.signature.{name}"))) for name, label in {"bleu": "BLEU", "chrf": "chrF"}.items()
    )


def _results_note(endpoint: Endpoint) -> str:
    """What stands beside a mean, and which figure decides."""
    spread = endpoint.comparison.spread
    parts = [SEVERAL if spread else "One seed a row, so nothing says how far another would lie."]
    parts.append(f"The primary endpoint is {endpoint.name}; all other figures are secondary.")
    if endpoint.counted:
        what = "these translations" if len(endpoint.splits) > 1 else "the test translations"
        parts.append(
            f"Length ratio: tokens of {what} per token of the references; below 1, BLEU's brevity penalty acts."
        )
    return " ".join(parts)


def _pairs_note(endpoint: Endpoint) -> str:
    """How intervals of differences came about."""
    bleu = endpoint.comparison
    if not bleu.differences:
        return ""
    parts = []
    if bleu.spread:
        parts.append(f"seeds (deviation {_deviations(bleu, 2)} BLEU from run to run, {_shared(bleu)})")
    if endpoint.sentences:
        parts.append(f"the draw of {endpoint.sentences:,} sentences (bootstrap)")
    return f"Intervals and p-values hold for {_family(bleu)}, over {' and '.join(parts)}."


def _loss_note(loss: Comparison, within: float) -> str:
    if not loss.differences or loss.spread is None:
        return ""
    pairs = tally(counted(loss.differences, within), f"{within:g} nats")
    return (
        f"Secondary. Nats a token; lower is better. Intervals and p-values hold for {_family(loss)}, over seeds alone "
        f"(deviation {_deviations(loss, 4)} from run to run, {_shared(loss)}), on these very sentences. {pairs}"
    ).strip()


def _family(comparison: Comparison) -> str:
    pairs = len(comparison.differences)
    return f"{'the one pair' if pairs == 1 else f'all {pairs} pairs at once'} ({_how([comparison])})"


def _how(comparisons: Sequence[Comparison]) -> str:
    """What intervals of differences are made by."""
    unlike = any(comparison.spread and not comparison.spread.alike for comparison in comparisons)
    return "studentised range" + (" or Bonferroni's bound, whichever is larger" if unlike else "")


def _deviations(comparison: Comparison, digits: int) -> str:
    variances = comparison.spread.variances if comparison.spread else ()
    low, high = (f"{end(variances) ** 0.5:.{digits}f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _shared(comparison: Comparison) -> str:
    alike = comparison.spread is None or comparison.spread.alike
    return "one for all rows, since nothing speaks against that" if alike else "a moderated one for each row"


def _lengths_note(endpoint: Endpoint) -> str:
    seeds = ": means over seeds ± half a 95 % interval over seeds" if endpoint.comparison.spread else ""
    return f"Of the sentences whose references have so many tokens, as BLEU cuts them, BLEU on these alone{seeds}."


def _contrastive_verdict(cells: Sequence[Cell], names: Names, within: float) -> str:
    if not cells or not any(cell.comparison.differences for cell in cells):
        return "With one seed a row, nothing says which of these accuracies differ." if cells else ""
    lines = [line for cell in cells if (line := _cell_verdict(cell, names))]
    if lines:
        return f"{_capital('; '.join(lines))}."
    pairs = [pair for cell in cells for pair in cell.comparison.differences]
    return f"No pair of rows differs in any phenomenon: {tally(counted(pairs, within), f'{within:g} points')}"


def _cell_verdict(cell: Cell, names: Names) -> str:
    """The pair that differs most, empty where none does."""
    pairs = cell.comparison.differences
    differing = [pair for pair in pairs if pair.differs]
    if not differing:
        return ""
    widest = max(differing, key=lambda pair: abs(pair.value))
    better, worse = (widest.first, widest.second)[:: 1 if widest.value > 0 else -1]
    where = "on the mean of all phenomena" if cell.phenomenon == ALL else f"in {cell.phenomenon}"
    low, high = sorted(map(abs, widest.interval))
    others = f" ({len(differing)} of {len(pairs)} pairs differ)" if len(pairs) > 1 else ""
    return (
        f"{where}, {cell.grade}, {names.full(better)} {names.verb(better, 'beat')} {names.other(worse)} by "
        f"{abs(widest.value):.1f} points [{low:.1f}, {high:.1f}]{others}"
    )


def _measured(runs: Sequence[RunResult]) -> tuple[tuple[str, str], ...]:
    """What metrics.json says of how the runs came about, each answer once."""
    paths = {
        "precision": "train.precision",
        "hardware": "hardware",
        "versions": "versions",
        "search": "test.search",
    }
    return (
        ("corpus", corpus_name(runs[0])),
        ("seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))),
        *((name, "; ".join(dict.fromkeys(as_words(run.figure(path)) for run in runs))) for name, path in paths.items()),
    )


def _nested(settings: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        node = tree
        *groups, last = name.split(".")
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return tree
