"""CUDA graphs of training: the forward and backward pass of each shape of batch, recorded once, then replayed.

A small model has more than a thousand operators in a step, and a processor needs longer to ask for them one by one than
a GPU needs to do them. A graph asks for all of them at once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.data.batches import Batch
from headcount.training.loss import Loss

logger = logging.getLogger(__name__)

MOST = 256  # shapes that are recorded; a step of any further one runs as it is
PARTS = 8  # a batch has room for so many eighths of its places in the target as real tokens

Losses = Callable[[Batch, Loss], tuple[Tensor, Tensor]]
"""Loss and negative log-likelihood of a batch, each summed over its tokens."""


_Passes = tuple[tuple[Tensor, Tensor, Tensor], list[int]]
"""(loss, likelihood, loss * factor), and the numbers of the parameters that have a gradient."""


class _Recorded(NamedTuple):
    """A graph, the memory that its batch is copied into, and what it computes: (loss, likelihood, loss * factor), and
    gradients of the parameters with the numbers `reached`. buffers: those that it reads, such as tables of positions:
    their memory must stay theirs when the model puts larger ones in their place."""

    graph: torch.cuda.CUDAGraph
    batch: Tensor
    results: tuple[Tensor, Tensor, Tensor]
    reached: list[int]
    buffers: tuple[Tensor, ...]


class StepGraphs:
    """The graphs of one training on one GPU, one for each shape of batch and objective.

    The first batch of a shape runs as it is, so that all that torch prepares for a shape is there; the second is
    recorded. Both compute the same, to the last bit where the operators are deterministic. Graphs share their memory,
    since they never run at the same time, and write their gradients into the same tensors. Dropout follows torch's
    seed as it does without graphs: the same seed gives the same masks.

    losses: computes what is recorded, with `model`; it must not make the processor wait for the GPU.
    """

    def __init__(self, losses: Losses, model: nn.Module) -> None:
        self._losses, self._model = losses, model
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._gradients = [torch.empty_like(each) for each in self._parameters]
        self._recorded: dict[Any, _Recorded | None] = {}  # None: seen once
        self._most = MOST
        self._memory: Any = None  # the pool of all graphs
        device = self._parameters[0].device
        self._factor = torch.ones((), device=device)
        self._tokens = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self, batch: Batch, objective: Loss, factor: float, adds: bool) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, likelihood, loss * factor) of a batch that lies on the GPU.

        The backward pass of the last one gives the parameters its gradients, whatever it is multiplied by afterwards.
        adds: to those that they have. The tensors hold their values until the next call.
        """
        room = places_of(batch)
        key = batch.source.shape, batch.target_in.shape, room, batch.has_padding, id(objective), *self._buffers()
        self._keep_gradients(adds)
        self._factor.fill_(factor)
        self._tokens.fill_(len(batch.real))
        recorded = self._recorded.get(key)
        if recorded is None and key in self._recorded and len(self._recorded) <= self._most:
            recorded = self._recorded[key] = self._record(batch, objective, room)
        if recorded is None:
            if len(self._recorded) < self._most:
                self._recorded[key] = None
            memory = memory_for(batch, room)
            _copy(batch, memory)
            loss, likelihood = self._losses(batch.placed(memory, room, self._tokens), objective)
            return loss, likelihood, loss * self._factor
        _copy(batch, recorded.batch)
        recorded.graph.replay()
        loss, likelihood, scaled = recorded.results
        anchor = self._parameters[recorded.reached[0]]
        return loss, likelihood, _Replayed.apply(anchor, scaled, self, recorded.reached)

    def _buffers(self) -> list[tuple[int, int]]:
        """What tells that a buffer was replaced or written into, such as the gate of a head: a graph was recorded for
        what it was."""
        return [(id(each), 0 if each.is_inference() else each._version) for each in self._model.buffers()]

    def _keep_gradients(self, adds: bool) -> None:
        """The next replay writes into the tensors that are the parameters' gradients: of several micro-batches, those
        of the earlier ones move out of its way."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is gradient:
                parameter.grad = gradient.clone() if adds else None

    def _record(self, batch: Batch, objective: Loss, room: int) -> _Recorded | None:
        """The graph of a batch of this shape; None where the GPU has no memory for more of them."""
        memory = memory_for(batch, room)
        try:
            graph, (results, reached) = self._capture(
                lambda: self._passes(batch.placed(memory, room, self._tokens), objective)
            )
        except torch.OutOfMemoryError:
            self._most = 0
            torch.cuda.empty_cache()
            logger.warning("no memory for more CUDA graphs: further shapes of batches train without")
            return None
        return _Recorded(graph, memory, results, reached, tuple(self._model.buffers()))

    def _capture(self, passes: Callable[[], _Passes]) -> tuple[torch.cuda.CUDAGraph, _Passes]:
        """A graph of all that `passes` asks the GPU for, and the tensors that it computes."""
        torch.cuda.synchronize()
        if torch.cuda.mem_get_info()[0] < torch.cuda.max_memory_allocated():
            torch.cuda.empty_cache()  # what steps without a graph have used
        # What autocast has converted before lies elsewhere, and is not there any more when the graph is replayed.
        torch.clear_autocast_cache()
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Other threads, such as that which pins memory, go on meanwhile.
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                computed = passes()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        torch.clear_autocast_cache()
        return graph, computed

    def _passes(self, batch: Batch, objective: Loss) -> _Passes:
        loss, likelihood = self._losses(batch, objective)
        scaled = loss * self._factor
        with torch.autocast(loss.device.type, enabled=False):  # which is for the forward pass
            gradients = torch.autograd.grad(scaled, self._parameters, allow_unused=True)
            reached = [index for index, gradient in enumerate(gradients) if gradient is not None]
            torch._foreach_copy_([self._gradients[index] for index in reached], [gradients[index] for index in reached])
        return (loss.detach(), likelihood.detach(), scaled.detach()), reached

    def give(self, indices: Sequence[int]) -> None:
        """Give the parameters the gradients of the last replay."""
        for index in indices:
            parameter, gradient = self._parameters[index], self._gradients[index]
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient


class _Replayed(torch.autograd.Function):
    """The loss of a replayed graph, whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, scaled: Tensor, graphs: StepGraphs, indices: Sequence[int]) -> Tensor:
        ctx.graphs, ctx.indices = graphs, indices
        return scaled.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        ctx.graphs.give(ctx.indices)
        return None, None, None, None


def memory_for(batch: Batch, room: int) -> Tensor:
    """Memory for `Batch.packed` of a batch of this shape with `room` places for real tokens."""
    return batch.source.new_zeros(batch.source.numel() + 2 * batch.target_in.numel() + room)


def _copy(batch: Batch, memory: Tensor) -> None:
    packed = batch.packed()
    memory[: len(packed)] = packed


def places_of(batch: Batch) -> int:
    """The real tokens that a batch has room for: their number, rounded up so that few shapes are different."""
    places = batch.target_out.numel()
    grain = max(1, places // PARTS)
    return min(places, -(-len(batch.real) // grain) * grain)
