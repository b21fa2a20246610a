"""headcount itself, measured as scripts/train.py and scripts/translate.py use it."""

import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from measure import EOS, Meter, decode_batches, endless, read_job, report
from omegaconf import DictConfig

from headcount.decoding.translator import Search
from headcount.run.config import build, register_resolvers
from headcount.run.directory import codec_for, make_translator
from headcount.run.script import CONF, set_up_logging
from headcount.run.train import Parts, build_parts, greedy
from headcount.training.callbacks import LastCheckpoint
from headcount.training.module import TranslationTask, seed_everything_at

PACKAGES = ("headcount", "torch", "pytorch-lightning")
ENDLESS = 10**9


class Stop(pl.Callback):
    """Tells the meter of each optimizer step, and ends training when the window is over."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.meter.step(batch.tokens)
        trainer.should_stop = self.meter.done


def main() -> None:
    begin = time.perf_counter()
    job = read_job()
    torch.set_num_threads(job["threads"])
    set_up_logging()
    logging.getLogger("headcount").setLevel(logging.WARNING)
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(
            "train",
            [
                *job["overrides"],
                f"model={job['model']['name']}",
                "trainer=cpu",
                f"trainer.precision={job['precision']}",
                f"trainer.max_steps={1 if job['work'] == 'start' else ENDLESS}",
                f"validation.every={ENDLESS}",
                "+trainer.limit_val_batches=0",
            ],
        )
    with tempfile.TemporaryDirectory() as folder:
        work = {"train": train, "lightning": bare_loop, "start": start, "decode": decode}[job["work"]]
        result, precision = work(job, config, Path(folder), begin)
    report(result, precision, PACKAGES)


def set_up(job: dict[str, Any], config: DictConfig, folder: Path) -> tuple[Parts, TranslationTask]:
    """What scripts/train.py builds, but for the saving at the end."""
    parts = build_parts(config, folder)
    parts.trainer.callbacks = [each for each in parts.trainer.callbacks if not isinstance(each, LastCheckpoint)]
    parts.data.prepare_data()
    seed_everything_at(config.seed, 0)
    model = build(config.model, "model", vocab_size=job["vocab_size"])
    valid = parts.data.data["valid"]
    task = TranslationTask(
        model=model,
        translator=make_translator(model, codec_for(config, parts.data.tokenizer), greedy(parts.search)),
        sources=valid["source"],
        references=valid["target"],
        seed=config.seed,
        **parts.task,
    )
    return parts, task


def precision_of(parts: Parts) -> str:
    return parts.precision.partition(",")[0]


def train(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    parts, task = set_up(job, config, folder)
    meter = Meter(job)
    parts.trainer.callbacks.append(Stop(meter))
    parts.trainer.fit(task, datamodule=parts.data)
    return meter.result(), precision_of(parts)


def bare_loop(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """The same steps without Lightning around them."""
    parts, task = set_up(job, config, folder)
    task.trainer = parts.trainer  # of which a step asks only a few numbers
    plugin = parts.trainer.precision_plugin
    plugin.convert_module(task)
    built = task.configure_optimizers()
    optimizer, schedule = built["optimizer"], built["lr_scheduler"]["scheduler"]
    parameters = list(task.parameters())
    task.train()
    meter = Meter(job)
    for index, batch in enumerate(parts.data.train_dataloader()):
        task.on_train_batch_start(batch, index)
        with plugin.train_step_context():
            loss = task.training_step(batch, index)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.trainer.gradient_clip_val)
        optimizer.step()
        schedule.step()
        meter.step(batch.tokens)
        if meter.done:
            break
    return meter.result(), precision_of(parts)


def start(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    """Seconds from the end of Python's imports to the end of the first optimizer step."""
    parts, task = set_up(job, config, folder)
    meter = Meter(job)
    parts.trainer.callbacks.append(Stop(meter))
    parts.trainer.fit(task, datamodule=parts.data)
    return {"rate": meter.times[0] - begin}, precision_of(parts)


class Numbers:
    """A codec whose texts are piece numbers. Whatever is translated must have the length that was asked for."""

    def __init__(self, length: int) -> None:
        self.length = length

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[int(number) for number in text.split()] for text in texts]

    def decode(self, ids: list[list[int]]) -> list[str]:
        if any(len(row) != self.length for row in ids):
            raise SystemExit(f"translations of {sorted({len(row) for row in ids})} tokens, not {self.length}")
        return [" ".join(map(str, row)) for row in ids]


def decode(job: dict[str, Any], config: DictConfig, folder: Path, begin: float) -> tuple[dict[str, Any], str]:
    seed_everything_at(config.seed, 0)
    model = build(config.model, "model", vocab_size=job["vocab_size"]).eval()
    with torch.no_grad():
        model.output.weight[EOS] = 0  # so that its end is never among a step's best, before the limit makes it the only
    length = job["new_tokens"] - 1  # and then the end
    search = Search(beam=job["beam"], max_ratio=0, max_extra=length, batch_tokens=ENDLESS)
    translator = make_translator(model, Numbers(length), search)
    batches = [[" ".join(map(str, row)) for row in batch] for batch in decode_batches(job)]
    meter = Meter(job)
    for lines in endless(batches):
        translator.translate(lines)
        meter.step(len(lines))
        if meter.done:
            break
    return meter.result(), {torch.float32: "32-true", torch.bfloat16: "bf16-true"}[model.output.weight.dtype]


if __name__ == "__main__":
    main()
