"""What papers report on the same question."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import yaml

from headcount.errors import InputError


@dataclass(frozen=True)
class Figures:
    """A row of a paper's table."""

    value: str | int
    bleu: float
    perplexity: float | None = None


@dataclass(frozen=True)
class Published:
    """A table of a paper, or what it claims. seen: read off the paper, not recalled."""

    key: str
    source: str
    about: str
    seen: bool
    convention: str = ""
    label: str = ""
    rows: tuple[Figures, ...] = ()


def published(keys: Sequence[str]) -> list[Published]:
    """The tables of these keys of published.yaml. Raises InputError for a key that isn't there."""
    known = yaml.safe_load(files(__package__).joinpath("published.yaml").read_text(encoding="utf-8"))
    for key in keys:
        if key not in known:
            raise InputError(f"study.published={key}: no such table; there are {', '.join(known)}")
    return [
        Published(key, **known[key] | {"rows": tuple(Figures(**row) for row in known[key].get("rows", ()))})
        for key in keys
    ]
