"""What a report says, before it becomes Markdown or HTML."""

import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from headcount.evaluation.scoring import tokenizer_of
from headcount.report.contrastive import ALL, Cell, contrastive_cells
from headcount.report.drawing import Plot
from headcount.report.lengths import by_length
from headcount.report.plots import (
    contrastive_plots,
    cost_plots,
    curve_plots,
    length_plots,
    published_plots,
    quality_plots,
)
from headcount.report.published import Published, published
from headcount.report.sentences import Floats, bleu_of, bootstrapped_bleu, sentence_counts
from headcount.report.statistics import UNEQUAL, Comparison, Interaction, compare, interaction
from headcount.report.sweep import RunResult, Sweep, Unfinished, corpus_name, finite
from headcount.report.tables import (
    Table,
    contrastive_table,
    differing_table,
    length_table,
    pair_table,
    perplexity_table,
    published_table,
    result_table,
)
from headcount.report.verdicts import Names, listed, summary

CONSTANT = 0.01  # by how much a quantity may differ that a study claims to hold constant
ROUNDING = 0.01  # BLEU
MOST_TYPED = 20  # seeds a row that a reader is asked to train
RESULTS = "Means over seeds ± half a 95 % interval (Student's t, one deviation for all rows, on this test set)."
QUALITY = "A dot is a run; a diamond the mean of its row, with the 95 % interval over seeds."
PERPLEXITY = "Over seeds alone, for all pairs at once; * differs. Lower is better."
CONTRASTIVE = "The right translation is more probable than the wrong one in so many percent; chance is 50 %."
CORRECTED = (
    "Over seeds, on these very sentences. Intervals and p-values hold for all pairs of rows (studentised range) in all "
    "phenomena and grades at once (Bonferroni); the means over phenomena are a family of their own."
)
LENGTHS = (
    "Of the sentences whose references have so many tokens, as BLEU cuts them, test BLEU on these alone: means over "
    "seeds ± half a 95 % interval over seeds."
)
BESIDE = (
    "Set beside ours, and not subtracted from it: each was counted in its own way, on its own test set. What can be "
    "compared is the shape."
)
TRAIN = ("python", "scripts/train.py", "--multirun")


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
    """All that is said, in the order in which it is."""

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
    results_note: str = RESULTS
    beside_note: str = BESIDE

    @property
    def plots(self) -> list[Plot]:
        """All that are to be files."""
        own = [plot for section in self.sections for plot in section.plots]
        return own + [beside.plot for beside in self.beside if beside.plot]


def make_page(sweep: Sweep, effect: float, resamples: int) -> Page:
    """effect: the BLEU difference that one would like to see. resamples: of the test sentences. Raises InputError."""
    names = Names.of(sweep)
    flags = list(sweep.notes)
    counted = _counted(sweep, flags)
    sampling = _sampling(counted, resamples) if counted else None
    lengths = by_length(counted) if counted else []
    bleu = compare([row.figures("test.bleu") for row in sweep.rows], sampling)
    chrf = compare([row.figures("test.chrf") for row in sweep.rows])
    perplexities = [row.figures("valid.ppl") for row in sweep.rows]
    perplexity = compare(perplexities) if all(perplexities) else None
    cells = contrastive_cells(sweep.rows)
    flags += [*_diverged(sweep.runs), *_inconstant(sweep), *_unequal(bleu, perplexity)]
    flags += [*_vocabularies(sweep), *_machines(sweep.runs)]
    sentences = len(sweep.references) if sampling and sweep.references else None
    sections = (
        Section("Quality", QUALITY, tuple(quality_plots(sweep, bleu, perplexity))),
        Section(
            "Every pair of rows: test BLEU",
            table=pair_table(bleu, names, effect, sentences) if bleu.differences else None,
            table_note=_pairs_note(bleu, sentences),
        ),
        Section(
            "Every pair of rows: validation perplexity",
            table=perplexity_table(perplexity, names) if perplexity and perplexity.differences else None,
            table_note=PERPLEXITY,
        ),
        Section(
            "By length",
            LENGTHS,
            tuple(length_plots(sweep, lengths)) if lengths else (),
            length_table(lengths, names) if lengths else None,
        ),
        Section("Quality against cost", plots=tuple(cost_plots(sweep, bleu))),
        Section("Learning curves", plots=tuple(curve_plots(sweep))),
        Section(
            "Contrastive accuracy",
            f"{_contrastive_verdict(cells, names)} {CONTRASTIVE}",
            tuple(contrastive_plots(sweep, cells)),
            contrastive_table(cells, names) if cells else None,
            CORRECTED,
            small=True,
        ),
    )
    return Page(
        title=sweep.study.title or f"Runs in {sweep.directory.name}",
        verdict=_capital(summary(bleu, names)),
        about=sweep.study.about,
        progress=_progress(sweep),
        unfinished=sweep.unfinished,
        flags=tuple(flags),
        results=result_table(sweep, bleu, chrf, perplexity),
        signatures=_signatures(sweep.runs[0]),
        sections=tuple(section for section in sections if section.plots or section.table),
        beside=_beside(published(sweep.study.published)),
        measured=_measured(sweep.runs),
        differing=differing_table(sweep) if sweep.differing else None,
        settings=yaml.safe_dump(_nested(sweep.shared), sort_keys=False, allow_unicode=True),
        next=_next(sweep, bleu, effect),
    )


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


