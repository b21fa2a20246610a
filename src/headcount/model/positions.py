"""Position encodings: sinusoidal and learned, added to embeddings, and rotary, applied to queries and keys."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.errors import InputError


class ComputedTable(nn.Module):
    """A table computed by `make(length, dtype)`, for as many positions as are needed."""

    table: Tensor
    make: Callable[[int, torch.dtype], Tensor]

    def __init__(self, max_positions: int) -> None:
        super().__init__()
        table = self.make(min(max_positions, 2048), torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def reaching(self, end: int) -> Tensor:
        """The table with at least `end` rows; a shorter one is computed anew. Several threads may search with one
        model: each uses the table that it gets here, whichever table another thread puts into the module."""
        table = self.table
        if end > len(table):
            with torch.inference_mode(False):  # training must be able to use the table of a search
                table = self.table = self.make(2 * end, table.dtype).to(table.device)
        return table


class SinusoidalPositions(ComputedTable):
    """Fixed sines and cosines of geometrically spaced wavelengths: Vaswani et al. 2017, section 3.5.

    PE[pos, 2i] = sin(pos / 10000^(2i / d_model)),  PE[pos, 2i + 1] = cos(pos / 10000^(2i / d_model)).

    The table grows on demand: no sentence is too long.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        self.d_model = d_model
        super().__init__(max_positions)

    def forward(self, x: Float[Tensor, "batch position d_model"], start: int = 0) -> Tensor:
        """x plus the encoding of the positions from `start` on."""
        end = start + x.shape[1]
        table = self.table
        return x + (table if end <= len(table) else self.reaching(end))[start:end]

    def make(self, length: int, dtype: torch.dtype) -> Tensor:
        return sines_and_cosines(length, self.d_model).flatten(1)[:, : self.d_model].to(dtype)


class LearnedPositions(nn.Module):
    """One trained vector for each position: Gehring et al. 2017, "Convolutional sequence to sequence learning",
    section 3.1.

    max_length: of a sentence, its end included. Raises InputError for a longer one.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.max_length = max_positions
        self.table = nn.Parameter(torch.randn(max_positions, d_model) * d_model**-0.5)

    def forward(self, x: Float[Tensor, "batch position d_model"], start: int = 0) -> Tensor:
        """x plus the vectors of the positions from `start` on."""
        end = start + x.shape[1]
        if end > len(self.table):
            raise InputError(
                f"a sentence of {end} tokens is longer than model.max_positions={len(self.table)}: raise it, lower "
                f"data.max_length, or take model.positions=sinusoidal"
            )
        return x + self.table[start:end]


class RotaryPositions(nn.Identity):
    """Rotary position embedding adds nothing to embeddings: each self-attention has a `Rotation`."""

    def forward(self, x: Float[Tensor, "batch position d_model"], start: int = 0) -> Tensor:
        return x


class Rotation(ComputedTable):
    """Rotation of each pair of numbers of a query or key by an angle proportional to the position: Su et al. 2021,
    "RoFormer: Enhanced transformer with rotary position embedding", equation 34.

    x[2i], x[2i + 1] -> x[2i] cos a - x[2i + 1] sin a, x[2i + 1] cos a + x[2i] sin a with a = pos / 10000^(2i / d_head)

    The product of a query and a key then depends on their distance alone. The table grows on demand.
    Raises ValueError for an odd d_head.
    """

    def __init__(self, d_head: int, max_positions: int) -> None:
        if d_head % 2:
            raise ValueError(
                f"model.positions=rotary: rotates pairs of numbers, so the size of a head must be even, not {d_head}; "
                f"set an even model.head_size, or other numbers of heads"
            )
        self.d_head = d_head
        super().__init__(max_positions)

    def forward(
        self, x: Float[Tensor, "batch head position d_head"], step: int | None
    ) -> Float[Tensor, "batch head position d_head"]:
        """x at the positions 0, 1, 2, ...; in search, all of it at position `step`."""
        start, end = (0, x.shape[2]) if step is None else (step, step + 1)
        table = self.reaching(end)
        # Pairs as complex numbers: one product that reads in order, not four that skip every second number.
        exact = torch.promote_types(x.dtype, torch.float32)
        pairs = torch.view_as_complex(x.to(exact).unflatten(3, (-1, 2)))
        turned = pairs * torch.view_as_complex(table[start:end].to(exact))
        return torch.view_as_real(turned).flatten(3).to(x.dtype)  # mixed precision goes on in the narrower type

    def make(self, length: int, dtype: torch.dtype) -> Tensor:
        # [position, d_head / 2, 2], cosines first: the real parts
        return sines_and_cosines(length, self.d_head).flip(2).to(dtype)


def sines_and_cosines(length: int, size: int) -> Float[Tensor, "position half 2"]:
    """Sine and cosine of position / 10000^(2i / size), for every i below size / 2."""
    # Always on a real device: a model built on the meta device, to check its settings, must not leave an empty table.
    position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
    wavelength = torch.arange(0, size, 2, dtype=torch.float64, device="cpu")
    angle = position * torch.exp(wavelength * (-math.log(10_000.0) / size))
    return torch.stack([angle.sin(), angle.cos()], dim=2)


POSITIONS: dict[str, Any] = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions, "rotary": RotaryPositions}
