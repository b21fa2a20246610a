"""Margins of equality: the differences that are too small to matter, chosen by the user."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from headcount.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Rows are equal if their difference is certain to be smaller. bleu: points. loss: nats. accuracy: of contrastive
    pairs, percentage points."""

    bleu: float
    loss: float
    accuracy: float

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> "Margins":
        """From settings by name. Raises InputError for a name or a number that is not allowed."""
        known = [field.name for field in fields(cls)]
        values = {name: settings.get(name) for name in known}
        wrong = [f"margin.{name}: no such setting; there are {', '.join(known)}" for name in settings.keys() - {*known}]
        wrong += [
            f"margin.{name}={value}: must be a number above 0"
            for name, value in values.items()
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
        ]
        if wrong:
            raise InputError("\n".join(wrong))
        return cls(**{name: float(str(value)) for name, value in values.items()})
