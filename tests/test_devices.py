"""The machine: cores by affinity and control group, devices, and precision."""

import os

import pytest
import torch

from headcount import processes
from headcount.devices import choose_precision, multiplies_bf16
from headcount.processes import cores, cpu_quota


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/job", {"job/cpu.max": "150000 100000"}, 1.5),
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 1.5),
        ("0::/on/the/host", {"cpu.max": "50000 100000"}, 0.5),  # a container sees its own group as the root
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3.0),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/", {"cpu.max": "nonsense"}, None),
        ("", {}, None),
    ],
)
def test_the_quota_is_the_least_of_the_group_and_all_above(tmp_path, own, files, expected):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    (tmp_path / "own").write_text(own)
    assert cpu_quota(tmp_path, tmp_path / "own") == expected
    assert cpu_quota(tmp_path, tmp_path / "nothing") is None


def test_cores_are_those_of_the_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(96)), raising=False)
    for quota, expected in {None: 96, 2.0: 2, 1.5: 2, 0.1: 1, 200.0: 96}.items():
        monkeypatch.setattr(processes, "cpu_quota", lambda quota=quota: quota)
        assert cores() == expected


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
@pytest.mark.parametrize(("native", "chosen"), [(True, "bf16-mixed"), (False, "32-true")])
def test_bf16_is_chosen_only_where_it_is_not_emulated(accelerator, native, chosen, monkeypatch):
    gpu = {"is_available": lambda: accelerator == "gpu"}
    gpu["is_bf16_supported"] = lambda including_emulation=True: including_emulation or native
    for name, answer in gpu.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": native}, raising=False)
    assert multiplies_bf16() == native
    assert choose_precision("32-true", accelerator) == ("32-true", "as asked for")
    assert choose_precision("auto", accelerator)[0] == chosen
