"""Contrastive evaluation: does a model give the right translation more probability than one with a single error?

Sennrich 2017, "How grammatical is character-level neural machine translation?": no search and no overlap with a
reference, only the two probabilities.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset

from headcount.errors import InputError
from headcount.evaluation.annotated import read_annotated

COLUMNS = ("source", "right", "wrong", "phenomenon")
OPTIONAL = ("twin", "grade")
TAKEN = ("loss", "bleu", "worst", "easy", "hard")  # other columns of heads.csv, and grades of the built-in corpus


def read_contrasts(path: str | Path) -> Dataset:
    """Contrastive pairs of a file: tab-separated, not quoted, with a header, plain or .gz.

    Its columns: source; right, its translation; wrong, the same with one error; phenomenon, what the error tests;
    perhaps twin, a source for which `wrong` is right (a counterfactual), and grade. In the data set they are named as
    in a corpus: source, target, contrast, phenomenon, grade, twin; "" where a column is missing. Raises InputError with
    the line for what is none.
    """
    found = read_annotated(path, COLUMNS, OPTIONAL, "a table of contrasts")
    for number, row in found:
        if row["right"] == row["wrong"]:
            raise InputError(f"{path}, line {number}: right and wrong are the same")
        _named(f"{path}, line {number}: the phenomenon", row["phenomenon"])
    columns = {"source": "source", "target": "right", "contrast": "wrong", "phenomenon": "phenomenon"}
    columns |= {name: name for name in OPTIONAL}
    return Dataset.from_dict({name: [row.get(column, "") for _, row in found] for name, column in columns.items()})


def read_all_contrasts(paths: str | Sequence[str]) -> dict[str, Dataset]:
    """Contrastive pairs of a file or of several, by its name without endings, which results use. Raises InputError."""
    found: dict[str, Dataset] = {}
    for path in [paths] if isinstance(paths, str) else dict.fromkeys(paths):
        name = Path(path).name.partition(".")[0]
        _named(f"contrasts={path}: the file's name", name)
        if name in found:
            raise InputError(f"contrasts={path}: another file is called {name}, too; rename one")
        found[name] = read_contrasts(path)
    return found


def _named(what: str, name: str) -> None:
    """Raises InputError for a name that results cannot have, or that other columns and grades have."""
    if name.lower() in TAKEN or not re.fullmatch(r"[\w-]+", name):
        raise InputError(f"{what} {name!r} is not allowed; give letters, digits, _ and -, not {', '.join(TAKEN)}")
