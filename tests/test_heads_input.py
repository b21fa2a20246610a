"""What `headcount heads` is given: wrong settings get one line; results on disk are read as written, or refused."""

import numpy as np
import pytest
from conftest import refused

from headcount.errors import InputError
from headcount.heads.effects import read_parts, write_parts


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run=nowhere"], "nowhere is not a run directory"),
        (["sweep=nowhere"], "sweep=nowhere: no such directory"),
        (["sweep=3"], "sweep=3: must be a valid string or null"),
        (["run=runs/first", "parts=[all]"], "parts: 'all' is not allowed; choose from ablation"),
        (
            ["sweep=runs", "checkpoint=runs/first/model.safetensors"],
            "checkpoint=: has no effect with sweep=, but with attention= or",
        ),
        (["run=runs/first", "seed=-1"], "seed=-1: must be greater than or equal to 0"),
        (["run=runs/first", "seed=9223372036854775808"], "seed=9223372036854775808: must be less than 9223372036854"),
        (["run=runs/first", "parts=[]"], "parts=[]: nothing is measured yet with these weights and settings"),
        (["run=runs/first", "test=1"], "test=1: must be greater than or equal to 2"),
        (["run=runs/first", "bounds.loss=-1"], "bounds.loss=-1: must be 0 or more"),
        (["run=runs/first", "bounds.bleu=x"], "bounds.bleu=x: must be a valid number"),
        (["run=runs/first", "sentences=9"], "sentences=: has no effect with run=, but with attention="),
        (
            ["sweep=runs", "run=runs/first"],
            "run=: has no effect with sweep=, but with attention= or prune= or cut= or run=",
        ),
        (["run=runs/first", "order=greedy"], "order=: has no effect with run=, but with prune="),
        (["attention=a.npz", "bounds.loss=1"], "bounds.loss=: has no effect with attention="),
        (["prune=3", "test=9"], "test=: has no effect with prune=, but with model= or sweep= or run="),
    ],
)
def test_wrong_input_is_one_line(arguments, line, home):
    assert line in refused("heads", *arguments, cwd=home)[0]


PARTS = {
    "ablation": {
        "head": np.array(["encoder1.1", "cross1.1"]),
        "zero.right": np.random.default_rng(0).normal(size=(3, 4)),
        "only.right": np.ones((2, 4)),
        "row": np.arange(4),
        "phenomenon": np.array(["", "Kasus ü", "", "c"]),
        "key": np.array("abc"),
    },
    "others": {
        "none": np.zeros((0, 3), dtype=np.int64),
        "no text": np.array([], dtype=np.str_),
        "empty text": np.array(["", ""]),
        "half": np.array([1.5, np.nan, np.inf], dtype=np.float16),
        "large": np.array([65535], dtype=np.uint16),
        "same": np.array([True, False]),
        "single": np.array(2.5),
    },
}


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "heads" / "effects.nc"
    assert read_parts(path) == {}
    write_parts(path, PARTS)
    found = read_parts(path)
    assert {part: set(arrays) for part, arrays in found.items()} == {part: set(each) for part, each in PARTS.items()}
    for part, arrays in PARTS.items():
        for name, value in arrays.items():
            np.testing.assert_array_equal(found[part][name], value, err_msg=name, strict=True)


def test_a_damaged_file_of_results_is_one_line(tmp_path):
    path = tmp_path / "effects.nc"
    write_parts(path, PARTS)
    content = path.read_bytes()
    for part in (b"", b"no results", content[:300], content[: len(content) // 2]):
        path.write_bytes(part)
        with pytest.raises(InputError, match=r"effects\.nc: not readable .*; remove it, and it is measured again"):
            read_parts(path)
