"""Joey NMT 2.3: its own training on text files whose words are token ids, its own beam search through `predict`.

It is older than today's Python and torch. The numbered places repair, at run time, what no longer works:

1. It imports `importlib_metadata`, which is part of Python today, and does not require it.
2. Some of its dependencies import `pkg_resources`, which setuptools 81 removed: an older one is installed.
3. It saves a checkpoint whenever training ends; here nothing is saved.
4. It refuses `fp16` on a CPU and has no bfloat16; autocast is switched on inside its trainer.
5. `predict` does not pass `min_output_length` on to the search.
"""

import contextlib
import importlib.metadata
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

sys.modules.setdefault("importlib_metadata", importlib.metadata)  # 1

import joeynmt.prediction  # noqa: E402
import joeynmt.training  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402
from joeynmt.config import parse_global_args  # noqa: E402
from joeynmt.prediction import predict, prepare  # noqa: E402
from joeynmt.training import TrainManager  # noqa: E402
from measure import Job, Meter, Result, WindowOverError, decode_batches, main, read_pairs  # noqa: E402


class Manager(TrainManager):
    """Joey NMT's trainer, with a meter after each optimizer step."""

    def __init__(self, meter: Meter, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.meter = meter
        self.tokens = 0
        self.optimizer.register_step_post_hook(lambda *_: self.count())

    def _train_step(self, batch: Any) -> tuple[float, int]:
        self.tokens = int(batch.src_length.sum()) + int(batch.ntokens)
        return super()._train_step(batch)

    def count(self) -> None:
        self.meter.step(self.tokens)
        if self.meter.done:
            raise WindowOverError

    def _save_checkpoint(self, *_: Any) -> None:  # 3
        pass


def write_text(path: Path, rows: list[list[int]]) -> None:
    path.write_text("".join(" ".join(f"p{number}" for number in row) + "\n" for row in rows), encoding="utf-8")


def write_vocabulary(job: Job, path: Path) -> None:
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    words = special + [f"p{number}" for number in range(len(special), job["vocab_size"])]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def config(job: Job, folder: Path) -> dict[str, Any]:
    """Joey NMT's config for this job, with its files in `folder`."""
    write_vocabulary(job, folder / "vocab.txt")
    sentences = max(1, round(job["batch_tokens"] / job["mean_target"]))
    values = {"folder": folder, "sentences": sentences, "embedding_deviation": job["model"]["d_model"] ** -0.5}
    template = Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    filled: dict[str, Any] = yaml.safe_load(template.substitute(job | job["model"] | values))
    return filled


def autocast(job: Job) -> dict[str, Any]:  # 4
    return {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": job["precision"] == "bf16"}


def train(job: Job, folder: Path) -> Result:
    source, target = read_pairs(job)
    for split, rows in {"train": slice(None), "dev": slice(8)}.items():
        write_text(folder / f"{split}.source", source[rows])
        write_text(folder / f"{split}.target", target[rows])
    meter = Meter(job)
    joeynmt.training.TrainManager = lambda *arguments, **keywords: Manager(
        meter, *arguments, **{**keywords, "autocast": autocast(job)}
    )
    with contextlib.suppress(WindowOverError):
        joeynmt.training.train(0, 1, config(job, folder), skip_test=True)
    return meter.result()


def decode(job: Job, folder: Path) -> Result:
    batches = decode_batches(job)
    size = job["decode_batch"]
    # Full batches only: Joey NMT cuts the text by itself, so a short batch would shift all later ones.
    rows = [row for batch in batches if len(batch) == size for row in batch] or batches[0]
    for name in ("train", "dev"):  # train is not used, dev is translated
        write_text(folder / f"{name}.source", rows)
        write_text(folder / f"{name}.target", rows)
    arguments = parse_global_args(config(job, folder), mode="train")
    model, _, data, _ = prepare(arguments, rank=0, mode="train")  # in every other mode it wants a checkpoint
    data.has_trg = False
    meter = Meter(job)
    search = joeynmt.prediction.search

    def counted(*positional: Any, **keywords: Any) -> Any:  # 5
        output = search(*positional, **keywords, min_output_length=job["new_tokens"])
        sentences, steps = output[0].shape
        if steps != job["new_tokens"]:
            raise SystemExit(f"translations of {steps} tokens, not {job['new_tokens']}")
        meter.step(sentences)
        if meter.done:
            raise WindowOverError
        return output

    joeynmt.prediction.search = counted
    with contextlib.suppress(WindowOverError):
        while True:
            settings = {"compute_loss": False, "args": arguments.test, "autocast": autocast(job)}
            predict(model, data, arguments.device, arguments.n_gpu, **settings)
    return meter.result()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        works = {"train": train, "decode": decode}
        main({work: partial(function, folder=Path(name)) for work, function in works.items()}, ("joeynmt", "torch"))
