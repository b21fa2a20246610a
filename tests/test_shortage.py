"""Shortages: of disk space, of memory. One line says what is missing and what is intact."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import completed, failed

from headcount.devices import refused_memory
from headcount.training.module import TranslationTask


@pytest.mark.medium
def test_a_full_disk_ends_a_run_in_one_line_and_leaves_nothing_half_written(tiny, home, tmp_path, monkeypatch):
    """It is full when half of the checkpoint of step 6 is written. With room, the run ends as one that had room."""
    write, written = Path.write_bytes, []

    def half(path, content):
        written.append(path.name.startswith(".last.ckpt"))
        if written.count(True) == 3:
            write(path, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        (line,) = failed("train", *tiny, "checkpoint.every=2", "hydra.run.dir=run", cwd=tmp_path)
    assert re.match(
        r"run\S*: No space left on device, .* are free; .* are needed; go on from the last checkpoint: ", line
    )
    assert not list((tmp_path / "run").rglob("*.part"))
    completed("train", "resume=run", cwd=tmp_path)
    weights = [(run / "model.safetensors").read_bytes() for run in (tmp_path / "run", home / "runs" / "second")]
    assert weights[0] == weights[1]


def run_out_of_memory():
    return torch.empty(2**50)


def of_cuda():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB")


@pytest.mark.parametrize("fail", [run_out_of_memory, of_cuda, lambda: np.empty(2**58), lambda: bytearray(2**60)])
def test_memory_that_cannot_be_had_is_recognised(fail):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        fail()
    assert refused_memory(caught.value)
    assert not refused_memory(ValueError("out of memory"))


@pytest.mark.medium
def test_training_without_memory_names_the_settings_to_lower(tiny, tmp_path, monkeypatch):
    step = TranslationTask.training_step
    monkeypatch.setattr(
        TranslationTask,
        "training_step",
        lambda self, batch, number: run_out_of_memory() if number == 5 else step(self, batch, number),
    )
    (line,) = failed("train", *tiny, "checkpoint.every=2", "hydra.run.dir=run", cwd=tmp_path)
    assert re.match(r"not enough memory; lower data.batch_tokens .* data.max_length", line)
