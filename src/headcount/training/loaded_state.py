"""State of a checkpoint: the optimizer's, and all counts, checked before training goes on with them.

Torch and Lightning load whatever a checkpoint holds. The state of other weights ends the first step with a traceback,
and a tensor that claims more numbers than it has lets a fused kernel write beyond its memory.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import first_line
from headcount.training.module import TranslationTask, parameter_groups


def check_optimizer_state(task: TranslationTask, optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError for loaded state that `optimizer`, of any kind, cannot have come to with the weights of `task`.

    The reference is the state that the same optimizer makes of zeros in one step: each entry must be of that form.
    Then a step from a copy of the loaded state must succeed, which finds what is missing, and numbers that cannot be.
    """
    loaded, fresh = optimizer.state_dict(), _on_zeros(task)
    fresh.step()
    made = fresh.state_dict()["state"]
    for number, state in loaded["state"].items():
        for name, value in state.items():
            if name in made[number] and _form(value) != _form(made[number][name]):
                raise ValueError(f"the optimizer's state is that of other weights: {name} of weight {number}")
    try:
        fresh.load_state_dict(copy.deepcopy(loaded))
        _in_training(fresh).step()
    except Exception as error:  # of many classes, by the optimizer
        raise ValueError(f"a step of the optimizer fails with its state: {first_line(error)}") from error


def check_counts(loaded: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises ValueError where a number in the dicts of `own`, such as a count of steps, is no number from 0 on in those
    of `loaded`. Of an earlier version, `loaded` may lack some.
    """
    for name, value in own.items():
        found = loaded.get(name, value)
        if isinstance(value, Mapping):
            check_counts(found, value)
        elif _is_number(value):
            fits = _is_number(found) and isinstance(found, type(value) | int)
            if not (fits and math.isfinite(found) and found >= 0):
                raise ValueError(f"{name} is no number from 0 on")


def _on_zeros(task: TranslationTask) -> torch.optim.Optimizer:
    """An optimizer as that of the task, of weights and gradients that are zero, on the CPU, in training."""
    groups = parameter_groups(task.model, task.optimizer_factory)
    for group in groups:
        group["params"] = [nn.Parameter(torch.zeros_like(weight, device="cpu")) for weight in group["params"]]
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    return _in_training(task.optimizer_factory(groups))


def _in_training(optimizer: Any) -> Any:
    if hasattr(optimizer, "train"):  # schedule-free
        optimizer.train()
    return optimizer


def _form(value: Any) -> Any:
    """All of a value but its numbers."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.layout is torch.strided and _has_its_numbers(value)
    if isinstance(value, list | tuple):
        return [_form(each) for each in value]
    return "a number" if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_its_numbers(tensor: Tensor) -> bool:
    """Whether there is memory for each number of a tensor; one that is expanded has fewer."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return last + 1 >= tensor.numel()
