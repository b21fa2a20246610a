"""A check of the doctor: a figure, the limit that it is held against, and what to do where it is beyond that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headcount.doctor.evidence import Evidence

YES_OR_NO = "yes or no"


@dataclass(frozen=True)
class Measured:
    """A figure. where: the split or side that it is of, if there are several."""

    value: float
    where: str = ""


@dataclass(frozen=True)
class Limit:
    """What is allowed: at least or at most `number`. unit: % for a share, YES_OR_NO for a 0 or 1, else the word
    after the number."""

    number: float
    unit: str
    least: bool

    def holds(self, value: float) -> bool:
        """Whether a value is allowed; NaN never is."""
        return value >= self.number if self.least else value <= self.number

    def shown(self, value: float) -> str:
        """A value with its unit."""
        if self.unit == YES_OR_NO:
            return "yes" if value else "no"
        if self.unit == "%":
            return f"{_digits(100 * value)} %"
        return f"{_digits(value)} {self.unit}".strip()

    def __str__(self) -> str:
        if self.unit == YES_OR_NO:
            return self.shown(self.number)
        return f"at {'least' if self.least else 'most'} {self.shown(self.number)}"


def _digits(value: float) -> str:
    """Two significant digits of a small number, four of a larger one, and whole from 100 on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.2g}"


@dataclass(frozen=True)
class Check:
    """One cause of a low score. name: of the figure. measure: the figure, None where the evidence for it is missing.
    because: the source of the limit. todo: what a warning means, and what to do."""

    name: str
    measure: Callable[[Evidence], Measured | None]
    limit: Limit
    because: str
    todo: str


@dataclass(frozen=True)
class Finding:
    """The result of a check; measured is None where there was no evidence for it."""

    check: Check
    measured: Measured | None

    @property
    def warning(self) -> bool:
        return self.measured is not None and not self.check.limit.holds(self.measured.value)


def most(values: Mapping[str, float]) -> Measured | None:
    """The largest value and where it is; None of none."""
    return Measured(*max((value, where) for where, value in values.items())) if values else None


def least(values: Mapping[str, float]) -> Measured | None:
    return Measured(*min((value, where) for where, value in values.items())) if values else None


def share(values: Sequence[bool]) -> float:
    """The share of true values; 0 of none."""
    return sum(values) / max(len(values), 1)