def _counted(sweep: Sweep, flags: list[str]) -> list[list[Floats]] | None:
    """What the runs of each row have in common with the references, sentence by sentence; None, and a flag, where
    translations are missing."""
    references = sweep.references
    read = [[run for run in row.runs if run.hypotheses is not None] for row in sweep.rows]
    if references is None:
        flags.append(
            "No run has the test references (test.ref), so that intervals are those over seeds on this very test set; "
            "what other sentences would say is not accounted for."
        )
        return None
    if not all(read):
        flags.append(
            "The translations of the test set (test.hyp) are missing in every run of a row, so that intervals are "
            "those over seeds on this very test set; what other sentences would say is not accounted for."
        )
        return None
    tokenizer = tokenizer_of(str(sweep.runs[0].figure("test.signature.bleu")))
    counted = [[sentence_counts(run.hypotheses or (), references, tokenizer) for run in row] for row in read]
    for run, counts in zip(itertools.chain(*read), itertools.chain(*counted), strict=True):
        known, score = float(run.figure("test.bleu")), float(bleu_of(counts.sum(axis=0)))
        if abs(known - score) > ROUNDING:
            flags.append(
                f"{run.name}: its test.hyp has BLEU {score:.2f}, and its metrics.json says {known:.2f}; was one of "
                "them written by another evaluation?"
            )
    return counted


def _sampling(counted: Sequence[Sequence[Floats]], resamples: int) -> Interaction:
    """What the draw of test sentences does to differences."""
    rows = [index for index, row in enumerate(counted) for _ in row]
    counts = np.stack([counts for row in counted for counts in row])
    return interaction(bootstrapped_bleu(counts, resamples), rows, counts.shape[1])


def _progress(sweep: Sweep) -> str:
    finished = sweep.jobs - len(sweep.unfinished)
    if not sweep.unfinished:
        return f"All {sweep.jobs} runs are finished."
    return f"{finished} of {sweep.jobs} runs are finished. The others are not, and what follows may change:"


def _diverged(runs: Sequence[RunResult]) -> list[str]:
    return [
        f"{run.name} has no finite validation perplexity: it seems to have diverged."
        for run in runs
        if run.figure("valid.ppl") is not None and not finite(run.figure("valid.ppl"))
    ]


def _inconstant(sweep: Sweep) -> list[str]:
    """A line for each quantity that the study claims constant and that isn't, or that no run tells."""
    lines = []
    for path in sweep.study.constant:
        values = [row.figures(path) for row in sweep.rows]
        if sum(map(len, values)) < len(sweep.runs):
            lines.append(f"{path} is said to be constant, but not every run tells it, so that it can't be checked.")
            continue
        low, high = min(map(min, values)), max(map(max, values))
        if high > low * (1 + CONSTANT):
            told = listed(
                [f"{sum(own) / len(own):,.0f} ({row.label})" for row, own in zip(sweep.rows, values, strict=True)]
            )
            lines.append(f"{path} is said to be constant, but differs by {100 * (high / low - 1):.1f} %: {told}.")
    return lines


def _unequal(bleu: Comparison, perplexity: Comparison | None) -> list[str]:
    lines = []
    if bleu.df and bleu.variance == 0:
        lines.append("The runs of each row have the very same test BLEU, as if the seed had not reached the training.")
    for name, comparison in (("test BLEU", bleu), ("validation perplexity", perplexity)):
        if comparison and comparison.unequal is not None and comparison.unequal < UNEQUAL:
            lines.append(
                f"The seeds of some rows lie clearly further apart in {name} than those of others (Bartlett's test, p "
                f"{'< 0.001' if comparison.unequal < 0.001 else f'= {comparison.unequal:.3f}'}). Intervals take one "
                "deviation for all: they are too wide for the steady rows, and too narrow for the others."
            )
    return lines


def _vocabularies(sweep: Sweep) -> list[str]:
    if any(name.startswith(("tokenizer.", "data.vocab_size")) for name in sweep.differing):
        return [
            "The rows have different vocabularies, so that their perplexities, which are per piece, can't be compared."
        ]
    return []


def _machines(runs: Sequence[RunResult]) -> list[str]:
    """Lines for what differs among runs that should not, were they to be timed, or repeated."""
    lines = []
    for path, what in (
        ("hardware", "seconds and tokens/s can't be compared"),
        ("train.precision", "seconds and tokens/s can't be compared, and rounding differs"),
        ("versions", "figures may differ for that reason"),
    ):
        found: dict[str, list[str]] = {}
        for run in runs:
            found.setdefault(_say(run.figure(path)), []).append(run.name)
        if len(found) > 1:
            told = "; ".join(f"{said} ({len(own)} {'run' if len(own) == 1 else 'runs'})" for said, own in found.items())
            lines.append(f"The runs differ in their {path.rpartition('.')[2]}, so that {what}: {told}.")
    return lines


