"""The commands one after another, on a toy language: the run that they leave, and its figures."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from conftest import SCRIPTS, command, completed, failed
from processes import DDP, ENVIRONMENT, TORCHRUN, WAIT, wait_until
from safetensors.torch import load_file

import headcount
from headcount.run.opened import read_weights


def trained(folder: Path, *arguments: str, code: int = 0) -> Path:
    """The directory of a run under `folder`/runs that scripts/train.py has just made or continued."""
    result = command("train", *arguments, cwd=folder)
    assert result.code == code, result.err
    return (folder / "runs" / "latest").resolve()


def metrics(run: Path):
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))


def config(run: Path):
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))


def same_weights(one: Path, other: Path) -> bool:
    first, second = read_weights(one), read_weights(other)
    return set(first) == set(second) and all(first[name].equal(second[name]) for name in first)


def curves(run: Path) -> list[dict[str, str]]:
    with (run / "logs" / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_run_directory_holds_what_it_should(home):
    run = home / "runs" / "first"
    of_split = {
        f"{split}.{kind}" for split in ("valid", "test") for kind in ("src.en", "hyp.de", "ref.de", "pairs.npz")
    }
    model = {"config.yaml", "tokenizer.model", "model.safetensors", "metrics.json"}
    assert {path.name for path in run.iterdir()} == {*model, *of_split, ".lock", "checkpoints", "logs", "train.log"}
    assert not list(home.rglob("*.part"))
    assert (home / "runs" / "latest").resolve() == home / "runs" / "second"
    assert "${" not in (run / "config.yaml").read_text(encoding="utf-8")
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "run directory: runs/first" in log
    assert "runs/second" not in log
    figures = metrics(run)
    assert figures["seed"] == 1
    assert figures["parameters"] == sum(tensor.numel() for tensor in load_file(run / "model.safetensors").values())
    assert figures["model"] == {"encoder_heads": [2], "decoder_heads": [2], "cross_heads": [2]}
    assert {"python", "torch", "sacrebleu", "headcount"} <= set(figures["versions"])
    assert figures["train"]["steps"] == 100
    assert {"epochs", "seconds", "tokens_per_second"} <= set(figures["train"])
    weights = figures["weights"]
    assert weights["valid_loss"][weights["scored"]] == pytest.approx(figures["valid"]["loss"])
    assert weights["valid_loss"][weights["scored"]] == min(weights["valid_loss"].values())
    for split in ("valid", "test"):
        assert {"bleu", "chrf", "length_ratio", "loss", "ppl"} <= set(figures[split])
        assert set(figures[split]["signature"]) == {"bleu", "chrf"}
    assert figures["test"]["bleu"] > 10  # it has learned something


@pytest.mark.medium
def test_sacrebleu_agrees(home):
    run = home / "runs" / "first"
    words = ["sacrebleu", run / "test.ref.de", "-i", run / "test.hyp.de", "-m", "bleu", "chrf", "-w", "9"]
    answers = json.loads(subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True).stdout)
    figures = metrics(run)["test"]
    for metric, answer in zip(("bleu", "chrf"), answers, strict=True):
        assert answer["score"] == pytest.approx(figures[metric], abs=1e-8)
        assert f"nrefs:{answer['nrefs']}|case:{answer['case']}" in figures["signature"][metric]


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_a_process_after_its_step_with_a_line_and_a_code(tiny, tmp_path, number):
    options = (*tiny, "steps=100000", "validation.every=100000", "checkpoint.every=20", "hydra.run.dir=run")
    line = [sys.executable, "-m", "headcount", "train", *options]
    process = subprocess.Popen(line, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists, process=process)
        process.send_signal(number)
        _, said = process.communicate(timeout=WAIT)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    step = metrics(tmp_path / "run")["train"]["steps"]
    assert f"stopped at step {step}; the model so far can be used. Resume with:" in said
    assert said.splitlines()[-1].endswith("headcount train resume=run")
    assert torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == step
    assert (tmp_path / "run" / "model.safetensors").exists()


def trained_by_two(folder: Path, *words: str) -> None:
    """A training with two processes."""
    line = [*TORCHRUN, SCRIPTS / "train.py", *words]
    subprocess.run(line, cwd=folder, env=ENVIRONMENT, check=True, timeout=WAIT)


def distance(one: Path, other: Path) -> float:
    first, second = (load_file(run / "model.safetensors") for run in (one, other))
    return max((first[name] - second[name]).abs().max().item() for name in first)


@pytest.mark.slow
def test_two_processes_are_one_with_accumulation(tiny, tmp_path):
    # Without dropout, whose numbers are drawn for each process. A mean over half of the run lags behind at this rate.
    options = (*tiny, "model.dropout=0", "steps=20", "averaging.kind=ema", "averaging.share=0.5", "checkpoint.every=5")
    one = trained(tmp_path, *options, "trainer.accumulate_grad_batches=2")
    trained_by_two(tmp_path, *options, *DDP)
    two = (tmp_path / "runs" / "latest").resolve()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted({one.name, two.name, "latest"})
    assert distance(one, two) < 1e-6
    assert metrics(one)["train"]["tokens"] == metrics(two)["train"]["tokens"]
    assert metrics(one)["test"]["bleu"] == metrics(two)["test"]["bleu"]
    first, second = (metrics(run)["weights"] for run in (one, two))
    assert first["scored"] == second["scored"] == "last"
    assert second["valid_loss"] == pytest.approx(first["valid_loss"], abs=1e-5)
    # Ten steps with two processes, five more, and the rest with one process that accumulates.
    trained_by_two(tmp_path, *options, *DDP, "steps=10")
    trained_by_two(tmp_path, "resume=runs/latest", "steps=15")
    run = trained(tmp_path, "resume=runs/latest", "trainer=cpu", "trainer.accumulate_grad_batches=2", "steps=20")
    assert distance(one, run) < 1e-6
    assert [row["step"] for row in curves(run) if row["train/loss"]] == [str(step) for step in range(20)]


@pytest.fixture
def tune(home, tiny) -> tuple[str, ...]:
    """Settings that fine-tune runs/first, which has a model of its own."""
    own = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    return (*own, f"init_from={home}/runs/first", "steps=1")


@pytest.mark.medium
def test_fine_tuning_begins_with_the_weights_model_and_tokenizer_of_a_run(home, tune, tmp_path):
    first = home / "runs" / "first"
    still = trained(tmp_path, *tune, "optimizer.lr=0", "optimizer.weight_decay=0")
    assert same_weights(first / "model.safetensors", still / "model.safetensors")
    assert (first / "tokenizer.model").read_bytes() == (still / "tokenizer.model").read_bytes()
    turned = ("data.source=de", "data.target=en", "model.dropout=0.2", "loss.kind=r_drop")
    tuned = trained(tmp_path, *tune, *turned)
    assert not same_weights(first / "model.safetensors", tuned / "model.safetensors")
    assert headcount.load(tuned).translate(["der Hund"])
    # Its data is that of its tokenizer, whoever asks for it again, and it can be resumed.
    completed("evaluate", f"run={tuned}", cwd=tmp_path)
    assert trained(tmp_path, f"resume={tuned}", "steps=2") == tuned


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("init_from=nowhere",), "nowhere is not a run directory"),
        (("model=big",), "model=: init_from="),
        (("tokenizer.vocab_size=400",), "tokenizer.vocab_size=: init_from="),
        (("model.d_feed_forward=8",), "first/model.safetensors: does not fit the model in .*: size mismatch for"),
        (("study=lineage", 'study.arm="1 rnn"'), "does not fit the model in"),
    ],
)
def test_impossible_fine_tuning_gets_one_line(tune, tmp_path, arguments, expected):
    assert re.search(expected, failed("train", *tune, *arguments, cwd=tmp_path)[-1])


@pytest.mark.medium
def test_fine_tuning_drops_no_setting_of_the_model_that_a_recipe_sets(tune, tmp_path):
    recipe = tmp_path / "own" / "recipe" / "mine.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("# @package _global_\nmodel:\n  num_heads: 4\n  positions: rotary\n  dropout: 0.3\n")
    run = trained(tmp_path, "--config-dir=own", *tune, "recipe=mine")
    chosen = config(run)["model"]
    assert [chosen[name] for name in ("num_heads", "positions", "dropout", "d_model")] == [4, "rotary", 0.3, 32]


@pytest.mark.medium
def test_fine_tuning_refuses_a_model_that_a_recipe_chooses(tune, tmp_path):
    (tmp_path / "own" / "recipe").mkdir(parents=True)
    (tmp_path / "own" / "recipe" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: tiny\n"
    )
    (line,) = failed("train", "--config-dir=own", "recipe=mine", *tune, cwd=tmp_path)
    assert line.startswith("model=tiny: init_from=")


@pytest.mark.medium
def test_a_config_that_would_not_be_read_is_refused(tmp_path):
    (tmp_path / "own" / "model").mkdir(parents=True)
    (tmp_path / "own" / "model" / "nano.yaml").touch()
    (line,) = failed("train", "--config-dir=own", cwd=tmp_path)
    assert line.startswith("own/model/nano.yaml: conf/ has a file of this name")
