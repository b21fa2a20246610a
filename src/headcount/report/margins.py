"""Margins of equality: differences that a reader would not care about, which the user sets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from headcount.errors import InputError


@dataclass(frozen=True)
class Margins:
    """Rows are equal when their difference is certain to be smaller. bleu: points. loss: nats. accuracy: of contrastive
    pairs, points of percent."""

    bleu: float = 0.5
    loss: float = 0.02
    accuracy: float = 5.0

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "Margins":
        """From settings. Raises InputError."""
        known = [field.name for field in fields(cls)]
        wrong = [f"margin.{name}: no such setting; there are {', '.join(known)}" for name in given if name not in known]
        wrong += [
            f"margin.{name}={value}: must be a number above 0"
            for name, value in given.items()
            if name in known
            and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf)
        ]
        if wrong:
            raise InputError("\n".join(wrong))
        return cls(**{name: float(value) for name, value in given.items()})  # type: ignore[arg-type]
