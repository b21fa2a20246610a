"""Small parts of headcount.run: settings, directories, metrics.json."""

import ctypes
import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import yaml
from built import TWO_LAYERS, built, settings
from omegaconf import OmegaConf

import headcount
from headcount.cli import CONF
from headcount.decoding.beam import BeamSearch
from headcount.errors import InputError
from headcount.machine import choose_precision, multiplies_bf16, small_products, use_faster_products
from headcount.model.encoder_decoder import OutputLayer
from headcount.run.build import Problems, build, check_processes, doubtful_restarts
from headcount.run.directory import link_latest, read_config, read_metrics, update_metrics
from headcount.run.opened import open_run
from headcount.run.resolvers import peak_rate, run_directory
from headcount.run.train import summary, training_figures
from headcount.settings import fits, wrong_values
from headcount.training.divergence import SkippedSteps

FITS = {  # declared type: values that fit and values that do not
    int: ([1], [1.0, "1", True, None, [1]]),
    bool: ([True], [1]),
    float: ([1], [True]),
    int | None: ([None], []),
    str | Path: (["x"], []),
    Path: (["x"], []),
    Any: ([3], []),
    Literal["cpu", "gpu"]: (["gpu"], ["abacus"]),
    int | Sequence[int]: ([[2, 4]], [[2, "x"]]),
    tuple[float | torch.Tensor, float | torch.Tensor]: ([[0.9, 0.98]], []),
    tuple[str, ...]: ([["a"]], []),
    torch.Tensor: ([], [1]),
}


@pytest.mark.parametrize("hint", FITS, ids=str)
def test_fits(hint):
    fitting, others = FITS[hint]
    assert [fits(value, hint) for value in (*fitting, *others)] == [True] * len(fitting) + [False] * len(others)


def test_wrong_values_names_the_setting_and_what_is_allowed():
    values = {"beam": "five", "alpha": 1, "max_extra": None, "unknown": "x"}
    assert wrong_values(BeamSearch, values, lambda name: f"search.{name}") == [
        "search.unknown: no such setting; there are max_ratio, max_extra, batch_tokens, max_source, beam, alpha",
        "search.beam=five: must be a whole number",
        "search.max_extra=null: must be a whole number",
    ]


def test_build_trusts_exact_names_only():
    for target in ("os.system", "headcount.decoding.translator.torch.load", "headcount.run.build.build"):
        with pytest.raises(InputError, match=f"wants to build '{target}'"):
            build(OmegaConf.create({"_target_": target}), "search", ())
    nested = OmegaConf.create({"_target_": "headcount.decoding.beam.BeamSearch", "beam": {"_target_": "os.getcwd"}})
    with pytest.raises(InputError, match=r"search\.beam: .* 'os.getcwd'"):
        build(nested, "search", ())
    assert build(settings("search/beam"), "search", ()).beam == 5
    with pytest.raises(InputError, match=r"^search: .*'max_ratio'"):
        build(OmegaConf.create({"_target_": "headcount.decoding.beam.BeamSearch", "beam": 5}), "search", ())


def test_a_wrong_setting_of_a_part_of_the_model_gets_one_line():
    node = settings("model/nano").copy()
    window = "headcount.model.gaussian_window.GaussianWindow"
    node.cross_attention = {"_target_": window, "_partial_": True, "gaussian": 3}
    with pytest.raises(InputError, match=r"^model\.cross_attention\.gaussian: no such setting; there are .*gaussians"):
        build(node, "model", vocab_size=8)


def test_problems_are_reported_once_and_together():
    def fail(message):
        raise ValueError(message)

    problems = Problems()
    problems.raise_all()
    for message in ("a", "b\nc", "c"):
        assert problems.attempt(fail, message) is None
    with pytest.raises(InputError) as caught:
        problems.raise_all()
    assert str(caught.value) == "a\nb\nc"


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


