"""Key and value cache: projected keys and values, and those that decoding keeps from step to step."""

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
