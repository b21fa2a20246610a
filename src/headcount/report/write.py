"""Write a report: report.html, report.md, results.csv, plots, and its runs in one file."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from headcount.command_lines import command
from headcount.errors import InputError, reason
from headcount.files import write_text
from headcount.report import charts
from headcount.report.made import Page, make_page
from headcount.report.markdown import markdown
from headcount.report.read import read_sweep
from headcount.report.runs import Sweep
from headcount.report.study import Margins, Study
from headcount.run import kept
from headcount.run.sweep import PLAN
from headcount.settings import at, flatten

# The files of each finished run that a report and `is_finished` read.
KEPT = ("config.yaml", "metrics.json", "logs/metrics.csv", "*.hyp.*")
# They belong to the corpus, so only those of the built-in one are kept.
REFERENCES = ("*.ref.*",)
SOURCES = ("*.src.*",)  # read where all runs share a corpus
BUILT_IN = ("grammar", "copy")
# Columns of results.csv, beside those of the metrics.
COST = ("parameters", "operations_per_token", "train.steps", "train.seconds", "train.tokens_per_second")
LOSSES = ("valid.loss", "valid.ppl", "valid.bleu", "valid.length_ratio", "test.loss", "test.ppl")
WEIGHTS = ("weights.scored", "weights.valid_loss.average", "weights.valid_loss.last")


def report(
    sweep: str,
    output: str | None,
    effect: float,
    resamples: int,
    margin: Mapping[str, float],
    keep: str | None = None,
    text: str | None = None,
    tuned: str | None = None,
    words: Sequence[str] = (),
) -> Path:
    """Write report.html, report.md, results.csv and plots/ on the runs in `sweep`, to `output` or to `sweep` itself.

    sweep: a directory, or the file of runs that were kept; beside such a file stands a report without plots, as with
    `keep`. effect: the BLEU difference that the study should detect. resamples: of the held-out sentences. margin: the
    differences of bleu, loss and accuracy below which rows are equal. keep: a directory for the finished runs in one
    file, and a report on it. text: see `read_sweep`. tuned: a setting that each row chooses by validation loss. words:
    of the command line, for the one that draws the plots. Returns the main file. Raises InputError.
    """
    if not 0 < effect < math.inf:
        raise InputError(
            f"effect={effect:g}: must be more than 0, and finite: the BLEU difference that the study should detect"
        )
    if resamples < 100:
        raise InputError(f"resamples={resamples}: must be 100 or more")
    if keep is not None and (output is not None or Path(sweep).is_file()):
        raise InputError(f"keep={keep}: needs a directory of runs as sweep, and no output; the report is beside them")
    margins = Margins.of(margin)
    try:
        runs = Path(sweep) if keep is None else keep_runs(read_sweep(Path(sweep)), Path(keep) / kept.FILE)
        study = Study.of(read_sweep(runs, tuned, text), effect, resamples, margins)
        page = make_page(study)
        if output is None and runs.is_file():
            again = command("report", f"sweep={runs}", "output=DIR", *words)
            return _write(page.without_plots(again), study.sweep, runs.parent)
        return _write(page, study.sweep, Path(output or sweep), folder="" if output is None else None)
    except OSError as error:
        place = keep or output or sweep
        raise InputError(f"output={place}: can't be written to ({reason(error)}); name another") from error


def _write(page: Page, sweep: Sweep, directory: Path, folder: str | None = None) -> Path:
    """Write a page, and its HTML and plots if it has any; the main file. folder: see `html`."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / "results.csv", results_csv(sweep))
    write_text(directory / "report.md", markdown(page))
    if not page.plots:
        return directory / "report.md"
    (directory / "plots").mkdir(exist_ok=True)
    for plot in page.plots:
        plot.write(directory / "plots")
    write_text(directory / "report.html", html(page, folder))
    return directory / "report.html"


def keep_runs(sweep: Sweep, path: Path) -> Path:
    """Write the plan of the sweep and the files of its finished runs to one file, for a report in another place.

    Raises InputError if the file has runs of another sweep.
    """
    runs = {kept.SWEEP: kept.gather(sweep.directory, (PLAN,))}
    for run in (*sweep.runs, *sweep.left_out):
        built_in = at(run.config, "data.kind") in BUILT_IN
        text = (REFERENCES if sweep.corpora else REFERENCES + SOURCES) if built_in else ()
        runs[run.name] = kept.gather(run.directory, KEPT + text)
    if path.exists() and (strange := kept.read(path).keys() - runs.keys()):
        raise InputError(
            f"keep={path.parent}: {path.name} there has {len(strange)} runs that {sweep.directory} lacks, such as "
            f"{min(strange)}; move it away, or name another directory"
        )
    kept.write(path, runs)
    return path


def html(page: Page, folder: str | None = None) -> str:
    """The page as a single file. folder: of the runs, as a link from the page; None for no links to them."""
    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    scripts = (charts.library(), files(__package__).joinpath("page.js").read_text(encoding="utf-8"))
    return environment.get_template("report.html.jinja").render(page=page, folder=folder, scripts=scripts) + "\n"


def results_csv(sweep: Sweep) -> str:
    """A line for each run, also those of no row: left out or unfinished; a column for each figure."""
    phenomena = sorted(
        {
            f"test.contrastive.{name}"
            for run in sweep.runs
            for name in flatten(run.figure("test.contrastive") or {})
            if name.endswith(".accuracy")
        }
    )
    scores = [f"test.{metric}" for metric in sweep.metrics]
    signatures = [f"test.signature.{metric}" for metric in sweep.metrics]
    columns = [*COST, *LOSSES, *scores, "test.length_ratio", *signatures, *WEIGHTS, *phenomena]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "row", "seed", "finished", *columns])
    finished = [(row.label, run) for row in sweep.rows for run in row.runs]
    for label, run in (*finished, *(("", run) for run in sweep.left_out)):
        figures = [run.figure(column) for column in columns]
        writer.writerow([run.name, label, run.seed, "yes", *("" if v is None else v for v in figures)])
    for job in sweep.unfinished:
        writer.writerow([job.name, "", "", "no", *[""] * len(columns)])
    return text.getvalue()
