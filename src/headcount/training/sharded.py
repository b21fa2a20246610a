"""Fully sharded data parallel (FSDP): each process keeps its share of weights, gradients and optimizer state.

Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel", in the form of torch's
`fully_shard`. What is trained is a sharded copy of the model. The model itself stays whole on each process: search asks
for one word at a time, each process for its own sentences, and could not wait for the shares of the others.

The whole model is one unit, gathered for forward and backward together: a decoder's layers are not each a unit of
their own, since decoding projects the encoder's output before it calls them, and the loss reads the output's matrix
after the forward pass.
"""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

Model = TypeVar("Model", bound=nn.Module)


class FullySharded(ModelParallelStrategy):
    """Lightning's strategy, over all processes. A checkpoint is one file of the form that one process writes, so any
    number of processes goes on from it; each of them reads it."""

    def __init__(self) -> None:
        world = int(os.environ.get("WORLD_SIZE", 1))
        super().__init__(data_parallel_size=world, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole state, numbered as the optimizer's groups are; on all processes but the first, nothing of use."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        own = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        named: Any = get_optimizer_state_dict(self._module, own, options=options)
        groups = named.get("param_groups", [])
        return _renamed(named, {name: number for number, name in enumerate(_in_order(groups))})

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        content: dict[str, Any] = torch.load(Path(checkpoint_path), map_location="cpu", mmap=True, weights_only=True)
        fill_shares(self._module, content.pop("state_dict"))
        options = StateDictOptions(full_state_dict=True)
        names = {id(weight): name for name, weight in self._module.named_parameters()}
        for optimizer, state in zip(self.optimizers, content["optimizer_states"], strict=True):
            order = [names[id(weight)] for weight in _in_order(optimizer.param_groups)]
            set_optimizer_state_dict(self._module, optimizer, _renamed(state, dict(enumerate(order))), options=options)
        return content

    @property
    def _module(self) -> nn.Module:
        assert self.model is not None  # there is one once training begins
        return self.model


def _in_order(groups: Any) -> list[Any]:
    return [each for group in groups for each in group["params"]]


def _renamed(state: dict[str, Any], names: dict[Any, Any]) -> dict[str, Any]:
    """An optimizer's state with other names of its parameters."""
    groups = [{**group, "params": [names[each] for each in group["params"]]} for group in state.get("param_groups", [])]
    return {"state": {names[each]: value for each, value in state.get("state", {}).items()}, "param_groups": groups}


def sharded(model: Model, mesh: Any) -> Model:
    """A copy of the model whose parameters are sharded over the processes of a device mesh."""
    from torch.distributed.fsdp import fully_shard  # here, since it takes a while and few runs need it

    trained = copy.deepcopy(model)
    fully_shard(trained, mesh=mesh, reshard_after_forward=False)
    return trained


def is_sharded(model: nn.Module) -> bool:
    return hasattr(model, "unshard")  # `fully_shard` adds it


def gathered(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, for which all processes must call it; of another, the tensor itself."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


@torch.no_grad()
def fill_whole(whole: nn.Module, trained: nn.Module) -> None:
    """Copy the weights of a sharded copy into its model, for which all processes must call it."""
    for own, share in zip(whole.parameters(), trained.parameters(), strict=True):
        own.copy_(gathered(share))


@torch.no_grad()
def fill_shares(trained: nn.Module, whole: Mapping[str, Tensor]) -> None:
    """Copy whole weights, by name, into the shares of this process. torch's own function cannot where matrices are
    tied. Raises KeyError where one is missing, RuntimeError for another shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    for name, share in trained.named_parameters():
        if whole[name].shape != share.shape:
            raise RuntimeError(f"size mismatch for {name}: {list(whole[name].shape)}, and not {list(share.shape)}")
        assert isinstance(share, DTensor)
        own = whole[name].to(share.device)
        share.copy_(distribute_tensor(own, share.device_mesh, share.placements, src_data_rank=None))


def gathers(trainer: Trainer, model: nn.Module) -> bool:
    """Whether this process has a part in reading the weights: the first one, and every one where they are sharded."""
    return bool(trainer.is_global_zero) or is_sharded(model)
