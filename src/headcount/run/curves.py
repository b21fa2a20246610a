"""Learning curves: open the loggers of a run, with the rows that a resumed run already has."""

import csv
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger, Logger

from headcount.errors import InputError, first_line

# All columns from the start: for a new one Lightning would write the whole file anew.
COLUMNS = ("epoch", "step", "train/loss", "train/lr", "valid/bleu", "valid/loss", "valid/ppl")


def begin_curves(loggers: list[Logger], start_step: int, validation_due: bool = False) -> None:
    """Open every logger, those that write CSV with the rows of the steps before `start_step`.

    validation_due: the run resumes with the validation of the last of these steps, so its row is left out.
    Raises InputError for a logger that cannot begin, such as one whose server is not there.
    """
    for curves in loggers:
        try:
            rows = rows_of(curves) if isinstance(curves, CSVLogger) else []
            experiment: Any = getattr(curves, "experiment", None)
        except Exception as error:  # of whichever service it writes to
            name = type(curves).__name__
            raise InputError(f"logger: {name} cannot begin ({first_line(error)}); choose another") from error
        if isinstance(curves, CSVLogger):
            repeated = start_step - 1 if validation_due else None
            experiment.metrics_keys = list(COLUMNS)
            experiment.metrics = [
                {name: cell for name, cell in row.items() if cell}
                for row in rows
                if int(row["step"]) < start_step and not (int(row["step"]) == repeated and row.get("valid/loss"))
            ]
            curves.save()
            (Path(curves.log_dir) / "metrics.before.csv").unlink(missing_ok=True)


def rows_of(curves: CSVLogger) -> list[dict[str, str]]:
    """The rows that a logger has written, moved aside: Lightning deletes the file that it finds."""
    path = Path(curves.log_dir) / "metrics.csv"
    kept = path.with_name("metrics.before.csv")
    if path.exists() and not kept.exists():
        path.replace(kept)
    return whole_rows(kept) if kept.exists() else []


def whole_rows(path: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv; a line that was written in part, as by a process that was killed, is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").replace("\0", "").splitlines(keepends=True)
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))
    return [row for row in rows if None not in row.values() and (row.get("step") or "").isdecimal()]
