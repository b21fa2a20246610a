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

MAX_GRAPHS = 256  # a step of any further shape runs as it is
ROOM_PARTS = 8  # places for real tokens are rounded up to eighths of a padded target, so that few shapes are different

Losses = Callable[[Batch, Loss], tuple[Tensor, Tensor]]
"""Loss and negative log-likelihood of a batch, each summed over its tokens."""

_Computed = tuple[tuple[Tensor, Tensor, Tensor], list[int]]
"""(loss, likelihood, loss * factor), and the indices of the parameters that get a gradient."""


class _Recorded(NamedTuple):
    """A recorded graph. memory: what its batch is read from. results: (loss, likelihood, loss * factor). reached:
    indices of the parameters that get a gradient. buffers: kept, since the graph reads their memory even after the
    model has replaced them."""

    graph: torch.cuda.CUDAGraph
    memory: Tensor
    results: tuple[Tensor, Tensor, Tensor]
    reached: list[int]
    buffers: tuple[Tensor, ...]


class StepGraphs:
    """The graphs of one training on one GPU, one for each shape of batch and objective.

    The first batch of a shape runs as it is, so that all that torch prepares for a shape is there; the second is
    recorded. Both compute the same. Graphs share their memory,
    since they never run at the same time, and write their gradients into the same tensors. Dropout follows torch's
    seed as it does without graphs: the same seed gives the same masks.

    losses: computes what is recorded, with `model`; it must not make the processor wait for the GPU.
    """

    def __init__(self, losses: Losses, model: nn.Module) -> None:
        self._losses, self._model = losses, model
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._gradients = [torch.empty_like(each) for each in self._parameters]
        self._recorded: dict[Any, _Recorded] = {}
        self._seen: set[Any] = set()
        self._most = MAX_GRAPHS
        self._pool: Any = None  # the memory of all graphs
        device = self._parameters[0].device
        self._factor = torch.ones((), device=device)
        self._tokens = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self, batch: Batch, objective: Loss, factor: float, adds: bool) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, likelihood, loss * factor) of a batch that lies on the GPU.

        backward() on the third one sets the gradients of `loss * factor`. It ignores what that is multiplied by
        afterwards, so `factor` must have all of it. adds: to the gradients that are there. The tensors are valid until
        the next call.
        """
        memory = batch.with_room(places_of(batch))
        shape = batch.source.shape, batch.target_in.shape, len(memory), batch.has_padding
        key = *shape, id(objective), *self._buffers()
        self._keep_gradients(adds)
        self._factor.fill_(factor)
        self._tokens.fill_(len(batch.real))
        if key in self._seen and key not in self._recorded and len(self._recorded) < self._most:
            self._record(key, batch, memory, objective)
        self._seen.add(key)
        recorded = self._recorded.get(key)
        if recorded is None:
            loss, likelihood = self._losses(batch.placed(memory, self._tokens), objective)
            return loss, likelihood, loss * self._factor
        recorded.memory.copy_(memory)
        recorded.graph.replay()
        loss, likelihood, scaled = recorded.results
        anchor = self._parameters[recorded.reached[0]]
        return loss, likelihood, _KnownGradients.apply(anchor, scaled, self, recorded.reached)

    def _buffers(self) -> list[tuple[int, int]]:
        """Identity and version of each buffer: once one changes, such as a head's gate, its graphs are no longer valid.
        Tensors of inference mode have no version."""
        return [(id(each), 0 if each.is_inference() else each._version) for each in self._model.buffers()]

    def _keep_gradients(self, adds: bool) -> None:
        """A replay overwrites `self._gradients`: gradients of earlier micro-batches are copied first."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is gradient:
                parameter.grad = gradient.clone() if adds else None

    def _record(self, key: Any, batch: Batch, memory: Tensor, objective: Loss) -> None:
        """Record the passes of a batch that reads from `memory`, unless the GPU has no memory for more graphs."""
        try:
            # `placed` is inside of the graph, which so finds the masks of each batch that it is replayed for.
            graph, (results, reached) = self._capture(
                lambda: self._forward_backward(batch.placed(memory, self._tokens), objective)
            )
        except torch.OutOfMemoryError:
            self._most = len(self._recorded)
            torch.cuda.empty_cache()
            logger.warning("no memory for more CUDA graphs: further shapes of batches train without")
            return
        self._recorded[key] = _Recorded(graph, memory, results, reached, tuple(self._model.buffers()))

    def _capture(self, passes: Callable[[], _Computed]) -> tuple[torch.cuda.CUDAGraph, _Computed]:
        """A graph of all that `passes` asks the GPU for, and the tensors that it computes."""
        torch.cuda.synchronize()
        if torch.cuda.mem_get_info()[0] < torch.cuda.max_memory_allocated():
            torch.cuda.empty_cache()  # what steps without a graph have used
        # What autocast has converted before lies elsewhere, and is not there any more when the graph is replayed.
        torch.clear_autocast_cache()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Other threads, such as that which pins memory, go on meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                computed = passes()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        torch.clear_autocast_cache()
        return graph, computed

    def _forward_backward(self, batch: Batch, objective: Loss) -> _Computed:
        loss, likelihood = self._losses(batch, objective)
        scaled = loss * self._factor
        with torch.autocast(loss.device.type, enabled=False):  # which is for the forward pass
            gradients = torch.autograd.grad(scaled, self._parameters, allow_unused=True)
            reached = [index for index, gradient in enumerate(gradients) if gradient is not None]
            torch._foreach_copy_([self._gradients[index] for index in reached], [gradients[index] for index in reached])
        return (loss.detach(), likelihood.detach(), scaled.detach()), reached

    def set_gradients(self, reached: Sequence[int]) -> None:
        """Give these parameters the gradients of the last replay."""
        for index in reached:
            parameter, gradient = self._parameters[index], self._gradients[index]
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient


class _KnownGradients(torch.autograd.Function):
    """The loss of a replayed graph, whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, scaled: Tensor, graphs: StepGraphs, reached: Sequence[int]) -> Tensor:
        ctx.graphs, ctx.reached = graphs, reached
        return scaled.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        ctx.graphs.set_gradients(ctx.reached)
        return None, None, None, None


def places_of(batch: Batch) -> int:
    """The real tokens that a batch has room for: their number, rounded up so that few shapes are different."""
    places = batch.target_out.numel()
    grain = max(1, places // ROOM_PARTS)
    return min(places, -(-len(batch.real) // grain) * grain)