def _say(node: Any) -> str:
    if isinstance(node, dict):
        return ", ".join(f"{name} {_say(value)}" for name, value in node.items())
    return "none" if node is None else str(node)


def _signatures(run: RunResult) -> tuple[tuple[str, str], ...]:
    return tuple(
        (label, str(run.figure(f"test.signature.{name}"))) for name, label in {"bleu": "BLEU", "chrf": "chrF"}.items()
    )


def _pairs_note(bleu: Comparison, sentences: int | None) -> str:
    """How intervals of differences came about, in a sentence."""
    if not bleu.differences:
        return ""
    parts = []
    if bleu.df:
        parts.append(f"seeds (deviation {bleu.variance**0.5:.2f} BLEU from run to run, pooled over all rows)")
    if sentences:
        parts.append(f"the draw of {sentences:,} test sentences (bootstrap)")
    pairs = len(bleu.differences)
    family = "the one pair" if pairs == 1 else f"all {pairs} pairs at once"
    return f"Intervals and p-values hold for {family} (studentised range), over {' and '.join(parts)}."


def _contrastive_verdict(cells: Sequence[Cell], names: Names) -> str:
    if not cells or not any(cell.comparison.differences for cell in cells):
        return "With one seed a row, nothing says which of these accuracies differ." if cells else ""
    lines = []
    for cell in cells:
        pairs = cell.comparison.differences
        told = [pair for pair in pairs if pair.differs]
        if told:
            widest = max(told, key=lambda pair: abs(pair.value))
            better, worse = (widest.first, widest.second)[:: 1 if widest.value > 0 else -1]
            where = "on the mean of all phenomena" if cell.phenomenon == ALL else f"in {cell.phenomenon}"
            low, high = sorted(map(abs, widest.interval))
            others = f" ({len(told)} of {len(pairs)} pairs differ)" if len(pairs) > 1 else ""
            lines.append(
                f"{where}, {cell.grade}, {names.full(better)} {names.verb(better, 'beat')} {names.short(worse)} by "
                f"{abs(widest.value):.1f} points [{low:.1f}, {high:.1f}]{others}"
            )
    return f"{_capital('; '.join(lines))}." if lines else "No two rows can be told apart in any phenomenon."


def _measured(runs: Sequence[RunResult]) -> tuple[tuple[str, str], ...]:
    """What all runs say of how they came about, each answer once."""
    told = {
        "precision": "train.precision",
        "hardware": "hardware",
        "versions": "versions",
        "search": "test.search",
    }
    return (
        ("corpus", corpus_name(runs[0])),
        ("seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))),
        *((name, "; ".join(dict.fromkeys(_say(run.figure(path)) for run in runs))) for name, path in told.items()),
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


def _next(sweep: Sweep, bleu: Comparison, effect: float) -> tuple[tuple[str, str], ...]:
    """What to do, and the command."""
    again = ("Then write this report again:", shlex.join(["python", "scripts/report.py", f"sweep={sweep.directory}"]))
    steps = []
    if sweep.unfinished and sweep.overrides:
        steps.append(("Finish the runs that are missing; those that are finished stay:", _train(sweep.overrides)))
    if more := _more(sweep, bleu, effect):
        steps.append(more)
    return (*steps, again) if steps else ()


def _more(sweep: Sweep, bleu: Comparison, effect: float) -> tuple[str, str] | None:
    """More seeds, where they would tell what is not told yet: as many as `effect` needs, or twice those there are."""
    if len(bleu.counts) < 2:
        return None
    need, have = bleu.seeds_needed(effect), max(bleu.counts)
    if need is None:
        return "Train more seeds, without which nothing is known of their spread:", _seeds(sweep, 3)
    needed, _ = need
    if needed <= have or all(difference.differs for difference in bleu.differences):
        return None
    if needed <= MOST_TYPED:
        number = int(needed)
        return f"Train {number} seeds a row, to see differences of {effect:g} BLEU:", _seeds(sweep, number)
    seen = f"to see differences of {bleu.detectable(2 * have):.1f} BLEU instead of {bleu.detectable(have):.1f}"
    return f"Train {2 * have} seeds a row, {seen}:", _seeds(sweep, 2 * have)


def _train(overrides: Sequence[str]) -> str:
    return shlex.join([*TRAIN, *overrides])


def _seeds(sweep: Sweep, number: int) -> str:
    """The command that began the sweep, with so many seeds, those there are among them."""
    have = sorted({run.seed for run in sweep.runs})
    fresh = [seed for seed in range(1, number + len(have) + 1) if seed not in have]
    seeds = "seed=" + ",".join(map(str, [*have, *fresh][: max(number, len(have))]))
    others = [override for override in sweep.overrides if not re.match(r"\+*seed=", override)]
    return _train([*others, seeds]) if sweep.overrides else f"{shlex.join(TRAIN)} ... {seeds}"
