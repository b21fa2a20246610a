"""The files of a report."""

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from headcount.errors import InputError
from headcount.report.page import Page, make_page
from headcount.report.sweep import read_sweep
from headcount.report.tables import results_csv
from headcount.run.directory import write_text

CONTRASTIVE = (
    "Over seeds, on these very sentences. Intervals and p-values hold for all pairs of rows (studentised range) in all "
    "phenomena and grades at once (Bonferroni); the means over phenomena are a family of their own."
)
BESIDE = (
    "Set beside ours, and not subtracted from it: each was counted in its own way, on its own test set. What can be compared "
    "is the shape."
)


def report(sweep: str, output: str | None = None, effect: float = 0.3, resamples: int = 1000) -> Path:
    """Write report.html, report.md, results.csv and plots/ about the runs in `sweep`, into it or into `output`.

    effect: the difference in BLEU that one would like to see. resamples: of the test sentences. Returns the HTML file.
    Raises InputError.
    """
    if effect <= 0:
        raise InputError(
            f"effect={effect:g}: must be more than 0; it is the difference in BLEU that you would like to see"
        )
    if resamples < 100:
        raise InputError(f"resamples={resamples}: must be 100 or more")
    found = read_sweep(Path(sweep))
    page = make_page(found, effect, resamples)
    directory = Path(output or sweep)
    try:
        (directory / "plots").mkdir(parents=True, exist_ok=True)
        for plot in page.plots:
            write_text(directory / "plots" / f"{plot.name}.svg", plot.file)
            _write_bytes(directory / "plots" / f"{plot.name}.png", plot.png)
        write_text(directory / "results.csv", results_csv(found))
        write_text(directory / "report.md", rendered(page, "page.md.jinja"))
        write_text(directory / "report.html", rendered(page, "page.html.jinja"))
    except OSError as error:
        raise InputError(
            f"output={directory}: can't be written to ({error.strerror or error}); name another"
        ) from error
    return directory / "report.html"


def rendered(page: Page, template: str) -> str:
    """The page in the format of a template."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=".html" in template,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": _escape, "capitalise": lambda text: text[:1].upper() + text[1:]}
    text = environment.get_template(template).render(page=page, contrastive_note=CONTRASTIVE, beside_note=BESIDE)
    return re.sub(r"\n{3,}", "\n\n", text)


def _escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _write_bytes(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(content)
    beside.rename(path)
