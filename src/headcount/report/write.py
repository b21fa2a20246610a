"""Write a report: report.html, report.md, results.csv, plots, and its runs in one file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.command_lines import command_anywhere
from headcount.errors import InputError
from headcount.files import write_text
from headcount.report.flags import NOTHING, flagged, unlike
from headcount.report.page import Page, Section, View, code, escaped, guarded, markdown, write
from headcount.report.read import read_sweep
from headcount.report.runs import Sweep
from headcount.report.sections.contrastive import contrastive
from headcount.report.sections.effects import effects
from headcount.report.sections.pairs import contrasts, pairs
from headcount.report.sections.results import curves, quality, results, runs, settings, tuning
from headcount.report.study import Margins, Study
from headcount.report.verdicts import summary
from headcount.run import kept
from headcount.run.sweep import PLAN
from headcount.settings import at, check, flatten

SECTIONS = (results, tuning, quality, effects, contrasts, pairs, contrastive, curves, runs, settings)

# The files of each finished run that a report and `is_finished` read.
KEPT = ("config.yaml", "metrics.json", "logs/metrics.csv", "*.hyp.*")
# They belong to the corpus, so only those of the built-in one are kept.
REFERENCES = ("*.ref.*",)
BUILT_IN = ("grammar", "copy")
# Columns of results.csv, beside those of the metrics.
COST = ("parameters", "operations_per_token", "train.steps", "train.seconds", "train.tokens_per_second")
LOSSES = ("valid.loss", "valid.ppl", "valid.bleu", "valid.length_ratio", "test.loss", "test.ppl")
WEIGHTS = ("weights.scored", "weights.valid_loss.average", "weights.valid_loss.last")


def report(
    sweep: str,
    output: str | None,
    resamples: int,
    margin: Mapping[str, float],
    keep: str | None = None,
    text: str | None = None,
    tuned: str | None = None,
    planned: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    debug: Any = False,
) -> Path:
    """Write report.html, report.md, results.csv and plots/ on the runs in `sweep`, to `output` or to `sweep` itself.

    sweep: a directory, or the file of runs that were kept; beside such a file stands a report without plots, as with
    `keep`. resamples: of the held-out sentences. margin: the differences of bleu, loss and accuracy below which rows
    are equal. keep: a directory for the finished runs in one file, and a report on it. text: see `read_sweep`. tuned: a
    setting that each row chooses by validation loss. planned: contrasts, see `Study`. words: of the command line, for
    the one that draws the plots. debug: see `make_page`. Returns the main file. Raises InputError.
    """
    if keep is not None and (output is not None or Path(sweep).is_file()):
        raise InputError(f"keep={keep}: needs a directory of runs as sweep, and no output; the report is beside them")
    check(Margins, margin, "margin.")
    margins = Margins(**margin)
    runs = Path(sweep) if keep is None else keep_runs(read_sweep(Path(sweep)), Path(keep) / kept.FILE)
    study = Study.of(read_sweep(runs, tuned, text), resamples, margins, planned)
    page = make_page(study, bool(debug))
    if output is None and runs.is_file():
        again = command_anywhere("report", f"sweep={runs}", "output=DIR", *words)
        write_text(runs.with_name("report.md"), markdown(_undrawn(page, again)))
        directory, main = runs.parent, runs.with_name("report.md")
    else:
        directory = Path(output or sweep)
        main = write(page, directory, "report")
    write_text(directory / "results.csv", results_csv(study.sweep))
    return main


def make_page(study: Study, debug: bool = False) -> Page:
    """All sections that have something to show. One that fails becomes a flag; debug: its exception is raised."""
    sweep, endpoint = study.sweep, study.endpoint
    sections, failures = list[Section](), list[str]()
    for make in SECTIONS:
        sections += filter(None, guarded(make.__name__, lambda make=make: [make(study)], failures, debug))  # type: ignore[misc]
    verdict = summary(endpoint.comparison, study.labels, endpoint.name, study.margins.bleu)
    if (best := max(score for row in study.rows for score in row.figures("test.bleu"))) < NOTHING:
        verdict = (
            f"No run has learnt to translate: the highest test BLEU is {best:.1f}. Nothing is said of the conditions."
        )
    return Page(
        title=sweep.design.title or f"Runs in {sweep.directory.name}",
        verdict=verdict,
        about="\n\n".join(filter(None, (escaped(sweep.design.about or ""), _progress(sweep)))),
        flags=(*failures, *sweep.notes, *endpoint.flags, *unlike(endpoint.comparison), *flagged(sweep)),
        sections=tuple(sections),
    )


def _progress(sweep: Sweep) -> str:
    if not sweep.unfinished:
        return f"Runs: {sweep.jobs}, all finished."
    jobs = "\n".join(f"- {code(job.name)}: {escaped(job.why)}" for job in sweep.unfinished)
    return f"Runs: {sweep.jobs}; {sweep.jobs - len(sweep.unfinished)} are finished, and without these:\n\n{jobs}"


def _undrawn(page: Page, command: str) -> Page:
    """The page without plots, and without sections of plots alone. command: draws them; the page shows it."""
    texts = [
        replace(each, blocks=tuple(block for block in each.blocks if not isinstance(block, View)))
        for each in page.sections
        if not (isinstance(each.blocks[-1], View))
    ]
    return replace(page, sections=(*texts, Section("Plots", ("This draws them:", code(command, "bash")))))


def keep_runs(sweep: Sweep, path: Path) -> Path:
    """Write the plan of the sweep and the files of its finished runs to one file, for a report in another place.

    Raises InputError if the file has runs of another sweep.
    """
    runs = {kept.SWEEP: kept.gather(sweep.directory, (PLAN,))}
    for run in (*sweep.runs, *sweep.left_out):
        built_in = at(run.config, "data.kind") in BUILT_IN
        runs[run.name] = kept.gather(run.directory, KEPT + (REFERENCES if built_in else ()))
    if path.exists() and (strange := kept.read(path).keys() - runs.keys()):
        raise InputError(
            f"keep={path.parent}: {path.name} there has {len(strange)} runs that {sweep.directory} lacks, such as "
            f"{min(strange)}; move it away, or name another directory"
        )
    kept.write(path, runs)
    return path


def results_csv(sweep: Sweep) -> str:
    """A line for each run, also those of no row: left out or unfinished; a column for each figure."""
    figures = {
        name for run in sweep.runs for name in flatten({"test": {"contrastive": run.figure("test.contrastive")}})
    }
    phenomena = sorted(name for name in figures if name.endswith(".accuracy"))
    scores, signatures = ([f"test.{group}{metric}" for metric in sweep.metrics] for group in ("", "signature."))
    columns = [*COST, *LOSSES, *scores, "test.length_ratio", *signatures, *WEIGHTS, *phenomena]
    rows = [(run, row.label) for row in sweep.rows for run in row.runs] + [(run, "") for run in sweep.left_out]
    lines = [[run.name, label, run.seed, "yes", *map(run.figure, columns)] for run, label in rows]
    lines += [[job.name, "", "", "no"] for job in sweep.unfinished]
    table = pd.DataFrame(lines, columns=["run", "row", "seed", "finished", *columns], dtype=object)
    return str(table.to_csv(index=False, lineterminator="\n"))
