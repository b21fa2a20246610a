"""headcount itself: its own training, with a meter as a callback, and its own translator."""

import contextlib
import logging
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from measure import (
    BOS,
    EOS,
    PAD,
    Meter,
    WindowOverError,
    decode_batches,
    endless,
    peak_memory,
    read_job,
    report,
    several,
)
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from headcount.data.plan import Epochs
from headcount.decoding.translator import Translator
from headcount.machine import use_faster_products, use_memory_again
from headcount.model.attention import ScaledDotProduct, SoftmaxAttention
from headcount.model.dropout import Dropout
from headcount.model.encoder_decoder import soft_capped
from headcount.run.config import build, build_data
from headcount.run.console import set_up_logging
from headcount.run.parts import Parts
from headcount.run.place import CONF
from headcount.run.resolvers import register_resolvers
from headcount.run.train import train as train_run
from headcount.training.callbacks import LastCheckpoint
from headcount.training.loss import LabelSmoothing
from headcount.training.module import seed_everything_at

PACKAGES = ("headcount", "torch", "pytorch-lightning")
ENDLESS = 10**9


class StepCounter(pl.Callback):
    """Counts each optimizer step, and leaves training when the window is over.

    bare: `bare_loop` makes the steps instead of Lightning.
    """

    def __init__(self, meter: Meter, bare: bool) -> None:
        self.meter = meter
        self.bare = bare

    def on_train_start(self, trainer: Any, task: Any) -> None:
        if self.bare:
            bare_loop(trainer, task, self.meter)
            raise WindowOverError

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.meter.step(batch.tokens)
        if self.meter.done:
            raise WindowOverError


class OnRequest(pl.Callback):
    """Makes as many steps as a line of standard input says, reports them and waits for the next line; leaves training
    at the end of the input."""

    def __init__(self, report_steps: Callable[[dict[str, Any]], None]) -> None:
        self.report_steps = report_steps
        self.steps = self.left = 0

    def on_train_batch_start(self, trainer: Any, task: Any, batch: Any, batch_idx: int) -> None:
        if not self.left:
            if not (line := sys.stdin.readline()):
                raise WindowOverError
            self.steps = self.left = int(line)
            self.tokens, self.begin = 0, time.perf_counter()

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.tokens += batch.tokens
        self.left -= 1
        if not self.left:
            seconds = time.perf_counter() - self.begin
            self.report_steps({"rate": self.tokens / seconds, "seconds": seconds, "steps": self.steps})


class PaddedVocabulary:
    """A tokenizer with a larger `vocab_size` than its own, so that everybody's model has the same output layer."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def train(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """Train as scripts/train.py does until the window is over, without saving checkpoints (nobody saves any)."""
    first_step = job["work"] == "start"
    meter = Meter({"warmup": 0, "seconds": 0, "least": (1, 0)} if first_step else job)

    counter = StepCounter(meter, job["work"] == "lightning")
    precision = train_until_over(config, folder, lambda parts: with_job(parts, job, counter))
    return {"rate": meter.times[0] - begin} if first_step else meter.result(), precision


def with_job(parts: Parts, job: dict[str, Any], callback: pl.Callback) -> None:
    """Add a callback, and take out what the others do not do either: checkpoints, and a vocabulary of another size."""
    trainer: Any = parts.trainer
    trainer.callbacks = [each for each in trainer.callbacks if not isinstance(each, LastCheckpoint)]
    trainer.callbacks.append(callback)
    parts.data.prepare_data()
    tokenizer: Any = PaddedVocabulary(parts.data.tokenizer, job["vocab_size"])
    parts.data.tokenizer = tokenizer


def train_until_over(config: DictConfig, folder: Path, adapt: Callable[[Parts], None]) -> str:
    """Train with the parts as `adapt` changes them, until a callback raises WindowOverError; returns the precision."""
    precision = ""

    def adapted(parts: Parts) -> None:
        nonlocal precision
        precision = parts.precision.partition(",")[0]
        adapt(parts)

    with contextlib.suppress(WindowOverError):
        train_run(config, folder / "run", adapted)
    return precision


def bare_loop(trainer: Any, task: Any, meter: Meter) -> None:
    """The same training steps without Lightning."""
    (optimizer,), (schedule,) = trainer.optimizers, trainer.lr_scheduler_configs
    parameters = list(task.parameters())
    for index, batch in enumerate(trainer.datamodule.train_dataloader()):
        task.on_train_batch_start(batch, index)
        with trainer.precision_plugin.train_step_context():
            loss = task.training_step(batch, index)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, trainer.gradient_clip_val)
        optimizer.step()
        schedule.scheduler.step()
        meter.step(batch.tokens)
        if meter.done:
            return


def rows(job: dict[str, Any], config: DictConfig, folder: Path) -> None:
    """Train as `train` does, a few steps whenever it is asked to."""

    def adapt(parts: Parts) -> None:
        precision = parts.precision.partition(",")[0]
        with_job(parts, job, OnRequest(lambda result: report(result, precision, PACKAGES, job["device"])))

    train_until_over(config, folder, adapt)


class TokenIds:
    """A codec whose texts are token ids. Every translation must have `length` tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[int(number) for number in text.split()] for text in texts]

    def decode(self, ids: list[list[int]]) -> list[str]:
        if any(len(row) != self.length for row in ids):
            raise SystemExit(f"translations of {sorted({len(row) for row in ids})} tokens, not {self.length}")
        return [" ".join(map(str, row)) for row in ids]


