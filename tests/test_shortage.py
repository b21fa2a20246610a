"""Shortages: of disk space, of the directory itself, of memory. One line says what is missing and what is intact."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import completed, failed
from processes import ENVIRONMENT, SCRIPTS, errors_of, in_own_file_system, mount_or_skip
from pytorch_lightning.loggers.csv_logs import ExperimentWriter as _ExperimentWriter

from headcount.cli import _LogFile
from headcount.files import readable
from headcount.machine import refused_memory
from headcount.training.callbacks import LastCheckpoint
from headcount.training.module import TranslationTask


@pytest.mark.slow
def test_a_directory_that_can_only_be_read_is_one_line(tmp_path):
    train = '"$PYTHON" "$SCRIPTS/train.py" hydra.run.dir=disk/run'
    result = in_own_file_system(tmp_path, f"mkdir disk; mount -t tmpfs -o ro tmpfs disk; {train} || echo code $?")
    mount_or_skip(result)
    assert result.stdout == "code 2\n", result
    assert result.stderr == (
        "error: disk/run: Read-only file system; make it a place that can be read and written, or give another, such "
        "as with data.directory= or hydra.run.dir=\n"
    )


@pytest.mark.medium
@pytest.mark.parametrize("averaging", ["checkpoints", "none"])
def test_a_run_whose_directory_vanishes_ends_in_one_line_and_is_not_made_again(tiny, tmp_path, monkeypatch, averaging):
    gone = []

    def vanish(self, trainer):
        gone.append(shutil.rmtree(tmp_path / "run"))
        save(self, trainer)

    save = LastCheckpoint.save
    monkeypatch.setattr(LastCheckpoint, "save", vanish)
    options = (f"averaging={averaging}", "logger=none", "checkpoint.every=3", "hydra.run.dir=run")
    (line,) = failed("train", *tiny, *options, cwd=tmp_path)
    assert line.startswith(
        "run/checkpoints: No such file or directory; the run has no checkpoint to resume from; make it"
    )
    assert len(gone) == 1
    assert not (tmp_path / "run").exists()


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("place", "path"), [((_ExperimentWriter, "save"), "run"), ((_LogFile, "flush"), "run/train.log")]
)
def test_a_disk_that_is_full_for_a_log_ends_the_run_in_one_line(tiny, tmp_path, monkeypatch, place, path):
    end = TranslationTask.on_validation_epoch_end

    def then_full(self):
        end(self)
        monkeypatch.setattr(*place, full)

    monkeypatch.setattr(TranslationTask, "on_validation_epoch_end", then_full)
    (line,) = failed("train", *tiny, "checkpoint.every=2", "hydra.run.dir=run", cwd=tmp_path)
    assert line.startswith(f"{path}: No space left on device, ")
    assert re.search(r"run/checkpoints/last.ckpt, of step [24], is intact: resume=run;", line)
    monkeypatch.undo()
    completed("train", "resume=run", cwd=tmp_path)


@pytest.mark.slow
def test_translations_to_a_full_disk_end_in_one_line(home):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    line = [sys.executable, SCRIPTS / "translate.py", f"run={home / 'runs' / 'first'}"]
    with open("/dev/full", "wb") as sink:
        result = subprocess.run(
            line, cwd=home, env=ENVIRONMENT, input=b"the dog\n", stdout=sink, stderr=subprocess.PIPE, timeout=240
        )
    assert result.returncode == 2
    (line,) = errors_of(result.stderr.decode())
    assert re.fullmatch(r"standard output: No space left on device; \d+ B are needed; make room", line)
    assert b"Exception" not in result.stderr


def run_out_of_memory():
    return torch.empty(2**50)


def of_cuda():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB")


@pytest.mark.parametrize(
    ("fail", "amount"),
    [
        (run_out_of_memory, "4503.6 TB"),
        (of_cuda, "20.00 GiB"),
        (lambda: np.empty(2**58), "2.00 EiB"),
        (lambda: bytearray(2**60), ""),
    ],
)
def test_memory_that_cannot_be_had_is_recognised_with_its_amount(fail, amount):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        fail()
    assert refused_memory(caught.value) == amount


@pytest.mark.parametrize(
    "error", [RuntimeError("shape '[2]' is invalid"), ValueError("out of memory"), OSError(28, "x")]
)
def test_other_errors_are_no_shortage_of_memory(error):
    assert refused_memory(error) is None


@pytest.mark.medium
def test_training_without_memory_names_the_batch_and_the_settings_to_lower(tiny, tmp_path, monkeypatch):
    step = TranslationTask.training_step
    monkeypatch.setattr(
        TranslationTask,
        "training_step",
        lambda self, batch, number: run_out_of_memory() if number == 5 else step(self, batch, number),
    )
    (line,) = failed("train", *tiny, "checkpoint.every=2", "hydra.run.dir=run", cwd=tmp_path)
    assert re.match(
        r"not enough memory for a batch of \d+ pairs, each of \d+ source and \d+ target tokens, in step 6 "
        r"\(4503.6 TB more could not be had\); lower data.batch_tokens .* data.max_length or the model's size "
        r".*; run/checkpoints/last.ckpt, of step 4, is intact: resume=run$",
        line,
    )


@pytest.mark.medium
def test_translating_without_memory_names_the_settings_to_lower(home, monkeypatch):
    monkeypatch.setattr("headcount.decoding.translator.Translator._search", lambda *_: of_cuda())
    (line,) = failed("translate", "run=runs/first", stdin=b"the dog\n", cwd=home)
    assert line.startswith("not enough memory (20.00 GiB more could not be had); lower ")
    assert line.endswith("in translation search.batch_tokens or search.beam")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (2 * 10**16, "20000.0 TB")],
)
def test_a_number_of_bytes_is_readable(size, text):
    assert readable(size) == text
