"""Where a token stands, added to what it is."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """Fixed sines and cosines of geometrically spaced wavelengths: Vaswani et al. 2017, section 3.5.

    PE[pos, 2i] = sin(pos / 10000^(2i / d_model)),  PE[pos, 2i + 1] = cos(the same).  The table grows on demand, so no
    sentence is too long.
    """

    table: Tensor

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.register_buffer("table", self._make(max_positions, torch.get_default_dtype()), persistent=False)

    def forward(self, x: Float[Tensor, "batch position d_model"], start: int = 0) -> Tensor:
        """x plus the encoding of the positions start .. start + position."""
        end = start + x.shape[1]
        if end > len(self.table):
            self.table = self._make(2 * end, self.table.dtype).to(self.table.device)
        return x + self.table[start:end]

    def _make(self, length: int, dtype: torch.dtype) -> Tensor:
        # Always made on a real device: a model built on the meta device to be checked must not leave an empty table.
        position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
        wavelength = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")
        angle = position * torch.exp(wavelength * (-math.log(10_000.0) / self.d_model))
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, : self.d_model].to(dtype)


class LearnedPositions(nn.Module):
    """One trained vector a position: Gehring et al. 2017, "Convolutional sequence to sequence learning", section 3.1.

    Raises ValueError for a sentence of more than `max_positions` pieces.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_positions, d_model) * d_model**-0.5)

    def forward(self, x: Float[Tensor, "batch position d_model"], start: int = 0) -> Tensor:
        """x plus the vectors of the positions start .. start + position."""
        end = start + x.shape[1]
        if end > len(self.table):
            raise ValueError(
                f"a sentence of {end} pieces is longer than model.max_positions={len(self.table)}: raise it, lower "
                f"data.max_length, or take model.positions=sinusoidal"
            )
        return x + self.table[start:end]


POSITIONS: dict[str, type[SinusoidalPositions | LearnedPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
}
