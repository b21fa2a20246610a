"""Learning curves: open the loggers of a run, with the rows that a resumed run already has."""

import csv
import io
import re
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger, Logger

from headcount.errors import InputError, first_line
from headcount.files import read_bytes

MOST_CURVES = 2**28  # bytes
# All columns from the start: for a new one Lightning would write the whole file anew.
COLUMNS = ("step", "train/loss", "train/lr", "valid/bleu", "valid/loss", "valid/ppl")


def begin_curves(loggers: list[Logger], start_step: int) -> None:
    """Open every logger, those that write CSV with the rows of the steps before `start_step`.

    Raises InputError for a logger that cannot begin, such as one whose server is not there, and for rows that are none;
    then no file was changed.
    """
    for curves in sorted(loggers, key=lambda logger: isinstance(logger, CSVLogger)):
        if isinstance(curves, CSVLogger):
            _begin_rows(curves, start_step)
            continue
        try:
            _ = getattr(curves, "experiment", None)
        except Exception as error:  # of whichever service it writes to
            name = type(curves).__name__
            raise InputError(
                f"logger: {name} cannot begin ({first_line(error)}); choose another, or logger=csv"
            ) from error


def _begin_rows(curves: CSVLogger, start_step: int) -> None:
    path = Path(curves.log_dir) / "metrics.csv"
    kept = path.with_name("metrics.before.csv")  # Lightning deletes the file that it finds
    before = kept if kept.exists() else path
    rows = whole_rows(before) if before.exists() else []
    if rows:
        before.replace(kept)
    experiment = curves.experiment
    experiment.metrics_keys = list(COLUMNS)
    experiment.metrics = [
        {name: row[name] for name in COLUMNS if row.get(name)} for row in rows if int(row["step"]) < start_step
    ]
    curves.save()
    kept.unlink(missing_ok=True)


def whole_rows(path: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv; a line that was written in part, as by a process that was killed, is left out.

    Raises InputError for a file of something else, OSError.
    """
    text = read_bytes(path, MOST_CURVES).decode(errors="replace")
    lines = text[: text.rfind("\n") + 1].replace("\0", "")
    try:
        rows = list(csv.DictReader(io.StringIO(lines, newline="")))
    except csv.Error as error:
        raise InputError(f"{path}: no learning curves ({error}); move it away") from error
    return [row for row in rows if None not in row.values() and re.fullmatch(r"\d{1,18}", row.get("step") or "")]
