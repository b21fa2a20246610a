"""Cores of the machine: affinity, and the quota of the control group."""

import os

import pytest

from headcount import machine
from headcount.machine import cores, cpu_quota


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
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert cores() == expected
