"""The machine: cores by affinity and control group, devices, and precision."""

import os

import pytest
import torch

from headcount import machine, processes
from headcount.machine import choose_precision, multiplies_bf16, use_allowed_cores, use_faster_products
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


@pytest.mark.parametrize(("asked", "expected"), [(None, 1), ("2", 2)])
def test_torch_has_the_cores_of_the_quota_unless_openmp_is_told_otherwise(monkeypatch, asked, expected):
    monkeypatch.setattr(processes, "cpu_quota", lambda: 0.5)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    torch.set_num_threads(2)
    use_allowed_cores()
    assert torch.get_num_threads() == expected


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


@pytest.mark.usefixtures("float32_products")
@pytest.mark.parametrize("exact", [True, False])
def test_float32_products_stay_exact(exact, monkeypatch):
    monkeypatch.setattr(machine, "multiplies_bf16", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    product = torch.Tensor.__matmul__
    if not exact:
        rounded = lambda x, y: product(x.bfloat16(), y.bfloat16()).to(x.dtype)  # noqa: E731
        chosen = lambda x, y: (product if x.dtype == torch.float64 else rounded)(x, y)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, "__matmul__", chosen)
    use_faster_products()
    assert exact or torch.get_float32_matmul_precision() == "highest"
    monkeypatch.undo()
    x = torch.randn(300, 200)
    torch.testing.assert_close(x @ x.T, (x.double() @ x.double().T).float(), rtol=0, atol=1e-3)
