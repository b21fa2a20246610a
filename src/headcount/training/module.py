"""The Lightning module: a training step, and a validation that translates."""

import logging
import math
import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor, nn

from headcount.data.batches import Batch
from headcount.decoding.translator import Translator
from headcount.devices import refused_memory
from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS
from headcount.model.dropout import LayerDropout
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.transformer import Transformer
from headcount.training.cutoff import token_cutoff
from headcount.training.divergence import SkippedSteps, Step, skip_if_not_finite
from headcount.training.graphs import StepGraphs
from headcount.training.loss import IGNORED, LabelSmoothing, Loss

logger = logging.getLogger(__name__)

LIKELIHOOD = LabelSmoothing(smoothing=0)  # validation uses only its likelihood

SYNCHRONOUS = ("cpu", "mps")  # devices whose optimizers cannot skip a step by themselves, or need not

Result = TypeVar("Result")

OptimizerFactory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


class TranslationTask(pl.LightningModule):
    """Trains `model` on `Batch`es.

    The loss of a micro-batch is the sum over its target tokens divided by the target tokens of the whole optimizer step
    (`Batch.step_tokens`: all ranks, all micro-batches), so that one process and many follow the same gradient.

    optimizer: builds the optimizer from parameter groups. schedule: factor on its rate by step. skipped: the steps that
    are skipped, where gradients are not finite. translator: translates the validation sentences with the present
    weights. sources and references: those sentences, as text. bleu_tokenizer: sacrebleu's name of the tokenizer for
    their BLEU. samples: how many of their translations to log. cuda_graphs: records steps as CUDA graphs where that is
    possible, see `StepGraphs`.
    """

    def __init__(
        self,
        *,
        model: EncoderDecoder,
        loss: Loss,
        optimizer: OptimizerFactory,
        schedule: Callable[[int], float],
        skipped: SkippedSteps,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        bleu_tokenizer: str,
        samples: int,
        seed: int,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.optimizer_factory = optimizer
        self.schedule = schedule
        self.skipped = skipped
        self.translator = translator
        self.sources = list(sources)
        self.references = list(references)
        self.bleu_tokenizer = bleu_tokenizer
        self.samples = samples
        self.seed = seed
        self.cuda_graphs = cuda_graphs
        self.graphs: StepGraphs | None = None  # None outside of training, and where steps are not recorded
        # Pairs, tokens of a source and of a target; None outside of a batch.
        self.batch_shape: tuple[int, int, int] | None = None
        self._parts_of_step: list[tuple[Tensor, Tensor]] = []  # loss and rows of each micro-batch
        self._logged: list[Tensor] = []  # likelihood of each, in a step that is logged
        self._recent: Tensor | float = 0.0  # likelihood and target tokens since `recent_loss` was asked [2]
        self.rate = 0.0  # the learning rate of the last optimizer step
        self._valid_sums: list[Tensor] = []
        self._rates: list[float] = []  # of each parameter group, in the config
        self._leaves_out_layers = any(isinstance(part, LayerDropout) and part.p > 0 for part in model.modules())

    def configure_optimizers(self) -> dict[str, Any]:  # type: ignore[override]
        optimizer = self.optimizer_factory(parameter_groups(self.model, self.optimizer_factory))
        # Of a plain function nothing goes into a checkpoint: the schedule is the config's, also of a resumed run.
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.schedule(step))
        self._rates = [float(rate) for rate in scheduler.base_lrs]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        # A checkpoint holds rates of its own: those of its groups, and what its schedule made of them for this step.
        (config,) = self.trainer.lr_scheduler_configs
        config.scheduler.base_lrs = [*self._rates]
        for group, rate in zip(self.trainer.optimizers[0].param_groups, self._rates, strict=True):
            group["lr"] = rate * self.schedule(self.trainer.global_step)
        # Not with several processes, whose gradients are exchanged by hooks, nor where layers are left out at random.
        alone = isinstance(self.trainer.strategy, SingleDeviceStrategy) and self.device.type == "cuda"
        whole = isinstance(self.model, Transformer) and not self._leaves_out_layers
        if self.cuda_graphs and alone and whole:
            self.graphs = StepGraphs(self._losses, self.model)
            logger.info("steps are recorded as CUDA graphs (cuda_graphs=false: they are not)")

    def on_train_end(self) -> None:
        self.graphs = None  # and their memory

    def optimizer_step(  # type: ignore[override]
        self, epoch: int, batch_idx: int, optimizer: LightningOptimizer, optimizer_closure: Callable[[], Any]
    ) -> None:
        optimizer_closure()  # forward and backward: whether the gradients are finite is known before the step
        # Lightning's own refuses a fused optimizer in all mixed precision; only float16 has scaled gradients to beware.
        own: Any = optimizer.optimizer
        clip = self.trainer.gradient_clip_val or math.inf
        here = self._all_parameters[0].device.type in SYNCHRONOUS
        skips_itself = not here and getattr(own, "_step_supports_amp_scaling", False)
        recorded = self.graphs if skips_itself else None
        self.rate = rate = optimizer.param_groups[0]["lr"]
        norm = recorded.step(own, clip) if recorded else torch.nn.utils.clip_grad_norm_(self._all_parameters, clip)
        step = Step(self.trainer.global_step + 1, rate, norm, self._parts_of_step)
        self._parts_of_step, self._logged = [], []
        if skips_itself:
            # The device itself leaves its weights as they are: to ask it here would make the processor wait for it.
            self.skipped.settle()
            self.skipped.expect(step, self._train_source)
            if not recorded:
                skip_if_not_finite(own, step.norm)
                optimizer.step()
        elif not self.skipped.skips(step, self._train_source):
            optimizer.step()

    @cached_property
    def _all_parameters(self) -> list[nn.Parameter]:
        """They are collected once: in each step that would take a millisecond."""
        return list(self.parameters())

    def configure_gradient_clipping(self, *arguments: Any, **keywords: Any) -> None:
        """Nothing is left to do: they are clipped before the step."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped_steps"] = self.skipped.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if "skipped_steps" in checkpoint:  # not in those of an earlier version
            self.skipped.load_state_dict(checkpoint["skipped_steps"])

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch.to(device, non_blocking=True)  # Lightning's own would wait for it

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.batch_shape = shape_of(batch)
        # Dropout as a function of (seed, position, rank): a resumed run continues exactly as if never stopped,
        # and no generator state has to be saved for it.
        seed_everything_at(self.seed, 1 + batch_idx, self.global_rank, device=self.device)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        objective = self.loss.at(self.trainer.global_step)
        if self.graphs is None:
            loss, likelihood = self._losses(batch, objective)
            mean = loss / batch.step_tokens
        else:
            adds = batch_idx % self.trainer.accumulate_grad_batches > 0
            loss, likelihood, mean = self.graphs(batch, objective, 1 / batch.step_tokens, adds)
        # The step at which Lightning writes to the loggers.
        if (self.trainer.global_step + 1) % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            # Of the whole step, as the gradient is: all ranks, and all micro-batches, the last of which logs last.
            self._logged.append(likelihood.detach().clone())  # a graph writes the next one into the same memory
            ranks = self.trainer.world_size
            whole = torch.stack(self._logged).sum() / batch.step_tokens * ranks
            self.log("train/loss", whole, sync_dist=ranks > 1)
            self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"])
        tokens = batch.step_tokens / (self.trainer.world_size * self.trainer.accumulate_grad_batches)
        own = torch.stack([likelihood.detach(), torch.full_like(likelihood, tokens)])
        self._recent = self._recent + own.where(own.isfinite().all(), 0)
        self._parts_of_step.append((loss.detach().clone(), batch.rows))
        # DDP takes the mean over ranks and Lightning the mean over micro-batches; both want the sum here.
        return mean * (self.trainer.world_size * self.trainer.accumulate_grad_batches)

    def recent_loss(self) -> float:
        """Mean negative log-likelihood of a target token since the last call, in the batches of this process; nan where
        there were none."""
        nats, tokens = self._recent.tolist() if isinstance(self._recent, Tensor) else (0.0, 0.0)
        self._recent = 0.0
        return nats / tokens if tokens else math.nan

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.batch_shape = shape_of(batch)
        _, likelihood = self._with_room(lambda: self._losses(batch, LIKELIHOOD))
        exact = torch.float32 if likelihood.device.type == "mps" else torch.float64  # which Apple's GPUs don't have
        likelihood = likelihood.to(exact)
        self._valid_sums.append(torch.stack([likelihood, torch.full_like(likelihood, len(batch.real))]))

    def on_validation_epoch_end(self) -> None:
        sums = torch.stack(self._valid_sums).sum(dim=0)
        self._valid_sums, self.batch_shape = [], None
        if self.trainer.world_size > 1:
            dist.all_reduce(sums)
        loss = (sums[0] / sums[1]).item()
        hypotheses = self._with_room(self._translate_shared)
        bleu = self.bleu(hypotheses)
        # The same figures on every rank: callbacks that stop training must agree.
        self.log_dict({"valid/loss": loss, "valid/ppl": perplexity(loss), "valid/bleu": bleu}, sync_dist=False)
        if self.trainer.is_global_zero:
            logger.info(
                "step %d: validation loss %.3f, perplexity %.2f, BLEU %.2f (greedy)",
                self.trainer.global_step,
                loss,
                perplexity(loss),
                bleu,
            )
            for row in random.Random(self.seed).sample(range(len(self.sources)), min(self.samples, len(self.sources))):
                logger.info(
                    "   source     %s\n   reference  %s\n   model      %s",
                    self.sources[row],
                    self.references[row],
                    hypotheses[row],
                )

    def _with_room(self, work: Callable[[], Result]) -> Result:
        """What `work` computes, in the memory of the graphs where it needs that."""
        try:
            return work()
        except RuntimeError as error:
            if self.graphs is None or refused_memory(error) is None:
                raise
        self.graphs.release()  # out of the reach of the error, which holds what `work` has allocated
        return work()

    def _train_source(self, row: int) -> str:
        source: str = self.trainer.datamodule.data["train"][row]["source"]  # type: ignore[attr-defined]
        return source

    def bleu(self, hypotheses: Sequence[str]) -> float:
        """BLEU of translations of the validation sentences."""
        return METRICS["bleu"].score(hypotheses, self.references, self.bleu_tokenizer).value

    def _losses(self, batch: Batch, loss: Loss) -> tuple[Tensor, Tensor]:
        # Layers are left out for a whole batch, so passes that shall differ in them are batches of their own.
        batches = loss.passes if self._leaves_out_layers else 1
        mask = batch.source_mask if batch.has_padding else None
        inputs = [
            None if tensor is None else tensor.repeat(loss.passes // batches, 1)
            for tensor in (batch.source, mask, batch.target_in)
        ]
        whole = [len(batch.source), 0]  # rows of each batch whose tokens are never cut
        parts = [self._hidden(inputs, loss.p_cut, rows) for rows in whole[:batches]]
        hidden = parts[0] if batches == 1 else torch.cat(parts)  # which copies even a single one
        real, labels = batch.real, batch.target_out.flatten().index_select(0, batch.real)
        if loss.passes > 1:
            places = batch.target_out.numel()
            real, labels = torch.cat([real + places * each for each in range(loss.passes)]), labels.repeat(loss.passes)
        tokens = hidden.flatten(0, 1).index_select(0, real)
        if batch.counted is not None:
            counted = batch.counted.repeat(loss.passes)
            labels, tokens = labels.masked_fill(~counted, IGNORED), tokens * counted[:, None]
        return loss(tokens, self.model.output.weight, labels, self.model.output.cap)

    def _hidden(self, inputs: Sequence[Tensor | None], p_cut: float, whole: int) -> Tensor:
        """Decoder output; all rows but the first `whole` ones lack the embedding of a token with probability p_cut."""
        with token_cutoff(self.model, p_cut, whole):
            return self.model(*inputs)

    def _translate_shared(self) -> list[str]:
        """The validation sentences translated, each rank its share, all on every rank."""
        world, rank = self.trainer.world_size, self.trainer.global_rank
        share = self.translator.translate(self.sources[rank::world])
        if world == 1:
            return share
        shares: list[list[str]] = [[] for _ in range(world)]
        dist.all_gather_object(shares, share)
        return [shares[row % world][row // world] for row in range(len(self.sources))]


def shape_of(batch: Batch) -> tuple[int, int, int]:
    """Sentence pairs of a batch, and tokens of each source and of each target, with padding."""
    return (*batch.source.shape, batch.target_in.shape[1])


def parameter_groups(model: EncoderDecoder, optimizer: OptimizerFactory) -> list[dict[str, Any]]:
    """Parameter groups: matrices, then all others, without weight decay. For an optimizer that is `hidden_apart`, the
    matrices of hidden layers (of every linear layer but the output) come first, in a group marked "hidden"."""
    # Weight decay pulls matrices to zero; on biases and norms it would only fight their purpose, and on positions and
    # what scores have of their own, such as a matrix that begins as the identity.
    layers = [part for part in model.modules() if isinstance(part, nn.Linear | nn.Embedding | nn.RNNBase)]
    of_layers = {id(p) for part in layers for p in part.parameters(recurse=False) if p.dim() == 2}
    matrices, rest = ([p for p in model.parameters() if (id(p) in of_layers) == inside] for inside in (True, False))
    others = {"params": rest, "weight_decay": 0.0}
    if not getattr(getattr(optimizer, "func", optimizer), "hidden_apart", False):
        return [{"params": matrices}, others]
    linear = [part for part in model.modules() if isinstance(part, nn.Linear) and part is not model.output]
    of_linear = {id(part.weight) for part in linear}
    hidden, rest = ([p for p in matrices if (id(p) in of_linear) == inside] for inside in (True, False))
    return [{"params": hidden, "hidden": True}, {"params": rest}, others]


def seed_everything_at(*numbers: int, device: torch.device | None = None) -> None:
    """Seed torch's generators with a mix of the numbers; device: only those of the CPU and of this device: for
    every other kind of device, torch would write down the call stack, half a millisecond in all or more."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    if device is None:
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