class FixedBatches(Translator):
    """Searches the lines in the order given, `size` at once: everybody translates the same batches."""

    size: int

    def _batches(self, tokens: list[int]) -> Iterator[list[int]]:
        rows = list(range(len(tokens)))
        return (rows[start : start + self.size] for start in range(0, len(rows), self.size))


def decode(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """The translator of scripts/translate.py, with random weights."""
    seed_everything_at(config.seed, 0)
    model = build(config.model, "model", vocab_size=job["vocab_size"])
    with torch.no_grad():
        model.output.weight[EOS] = 0  # so that the end is never among the best, until the limit leaves nothing else
    model.to(job["device"], getattr(torch, job["precision"])).eval()
    length = job["new_tokens"] - 1  # and then the end
    settings = {"beam": job["beam"], "max_ratio": 0.0, "max_extra": length, "batch_tokens": ENDLESS}
    search = build(OmegaConf.merge(config.search, settings), "search")
    translator = FixedBatches(model, TokenIds(length), search, (PAD, BOS, EOS))
    translator.size = job["decode_batch"]
    # Several batches at once, as from a file.
    parts = [[" ".join(map(str, row)) for row in part] for part in several(decode_batches(job))]
    return Meter(job).measure(endless(parts), lambda lines: len(translator.translate(lines))), job["precision"]


# Parts of a training step by torch's operators, forward and backward; a name with * stands for all that begin so.
PARTS = {
    "products of linear layers": ("mm", "addmm", "linear", "mkldnn_linear*", "addmv*"),
    "products of attention": ("bmm", "baddbmm"),
    "softmax": ("_softmax*", "_log_softmax*"),
    "layer norms": ("native_layer_norm*", "_fused_rms_norm*"),
    "dropout masks": ("random_", "bernoulli*", "ge", "lt"),
    "copies and casts": ("copy_", "cat", "fill_", "index*", "embedding*"),
    "operations by element": ("add*", "sub*", "mul*", "div*", "sum", "neg", "clamp*", "threshold*", "silu*"),
    "optimizer and clipping": ("_fused*", "_foreach*", "linalg_vector_norm", "_amp*"),
}
OTHER, OUTSIDE = "other operators", "Python and autograd, between operators"


def part_of(operator: str) -> str:
    """The part of a training step that an operator of torch belongs to, such as "softmax" for aten::_softmax."""
    name = operator.removeprefix("aten::")
    if name == operator:
        return OUTSIDE
    return next((part for part, patterns in PARTS.items() if any(fnmatch(name, each) for each in patterns)), OTHER)


class StepProfiler(pl.Callback):
    """Profiles every second step of the window, one at a time: over many steps, the profiler's own records would lie
    between the tensors of a step, and the memory that is freed could not be used again."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.steps: list[float] = []
        self.parts: dict[str, float] = defaultdict(float)
        self.profiler: Any = None

    def on_train_batch_start(self, trainer: Any, task: Any, batch: Any, batch_idx: int) -> None:
        if self.meter.first is not None and batch_idx % 2:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profiler.start()
            self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.profiler is not None:
            self.steps.append(1e3 * (time.perf_counter() - self.begin))
            self.profiler.stop()
            inside = 0.0
            for event in self.profiler.events():
                if (part := part_of(event.name)) != OUTSIDE:
                    self.parts[part] += event.self_cpu_time_total / 1e3
                    inside += event.self_cpu_time_total / 1e3
            self.parts[OUTSIDE] += self.steps[-1] - inside
            self.profiler = None
        self.meter.step(batch.tokens)
        if self.meter.done and self.steps:
            raise WindowOverError


def profile(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """Milliseconds of a training step, and of its parts."""
    profiler = StepProfiler(Meter(job))
    precision = train_until_over(config, folder, lambda parts: with_job(parts, job, profiler))
    count = len(profiler.steps)
    milliseconds = {part: profiler.parts[part] / count for part in (*PARTS, OTHER, OUTSIDE)}
    return {"rate": sum(profiler.steps) / count, "parts": milliseconds}, precision


def prepare(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """Seconds for preparing text files, without a cache."""
    data = build_data(config)
    start = time.perf_counter()
    data.prepare_data()
    return {"rate": time.perf_counter() - start, "kept": len(data.data["train"])}, "none"


def plan(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """Seconds to plan an epoch and to write it for other processes, and the memory that this adds.

    Its pairs have the lengths of the corpus, repeated.
    """
    arrays = np.load(job["arrays"])
    lengths = [np.diff(arrays[f"{side}_offsets"]).astype(np.int32) + 1 for side in ("source", "target")]
    source, target = (np.resize(each, job["pairs"]) for each in lengths)
    epochs = Epochs(source, target, job["batch_tokens"], config.seed, shared=(folder, "epoch"))
    before, start = peak_memory("cpu"), time.perf_counter()
    epochs.plan(0)
    return {"rate": time.perf_counter() - start, "growth": peak_memory("cpu") - before}, "none"


def quality(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """The validation loss at the end of training, with headcount's own operations or with torch's plain ones."""
    final = FinalLoss(job["plain"])

    def with_final_loss(parts: Parts) -> None:
        parts.trainer.callbacks.append(final)  # type: ignore[attr-defined]
        if job["plain"]:
            parts.task["loss"] = PlainLabelSmoothing(smoothing=parts.task["loss"].smoothing)

    precision = train_until_over(config, folder, with_final_loss)
    return {"rate": final.loss}, precision


class FinalLoss(pl.Callback):
    """Computes the validation loss of the trained weights in float32 with plain operations, then leaves training.

    plain: whether the training uses plain operations, too.
    """

    loss: float

    def __init__(self, plain: bool) -> None:
        self.plain = plain

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        if self.plain:
            use_plain_operations(task.model)

    def on_train_end(self, trainer: Any, task: Any) -> None:
        use_plain_operations(task.model)
        task.eval()
        likelihood, loss, tokens = PlainLabelSmoothing(smoothing=0.0), 0.0, 0
        output = task.model.output
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for batch in trainer.datamodule.val_dataloader():
                real = batch.target_out != PAD
                hidden = task.model(batch.source, batch.source_mask, batch.target_in)[real]
                loss += likelihood(hidden, output.weight, batch.target_out[real], output.cap)[1].item()
                tokens += int(real.sum())
        self.loss = loss / tokens
        raise WindowOverError


class PlainLabelSmoothing(LabelSmoothing):
    """Label smoothing by `F.cross_entropy`, over the logits of the whole batch."""

    def __call__(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = hidden @ weight.T if cap is None else soft_capped(hidden @ weight.T, cap)
        smoothed = F.cross_entropy(logits, labels, label_smoothing=self.smoothing, reduction="sum")
        return smoothed, F.cross_entropy(logits, labels, reduction="sum").detach()


class PlainDotProduct(ScaledDotProduct):
    """Scaled dot-product attention as a softmax over all scores."""

    forward = SoftmaxAttention.forward


def use_plain_operations(model: nn.Module) -> None:
    """Let a model's attention and dropout be torch's plain ones."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, nn.Dropout(child.p))
            elif isinstance(child, ScaledDotProduct):
                plain = PlainDotProduct(num_heads=child.num_heads, d_head=child.d_head, dropout=child.dropout)
                setattr(module, name, plain)


def main() -> None:
    begin = time.perf_counter()
    job = read_job()
    set_up_logging()
    use_memory_again()
    use_faster_products()
    logging.getLogger("headcount").setLevel(logging.WARNING)
    register_resolvers()
    with tempfile.TemporaryDirectory() as name, initialize_config_dir(str(CONF), version_base="1.3"):
        changes = [f"data.directory={name}"] if job["work"] == "prepare" else [f"validation.every={ENDLESS}"]
        changes += [f"seed={job['seed']}"] if job["work"] == "quality" else [f"trainer.max_steps={ENDLESS}"]
        training = [f"trainer={'cpu' if job['device'] == 'cpu' else 'gpu'}"]
        training += [f"trainer.precision={job['precision']}"] * (job["work"] != "decode")
        if job["work"] in ("train", "lightning", "profile", "start") and "changes" not in job:
            changes += ["optimizer=adamw"]  # as everybody
        changes += job.get("changes", [])
        config = compose("train", [*job["overrides"], f"model={job['model']['name']}", *training, *changes])
        if job["work"] == "rows":
            rows(job, config, Path(name))
            return
        works = {"decode": decode, "prepare": prepare, "plan": plan, "profile": profile, "quality": quality}
        work = works.get(job["work"], train)
        result, precision = work(job, config, Path(name), begin)
    report(result, precision, PACKAGES, job["device"])


if __name__ == "__main__":
    main()
