"""Fully sharded data parallel: two processes that share out the weights are one process with accumulation."""

import json
import subprocess

import pytest
from conftest import SCRIPTS, completed
from processes import ENVIRONMENT, TORCHRUN, WAIT
from safetensors.torch import load_file
from built import composed

from headcount.errors import InputError
from headcount.run.build import build_parts

FSDP = ("trainer=fsdp", "optimizer=adamw")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trainer=fsdp"], "optimizer: Muon cannot be used with trainer=fsdp; give optimizer=adamw"),
        (
            [*FSDP, "averaging.kind=ema"],
            "averaging: ema cannot be used with trainer=fsdp; give averaging.kind=checkpoints, best",
        ),
        ([*FSDP, "trainer.devices=2", "model.layer_dropout=0.1"], "model.layer_dropout=0.1: must be 0 with trainer="),
    ],
)
def test_what_cannot_be_sharded_is_refused_before_any_data_is_read(words, expected, tmp_path):
    with pytest.raises(InputError) as error:
        build_parts(composed("train", *words), tmp_path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(expected)


@pytest.mark.slow
def test_sharded_weights_train_resume_and_are_written_whole(tiny, tmp_path):
    # Without dropout, whose numbers are drawn for each process; eps keeps AdamW from dividing rounding by rounding.
    options = (
        *tiny,
        "model.dropout=0",
        "optimizer=adamw",
        "optimizer.eps=1e-3",
        "trainer.precision=32-true",
        "averaging.every=2",
        "averaging.last=2",
    )
    options += ("checkpoint.keep=[3]", "search.beam=1")

    def two_processes(*words: str) -> None:
        line = [*TORCHRUN, SCRIPTS / "train.py", *words]
        ended = subprocess.run(line, cwd=tmp_path, env=ENVIRONMENT, timeout=2 * WAIT, stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 0, ended.stderr

    two_processes(*options, *FSDP, "hydra.run.dir=two", "trainer.accelerator=cpu", "steps=4")
    two_processes("resume=two", "steps=8")
    completed("train", *options, "trainer.accumulate_grad_batches=2", "hydra.run.dir=one", cwd=tmp_path)
    for file in ("model.safetensors", "checkpoints/step-3.safetensors", "checkpoints/average/00000006.safetensors"):
        one, two = (load_file(tmp_path / run / file) for run in ("one", "two"))
        assert one.keys() == two.keys()
        assert max((one[name] - two[name]).abs().max().item() for name in one) < 1e-6
    one, two = (json.loads((tmp_path / run / "metrics.json").read_text()) for run in ("one", "two"))
    assert one["weights"]["scored"] == two["weights"]["scored"]
    assert one["test"]["bleu"] == two["test"]["bleu"]
    # One process goes on from the checkpoint of two.
    alone = ("trainer=cpu", "trainer.accumulate_grad_batches=2", "steps=10")
    for run in ("one", "two"):
        completed("train", f"resume={run}", *alone, cwd=tmp_path)
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
    assert max((one[name] - two[name]).abs().max().item() for name in one) < 1e-6
