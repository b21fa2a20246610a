"""The Lightning module: a training step, and a validation that translates."""

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor

from headcount.data.batches import Batch
from headcount.decoding.translator import Translator
from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.training.callbacks import SkippedSteps
from headcount.training.loss import LabelSmoothing, token_cutoff
from headcount.training.optimizers import parameter_groups

logger = logging.getLogger(__name__)

LIKELIHOOD = LabelSmoothing(smoothing=0)  # validation uses only its likelihood


class TranslationTask(pl.LightningModule):
    """Trains `model` on `Batch`es.

    The loss of a micro-batch is the sum over its target tokens divided by the target tokens of the whole optimizer step
    (`Batch.step_tokens`: all ranks, all micro-batches), so that one process and many follow the same gradient.

    optimizer: builds the optimizer from parameter groups. schedule: factor on its rate by step. translator: translates
    the validation sentences with the present weights. sources and references: those sentences, as text. bleu_tokenizer:
    sacrebleu's name of the tokenizer for their BLEU. samples: how many of their translations to log.
    """

    def __init__(
        self,
        *,
        model: EncoderDecoder,
        loss: LabelSmoothing,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        schedule: Callable[[int], float],
        skipped: SkippedSteps,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        bleu_tokenizer: str,
        samples: int,
        seed: int,
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
        self.rate = 0.0  # the learning rate of the last optimizer step
        self._weights = list(model.parameters())  # once: in each step that would take a millisecond
        self._of_step: list[Tensor] = []  # likelihood of each micro-batch, divided by the tokens of the step
        self._recent: Tensor | float = 0.0  # likelihood and target tokens since `recent_loss` was asked [2]
        self._valid_sums: list[Tensor] = []

    def configure_optimizers(self) -> dict[str, Any]:  # type: ignore[override]
        optimizer = self.optimizer_factory(parameter_groups(self.model, self.optimizer_factory))
        # A plain function leaves nothing in a checkpoint: the schedule is the config's, also of a resumed run.
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.schedule(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        # A checkpoint holds the rate that its own schedule, of another length perhaps, had for this step.
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = group["initial_lr"] * self.schedule(self.trainer.global_step)

    def optimizer_step(  # type: ignore[override]
        self, epoch: int, batch_idx: int, optimizer: LightningOptimizer, optimizer_closure: Callable[[], Any]
    ) -> None:
        optimizer_closure()  # forward and backward: whether the gradients are finite is known before the step
        # Lightning's own refuses a fused optimizer in all mixed precision; only float16 has scaled gradients to beware.
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self.trainer.gradient_clip_val or math.inf)
        self.rate = optimizer.param_groups[0]["lr"]
        loss, step, self._of_step = torch.stack(self._of_step).sum(), self.trainer.global_step, []
        if (step + 1) % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            whole = self.trainer.strategy.reduce(loss, reduce_op="sum") if self.trainer.world_size > 1 else loss
            self._write({"train/loss": whole, "train/lr": self.rate}, step)
        if not self.skipped.skips(step + 1, loss, float(norm), self.rate):
            optimizer.step()

    def _write(self, figures: dict[str, Any], step: int) -> None:
        """Write a row of the learning curves; Lightning would do so after the checkpoint of the step."""
        for curves in self.loggers:
            curves.log_metrics(figures, step)

    def configure_gradient_clipping(self, *arguments: Any, **keywords: Any) -> None:
        """Nothing is left to do: they are clipped before the step."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped_steps"] = self.skipped.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped.load_state_dict(checkpoint["skipped_steps"])

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch.to(device, non_blocking=True)  # Lightning's own would wait for it

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout follows from seed, position and rank, so a resumed run needs no state of a generator.
        seed_everything_at(self.seed, 1 + batch_idx, self.global_rank, device=self.device)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        parts = self.trainer.world_size * self.trainer.accumulate_grad_batches
        loss, likelihood = self._losses(batch, self.loss.at(self.trainer.global_step))
        likelihood = likelihood.detach()
        self._of_step.append(likelihood / batch.step_tokens)
        own = torch.stack([likelihood, torch.full_like(likelihood, batch.step_tokens / parts)])
        self._recent = self._recent + own.where(own.isfinite().all(), 0)
        # DDP takes the mean over ranks and Lightning the mean over micro-batches; both want the sum here.
        return loss / batch.step_tokens * parts

    def recent_loss(self) -> float:
        """Mean negative log-likelihood of a target token since the last call, in this process; nan without one."""
        nats, tokens = self._recent.tolist() if isinstance(self._recent, Tensor) else (0.0, 0.0)
        self._recent = 0.0
        return nats / tokens if tokens else math.nan

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        _, likelihood = self._losses(batch, LIKELIHOOD)
        likelihood = likelihood.to(torch.float32 if likelihood.device.type == "mps" else torch.float64)
        self._valid_sums.append(torch.stack([likelihood, torch.full_like(likelihood, len(batch.real))]))

    def on_validation_epoch_end(self) -> None:
        sums = torch.stack(self._valid_sums).sum(dim=0)
        self._valid_sums = []
        if self.trainer.world_size > 1:
            dist.all_reduce(sums)
        loss, step = (sums[0] / sums[1]).item(), self.trainer.global_step
        hypotheses = self._translate_shared()
        figures = {"valid/loss": loss, "valid/ppl": perplexity(loss), "valid/bleu": self.bleu(hypotheses)}
        self.log_dict(figures, logger=False)  # the same on every rank: callbacks that stop training must agree
        self._write(figures, step - 1)
        if self.trainer.is_global_zero:
            line = "step %d: validation loss %.3f, perplexity %.2f, BLEU %.2f (greedy)"
            logger.info(line, step, *figures.values())
            for row in random.Random(self.seed).sample(range(len(self.sources)), min(self.samples, len(self.sources))):
                texts = self.sources[row], self.references[row], hypotheses[row]
                logger.info("   source     %s\n   reference  %s\n   model      %s", *texts)

    def bleu(self, hypotheses: Sequence[str]) -> float:
        """BLEU of translations of the validation sentences."""
        return METRICS["bleu"].score(hypotheses, self.references, self.bleu_tokenizer).value

    def _losses(self, batch: Batch, loss: LabelSmoothing) -> tuple[Tensor, Tensor]:
        """The objective of a batch and its negative log-likelihood, each summed over target tokens."""
        inputs = batch.source, batch.source_mask if batch.has_padding else None, batch.target_in
        hidden = self.model(*inputs).flatten(0, 1).index_select(0, batch.real)
        if loss.passes > 1:
            with token_cutoff(self.model, loss.p_cut):
                again = self.model(*inputs).flatten(0, 1).index_select(0, batch.real)
            hidden = torch.cat([hidden, again])
        labels = batch.target_out.flatten().index_select(0, batch.real)
        return loss(hidden, self.model.output.weight, labels, self.model.output.cap)

    def _translate_shared(self) -> list[str]:
        """The validation sentences translated, each rank its share, all on every rank."""
        world, rank = self.trainer.world_size, self.trainer.global_rank
        shares = [self.translator.translate(self.sources[rank::world])] * world
        if world > 1:
            dist.all_gather_object(shares, shares[rank])
        return [shares[row % world][row // world] for row in range(len(self.sources))]


def seed_everything_at(*numbers: int, device: torch.device) -> None:
    """Seed torch's generators of the CPU and of `device` with a mix of the numbers: to seed all takes much longer."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
