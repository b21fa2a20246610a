"""Time that a save takes from training, beside a step: of the checkpoint, and of weights to be averaged.

    STEPS=200 python tests/reliability/saving.py [setting ...]

Two models are trained on one thread: that of the built-in corpus, and that of the recipe multi30k_en_de, with 10,000
pieces and batches of its size. STEPS: of each, with both saves every tenth. The exit code is 1 where both saves of a
step take longer than a step, by the medians.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig

from headcount.cli import run_script
from headcount.run.build import Parts
from headcount.run.train import train
from headcount.training.averaging import CheckpointAverage
from headcount.training.callbacks import LastCheckpoint

STEPS, EVERY, WARM_UP = int(os.environ.get("STEPS", "200")), 10, 10
COMMON = (
    "trainer=cpu",
    "threads=1",
    "logger=none",
    f"steps={STEPS}",
    f"validation.every={STEPS}",
    f"checkpoint.every={EVERY}",
    f"averaging.every={EVERY}",
    "data.valid_size=16",
    "data.test_size=16",
    "search=greedy",
)
MULTI30K = ("model.positions=rotary", "model.feed_forward=swiglu", "model.dropout=0.3", "data.batch_tokens=4096")
MODELS = {"built-in corpus": ((), 0), "Multi30k": (MULTI30K, 10_000)}  # settings, and pieces, 0 for those of the text


class MorePieces:
    """A tokenizer with a vocabulary of `vocab_size`, of which text needs only those it has itself."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


class Clock(pl.Callback):
    """Milliseconds of each step without a save, and of each save."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {"step": [], "checkpoint": [], "weights": []}
        self._begun = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
        now, done = time.perf_counter(), trainer.global_step
        # Step 11, 21, ... begins with a checkpoint, and step 10, 20, ... ends with the weights.
        if done > WARM_UP and done % EVERY > 1:
            self.took["step"].append(1000 * (now - self._begun))
        self._begun = now

    def timed(self, name: str, save: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: Any) -> Any:
            begin = time.perf_counter()
            answer = save(*arguments)
            self.took[name].append(1000 * (time.perf_counter() - begin))
            return answer

        return method

    def median(self, name: str) -> float:
        return statistics.median(self.took[name])


def measure(words: tuple[str, ...], pieces: int, folder: Path) -> Clock:
    """Train in a folder, and take the times."""
    clock = Clock()
    save, snapshot = LastCheckpoint.save, CheckpointAverage._snapshot
    LastCheckpoint.save = clock.timed("checkpoint", save)  # type: ignore[method-assign]
    CheckpointAverage._snapshot = clock.timed("weights", snapshot)  # type: ignore[method-assign]

    def adapt(parts: Parts) -> None:
        trainer: Any = parts.trainer
        trainer.callbacks.insert(0, clock)
        parts.data.prepare_data()
        if pieces:
            tokenizer: Any = MorePieces(parts.data.tokenizer, pieces)
            parts.data.tokenizer = tokenizer

    def run(config: DictConfig) -> None:
        train(config, folder / "run", adapt)

    sys.argv = ["train.py", *COMMON, *words, f"data.directory={folder}/data", f"hydra.run.dir={folder}/run"]
    try:
        run_script("train", run)
    finally:
        LastCheckpoint.save, CheckpointAverage._snapshot = save, snapshot  # type: ignore[method-assign]
    return clock


def main() -> None:
    given, longer = tuple(sys.argv[1:]), False
    sys.stdout.write(f"{'milliseconds, median (longest)':31}{'step':>16}{'checkpoint':>16}{'weights':>16}\n")
    for name, (words, pieces) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            clock = measure((*words, *given), pieces, Path(folder))
        figures = [f"{clock.median(each):.1f} ({max(took):.1f})" for each, took in clock.took.items()]
        sys.stdout.write(f"{name:31}" + "".join(f"{each:>16}" for each in figures) + "\n")
        longer |= clock.median("checkpoint") + clock.median("weights") > clock.median("step")
    sys.exit(longer)


if __name__ == "__main__":
    main()
