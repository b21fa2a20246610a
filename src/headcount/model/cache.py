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


class Cache:
    """Keys and values of the target so far; each step of a search adds its own, in place.

    room: [2, batch, kv_head, key, d_head], keys and values, of which the first `length` are filled and the rest are
    zeros; None before the first step. Its size is a multiple of 32, and attention gets all of it, since a part would be
    copied for each product. A mask must hide the rest.
    """

    room: Tensor | None = None
    length = 0

    @staticmethod
    def size(length: int) -> int:
        """Size of the room for `length` keys."""
        return -(-length // 32) * 32

    def append(self, new: KeysValues) -> KeysValues:
        """The keys and values so far with the new ones appended, [batch, kv_head, size(length), d_head]."""
        begin, self.length = self.length, self.length + new.key.shape[2]
        if self.room is None or self.length > self.room.shape[3]:
            batch, heads, _, d_head = new.key.shape
            room = new.key.new_zeros(2, batch, heads, self.size(self.length), d_head)
            if self.room is not None:
                room[:, :, :, :begin] = self.room[:, :, :, :begin]
            self.room = room
        key, value = self.room
        key[:, :, begin : self.length], value[:, :, begin : self.length] = new
        return KeysValues(key, value)

    def select(self, batch: Tensor) -> None:
        """Keep only these rows of the batch."""
        if self.room is not None:
            self.room = self.room.index_select(1, batch)


class LayerState(NamedTuple):
    """The keys, values and states that a decoder layer attends with; in search, kept from one step to the next.

    past: in search, keys and values of the target so far, of all beams of a sentence; None in training. memory: keys
    and values of the source, [batch, kv_head, source, d_head], one for all beams of a sentence. own, cross: states of
    the `Attend` of self-attention and of cross-attention; None for a kind without a state.
    """

    past: Cache | None
    memory: KeysValues
    own: Tensor | None = None
    cross: Tensor | None = None

    def select(self, rows: Tensor, sentences: Tensor | None) -> "LayerState":
        """The state of these rows; sentences: the sentences that remain, None if all do."""
        own, cross = (state if state is None else state.index_select(0, rows) for state in (self.own, self.cross))
        if sentences is None:
            return self._replace(own=own, cross=cross)
        if self.past is not None:
            self.past.select(sentences)
        return LayerState(self.past, self.memory.select(sentences), own, cross)


class DecoderState(NamedTuple):
    """The state of a search between two steps. The caches in it are written in place: a state can be used once.

    layers: one state a layer. source: mask [sentence, 1, 1, source]. ancestors: [sentence, beam, key], see above.
    key_positions: the target position of each cached key, [key]. position: how many target positions are decoded.
    """

    layers: list[LayerState]
    source: Tensor | None
    ancestors: Tensor
    key_positions: Tensor
    position: int
