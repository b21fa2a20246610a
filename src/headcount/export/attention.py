"""Attention in one shape: heads of one number and one size, as other engines have them, whatever the heads of a run.

A head of zeros adds nothing to the output, and zeros at the end of queries and keys nothing to their products. So heads
that differ from layer to layer, layers without heads, pruned heads and shared keys and values are exported exactly.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.model.attention import ScaledDotProduct
from headcount.model.multi_head import MultiHeadAttention


class Shape(NamedTuple):
    """The number of heads of an attention, and their size d_head."""

    heads: int
    size: int


class Linear(NamedTuple):
    """A linear layer: weight [output, input], bias [output]."""

    weight: Tensor
    bias: Tensor


def common_shape(layers: Iterable[nn.Module]) -> Shape:
    """The least shape that has room for the heads of all attentions of these layers."""
    plans = [part.heads for layer in layers for part in layer.children() if isinstance(part, MultiHeadAttention)]
    return Shape(max(1, *(plan.count for plan in plans)), max(plan.size for plan in plans))


def in_shape(part: MultiHeadAttention, shape: Shape) -> list[Linear]:
    """The projections of query, key, value and output, for a softmax of q k / sqrt(shape.size)."""
    plan = part.heads
    padding = 0, shape.size - plan.size, 0, shape.heads - plan.count  # zeros behind the others

    def padded(linear: nn.Linear, factor: float = 1.0) -> Linear:
        both = torch.cat([linear.weight, linear.bias[:, None]], dim=1)  # [head * d_head, d_model + 1]
        each = both.unflatten(0, (len(both) // plan.size, plan.size))
        if len(each):  # keys and values that heads share are repeated
            each = each.repeat_interleave(plan.count // len(each), dim=0)
        whole = F.pad(each, (0, 0, *padding)).flatten(0, 1) * factor
        return Linear(whole[:, :-1], whole[:, -1])

    columns = part.output.weight.unflatten(1, (plan.count, plan.size))  # [d_model, head, d_head]
    output = Linear(F.pad(columns, padding).flatten(1), part.output.bias)
    scale = plan.size**-0.5 if part.kind is ScaledDotProduct else 1.0
    assert part.key is not None  # every dot-product reads its keys
    return [padded(part.query, scale * shape.size**0.5), padded(part.key), padded(part.value), output]
