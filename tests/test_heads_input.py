"""What `make heads` is given: wrong settings and damaged files of results get one line."""

import io

import numpy as np
import pytest
from conftest import refused

from headcount.errors import InputError
from headcount.run.arrays import read_arrays


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run=nowhere"], "nowhere is not a run directory"),
        (["sweep=nowhere"], "sweep=nowhere: no such directory"),
        (["sweep=3"], "sweep=3: must be a valid string or null"),
        (["run=runs/first", "parts=[all]"], "parts: 'all' is not allowed; choose from ablation"),
        (["sweep=runs", "checkpoint=runs/first/model.safetensors"], "checkpoint= goes with one run"),
        (["run=runs/first", "seed=-1"], "seed=-1: must be greater than or equal to 0"),
        (["run=runs/first", "parts=[]"], "parts=[]: nothing is measured yet with these weights and settings"),
        (["run=runs/first", "test=1"], "test=1: must be greater than or equal to 2"),
        (["run=runs/first", "bounds.loss=-1"], "bounds.loss=-1: must be 0 or more"),
        (["run=runs/first", "bounds.bleu=x"], "bounds.bleu=x: must be a valid number"),
    ],
)
def test_wrong_input_is_one_line(arguments, line, home):
    assert line in refused("heads", *arguments, cwd=home)[0]


def saved(save) -> bytes:
    content = io.BytesIO()
    save(content, np.arange(400))
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        saved(np.savez_compressed)[:300],
        saved(np.savez_compressed)[:120] + bytes(40) + saved(np.savez_compressed)[160:],
        saved(np.save),
    ],
    ids=["empty", "text", "cut off", "overwritten", "a single array"],
)
def test_a_damaged_file_of_results_is_one_line(content, tmp_path):
    (tmp_path / "ablation.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"ablation\.npz: not readable .*; remove it, and it is measured again"):
        read_arrays(tmp_path / "ablation.npz")
