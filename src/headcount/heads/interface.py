"""Interventions on attention heads: names, gates, replaced and recorded outputs.

The output of a head is that of its `Attend`, [batch, query, d_head], before the output projection W_O. Gates multiply
it (Michel et al. 2019, section 2.3); a patch replaces it, with its mean, with that of another sentence, with that of a
twin. Every context restores the model, also after an exception.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from operator import index
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.model.attention import AttentionOutput
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.transformer import Transformer

KINDS = ("encoder", "decoder", "cross")


class Layer(NamedTuple):
    """An attention of the model: its kind, "encoder", "decoder" or "cross", and its layer, counted from 1."""

    kind: str
    layer: int

    def __str__(self) -> str:
        return f"{self.kind}{self.layer}"


class Head(NamedTuple):
    """A head: the kind of its attention, its layer and its number there, both counted from 1. As text: cross2.1."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}{self.layer}.{self.head}"

    @classmethod
    def parse(cls, text: str) -> "Head | None":
        """The head with this name; None for a text of another form."""
        match = re.fullmatch(r"([a-z]+)([1-9][0-9]*)\.([1-9][0-9]*)", text)
        return cls(match[1], int(match[2]), int(match[3])) if match else None

    @property
    def place(self) -> Layer:
        """The attention that it belongs to."""
        return Layer(self.kind, self.layer)


def heads_named(labels: Iterable[str]) -> list[Head]:
    """The heads with these names, such as the array `head` of results."""
    return [head for label in labels if (head := Head.parse(str(label)))]


Edit = Callable[[Tensor], Tensor]
"""The outputs of all heads of a layer, [batch, head, query, d_head], to those that take their place."""
Hook = Callable[[tuple[Tensor, Tensor, Tensor], AttentionOutput], AttentionOutput | None]
"""What the heads of a layer read, queries, keys and values [batch, head, position, d_head], and what they found, times
their `OutputGate` if they have one; to what takes its place, or None for nothing."""


