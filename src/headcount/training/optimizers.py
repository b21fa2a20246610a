"""Optimizers and their parameter groups: AdamW with two learning rates, and Muon."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from headcount.devices import multiplies_bf16
from headcount.model.encoder_decoder import EncoderDecoder

STEPS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)  # of `orthogonalised`, as Jordan et al. 2024 chose them

NotNegative = Annotated[float, Ge(0)]
Decay = Annotated[float, Ge(0), Lt(1)]  # of a moving average


def parameter_groups(model: EncoderDecoder, optimizer: Callable[..., Any]) -> list[dict[str, Any]]:
    """Parameter groups: the matrices of linear layers, embeddings and recurrent cells, then all other parameters,
    without weight decay. For an optimizer with `hidden_apart`, the matrices of linear layers but the output come first,
    in a group marked "hidden"."""
    layers = [part for part in model.modules() if isinstance(part, nn.Linear | nn.Embedding | nn.RNNBase)]
    of_layers = {id(p) for part in layers for p in part.parameters(recurse=False) if p.dim() == 2}
    matrices = [p for p in model.parameters() if id(p) in of_layers]
    others = {"params": [p for p in model.parameters() if id(p) not in of_layers], "weight_decay": 0.0}
    if not getattr(getattr(optimizer, "func", optimizer), "hidden_apart", False):
        return [{"params": matrices}, others]
    of_linear = {id(part.weight) for part in layers if isinstance(part, nn.Linear) and part is not model.output}
    hidden = [p for p in matrices if id(p) in of_linear]
    return [{"params": hidden, "hidden": True}, {"params": [p for p in matrices if id(p) not in of_linear]}, others]


class AdamW(torch.optim.AdamW):
    """AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; as torch's, but groups of parameters
    without "hidden": True have the rate `other_lr`: embeddings, output, cells, biases, norms."""

    hidden_apart = True

    def __init__(
        self,
        params: Sequence[dict[str, Any]],
        *,
        lr: NotNegative,
        other_lr: NotNegative,
        betas: tuple[Decay, Decay],
        eps: NotNegative,
        weight_decay: NotNegative,
        fused: bool,
    ) -> None:
        groups = [group if group.get("hidden") else {**group, "lr": other_lr} for group in params]
        super().__init__(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps, weight_decay=weight_decay, fused=fused)


class Muon(torch.optim.Optimizer):
    """Muon: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". With gradient G of a matrix:

        M <- mu M + (1 - mu) G,  W <- (1 - lr weight_decay) W - lr s orthogonalised(G + mu (M - G))

    where s = sqrt(max(1, rows / columns)) ("original"), or 0.2 sqrt(max(rows, columns)), with which the root mean
    square of a step is that of AdamW ("match_rms_adamw": Liu et al. 2025, "Muon is scalable for LLM training", section
    2.2). Matrices of one shape are one batch, each orthogonalised on its own.

    params: parameter groups; those with "hidden": True have Muon, at rate `lr`, the others AdamW, at rate `adamw_lr`
    with `betas`, `eps`, `fused`. weight_decay: of all groups that name none.
    """

    hidden_apart = True

    def __init__(
        self,
        params: Sequence[dict[str, Any]],
        *,
        lr: NotNegative,
        momentum: Decay,
        weight_decay: NotNegative,
        adjust_lr_fn: Literal["original", "match_rms_adamw"],
        adamw_lr: NotNegative,
        betas: tuple[Decay, Decay],
        eps: NotNegative,
        fused: bool,
    ) -> None:
        self.adjust_lr_fn = adjust_lr_fn
        others = [group for group in params if not group.get("hidden")]
        adamw = {"betas": (betas[0], betas[1]), "eps": eps, "weight_decay": weight_decay, "fused": fused}
        self.adamw = torch.optim.AdamW(others, lr=adamw_lr, **adamw)  # type: ignore[arg-type]
        own = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        hidden = [{**own, **group} for group in params if group.get("hidden")]
        super().__init__([*hidden, *self.adamw.param_groups], defaults={})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if group.get("hidden"):
                self._step(group)
        # Its groups and state are this optimizer's, which a checkpoint replaces.
        self.adamw.param_groups = [group for group in self.param_groups if not group.get("hidden")]
        self.adamw.state = self.state
        self.adamw.step()
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        by_shape = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                by_shape[weight.shape].append(weight)
        for (rows, columns), weights in by_shape.items():
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            gradients = [weight.grad for weight in weights]
            means = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
            updates = list(torch._foreach_lerp(gradients, means, group["momentum"]))
            # bf16 would take many times as long on a processor that does not multiply it natively.
            emulated = weights[0].device.type == "cpu" and not multiplies_bf16()
            steps = orthogonalised(torch.stack(updates), torch.float32 if emulated else torch.bfloat16)
            original = self.adjust_lr_fn == "original"
            scale = sqrt(max(1.0, rows / columns)) if original else 0.2 * sqrt(max(rows, columns))
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, steps.to(weights[0].dtype).unbind(), alpha=-group["lr"] * scale)


def orthogonalised(
    matrices: Tensor, dtype: torch.dtype, steps: int = STEPS, coefficients: Sequence[float] = COEFFICIENTS
) -> Tensor:
    """Each matrix U S V^T as about U V^T, [matrix, row, column] in `dtype`: a Newton-Schulz iteration.

    X <- a X + b (X X^T) X + c (X X^T)^2 X, `steps` times, from X of Frobenius norm 1. Singular values end between 0.7
    and 1.2 (those that began below 0.001 or so: lower).
    """
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
