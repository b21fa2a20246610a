"""Small parts of headcount.run: directories, metrics.json, processes."""

import inspect
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.errors import InputError
from headcount.run.build import check_processes
from headcount.run.directory import read_metrics, update_metrics
from headcount.run.opened import open_run
from headcount.run.resolvers import peak_rate, run_directory


def test_every_run_has_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [run_directory(None) for _ in range(3)]
    assert len(set(names)) == 3
    assert all(Path(name).is_dir() for name in names)
    assert run_directory(names[0]) == str(tmp_path / names[0])
    assert run_directory("nothing") == "."
    monkeypatch.setenv("RANK", "1")
    assert run_directory(None) == "."


def test_peak_rate():
    assert [peak_rate(0.005, width) for width in (128, 512)] == [5e-3, 1.25e-3]
    assert [peak_rate(0.005, 128, tokens) for tokens in (4096, 16384)] == [5e-3, 1e-2]
    assert peak_rate(0.005, "abc") == peak_rate(0.01, 0) == 1.0  # it is the model that complains


def test_metrics_are_merged(tmp_path):
    assert read_metrics(tmp_path) == {}
    update_metrics(tmp_path, {"test": {"bleu": 1.0, "loss": 2.0}, "seed": 1})
    update_metrics(tmp_path, {"test": {"bleu": 3.0}, "valid": {"bleu": 4.0}})
    assert read_metrics(tmp_path) == {"test": {"bleu": 3.0, "loss": 2.0}, "seed": 1, "valid": {"bleu": 4.0}}
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]
    (tmp_path / "metrics.json").write_text("[]")
    with pytest.raises(InputError, match="not the figures of a run"):
        read_metrics(tmp_path)


def test_processes_must_be_those_that_torchrun_started(monkeypatch):
    config = OmegaConf.create({"trainer": {"devices": 1, "num_nodes": 1}})
    check_processes(config)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InputError, match="2 processes were started on each of 1 machines"):
        check_processes(config)
    two_machines = OmegaConf.create({"trainer": {"devices": 2, "num_nodes": 2}})
    with pytest.raises(InputError, match=r"trainer.num_nodes=2: 2 processes were started on each of 1 machines"):
        check_processes(two_machines)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_processes(two_machines)


@pytest.mark.parametrize("name", ["evaluate", "translate"])
def test_a_library_opens_a_run_with_the_defaults_of_the_commands(name):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    for setting, parameter in inspect.signature(open_run).parameters.items():
        if setting in config and setting != "search":
            assert (config[setting] or None) == (parameter.default or None), setting
