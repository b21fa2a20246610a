"""Cores of the machine: affinity, and the quota of the control group."""

import os

import pytest
import torch

from headcount import processes
from headcount.errors import InputError
from headcount.machine import choose_device, use_allowed_cores
from headcount.processes import cores, cpu_quota


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {".": {"cpu__max": "200000 100000"}}, 2.0),
        ("0::/", {".": {"cpu__max": "max 100000"}}, None),
        ("0::/job", {".": {}, "job": {"cpu__max": "150000 100000"}}, 1.5),
        ("0::/job/step", {"job": {"cpu__max": "150000 100000"}, "job/step": {"cpu__max": "max 100000"}}, 1.5),
        ("0::/on/the/host", {".": {"cpu__max": "50000 100000"}}, 0.5),  # a container sees its own group as the root
        ("4:cpu,cpuacct:/", {"cpu": {"cpu__cfs_quota_us": 300000, "cpu__cfs_period_us": 100000}}, 3.0),
        ("4:cpu,cpuacct:/", {"cpu": {"cpu__cfs_quota_us": -1, "cpu__cfs_period_us": 100000}}, None),
        ("4:cpuset:/", {"cpu": {"cpu__cfs_quota_us": 300000, "cpu__cfs_period_us": 100000}}, None),
        ("0::/", {".": {"cpu__max": "nonsense"}}, None),
        ("", {}, None),
    ],
)
def test_the_quota_is_the_least_of_the_group_and_all_above(tmp_path, own, files, expected):
    for folder, content in files.items():
        write(tmp_path / folder, **content)
    (tmp_path / "own").write_text(own)
    assert cpu_quota(tmp_path, tmp_path / "own") == expected


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(tmp_path, tmp_path / "nothing") is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 96), (2.0, 2), (1.5, 2), (0.1, 1), (200.0, 96)])
def test_cores_are_those_of_the_quota(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(96)), raising=False)
    monkeypatch.setattr(processes, "cpu_quota", lambda: quota)
    assert cores() == expected


@pytest.mark.parametrize(("asked", "expected"), [(None, 1), ("2", 2)])
def test_torch_has_the_cores_of_the_quota_unless_openmp_is_told_otherwise(monkeypatch, asked, expected):
    monkeypatch.setattr(processes, "cpu_quota", lambda: 0.5)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        use_allowed_cores()
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="here it is")
def test_a_device_that_is_not_there_is_one_short_line():
    with pytest.raises(InputError, match=r"^device=mps: not available here \(.{1,150}\); try device=cpu$"):
        choose_device("mps")


def test_a_device_without_numbers_is_refused():
    with pytest.raises(InputError, match=r"^device=meta: not available here \(.{1,150}\); try device=cpu$"):
        choose_device("meta")
