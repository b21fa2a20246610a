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
from pathlib import Path
from typing import Any

sys.modules.setdefault("importlib_metadata", importlib.metadata)  # 1

import joeynmt.prediction  # noqa: E402
import joeynmt.training  # noqa: E402
import torch  # noqa: E402
from joeynmt.config import parse_global_args  # noqa: E402
from joeynmt.prediction import predict, prepare  # noqa: E402
from joeynmt.training import TrainManager  # noqa: E402
from measure import Meter, decode_batches, read_job, read_pairs, report  # noqa: E402

PACKAGES = ("joeynmt", "torch")


class WindowOverError(Exception):
    """The window of the measurement is over: raised to leave a training loop or a search."""


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


def write_vocabulary(job: dict[str, Any], path: Path) -> None:
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    words = special + [f"p{number}" for number in range(len(special), job["vocab_size"])]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def config(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Joey NMT's config for this job, with its files in `folder`."""
    write_vocabulary(job, folder / "vocab.txt")
    side = {"level": "word", "lowercase": False, "voc_file": str(folder / "vocab.txt")}
    return {
        "name": "bench",
        "model_dir": str(folder),
        "use_cuda": False,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
        },
        "training": training_config(job),
        "testing": {
            "beam_size": job["beam"],
            "beam_alpha": 1.0,
            "batch_size": job["decode_batch"],
            "batch_type": "sentence",
            "max_output_length": job["new_tokens"],
        },
        "model": model_config(job["model"]),
    }


def training_config(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "learning_rate_min": 0.0,
        "scheduling": "warmupinversesquareroot",
        "learning_rate_warmup": 2000,
        "label_smoothing": job["smoothing"],
        "clip_grad_norm": job["clip"],
        "normalization": "tokens",
        # Its own batch type "token" counts padding, of which it has much: half as many real tokens a batch.
        "batch_size": max(1, round(job["batch_tokens"] / job["mean_target"])),
        "batch_type": "sentence",
        "epochs": 10**6,
        "validation_freq": 10**9,
        "logging_freq": 100,
    }


def model_config(size: dict[str, Any]) -> dict[str, Any]:
    def stack(layers: int) -> dict[str, Any]:
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": size["num_heads"],
            "embeddings": {"embedding_dim": size["d_model"], "scale": True, "dropout": size["dropout"]},
            "hidden_size": size["d_model"],
            "ff_size": size["d_feed_forward"],
            "dropout": size["dropout"],
            "layer_norm": "pre",
        }

    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "normal",
        "embed_init_weight": size["d_model"] ** -0.5,
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": stack(size["encoder_layers"]),
        "decoder": stack(size["decoder_layers"]),
    }


def autocast(job: dict[str, Any]) -> dict[str, Any]:  # 4
    return {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": job["precision"] == "bf16"}


def train(job: dict[str, Any], folder: Path) -> dict[str, Any]:
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


def decode(job: dict[str, Any], folder: Path) -> dict[str, Any]:
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
            predict(
                model,
                data,
                arguments.device,
                arguments.n_gpu,
                compute_loss=False,
                args=arguments.test,
                autocast=autocast(job),
            )
    return meter.result()


if __name__ == "__main__":
    job = read_job()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        result = {"train": train, "decode": decode}[job["work"]](job, Path(name))
    report(result, job["precision"], PACKAGES)
