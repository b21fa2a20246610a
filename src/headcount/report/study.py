"""The study of a report: what all its sections share, computed once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Gt, Lt

from headcount.errors import InputError
from headcount.report.endpoint import Endpoint, Scores, bleu_endpoint
from headcount.report.runs import Row, Sweep
from headcount.settings import typed
from headcount.statistics.comparison import Comparison, compare

Positive = Annotated[float, Gt(0), Lt(math.inf)]


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Margins of equality: rows are equal if their difference is certain to be smaller. bleu: points. loss: nats.
    accuracy: of contrastive pairs, percentage points."""

    bleu: Positive
    loss: Positive
    accuracy: Positive


@dataclass(frozen=True, eq=False)
class Study:
    """A sweep and its primary endpoint.

    margins: rows that differ by less are equal. planned: the contrasts that were named before the runs, each of two
    rows by their labels.
    """

    sweep: Sweep
    endpoint: Endpoint
    margins: Margins
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, sweep: Sweep, resamples: int, margins: Margins, named: Mapping[str, Any] | None = None) -> "Study":
        """The study of a sweep. resamples: of the held-out sentences. named: contrasts, see `planned`. Raises
        InputError for a contrast that is not of two rows."""
        labels = [row.label for row in sweep.rows]
        planned = {}
        for name, rows in (named or {}).items():
            planned[name] = tuple(map(typed, rows)) if isinstance(rows, list) else ()
            if len(planned[name]) != 2 or len({*planned[name]} & {*labels}) != 2:
                raise InputError(f"planned.{name}={typed(rows)}: must be two conditions of {'; '.join(labels)}")
        return cls(sweep, bleu_endpoint(sweep, resamples), margins, planned)

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.sweep.rows

    @property
    def labels(self) -> list[str]:
        return [row.label for row in self.rows]

    @property
    def label(self) -> str:
        """What the rows are: the header above their labels."""
        return self.sweep.design.label or "condition"

    @cached_property
    def loss(self) -> Comparison | None:
        """The rows compared by validation loss; None if a row has none."""
        losses = [row.figures("valid.loss") for row in self.rows]
        return self.compare_losses(losses) if all(losses) else None

    def compare(self, scores: Scores, percent: bool = False) -> Comparison:
        """Compare rows by a figure, over seeds alone. percent: whether 0 to 100."""
        # A run without the figure would put runs on different corpora in the same place of two rows.
        return compare(scores, percent=percent, blocks=self.sweep.blocks and self.whole(scores))

    def whole(self, scores: Scores) -> bool:
        """Whether every run has the figure."""
        return all(len(values) == len(row.runs) for values, row in zip(scores, self.rows, strict=True))

    def compare_losses(self, scores: Scores) -> Comparison:
        """Compare rows with the same vocabulary by a loss."""
        compared = self.compare(scores)
        alike = [each for each in compared.differences if self.rows[each.first].same_pieces(self.rows[each.second])]
        return replace(compared, differences=tuple(alike))
