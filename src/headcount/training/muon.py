"""Muon: momentum, orthogonalised, for the matrices of hidden layers; AdamW for all other parameters."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, cast

import torch
from torch import Tensor

from headcount.devices import multiplies_bf16
from headcount.training.adamw import two_betas

ADJUST = ("original", "match_rms_adamw")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
EPS = 1e-7  # least norm that is divided by


class Muon(torch.optim.Optimizer):
    """Muon: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". With gradient G of a matrix:

        M <- mu M + (1 - mu) G,  W <- (1 - lr weight_decay) W - lr s orthogonalised(G + mu (M - G))

    where s = sqrt(max(1, rows / columns)) ("original"), or 0.2 sqrt(max(rows, columns)), with which the root mean
    square of a step is that of AdamW ("match_rms_adamw": Liu et al. 2025, "Muon is scalable for LLM training", section
    2.2). Without `nesterov`, M is orthogonalised. Matrices of one shape are one batch, each orthogonalised on its own.

    params: parameter groups; those with "hidden": True have Muon, at rate `lr`, the others AdamW, at rate `adamw_lr`
    with `betas`, `eps`, `fused`. weight_decay: of all groups that name none. ns_dtype: of the matrix products, which
    are float32 on a processor that does not multiply bf16 natively: there, bf16 would take many times as long.

    Raises ValueError, naming the setting, its value and what is allowed.
    """

    hidden_apart = True  # needs the matrices of hidden layers in a group of their own

    def __init__(
        self,
        params: Sequence[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
        adjust_lr_fn: str,
        ns_steps: int,
        ns_coefficients: list[float],
        ns_dtype: str,
        adamw_lr: float,
        betas: list[float],
        eps: float,
        fused: bool,
    ) -> None:
        for name, value, fits, allowed in (
            ("lr", lr, lr >= 0, "0 or more"),
            ("adamw_lr", adamw_lr, adamw_lr >= 0, "0 or more"),
            ("weight_decay", weight_decay, weight_decay >= 0, "0 or more"),
            ("momentum", momentum, 0 <= momentum < 1, "0 or more, and less than 1"),
            ("adjust_lr_fn", adjust_lr_fn, adjust_lr_fn in ADJUST, f"one of {', '.join(ADJUST)}"),
            ("eps", eps, eps >= 0, "0 or more"),
            ("ns_steps", ns_steps, ns_steps >= 1, "1 or more"),
            ("ns_coefficients", ns_coefficients, len(ns_coefficients) == 3, "three numbers"),
            ("ns_dtype", ns_dtype, ns_dtype in DTYPES, f"one of {', '.join(DTYPES)}"),
        ):
            if not fits:
                raise ValueError(f"optimizer.{name}={value}: must be {allowed}")
        self.nesterov = nesterov
        self.adjust_lr_fn = adjust_lr_fn
        self.ns_steps = ns_steps
        self.ns_coefficients = tuple(ns_coefficients)
        self.ns_dtype = DTYPES[ns_dtype]
        others = [group for group in params if not group.get("hidden")]
        self.adamw = torch.optim.AdamW(
            others, lr=adamw_lr, betas=two_betas(betas), eps=eps, weight_decay=weight_decay, fused=fused
        )
        own = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        hidden = [{**own, **group} for group in params if group.get("hidden")]
        super().__init__([*hidden, *self.adamw.param_groups], defaults={})
        # As in torch's own fused optimizers: a step with found_inf 1, a number on the device, changes nothing.
        self._step_supports_amp_scaling = fused
        self.grad_scale: None = None
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group.get("hidden"):
                self._step(group)
        # Its groups and state are this optimizer's, which a checkpoint replaces.
        self.adamw.param_groups = [group for group in self.param_groups if not group.get("hidden")]
        self.adamw.state = self.state
        self.adamw.grad_scale, self.adamw.found_inf = None, self.found_inf  # type: ignore[attr-defined]
        self.adamw.step()
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        goes: Tensor | float = 1.0 if self.found_inf is None else 1 - self.found_inf
        torch._foreach_mul_(weights, 1 - goes * (group["lr"] * group["weight_decay"]))
        by_shape = defaultdict(list)
        for weight, update in zip(weights, self._momentum(weights, group["momentum"]), strict=True):
            by_shape[weight.shape].append((weight, update))
        emulated = weights[0].device.type == "cpu" and not multiplies_bf16()
        dtype = torch.float32 if emulated else self.ns_dtype
        for shape, pairs in by_shape.items():
            same, updates = zip(*pairs, strict=True)
            steps = orthogonalised(torch.stack(updates), self.ns_steps, self.ns_coefficients, dtype)
            steps = steps.to(same[0].dtype)
            scale = -group["lr"] * self._scale(*shape)
            if self.found_inf is None:
                torch._foreach_add_(same, steps.unbind(), alpha=scale)
            else:  # where the rate may be a number on the device, too
                torch._foreach_add_(same, (steps * (goes * scale)).unbind())

    def _momentum(self, weights: list[Tensor], momentum: float) -> Sequence[Tensor]:
        gradients = [cast("Tensor", weight.grad) for weight in weights]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        means = [self.state[weight]["momentum_buffer"] for weight in weights]
        if self.found_inf is not None:
            gradients = _chosen(self.found_inf > 0, means, gradients)
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        return torch._foreach_lerp(gradients, means, momentum) if self.nesterov else means

    def _scale(self, rows: int, columns: int) -> float:
        if self.adjust_lr_fn == "original":
            return sqrt(max(1.0, rows / columns))
        return 0.2 * sqrt(max(rows, columns))


def _chosen(condition: Tensor, ones: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """`ones` where the condition, a number on the device, is true, else `others`: by shape, since a GPU takes as long
    for one matrix as for many."""
    by_shape = defaultdict(list)
    for index, tensor in enumerate(ones):
        by_shape[tensor.shape].append(index)
    chosen = list(ones)
    for same in by_shape.values():
        one, other = (torch.stack([side[index] for index in same]) for side in (ones, others))
        for index, each in zip(same, torch.where(condition, one, other).unbind(), strict=True):
            chosen[index] = each
    return chosen


def orthogonalised(matrices: Tensor, steps: int, coefficients: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Each matrix U S V^T as about U V^T, [matrix, row, column] in `dtype`: a Newton-Schulz iteration.

    X <- a X + b (X X^T) X + c (X X^T)^2 X, `steps` times, from X of Frobenius norm 1. With the coefficients of Jordan
    et al. 2024, singular values end between 0.7 and 1.2 (those that began below 0.001 or so: lower).
    """
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPS)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
