"""CUDA graphs of training: the model's forward and backward pass for each shape of batch, recorded once, then replayed.

To start a kernel takes longer than a small model's kernel runs; a graph starts a thousand of them at once. Nothing else
knows of graphs: this callback puts `RecordedPasses` in the place of the model's forward pass.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from headcount.model.transformer import Transformer

logger = logging.getLogger(__name__)

MAX_GRAPHS = 256
MULTIPLE = 8  # of the tokens of a side


class CudaGraphs(Callback):
    """Records the passes of a Transformer on one GPU, where each step is one forward and one backward pass.

    Not with several processes, whose gradients are exchanged by hooks; not with several micro-batches or passes, since
    a graph writes into the same memory each time; not where layers are left out at random.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model, loss = cast("Any", pl_module.model), cast("Any", pl_module.loss)
        alone = trainer.world_size == 1 and trainer.accumulate_grad_batches == 1
        same = isinstance(model, Transformer) and not model.layer_dropout.p and loss.passes == 1
        if pl_module.device.type == "cuda" and alone and same:
            model.forward = RecordedPasses(model)
            logger.info("passes are recorded as CUDA graphs (cuda_graphs=false: they are not)")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        vars(pl_module.model).pop("forward", None)  # and the memory of the graphs


class RecordedPasses:
    """The forward pass of a model, by a graph of its shape where there is one. The backward pass is in a graph as well.

    The first batch of a shape runs without a graph, the second is recorded: up to `MAX_GRAPHS`, and while half of the
    GPU's memory is free. Graphs share their memory. Dropout masks have the padded shape, and so differ from those
    without graphs.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.plain = model.forward
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.graphs: dict[Any, Graph] = {}
        self.seen: Counter[Any] = Counter()
        self.pool: Any = None  # the memory of all graphs

    def __call__(self, source: Tensor, source_mask: Tensor | None, target: Tensor) -> Tensor:
        if not (self.model.training and torch.is_grad_enabled()):
            return cast("Tensor", self.plain(source, source_mask, target))
        # Padded, for few shapes: the mask leaves out what is added to the source, and no position of the target sees
        # what comes after it.
        mask = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        fixed = [F.pad(each, (0, -each.shape[1] % MULTIPLE)) for each in (source, mask, target)]
        shape = fixed[0].shape, fixed[2].shape
        self.seen[shape] += 1
        if shape not in self.graphs and self.seen[shape] > 1 and len(self.graphs) < MAX_GRAPHS:
            free, total = torch.cuda.mem_get_info()
            if free > total / 2:
                self.pool = self.pool or torch.cuda.graph_pool_handle()
                self.graphs[shape] = Graph(self.plain, fixed, self.parameters, self.pool)
        if shape not in self.graphs:
            return cast("Tensor", self.plain(source, source_mask, target))
        return cast("Tensor", _Replay.apply(self.graphs[shape], fixed, *self.parameters))[:, : target.shape[1]]


class Graph:
    """The two recorded passes of one shape. output: what the forward pass writes. by_output: the gradient that the
    backward pass reads. gradients: what it writes, None for a parameter that the model does not use."""

    def __init__(
        self, passes: Callable[..., Tensor], inputs: Sequence[Tensor], parameters: Sequence[Tensor], pool: Any
    ) -> None:
        self.inputs = [each.clone() for each in inputs]
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        record: Any = partial(torch.cuda.graph, pool=pool, capture_error_mode="thread_local")  # while others pin memory
        # What autocast has converted before is not there any more when the graph is replayed.
        dtype, mixed = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", dtype, enabled=mixed, cache_enabled=False), record(self.forward):
            output = passes(*self.inputs)
        self.by_output = torch.empty_like(output)
        with torch.autocast("cuda", enabled=False), record(self.backward):
            self.gradients = torch.autograd.grad(output, parameters, self.by_output, allow_unused=True)
        self.output = output.detach()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, inputs: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        ctx.graph = graph
        for memory, tensor in zip(graph.inputs, inputs, strict=True):
            memory.copy_(tensor)
        graph.forward.replay()
        return graph.output.detach()

    @staticmethod
    def backward(ctx: Any, by_output: Tensor) -> tuple[Tensor | None, ...]:
        graph = ctx.graph
        graph.by_output.copy_(by_output)
        graph.backward.replay()
        return None, None, *(each if each is None else each.detach() for each in graph.gradients)
