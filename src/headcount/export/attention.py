"""Attention in one shape: heads of one number and one size, as other engines have them, whatever the heads of a run.

A head of zeros adds nothing to the output, and zeros at the end of queries and keys nothing to their products. So heads
that differ from layer to layer, layers without heads, pruned heads and shared keys and values are exported exactly.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.model.attention import ScaledDotProduct
from headcount.model.multi_head import MultiHeadAttention


@dataclass(frozen=True)
class Shape:
    """The number of heads of an attention, and their size d_head."""

    count: int
    size: int

    @property
    def width(self) -> int:
        """Numbers of all heads together."""
        return self.count * self.size


class Linear(NamedTuple):
    """A linear layer: weight [output, input], bias [output] or None."""

    weight: Tensor
    bias: Tensor | None


class Projections(NamedTuple):
    """The projections of an attention."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear


def common_shape(parts: Iterable[MultiHeadAttention]) -> Shape:
    """The least shape that has room for the heads of all these attentions."""
    plans = [part.heads for part in parts]
    return Shape(max(1, *(plan.count for plan in plans)), max(plan.size for plan in plans))


def in_shape(part: MultiHeadAttention, shape: Shape) -> Projections:
    """The projections of an attention with more heads, or larger ones, in a softmax of q k / sqrt(shape.size)."""
    plan = part.heads
    heads, numbers = shape.count - plan.count, shape.size - plan.size  # of zeros, behind the others

    def rows(linear: nn.Linear, factor: float = 1.0) -> Linear:
        both = torch.cat([linear.weight, linear.bias[:, None]], dim=1)  # [head * d_head, d_model + 1]
        each = both.unflatten(0, (len(both) // plan.size, plan.size))
        if len(each):
            each = each.repeat_interleave(plan.count // len(each), dim=0)
        whole = F.pad(each, (0, 0, 0, numbers, 0, heads)).flatten(0, 1) * factor
        return Linear(whole[:, :-1], whole[:, -1])

    columns = part.output.weight.unflatten(1, (plan.count, plan.size))  # [d_model, head, d_head]
    merged = Linear(F.pad(columns, (0, numbers, 0, heads)).flatten(1), part.output.bias)
    scale = plan.size**-0.5 if part.kind is ScaledDotProduct else 1.0
    assert part.key is not None  # every dot-product reads its keys
    return Projections(rows(part.query, scale * shape.size**0.5), rows(part.key), rows(part.value), merged)
