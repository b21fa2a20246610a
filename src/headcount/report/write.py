"""Write a report: report.html, report.md, results.csv, plots, and a copy of its runs."""

import csv
import gzip
import io
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from headcount.errors import InputError, reason
from headcount.files import write_bytes, write_text
from headcount.report import charts
from headcount.report.markdown import markdown
from headcount.report.page import Page, make_page
from headcount.report.read import read_sweep
from headcount.report.runs import Sweep
from headcount.report.study import Margins, Study
from headcount.run.directory import check_links
from headcount.run.jobs import begun_jobs, is_sweep, read_plan, write_plan
from headcount.run.values import at, flatten

# The files of each finished run that a report and `is_finished` read; text is compressed.
KEPT = ("config.yaml", "metrics.json", "logs/metrics.csv", "*.hyp.*")
# They belong to the corpus, so only those of the built-in one are kept, of one run on each corpus.
REFERENCES = ("*.ref.*",)
SOURCES = ("*.src.*", "*.pairs.npz")  # read where all runs share a corpus
BUILT_IN = "headcount.grammar."
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
    simulate: int,
    keep: bool,
    tuned: str | None = None,
) -> Path:
    """Write report.html, report.md, results.csv and plots/ on the runs in `sweep`, to `output` or to `sweep` itself.

    effect: the BLEU difference that the study should detect. resamples: of the held-out sentences. margin: the
    differences of bleu, loss and accuracy below which rows are equal. simulate: how many studies like this one are
    simulated, for the error rate of its design; 0: none. keep: copy figures and translations of the
    finished runs to `output`/runs. tuned: a setting that each row chooses by validation loss. Returns the HTML file.
    Raises InputError.
    """
    if not 0 < effect < math.inf:
        raise InputError(
            f"effect={effect:g}: must be more than 0, and finite: the BLEU difference that the study should detect"
        )
    if resamples < 100:
        raise InputError(f"resamples={resamples}: must be 100 or more")
    if simulate < 0:
        raise InputError(f"simulate={simulate}: must be 0 or more")
    if keep and output is None:
        raise InputError("keep=true: needs a directory, output=DIR")
    margins = Margins.of(margin)
    found = read_sweep(Path(sweep), tuned)
    if keep and output is not None:
        _check_kept(found, Path(output) / "runs")
    page = make_page(Study.of(found, effect, resamples, margins, simulate, output, keep))
    directory = Path(output or sweep)
    if output is None:
        check_links(directory, "plots")
    try:
        (directory / "plots").mkdir(parents=True, exist_ok=True)
        for plot in page.plots:
            plot.write(directory / "plots")
        write_text(directory / "results.csv", results_csv(found))
        write_text(directory / "report.md", markdown(page))
        write_text(directory / "report.html", html(page, "runs/" if keep else "" if output is None else None))
        if keep:
            keep_runs(found, directory / "runs")
    except OSError as error:
        raise InputError(f"output={directory}: can't be written to ({reason(error)}); name another") from error
    return directory / "report.html"


def _check_kept(sweep: Sweep, directory: Path) -> None:
    """Raises InputError if runs of another sweep are in `directory`: a report on what is kept would count them."""
    runs = {run.name for run in (*sweep.runs, *sweep.left_out)} | {job.name for job in sweep.unfinished}
    strange = [name for name in (begun_jobs(directory) if directory.is_dir() else ()) if name not in runs]
    if strange:
        raise InputError(
            f"keep=true: {directory} has {len(strange)} that {sweep.directory} lacks, such as {strange[0]}; move them "
            "away, or name another output"
        )


def keep_runs(sweep: Sweep, directory: Path) -> None:
    """Copy the plan of the sweep and the `KEPT` files of its finished runs, for use in another place."""
    if is_sweep(sweep.directory):
        write_plan(directory, read_plan(sweep.directory))
    references: set[tuple[str, str]] = set()
    for run in (*sweep.runs, *sweep.left_out):
        found = [path for pattern in KEPT for path in run.directory.glob(pattern)]
        if str(at(run.config, "data._target_")).startswith(BUILT_IN):
            patterns = REFERENCES if sweep.corpora else REFERENCES + SOURCES
            text = [path for pattern in patterns for path in run.directory.glob(pattern)]
            own = {path: (run.own_corpus, path.name.removesuffix(".gz")) for path in text}
            found += [path for path, name in own.items() if name not in references]
            references.update(own.values())
        for path in found:
            if path.suffix == ".gz" and path.with_suffix("").exists():
                continue  # the plain text is the newer one, and what a report reads
            keep_file(path, directory / run.name / path.relative_to(run.directory))


def keep_file(path: Path, copy: Path) -> None:
    """Copy a file. Text is compressed, to the same bytes each time, and takes the place of plain text."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes()
    if not (text := re.search(r"\.(hyp|ref|src)\.[^.]+(\.gz)?$", path.name)):
        write_bytes(copy, content)
        return
    plain = copy.with_name(copy.name.removesuffix(".gz"))
    write_bytes(plain.with_name(f"{plain.name}.gz"), content if text[2] else gzip.compress(content, mtime=0))
    plain.unlink(missing_ok=True)


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
