"""A file system of 64 MB that training fills: one line, and with more room the same command ends as if there had always
been room."""

import re
import shutil
import sys

import pytest
from conftest import completed
from kills import differing, left
from processes import errors_of, in_own_file_system, mount_or_skip, words

SIZE = 64  # MB
LARGE = ("model.d_model=256", "model.d_feed_forward=512", "steps=12", "validation.every=5", "logger=default")
KEPT = "checkpoint.keep=[0,2,4,6,8,10]"
pytestmark = pytest.mark.reliability
AVERAGE = ("averaging.kind=checkpoints", "averaging.last=6", "averaging.every=1")


def test_a_run_on_a_full_disk_stops_in_one_line_and_resumes_once_there_is_room(tiny, tmp_path):
    """A real file system with room for some of the averaged checkpoints, but not for all."""
    given = (*tiny, "model.d_model=64", "checkpoint.every=1", "averaging.last=8", "averaging.every=1", "logger=default")
    result = in_own_file_system(
        tmp_path,
        f"""mkdir disk; mount -t tmpfs -o size=3m tmpfs disk
        "$PYTHON" "$SCRIPTS/train.py" {words(given)} hydra.run.dir=disk/run && exit 9 || echo "code $?"
        mount -o remount,size=64m disk
        "$PYTHON" "$SCRIPTS/train.py" resume=disk/run
        cp disk/run/model.safetensors disk/run/logs/metrics.csv .""",
    )
    mount_or_skip(result)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("code 2\n")
    (line,) = errors_of(result.stderr)
    match = re.match(
        r"disk/run/\S+: No space left on device, [\d.]+ k?M?B are free; [\d.]+ k?M?B are needed; "
        r"disk/run/checkpoints/last.ckpt, of step (\d), is intact: resume=disk/run; make room",
        line,
    )
    assert match, line
    assert "Traceback" not in result.stderr
    completed("train", *given, "hydra.run.dir=whole", cwd=tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    rows = [(tmp_path / path).read_bytes() for path in ("metrics.csv", "whole/logs/metrics.csv")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("every", [1, 4])
def test_a_file_system_that_training_fills_costs_one_line_and_nothing_of_the_result(every, tiny, tmp_path):
    given = (*tiny, *LARGE, KEPT, *AVERAGE, f"checkpoint.every={every}", "if_exists=resume")
    result = in_own_file_system(
        tmp_path,
        f"""mkdir disk; mount -t tmpfs -o size={SIZE}m tmpfs disk
        train() {{ "$PYTHON" "$SCRIPTS/train.py" {words(given)} hydra.run.dir=disk/run; }}
        train > /dev/null && exit 9 || echo "code $?"
        df --output=avail --block-size=1 disk | tail -1; ls disk/run/checkpoints
        mount -o remount,size=512m disk
        train > /dev/null; cp -r disk/run filled""",
    )
    mount_or_skip(result)
    assert result.returncode == 0, result.stderr
    code, free, *files = result.stdout.split("\n")
    (line,) = errors_of(result.stderr)
    match = re.fullmatch(
        r"disk/run/checkpoints/\S+: No space left on device, [\d.]+ [kM]?B are free; ([\d.]+) MB are needed; "
        r"disk/run/checkpoints/last.ckpt, of step (\d+), is intact: resume=disk/run; make room.*",
        line,
    )
    assert match, line
    assert code == "code 2"
    assert int(free) < 1e6 * float(match[1])
    assert not [name for name in files if name.endswith(".part")]
    assert "Traceback" not in result.stderr
    completed("train", *given, "hydra.run.dir=whole", cwd=tmp_path)
    assert left(tmp_path / "filled").keys() >= {"checkpoints/step-10.safetensors", "model.safetensors", "test.hyp.de"}
    assert not differing(left(tmp_path / "whole"), left(tmp_path / "filled"))
    used = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file())
    sys.stdout.write(
        f"\ndisk: {SIZE} MB filled by a run of {used / 1e6:.0f} MB after step {match[2]}, {match[1]} MB more needed; "
        "resumed with room, it ended the same\n"
    )
    shutil.rmtree(tmp_path / "filled")