def test_latest_follows_the_newest(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        link_latest(tmp_path / name)
        assert (tmp_path / "latest").resolve() == tmp_path / name
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "latest"}


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
    config = OmegaConf.create({"trainer": {"devices": 1}})
    check_processes(config)
    for wrong in (0, -1, "auto", [0]):
        with pytest.raises(InputError, match=r"^trainer.devices=.*: must be a whole number of 1 or more$"):
            check_processes(OmegaConf.create({"trainer": {"devices": wrong}}))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InputError, match="add trainer=ddp"):
        check_processes(config)
    two_machines = OmegaConf.create({"trainer": {"devices": 2, "num_nodes": 2}})
    with pytest.raises(InputError, match=r"trainer.num_nodes=2, but processes were started on 1: add"):
        check_processes(two_machines)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_processes(two_machines)


def test_restarts_beside_an_old_store_get_a_line(monkeypatch):
    for name, value in {"USE_AGENT_STORE": "True", "MAX_RESTARTS": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    assert not doubtful_restarts()
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    (line,) = doubtful_restarts()
    assert line.startswith("torchrun --max-restarts: ")
    assert line.endswith("set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    assert not doubtful_restarts()


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
@pytest.mark.parametrize(("native", "chosen"), [(True, "bf16-mixed"), (False, "32-true")])
def test_bf16_is_chosen_only_where_it_is_not_emulated(accelerator, native, chosen, monkeypatch):
    gpu = {"is_available": lambda: accelerator == "gpu"}
    gpu["is_bf16_supported"] = lambda including_emulation=True: including_emulation or native
    for name, answer in gpu.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr("headcount.machine.multiplies_bf16", lambda: native)
    assert choose_precision("16-mixed", accelerator) == ("16-mixed", "as asked for")
    assert choose_precision("auto", accelerator)[0] == chosen


def test_a_processor_says_whether_it_multiplies_bf16(monkeypatch):
    for native in (True, False):
        capabilities = {"avx512_bf16": native}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        assert multiplies_bf16() == native
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # as before torch 2.13
    assert not multiplies_bf16()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no GNU C library")
def test_a_thread_takes_the_memory_that_another_has_left():
    """A search in threads after a training: 20 pieces of 16 MiB taken and freed, by one thread and then by another."""
    program = """
import re, threading
from headcount.machine import use_memory_again
import torch

def take():
    pieces = [torch.ones(2**22) for _ in range(20)]

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

use_memory_again()
take()
before = peak()
thread = threading.Thread(target=take)
thread.start()
thread.join()
print(peak() - before)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(headcount.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 200 * 1024  # kilobytes; a heap of its own would be 320 MiB


@pytest.mark.usefixtures("float32_products")
@pytest.mark.parametrize("exact", [True, False])
def test_float32_products_stay_exact(exact, monkeypatch):
    monkeypatch.setattr("headcount.machine.multiplies_bf16", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    product = torch.Tensor.__matmul__
    rounded = lambda x, y: product(x.bfloat16(), y.bfloat16()).to(x.dtype)  # noqa: E731
    if not exact:
        chosen = lambda x, y: (product if x.dtype == torch.float64 else rounded)(x, y)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, "__matmul__", chosen)
    use_faster_products()
    if not exact:
        assert torch.get_float32_matmul_precision() == "highest"
    monkeypatch.undo()
    x = torch.randn(300, 200)
    torch.testing.assert_close(x @ x.T, (x.double() @ x.double().T).float(), rtol=0, atol=1e-3)


@pytest.mark.usefixtures("float32_products")
@pytest.mark.parametrize(("chosen", "inside", "after"), [(True, "highest", "medium"), (False, "high", "high")])
def test_small_products_are_not_onednns_though_threads_overlap(chosen, inside, after, monkeypatch):
    monkeypatch.setattr("headcount.machine._onednn_is_chosen", chosen)
    torch.set_float32_matmul_precision(after)
    first, second = small_products(), small_products()
    first.__enter__()
    second.__enter__()
    assert torch.get_float32_matmul_precision() == inside
    first.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == inside
    second.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == after


@pytest.mark.usefixtures("float32_products")
@pytest.mark.parametrize(("option", "settings"), [("nano", TWO_LAYERS), ("rnn_luong", {"d_model": 16})])
def test_in_a_step_of_search_only_the_output_layer_is_a_large_product(option, settings, monkeypatch):
    found = {}

    def noted(name, plain):
        def note(self, *given):
            found[name] = torch.get_float32_matmul_precision()
            return plain(self, *given)

        return note

    model = built(f"model/{option}", vocab_size=12, **settings).eval()
    decoder = model.decoder[0].feed_forward if option == "nano" else model.attention
    monkeypatch.setattr("headcount.machine._onednn_is_chosen", True)
    torch.set_float32_matmul_precision("medium")
    monkeypatch.setattr(type(decoder), "forward", noted("decoder", type(decoder).forward))
    state = model.start(torch.tensor([[5, 6, 3]]), None)
    for name in ("into", "forward"):
        monkeypatch.setattr(OutputLayer, name, noted("output", getattr(OutputLayer, name)))
    model.step(torch.tensor([4]), state)
    assert found == {"decoder": "highest", "output": "medium"}


def test_figures_name_the_gpu_of_the_training(home, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU number {device.index}")
    config = read_config(home / "runs" / "second")
    model = open_run(home / "runs" / "second", device="cpu").model  # after its training a model is back on the CPU
    data = SimpleNamespace(mean_lengths=(8, 8), epoch_of=lambda step: 1.0)
    progress = SimpleNamespace(seconds=1.0, tokens=1, step_seconds=1.0)
    for device, expected in (("cuda:1", "GPU number 1"), ("cpu", None)):
        strategy = SimpleNamespace(root_device=torch.device(device))
        trainer = SimpleNamespace(strategy=strategy, global_step=1, precision="32-true")
        task = {"skipped": SkippedSteps(10)}
        parts = SimpleNamespace(data=data, progress=progress, trainer=trainer, task=task)
        assert training_figures(SimpleNamespace(config=config, parts=parts, model=model))["hardware"]["gpu"] == expected


@pytest.mark.parametrize("script", ["evaluate", "translate"])
def test_a_library_opens_a_run_with_the_defaults_of_the_scripts(script):
    config = yaml.safe_load((CONF / f"{script}.yaml").read_text())
    for name, parameter in inspect.signature(open_run).parameters.items():
        if name in config and name != "search":
            assert (config[name] or None) == (parameter.default or None), name


@pytest.mark.parametrize(
    ("valid", "test", "low"), [(0.6, 0.4, True), (9.9, 0.4, True), (10.3, 9.9, False), (94, 93, False)]
)
def test_a_low_score_names_the_doctor_first(valid, test, low, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = home / "runs" / "second"
    figures = read_metrics(run)
    scores = {split: figures[split] | {"bleu": bleu} for split, bleu in (("valid", valid), ("test", test))}
    parts = SimpleNamespace(data=SimpleNamespace(target_language="de"))
    text = summary(SimpleNamespace(directory=run, config=read_config(run), parts=parts), figures, scores)
    (first,) = (line for line in text.splitlines() if line.startswith("next:  "))
    assert first.startswith(f"next:  headcount {'doctor' if low else 'translate'} run=")
    assert ("doctor" in text) == low


def test_a_file_that_cannot_be_read_now_is_not_called_damaged(tmp_path):
    with pytest.raises(InputError, match=r"metrics.json: cannot be read: File name too long$"):
        read_metrics(tmp_path / (300 * "x"))
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(InputError, match=r"metrics.json: cannot be read: "):
        read_metrics(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.json").write_text("{")
    with pytest.raises(InputError, match=r"not readable JSON .*; move it away"):
        read_metrics(tmp_path / "other")
