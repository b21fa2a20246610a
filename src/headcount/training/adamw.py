"""AdamW with two learning rates: one of the matrices of hidden layers, one of all other parameters."""

from collections.abc import Sequence
from typing import Any

import torch


def two_betas(betas: Sequence[float]) -> tuple[float, float]:
    """The decay rates of the two moments. Raises ValueError where they are not that."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"optimizer.betas={list(betas)}: must be two numbers from 0 up to, not including, 1")
    return betas[0], betas[1]


class AdamW(torch.optim.AdamW):
    """AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".

    params: parameter groups; those with "hidden": True have the rate `lr`, the others `other_lr`: embeddings, output,
    biases and norms. weight_decay: of all groups that name none. The other settings are torch's.

    Raises ValueError for a rate below 0 and for wrong betas, and what torch raises.
    """

    hidden_apart = True  # needs the matrices of hidden layers in a group of their own

    def __init__(
        self,
        params: Sequence[dict[str, Any]],
        *,
        lr: float,
        other_lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        fused: bool,
    ) -> None:
        if other_lr < 0:
            raise ValueError(f"optimizer.other_lr={other_lr}: must be 0 or more")
        groups = [group if group.get("hidden") else {**group, "lr": other_lr} for group in params]
        super().__init__(groups, lr=lr, betas=two_betas(betas), eps=eps, weight_decay=weight_decay, fused=fused)
