"""Checks of a model's settings; each raises ValueError, naming the setting, its value and what is allowed."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

Choice = TypeVar("Choice")


def check_size(name: str, size: int, most: int = 2**20) -> None:
    if not 1 <= size <= most:
        raise ValueError(f"model.{name}={size}: must be {f'{most:,} or less' if size > most else '1 or more'}")


def check_probability(name: str, p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"model.{name}={p}: a probability from 0 up to, not including, 1")


def positive(name: str, value: float | None, default: float = 1.0) -> float:
    """The value, or the default for None."""
    if value is None:
        return default
    if not 0 < value < math.inf:
        raise ValueError(f"model.{name}={value}: must be a number above 0")
    return value


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ValueError(f"model.{name}={value}: must be one of {', '.join(choices)}")


def choose(name: str, value: str, choices: Mapping[str, Choice]) -> Choice:
    """The choice of that name."""
    check_choice(name, value, choices)
    return choices[value]


def chosen(part: object, choices: Mapping[str, type]) -> str:
    """The name by which a part was chosen; that of its class, if it is none of the choices."""
    return next((name for name, kind in choices.items() if kind is type(part)), type(part).__name__)
