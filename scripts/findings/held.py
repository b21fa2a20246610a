"""Training with the output of some heads held at zero from a step on, as a kind of averaging of your own.

    PYTHONPATH=scripts/findings headcount train extensions=[held] averaging.kind=held +averaging.heads=[cross2.1] \
        +averaging.after=250
"""

from typing import Any

import torch
from pytorch_lightning import Trainer

from headcount.heads.interface import Heads, Layer
from headcount.settings import KINDS, Natural, Positive
from headcount.training.averaging import CheckpointAverage, ShareOfRun


class HeldAtZero(CheckpointAverage):
    """The mean of the last checkpoints, see `CheckpointAverage`. From optimizer step `after` on, the output of `heads`
    is zero: their gates are 0, and so are their columns of W_O, which keeps them off in the saved weights. A step that
    is averaged must not lie before `after`."""

    def __init__(
        self, *, last: Positive, share: ShareOfRun, every: Positive | None, heads: list[str], after: Natural
    ) -> None:
        super().__init__(last=last, share=share, every=every)
        self.heads, self.after = heads, after

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step >= self.after:
            self._hold(pl_module.model)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self.after:
            self._hold(pl_module.model)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        for module in Heads(pl_module.model).layers.values():
            module.head_gate = None

    @torch.no_grad()
    def _hold(self, model: Any) -> None:
        heads = Heads(model)
        gates = heads.gates_off(self.heads)
        for layer in {heads.names[heads.number(each)].place for each in self.heads}:
            self._close(heads, layer, gates[heads.columns(layer)])

    def _close(self, heads: Heads, layer: Layer, gates: torch.Tensor) -> None:
        module = heads.layers[layer]
        module.head_gate = gates
        module.output.weight *= gates.repeat_interleave(module.heads.size)


KINDS["averaging"]["held"] = HeldAtZero
