"""Caches of search: keys and values of the target so far, kept from step to step.

All beams of a sentence write into one cache, side by side. `ancestors[sentence, beam, key]` is True where a cached key
belongs to the past of that beam. When beams change places, only `ancestors` is gathered; keys and values never move.
A search with two beams; at the third step, both go on from beam 1:

    cached keys           a0  a1  b0  b1  c0  c1       step a, b, c; beam 0, 1

    beam 0 attends to          x       x   x           a1 b1 c0
    beam 1 attends to          x       x       x       a1 b1 c1
"""

from typing import NamedTuple

from torch import Tensor


class KeysValues(NamedTuple):
    """Projected keys and values, each [batch, kv_head, key, d_head]."""

    key: Tensor
    value: Tensor

    def select(self, batch: Tensor) -> "KeysValues":
        return KeysValues(self.key.index_select(0, batch), self.value.index_select(0, batch))


class LayerState(NamedTuple):
    """The keys, values and states that a decoder layer attends with; in search, kept from one step to the next.

    memory: keys and values of the source, [batch, kv_head, source, d_head], one for all beams of a sentence. past: in
    search, keys and values of the target so far, of all beams of a sentence; None before the first. own, cross: states
    of the `Attend` of self-attention and of cross-attention; None for a kind without a state.
    """

    memory: KeysValues
    past: KeysValues | None = None
    own: Tensor | None = None
    cross: Tensor | None = None


class DecoderState(NamedTuple):
    """The state of a search between two steps.

    layers: one state a layer. source: mask [sentence, 1, 1, source]. ancestors: [sentence, beam, key], see above.
    key_positions: the target position of each cached key, [key]. position: how many target positions are decoded.
    """

    layers: list[LayerState]
    source: Tensor | None
    ancestors: Tensor
    key_positions: Tensor
    position: int
