"""Run directories of strangers: no command runs what is in one; one line says why."""

import os
import pickle
import shutil
import struct
from pathlib import Path

import conftest
import pytest
import torch
import yaml
from conftest import completed, snapshot

pytestmark = pytest.mark.medium

TRANSLATE, RESUME = ("translate", "run=run"), ("train", "resume=run", "steps=10")


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run to spoil, in a working directory in a folder that is watched."""
    (tmp_path / "elsewhere").mkdir()
    return Path(shutil.copytree(home / "runs" / "second", tmp_path / "work" / "run"))


def refused(run: Path, *arguments: str) -> str:
    """The one line with which a command refuses the run; nothing has changed, in the run or outside."""
    (line,) = conftest.refused(*arguments, cwd=run.parent, watched=run.parents[1])
    return line


def set_to(run: Path, name: str, value: object) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    group, _, last = name.rpartition(".")
    (config[group] if group else config)[last] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config))


class Payload:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mknod, (str(self.path),)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("model._target_", "os.system", "is of an earlier version"),
        ("search._target_", "os.system", "search._target_: no such setting"),
        ("search.beam", {"_target_": "os.system"}, "search.beam="),
        ("search.kind", "os.system", "search.kind=os.system: must be one of beam, "),
        ("model.kind", "torch.nn:Linear", "model.kind=torch.nn:Linear: must be one of "),
        ("data.both_directions", "${oc.env:HOME}", "not the config of a run, whose settings have values"),
    ],
)
def test_a_config_has_known_words_alone(name, value, expected, run):
    set_to(run, name, value)
    assert expected in refused(run, *TRANSLATE)


@pytest.mark.parametrize("added", ["x: !!python/object/apply:os.mknod [ran]\n", f"deep: {'[' * 100_000}\n"])
def test_a_config_is_plain_yaml(added, run):
    with (run / "config.yaml").open("a") as file:
        file.write(added)
    assert "not a readable config" in refused(run, *TRANSLATE)
    assert not (run.parent / "ran").exists()


def test_a_pickle_is_not_loaded(run):
    """Neither as a checkpoint, with a right checksum, nor as weights."""
    ran = run.parents[1] / "ran"
    torch.save({"global_step": 8, "state_dict": {"model.x": Payload(ran)}}, run / "checkpoints" / "last.ckpt")
    assert "last.ckpt is damaged (" in refused(run, *RESUME)
    assert "no weights can be read" in refused(run, *TRANSLATE, "checkpoint=run/checkpoints/last.ckpt")
    for content in (pickle.dumps(Payload(ran)), struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 2) + b"{}"):
        (run / "model.safetensors").write_bytes(content)
        assert "no weights" in refused(run, *TRANSLATE)
    assert not ran.exists()


def test_figures_are_written_through_no_link_and_data_is_prepared_in_the_own_folder(run):
    set_to(run, "data.directory", str(run.parents[1] / "elsewhere"))
    (run.parents[1] / "precious").write_text("precious")
    (run / "test.hyp.de").unlink()
    (run / "test.hyp.de").symlink_to(run.parents[1] / "precious")
    completed("evaluate", "run=run", cwd=run.parent)
    assert (run.parents[1] / "precious").read_text() == "precious"
    assert not (run / "test.hyp.de").is_symlink()
    assert not snapshot(run.parents[1] / "elsewhere")
