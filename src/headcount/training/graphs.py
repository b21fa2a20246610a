"""CUDA graphs of training: the forward and backward pass of each shape of batch, and the optimizer step, recorded once,
then replayed.

To start a kernel takes the processor longer than a small model's kernel takes the GPU, and a step has more than a
thousand of them. A graph starts all of them at once.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from headcount.data.batches import Batch
from headcount.devices import refused_memory
from headcount.errors import InputError, first_line
from headcount.training.divergence import skip_if_not_finite
from headcount.training.loss import Loss

logger = logging.getLogger(__name__)

MAX_GRAPHS = 256
MAX_SEEN = 10_000  # shapes whose batches are counted
ROOM_PARTS = 4  # places for real tokens are rounded up to quarters of a padded target, so that few shapes are different

Result = TypeVar("Result")

Losses = Callable[[Batch, Loss], tuple[Tensor, Tensor]]
"""Loss and negative log-likelihood of a batch, each summed over its tokens."""


class _Computed(NamedTuple):
    """Numbers of a batch, each on the device, and the indices of the parameters that get a gradient."""

    loss: Tensor
    likelihood: Tensor
    scaled: Tensor
    reached: list[int]


class _Recorded(NamedTuple):
    """A recorded graph. memory: what its batch is read from. computed: what a replay computes anew."""

    graph: torch.cuda.CUDAGraph
    memory: Tensor
    computed: _Computed


class StepGraphs:
    """The graphs of one training on one GPU, one for each shape of batch.

    The first batch of a shape runs without a graph, so that all that torch prepares for a shape is there; the second is
    recorded. Both compute the same. To record takes longer than a step, so beyond `MAX_GRAPHS` a shape takes the place
    of the rarest one only once it has come twice as often. Graphs share their memory, since they never run at the same
    time, and write their gradients into the same tensors. Dropout follows torch's seed as it does without graphs: the
    same seed gives the same masks. A graph has the numbers of the objective and of the model's buffers, such as the
    gates of its heads: it is dropped where these change. Without memory for graphs, steps run without.

    losses: computes what is recorded, with `model`; it must not make the processor wait for the GPU.
    """

    def __init__(self, losses: Losses, model: nn.Module) -> None:
        self._losses = losses
        self._parts = [part for part in model.modules() if part._parameters or part._buffers]
        self._parameters: list[Tensor] = []  # those that get gradients
        self._gradients: list[Tensor] = []
        self._read: list[Any] = []  # what the graphs read: the objective, buffers and parameters
        self._numbers: list[int] = []  # of these, versions and places in memory
        self._recorded: dict[Any, _Recorded] = {}
        self._batches: Counter[Any] = Counter()  # of each shape
        self._update: _Update | None = None
        self._pool: Any = None  # the memory of all graphs
        self._stream: Any = None  # on which they are recorded: each stream keeps memory for products
        self._on = True
        self._told = False  # that some shapes have no graph
        device = next(model.parameters()).device
        self._factor = torch.ones((), device=device)
        self._tokens = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self, batch: Batch, objective: Loss, factor: float, adds: bool) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, likelihood, loss * factor) of a batch that lies on the GPU.

        backward() on the third one sets the gradients of `loss * factor`. It ignores what that is multiplied by
        afterwards, so `factor` must have all of it. adds: to the gradients that are there. The tensors are valid until
        the next call. Raises InputError where a step cannot be recorded.
        """
        self._drop_what_changed(objective)
        self._keep_gradients(adds)
        self._factor.fill_(factor)
        self._tokens.fill_(len(batch.real))
        computed = self._computed(batch, objective)
        if computed is None:  # out of the reach of the error, which holds what the step has allocated
            self._do_without()
            computed = self._without_graph(batch, batch.with_room(places_of(batch)), objective)
        anchor = self._parameters[computed.reached[0]]
        scaled = _KnownGradients.apply(anchor, computed.scaled, self, computed.reached)
        return computed.loss, computed.likelihood, scaled

    def step(self, optimizer: Any, clip: float) -> Tensor:
        """Clip the gradients of the last call to the norm `clip`, and make the optimizer's step; returns their norm,
        which is valid until the next call.

        optimizer: skips a step with `found_inf` on the device by itself, as torch's fused ones do. The step is recorded
        at a later call, as long as its gradients lie where those of the graphs do: those of several micro-batches
        do not. The GPU reads the learning rates from memory, in float32, recorded or not.
        """
        trained = [each.grad for each in self._parameters]
        lie_in_graphs = all(one is other for one, other in zip(trained, self._gradients, strict=True))
        update = self._update
        if update is None or update.optimizer is not optimizer or update.clip != clip:
            update = self._update = _Update(optimizer, self._parameters, clip)
            return update.make()
        update.set_rates()
        if not (self._on and lie_in_graphs) or torch.is_anomaly_enabled():
            return update.make()
        if update.graph is None and not self._records(update):  # out of the reach of the error, as above
            self._do_without()
            return update.make()
        update.graph.replay()
        return update.norm

    def _records(self, update: "_Update") -> bool:
        """Record the optimizer step; False where memory does not suffice."""
        try:
            update.graph, update.norm = self._capture(update.make)
        except RuntimeError as error:
            if refused_memory(error) is None:
                raise
            return False
        return True

    def _computed(self, batch: Batch, objective: Loss) -> _Computed | None:
        """What a step computes, by a graph or without; None where memory did not suffice while there are graphs."""
        memory = batch.with_room(places_of(batch))
        shape = batch.source.shape, batch.target_in.shape, len(memory), batch.has_padding
        try:
            self._count(shape)
            if shape not in self._recorded:
                if not self._on or torch.is_anomaly_enabled() or not self._has_place(shape):
                    return self._without_graph(batch, memory, objective)
                self._record(shape, batch, memory, objective)
        except RuntimeError as error:
            if refused_memory(error) is None or not self._on:
                raise
            return None
        recorded = self._recorded[shape]
        recorded.memory.copy_(memory)
        recorded.graph.replay()
        return recorded.computed

    def _count(self, shape: Any) -> None:
        self._batches[shape] += 1
        if len(self._batches) > MAX_SEEN:
            self._batches = Counter({each: count // 2 for each, count in self._batches.items() if count > 1})

    def _has_place(self, shape: Any) -> bool:
        """Whether a graph of the shape is worth its recording."""
        count = self._batches[shape]
        if count < 2:
            return False
        if len(self._recorded) < MAX_GRAPHS:
            return True
        if not self._told:
            self._told = True
            logger.info(
                "%d shapes of batches have CUDA graphs, and rarer ones run without: with a larger data.pad_to there "
                "are fewer shapes",
                MAX_GRAPHS,
            )
        return count > 2 * self._batches[self._rarest]

    @property
    def _rarest(self) -> Any:
        return min(self._recorded, key=self._batches.__getitem__)

    def _drop_what_changed(self, objective: Loss) -> None:
        """Drop all graphs where a buffer or a parameter is another one, or was written into by others than optimizers,
        or where the objective is another one."""
        # A tied matrix is in two parts. To ask the model for its parameters would take half a millisecond.
        held = dict.fromkeys(each for part in self._parts for each in part._parameters.values())
        parameters: list[Tensor] = [each for each in held if each is not None and each.requires_grad]
        buffers = [each for part in self._parts for each in part._buffers.values() if each is not None]
        read: list[Any] = [objective, *buffers, *parameters]
        # Tensors of inference mode have no version.
        numbers = [0 if each.is_inference() else each._version for each in buffers]
        numbers += [each.data_ptr() for each in parameters]
        same = len(read) == len(self._read) and all(one is other for one, other in zip(read, self._read, strict=True))
        if not same or numbers != self._numbers:
            self._drop()
            self._read, self._numbers, self._parameters = read, numbers, parameters
            self._gradients = [torch.empty_like(each) for each in parameters]

    def release(self) -> None:
        """Drop all graphs, and free their memory, for something else that needs it; they are recorded anew later."""
        self._drop()
        logger.info("CUDA graphs are dropped, since memory is short, and recorded anew")

    def _drop(self) -> None:
        on_gpu = torch.cuda.is_initialized()
        if on_gpu:
            torch.cuda.synchronize()  # they may still run
        self._recorded.clear()
        self._batches.clear()
        self._update = None
        self._pool = None
        if on_gpu:
            torch.cuda.empty_cache()

    def _do_without(self) -> None:
        """Drop all graphs, and record no more."""
        self._drop()
        self._on = False
        logger.warning("not enough memory for CUDA graphs: steps run without them from now on")

    def _keep_gradients(self, adds: bool) -> None:
        """A step overwrites `self._gradients`: gradients of earlier micro-batches are copied first."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is gradient:
                parameter.grad = gradient.clone() if adds else None

    def _record(self, shape: Any, batch: Batch, memory: Tensor, objective: Loss) -> None:
        """Record the step of a batch that reads from `memory`. Raises RuntimeError where memory does not suffice."""
        # The batch is placed inside of the graph, which so finds the masks of each batch that it is replayed for.
        graph, computed = self._capture(lambda: self._without_graph(batch, memory, objective))
        if len(self._recorded) >= MAX_GRAPHS:
            del self._recorded[self._rarest]
        self._recorded[shape] = _Recorded(graph, memory, computed)

    def _capture(self, step: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        """A graph of all that `step` asks the GPU for, and what it computes."""
        torch.cuda.synchronize()
        if torch.cuda.mem_get_info()[0] < torch.cuda.max_memory_allocated():
            torch.cuda.empty_cache()  # what steps without a graph have used
        # What autocast has converted before lies elsewhere, and is not there any more when the graph is replayed.
        torch.clear_autocast_cache()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        self._stream = self._stream or torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            # Other threads, such as that which pins memory, go on meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            captures = True
            try:
                computed = step()
                captures = False
                graph.capture_end()
            except Exception as error:
                if captures:
                    with contextlib.suppress(RuntimeError):  # which would hide this one
                        graph.capture_end()
                if isinstance(error, RuntimeError) and refused_memory(error) is None:
                    raise InputError(
                        f"a step could not be recorded as a CUDA graph ({first_line(error)}); give cuda_graphs=false"
                    ) from error
                raise
        torch.cuda.current_stream().wait_stream(self._stream)
        torch.clear_autocast_cache()
        return graph, computed

    def _without_graph(self, batch: Batch, memory: Tensor, objective: Loss) -> _Computed:
        """The step of a batch that reads from `memory`: losses, and gradients in `self._gradients`."""
        loss, likelihood = self._losses(batch.placed(memory, self._tokens), objective)
        scaled = loss * self._factor
        with torch.autocast(loss.device.type, enabled=False):  # which is for the forward pass
            gradients = torch.autograd.grad(scaled, self._parameters, allow_unused=True)
            reached = [index for index, gradient in enumerate(gradients) if gradient is not None]
            torch._foreach_copy_([self._gradients[index] for index in reached], [gradients[index] for index in reached])
        return _Computed(loss.detach(), likelihood.detach(), scaled.detach(), reached)

    def set_gradients(self, reached: Sequence[int]) -> None:
        """Give these parameters the gradients of the last step."""
        for index in reached:
            parameter, gradient = self._parameters[index], self._gradients[index]
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient


class _Update:
    """Clipping and the step of an optimizer. graph: a recorded one, and the `norm` that it computes."""

    def __init__(self, optimizer: Any, parameters: Sequence[Tensor], clip: float) -> None:
        self.optimizer = optimizer
        self.parameters = parameters
        self.clip = clip
        self.graph: Any = None
        device = parameters[0].device
        self.rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self.norm = torch.zeros((), device=device)
        self._set: list[float] = []
        self.set_rates()

    def set_rates(self) -> None:
        """Write the present learning rates to where a step reads them from."""
        now = [group["lr"] for group in self.optimizer.param_groups]
        if now != self._set:
            for rate, number in zip(self.rates, now, strict=True):
                rate.fill_(number)
            self._set = now

    def make(self) -> Tensor:
        """The step, without a graph; returns the norm of the gradients."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        optimizer = self.optimizer
        skip_if_not_finite(optimizer, norm)
        groups = [dict(group) for group in optimizer.param_groups]
        try:
            for group, rate in zip(optimizer.param_groups, self.rates, strict=True):
                group.update(lr=rate, capturable=True)  # torch asks whether its step may be recorded
            optimizer.step()
        finally:
            for group, before in zip(optimizer.param_groups, groups, strict=True):
                group.clear()
                group.update(before)
        return norm


class _KnownGradients(torch.autograd.Function):
    """A loss whose gradients are known already."""

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