class Heads:
    """The heads of a Transformer, in a fixed order: encoder, decoder, cross; by layer; by number.

    names: all heads. layers: the attention module of each layer. A head is given as a `Head`, as text ("cross2.1") or
    by its number in `names`, a layer as a `Layer` or as text ("cross2"). Contexts within one another act together.
    Raises InputError for a model that is no Transformer, and for heads, layers or sizes that are not the model's.
    """

    def __init__(self, model: EncoderDecoder) -> None:
        self.model: Any = model
        modules = getattr(model, "attentions", None)  # of a model that others trained
        if isinstance(model, Transformer):
            modules = {
                "encoder": [layer.self_attention for layer in model.encoder],
                "decoder": [layer.self_attention for layer in model.decoder],
                "cross": [layer.cross_attention for layer in model.decoder],
            }
        if modules is None:
            raise InputError(f"a {type(model).__name__} has no heads to measure; give a run of a Transformer")
        self.layers: dict[Layer, MultiHeadAttention] = {
            Layer(kind, number): module for kind in KINDS for number, module in enumerate(modules[kind], start=1)
        }
        self.names: tuple[Head, ...] = tuple(
            Head(*layer, head) for layer, module in self.layers.items() for head in range(1, module.heads.count + 1)
        )
        self._numbers = {head: number for number, head in enumerate(self.names)}
        self.positional = False  # whether outputs are patched position by position

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> np.ndarray:
        """The names as text, as results keep them."""
        return np.array([str(head) for head in self.names])

    def number(self, head: Head | str | int) -> int:
        """The number of a head in `names`. Raises InputError for one that the model does not have."""
        found: Any = Head.parse(head) if isinstance(head, str) else head
        if isinstance(head, SupportsIndex) and not isinstance(head, bool):  # of NumPy, too
            found = self.names[index(head)] if 0 <= index(head) < len(self) else None
        if not isinstance(found, tuple) or found not in self._numbers:
            counts = ", ".join(f"{layer}.1 to {layer}.{module.heads.count}" for layer, module in self.layers.items())
            raise InputError(f"{head}: no head of this model, which has {counts}")
        return self._numbers[found]

    def layer(self, layer: Layer | str) -> Layer:
        """The layer of this name. Raises InputError for one that the model does not have."""
        for found in self.layers:
            if layer in (found, str(found)):
                return found
        raise InputError(f"{layer}: no layer of this model, which has {', '.join(map(str, self.layers))}")

    def columns(self, layer: Layer | str) -> slice:
        """The numbers of the heads of a layer."""
        found = self.layer(layer)
        first = self._numbers.get(Head(*found, 1), 0)
        return slice(first, first + self.layers[found].heads.count)

    def off(self, *heads: Head | str | int) -> AbstractContextManager[None]:
        """Switch heads off: their outputs are zero."""
        return self.gated(self.gates_off(heads))

    def gates_off(self, heads: Collection[Head | str | int]) -> Tensor:
        """Gates [head] with zeros for these heads. Raises InputError for a single head in place of a list."""
        if isinstance(heads, str | Head):
            raise InputError(f"off={heads}: give lists of heads, such as [[], ['cross1.1']]")
        return self.gates(dict.fromkeys(map(self.number, heads), 0.0))

    def gates(self, values: Mapping[Any, float] | None = None) -> Tensor:
        """Gates [head] of all heads: 1, or the value given for a head."""
        gates = torch.ones(len(self), device=self.model.device, dtype=self.model.output.weight.dtype)
        for head, value in (values or {}).items():
            gates[self.number(head)] = value
        return gates

    @contextmanager
    def gated(self, gates: Tensor | Mapping[Any, float]) -> Iterator[None]:
        """Multiply the heads' outputs by gates: of some heads, by head; or [head] or [batch, head], all heads in the
        order of `names`, for the whole batch or for each row of it; those of rows not in a search. A gradient flows to
        them."""
        values = self.gates(gates) if isinstance(gates, Mapping) else torch.as_tensor(gates).to(self.gates())
        if values.dim() not in (1, 2) or values.shape[-1] != len(self):
            raise InputError(f"gates {list(values.shape)}: must be [head] or [batch, head], of {len(self)} heads")
        before = {layer: module.head_gate for layer, module in self.layers.items()}
        try:
            for layer, module in self.layers.items():
                own, outer = values[..., self.columns(layer)], before[layer]
                module.head_gate = own if outer is None else own * outer
            yield
        finally:
            for layer, module in self.layers.items():
                module.head_gate = before[layer]

    @contextmanager
    def hooked(self, hooks: Mapping[Any, Hook]) -> Iterator[None]:
        """Call a function of these layers with each call of their `Attend`, see `Hook`. In a search a batch is one
        line, a call of a decoder layer one step, and a query a hypothesis."""
        with ExitStack() as handles:
            for layer, hook in hooks.items():
                module: Any = self.layers[self.layer(layer)]
                last = getattr(module, "output_gate", None) or module.attend
                handles.callback(last.register_forward_hook(partial(_calling, hook)).remove)
            yield

    def edited(self, edits: Mapping[Any, Edit]) -> AbstractContextManager[None]:
        """Pass the outputs of the heads of these layers through a function, before their gates; of a search, see
        `hooked`."""
        return self.hooked({layer: partial(_edit, edit) for layer, edit in edits.items()})

    @contextmanager
    def patched(self, outputs: Mapping[Any, Tensor]) -> Iterator[None]:
        """Replace the outputs of heads: by head a tensor [d_head], [query, d_head] or [batch, query, d_head], the last
        not in a search. NaN keeps what the head has there. Raises InputError, in the pass, for another size."""
        by_layer: dict[Layer, list[tuple[Head, Tensor]]] = {}
        for head, value in outputs.items():
            name = self.names[self.number(head)]
            by_layer.setdefault(name.place, []).append((name, value))
        rows = max((len(value) for value in outputs.values() if value.dim() == 3), default=1)
        # Gates of these rows are refused by whatever puts rows in another order.
        ones = torch.ones((rows, len(self)) if rows > 1 else len(self))
        edits = {layer: partial(_replaced, values) for layer, values in by_layer.items()}
        before, self.positional = self.positional, self.positional or any(each.dim() == 2 for each in outputs.values())
        try:
            with self.gated(ones), self.edited(edits):
                yield
        finally:
            self.positional = before

    @contextmanager
    def recorded(self) -> Iterator[dict[Layer, list[Tensor]]]:
        """Record the outputs of all heads while the model runs: for each layer a tensor [batch, head, query, d_head] a
        call, before gates; of a search, see `hooked`."""
        records: dict[Layer, list[Tensor]] = {layer: [] for layer in self.layers}

        def hook(layer: Layer) -> Hook:
            return lambda _, found: records[layer].append(found.output)

        with self.hooked({layer: hook(layer) for layer in self.layers}):
            yield records


def _calling(hook: Hook, _: Any, arguments: Any, found: AttentionOutput) -> AttentionOutput | None:
    return hook(arguments[:3], found)


def _edit(edit: Edit, _: Any, found: AttentionOutput) -> AttentionOutput:
    return found._replace(output=edit(found.output))


def _replaced(values: Sequence[tuple[Head, Tensor]], output: Tensor) -> Tensor:
    output = output.clone()
    for name, value in values:
        own = output[:, name.head - 1]
        fits = value[0] if value.dim() == 3 and len(value) == 1 else value
        if fits.shape != own.shape[max(own.dim() - fits.dim(), 0) :]:
            raise InputError(f"{name}: outputs {list(value.shape)} for {list(own.shape)}, [batch, query, d_head]")
        own.copy_(fits.to(own).where(~fits.isnan(), own))
    return output
