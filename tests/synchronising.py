"""Operators that make the processor wait for an accelerator, found on the meta device, which stands for one."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Their results, or the shapes of these, are known only when the device has computed them.
WAIT = {
    "aten::_local_scalar_dense",  # of item, float, int and bool of a tensor, and tolist
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::repeat_interleave.Tensor",
    "aten::bincount",
}
INDEX = {"aten::index.Tensor", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
COPY = {"aten::_to_copy", "aten::copy_"}


class SynchronisationError(AssertionError):
    pass


class Constructed(TorchFunctionMode):
    """Raises SynchronisationError for a tensor made of numbers on the device: on a GPU they would be copied there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == "meta":
            raise SynchronisationError(f"{func.__name__} of {args[0]}")
        return func(*args, **kwargs)


class Unsynchronised(TorchDispatchMode):
    """Raises SynchronisationError for an operator that would wait for the device; counts all operators in `count`.

    A copy between the processor and the device must be `non_blocking`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.constructed = Constructed()

    def __enter__(self) -> "Unsynchronised":
        self.constructed.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.constructed.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name + (f".{func._overloadname}" if func._overloadname not in ("default", "") else "")
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if any(each.is_meta for each in tensors) or torch.device(kwargs.get("device") or "cpu").type == "meta":
            self.count += 1
            self._check(name, tensors, args, kwargs)
        return func(*args, **kwargs)

    def _check(self, name: str, tensors: list[Tensor], args: Any, kwargs: Any) -> None:
        waits = name in WAIT
        if name in INDEX:
            waits = any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
        if name in COPY:
            there = [each.device for each in tensors] + [torch.device(kwargs.get("device") or tensors[0].device)]
            asynchronous = kwargs.get("non_blocking", args[2] if name == "aten::copy_" and len(args) > 2 else False)
            waits = len({device.type for device in there}) > 1 and not asynchronous
        if waits:
            raise SynchronisationError(f"{name} of {[(tuple(each.shape), each.device.type) for each in tensors]}")
