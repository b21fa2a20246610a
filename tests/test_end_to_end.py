"""The commands one after another, on a toy language: the run that they leave, and its figures."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from conftest import SCRIPTS, command, completed, failed
from processes import DDP, ENVIRONMENT, TORCHRUN
from safetensors.torch import load_file

import headcount
from headcount.command_lines import CONF
from headcount.run.opened import read_weights
from headcount.training.callbacks import StopOnInterrupt
from headcount.training.module import TranslationTask


def trained(folder: Path, *arguments: str, code: int = 0) -> Path:
    """The directory of a run under `folder`/runs that scripts/train.py has just made or gone on with."""
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


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_sacrebleu_agrees(home, metric):
    run = home / "runs" / "first"
    words = ["sacrebleu", run / "test.ref.de", "-i", run / "test.hyp.de", "-m", metric, "-w", "9"]
    answer = json.loads(subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True).stdout)
    figures = metrics(run)["test"]
    assert answer["score"] == pytest.approx(figures[metric], abs=1e-8)
    assert f"nrefs:{answer['nrefs']}|case:{answer['case']}" in figures["signature"][metric]


@pytest.mark.medium
def test_load_and_translate(home):
    run = home / "runs" / "first"
    sentences = (Path(config(run)["data"]["root"]) / "test.en").read_text(encoding="utf-8").splitlines()
    hypotheses = (run / "test.hyp.de").read_text(encoding="utf-8").splitlines()
    assert headcount.load(run).translate([*sentences, ""]) == [*hypotheses, ""]


@pytest.mark.medium
def test_evaluate_again_changes_nothing(home):
    run = home / "runs" / "first"
    before = metrics(run)
    result = completed("evaluate", "run=runs/first", cwd=home)
    assert f"{before['test']['bleu']:.2f}" in result.out
    assert before["test"]["signature"]["bleu"] in result.out
    completed("evaluate", "run=runs/first", "split=valid", cwd=home)
    assert metrics(run) == before


@pytest.mark.medium
def test_evaluate_other_things_leaves_the_figures_alone(home, tmp_path):
    run = home / "runs" / "first"
    before = (run / "metrics.json").read_bytes(), (run / "test.hyp.de").read_bytes()
    (tmp_path / "my.en").write_text("the dog sees the cat\n\n", encoding="utf-8")
    (tmp_path / "my.de").write_text("der Hund sieht den Kater\n\n", encoding="utf-8")
    for options in (
        [f"input={tmp_path}/my.en", f"reference={tmp_path}/my.de"],
        ["search.beam=2"],
        ["checkpoint=runs/first/checkpoints/last.ckpt"],
    ):
        result = completed("evaluate", "run=runs/first", *options, cwd=home)
        assert "its metrics.json is left as it is" in result.out
        assert ((run / "metrics.json").read_bytes(), (run / "test.hyp.de").read_bytes()) == before


@pytest.mark.medium
def test_runs_side_by_side(home):
    result = completed("evaluate", "run=[runs/first,runs/second]", "lowercase=true", cwd=home)
    assert "BLEU lowercased" in result.out
    assert "case:lc" in result.out
    (row,) = [line for line in result.out.splitlines() if line.startswith("runs/second") and "±" in line]
    assert row.count("(p = ") == 2


@pytest.mark.medium
@pytest.mark.parametrize("steps", [8, 80])
def test_progress_shows_the_mean_loss_and_the_last_rate_since_its_last_line(steps, tiny, tmp_path):
    options = ("trainer.accumulate_grad_batches=2", f"steps={steps}", "validation.every=80")
    run = trained(tmp_path, *tiny, *options)
    log = (run / "train.log").read_text(encoding="utf-8")
    shown = re.findall(rf" step (\d+) of {steps}  loss ([\d.]+)  lr (\S+) ", log)
    assert len(shown) == min(steps, 40)
    rows = [row for row in curves(run) if row["train/loss"]]
    before = 0
    for step, loss, rate in shown:
        since = [float(row["train/loss"]) for row in rows[before : int(step)]]
        assert min(since) - 6e-4 < float(loss) < max(since) + 6e-4
        assert rate == f"{float(rows[int(step) - 1]['train/lr']):.1e}"
        before = int(step)


@pytest.mark.medium
def test_same_seed_same_run(tiny, tmp_path):
    one, other, another = (trained(tmp_path, *tiny, f"seed={seed}") for seed in (3, 3, 4))
    assert len({one, other, another}) == 3  # started in one second perhaps, but not in one directory
    assert curves(one) == curves(other) != curves(another)
    assert (one / "test.hyp.de").read_bytes() == (other / "test.hyp.de").read_bytes()
    assert same_weights(one / "model.safetensors", other / "model.safetensors")
    assert not same_weights(one / "model.safetensors", another / "model.safetensors")


@pytest.mark.medium
def test_training_stops_when_validation_no_longer_improves(tiny, tmp_path):
    # A learning rate of nearly nothing: the loss stands still, so the second validation is the first without progress.
    still = ("optimizer.lr=1e-30", "optimizer.weight_decay=0", "validation.every=2", "steps=20")
    stopped = trained(tmp_path, *tiny, *still, "validation.patience=2")
    assert metrics(stopped)["train"]["steps"] == 6
    assert "test" in metrics(stopped)
    assert metrics(trained(tmp_path, *tiny, *still))["train"]["steps"] == 20


@pytest.mark.medium
def test_an_average_that_lags_behind_is_not_scored(tiny, tmp_path):
    result = completed("train", *tiny, "averaging.kind=ema", "averaging.decay=0.999", cwd=tmp_path)
    run = (tmp_path / "runs" / "latest").resolve()
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    kept = load_file(run / "model.safetensors")
    assert all(tensor.equal(last[f"model.{name}"]) for name, tensor in kept.items())
    figures = metrics(run)
    losses = figures["weights"]["valid_loss"]
    assert figures["weights"]["scored"] == "last"
    assert losses["average"] > losses["last"] == pytest.approx(figures["valid"]["loss"])
    assert "\nweights kept: the last ones (on validation: loss " in result.out


def interrupt_at(monkeypatch, step: int) -> None:
    """Ctrl-C in the middle of a step, as the signal would come."""

    pressed = []

    def press(self, trainer, *_):
        if trainer.global_step == step and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StopOnInterrupt, "on_train_batch_start", press)


@pytest.mark.medium
@pytest.mark.parametrize("accumulation", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_stopped_and_resumed_is_never_stopped(tiny, tmp_path, monkeypatch, accumulation):
    options = (*tiny, f"trainer.accumulate_grad_batches={accumulation}", "steps=10", "averaging.share=1")
    whole = trained(tmp_path, *options)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 4)
        stopped = trained(tmp_path, *options, code=130)
    assert metrics(stopped)["train"]["steps"] == 5
    assert (stopped / "checkpoints" / "last.ckpt").exists()
    assert headcount.load(stopped).translate(["the dog"])
    before = (stopped / "config.yaml").read_bytes()
    tokens, seconds = (metrics(stopped)["train"][name] for name in ("tokens", "seconds"))

    resumed = trained(tmp_path, "resume=runs/latest")
    assert resumed == stopped
    assert (resumed / "config.yaml").read_bytes() == before
    assert same_weights(whole / "model.safetensors", resumed / "model.safetensors")
    assert curves(whole) == curves(resumed)
    assert (whole / "test.hyp.de").read_bytes() == (resumed / "test.hyp.de").read_bytes()
    assert metrics(whole)["train"]["tokens"] == metrics(resumed)["train"]["tokens"] > tokens
    assert metrics(resumed)["train"]["seconds"] >= seconds
    assert metrics(whole)["test"] == metrics(resumed)["test"]


@pytest.mark.slow
def test_killed_in_a_validation_and_resumed_is_never_stopped(tiny, tmp_path, monkeypatch):
    options = (*tiny, "checkpoint.every=4", "averaging.kind=best")
    whole = trained(tmp_path, *options)

    validate = TranslationTask.on_validation_epoch_end

    def die(self):
        if self.global_step == 8:
            raise RuntimeError("killed")  # nothing is saved on the way out
        validate(self)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "on_validation_epoch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            trained(tmp_path, *options)
    killed = (tmp_path / "runs" / "latest").resolve()
    assert not (killed / "model.safetensors").exists()
    resumed = trained(tmp_path, f"resume={killed}")
    assert resumed == killed
    assert same_weights(whole / "model.safetensors", resumed / "model.safetensors")
    assert curves(whole) == curves(resumed)
    assert metrics(whole)["train"]["tokens"] == metrics(resumed)["train"]["tokens"]


@pytest.mark.slow
def test_going_on_with_a_finished_run(tiny, tmp_path):
    run = trained(tmp_path, *tiny)
    before = (run / "config.yaml").read_bytes()
    for arguments, expected in {
        (): "last.ckpt is at step 8 of 8: to train on, raise steps",
        ("steps=x",): "steps=x: must be a whole number",
        ("hydra.run.dir=elsewhere", "steps=9"): "continues in the directory of that run; leave it out",
    }.items():
        (line,) = failed("train", "resume=runs/latest", *arguments, cwd=tmp_path)
        assert expected in line
        assert (run / "config.yaml").read_bytes() == before
        assert not (tmp_path / "elsewhere").exists()
    assert trained(tmp_path, "resume=runs/latest", "steps=12") == run
    assert metrics(run)["train"]["steps"] == 12
    whole = trained(tmp_path, *tiny, "steps=12")
    assert same_weights(whole / "model.safetensors", run / "model.safetensors")


@pytest.mark.slow
def test_sweep(tiny, tmp_path):
    """Two jobs, one of which cannot be: the other is as if run alone, and runs/latest is none of them."""
    single = trained(tmp_path, *tiny, "model.num_heads=4")
    (line,) = failed("train", "--multirun", *tiny, "model.num_heads=3,4", "threads=1", cwd=tmp_path)
    assert "model.num_heads=3" in line
    assert "does not divide model.d_model=16" in line
    (finished,) = tmp_path.glob("runs/sweep_multi30k/*/config.yaml")
    folder = finished.parent
    assert config(folder)["model"]["num_heads"] == 4
    assert (folder / "test.hyp.de").exists()
    assert same_weights(folder / "model.safetensors", single / "model.safetensors")
    assert curves(folder) == curves(single)
    assert folder.name in (folder / "train.log").read_text(encoding="utf-8")
    assert (tmp_path / "runs" / "latest").resolve() == single


def trained_by_two(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess:
    """A training with two processes."""
    line = [*TORCHRUN, SCRIPTS / "train.py", *words]
    return subprocess.run(
        line, cwd=folder, env=ENVIRONMENT, check=check, timeout=240, stderr=subprocess.PIPE, text=True
    )


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_real_signals(tiny, tmp_path, number):
    """As above, with another process and the system's own signals."""
    options = (*tiny, "steps=3000", "validation.every=3000", "checkpoint.every=20", "search.beam=1")
    process = subprocess.Popen(
        [sys.executable, SCRIPTS / "train.py", *options], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/checkpoints/last.ckpt")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        graceful = number != signal.SIGKILL
        assert process.wait(60) == (128 + number if graceful else -number)
    finally:
        process.kill()
    run = (tmp_path / "runs" / "latest").resolve()
    assert (run / "model.safetensors").exists() == graceful
    steps = metrics(run)["train"]["steps"] + 10 if graceful else 200
    assert trained(tmp_path, "resume=runs/latest", f"steps={steps}") == run
    whole = trained(tmp_path, *options, f"steps={steps}")
    assert same_weights(whole / "model.safetensors", run / "model.safetensors")
    assert metrics(whole)["train"]["tokens"] == metrics(run)["train"]["tokens"]


# Sends itself a signal before or after a method is called at an optimizer step.
SIGNALLED = """
import importlib, os, runpy, sys
module, owner, name, when, step, number, script, *words = sys.argv[1:]
owner = getattr(importlib.import_module(module), owner)
real = getattr(owner, name)
def method(self, *arguments):
    if when == "after":
        real(self, *arguments)
    if getattr(self if hasattr(self, "global_step") else arguments[0], "global_step") == int(step):
        os.kill(os.getpid(), int(number))
    if when == "before":
        real(self, *arguments)
setattr(owner, name, method)
sys.argv = [script, *words]
runpy.run_path(script, run_name="__main__")
"""
TASK = ("headcount.training.module", "TranslationTask")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGKILL, (*TASK, "on_train_batch_end", "before")),
        (signal.SIGKILL, (*TASK, "on_validation_epoch_end", "before")),
        (signal.SIGKILL, (*TASK, "on_validation_epoch_end", "after")),
        (signal.SIGKILL, ("headcount.training.averaging", "BestCheckpoint", "on_validation_end", "after")),
        (signal.SIGKILL, ("pytorch_lightning", "Trainer", "save_checkpoint", "before")),
        (signal.SIGKILL, ("pytorch_lightning", "Trainer", "save_checkpoint", "after")),
        (signal.SIGKILL, (*TASK, "on_train_batch_start", "before")),
        (signal.SIGTERM, (*TASK, "on_validation_epoch_end", "before")),
        (signal.SIGINT, (*TASK, "on_train_batch_start", "before")),
    ],
)
def test_a_signal_at_any_moment_around_a_validation_changes_nothing_in_the_end(tiny, tmp_path, number, moment):
    options = (*tiny, "steps=40", "validation.every=10", "checkpoint.every=10", "averaging.kind=best")
    options += ("validation.patience=9", "search.beam=1")
    command_line = [sys.executable, "-c", SIGNALLED, *moment, "30", str(int(number)), SCRIPTS / "train.py", *options]
    ended = subprocess.run(command_line, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL, timeout=240)
    assert ended.returncode == (-number if number == signal.SIGKILL else 128 + number)
    run = (tmp_path / "runs" / "latest").resolve()
    assert (run / "model.safetensors").exists() == (number != signal.SIGKILL)
    assert trained(tmp_path, "resume=runs/latest") == run
    whole = trained(tmp_path, *options)
    assert curves(whole) == curves(run)
    assert same_weights(whole / "model.safetensors", run / "model.safetensors")
    assert metrics(whole)["train"]["tokens"] == metrics(run)["train"]["tokens"]


@pytest.mark.slow
def test_two_processes_are_one_with_accumulation(tiny, tmp_path):
    # Without dropout, whose numbers are drawn for each process.
    options = (*tiny, "model.dropout=0", "steps=20", "averaging.last=1", "checkpoint.every=5")
    one = trained(tmp_path, *options, "trainer.accumulate_grad_batches=2")
    trained_by_two(tmp_path, *options, *DDP)
    two = (tmp_path / "runs" / "latest").resolve()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted({one.name, two.name, "latest"})
    first, second = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    assert distance(first, second) < 1e-6
    assert_resumes_with_one_process_and_with_two(tmp_path, options, first)
    # Each process counts its own, and takes the others for alike.
    assert metrics(one)["train"]["tokens"] == metrics(two)["train"]["tokens"]
    assert metrics(one)["test"]["bleu"] == metrics(two)["test"]["bleu"]
    # The loss that is shown is that of all parts of a step.
    losses = ([float(row["train/loss"]) for row in curves(run) if row["train/loss"]] for run in (one, two))
    assert next(losses) == pytest.approx(next(losses), rel=1e-5)


@pytest.mark.slow
def test_two_processes_score_the_better_weights_of_average_and_last(tiny, tmp_path):
    # A mean over half of the run lags behind at a rate that still moves the weights far.
    options = (*tiny, "model.dropout=0", "steps=20", "averaging.kind=ema", "averaging.share=0.5")
    one = trained(tmp_path, *options, "trainer.accumulate_grad_batches=2")
    trained_by_two(tmp_path, *options, *DDP)
    two = (tmp_path / "runs" / "latest").resolve()
    first, second = metrics(one)["weights"], metrics(two)["weights"]
    assert first["scored"] == second["scored"] == "last"
    assert second["valid_loss"]["last"] < second["valid_loss"]["average"] - 0.01
    assert second["valid_loss"] == pytest.approx(first["valid_loss"], abs=1e-5)
    assert metrics(two)["valid"]["loss"] == pytest.approx(second["valid_loss"]["last"], abs=1e-5)


@pytest.mark.slow
def test_two_processes_that_diverge_end_with_one_message_and_keep_no_weights(tiny, tmp_path):
    ended = trained_by_two(tmp_path, *tiny, "validation.every=20", "steps=20", "optimizer.lr=1e38", *DDP, check=False)
    assert ended.returncode != 0
    assert "so training has diverged and nothing more is saved" in ended.stderr
    assert not list(tmp_path.glob("runs/*/model.safetensors"))


def assert_resumes_with_one_process_and_with_two(folder, options, expected):
    """Ten steps with two processes, five more, and the rest with one process that accumulates."""
    trained_by_two(folder, *options, *DDP, "steps=10")
    trained_by_two(folder, "resume=runs/latest", "steps=15")
    one = ("trainer=cpu", "trainer.accumulate_grad_batches=2", "steps=20")
    run = trained(folder, "resume=runs/latest", *one)
    assert distance(expected, load_file(run / "model.safetensors")) < 1e-6
    assert [row["step"] for row in curves(run) if row["train/loss"]] == [str(step) for step in range(20)]


@pytest.mark.medium
def test_fine_tuning_begins_with_the_weights_model_and_tokenizer_of_a_run(home, tiny, tmp_path):
    first = home / "runs" / "first"
    tiny = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    still = trained(tmp_path, *tiny, f"init_from={first}", "optimizer.lr=0", "optimizer.weight_decay=0")
    assert same_weights(first / "model.safetensors", still / "model.safetensors")
    assert (first / "tokenizer.model").read_bytes() == (still / "tokenizer.model").read_bytes()
    turned = ("data.source=de", "data.target=en", "model.dropout=0.2", "loss.kind=r_drop")
    tuned = trained(tmp_path, *tiny, f"init_from={first}", *turned)
    assert not same_weights(first / "model.safetensors", tuned / "model.safetensors")
    assert (first / "tokenizer.model").read_bytes() == (tuned / "tokenizer.model").read_bytes()
    assert headcount.load(tuned).translate(["der Hund"])
    # Its data is that of its tokenizer, whoever asks for it again, and it can be gone on with.
    completed("evaluate", f"run={tuned}", cwd=tmp_path)
    assert trained(tmp_path, f"resume={tuned}", "steps=10") == tuned


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("init_from=nowhere",), "nowhere is not a run directory"),
        (("model=big",), "model=big: init_from="),
        (("model.self_attention=additive",), "model.self_attention=additive: init_from="),
        (("tokenizer.vocab_size=400",), "tokenizer.vocab_size=400: init_from="),
        (("segmentation.kind=sampled",), "segmentation: SampledSegmentation needs tokenizer.model_type=unigram"),
        (
            ("model.d_feed_forward=8",),
            "model.d_feed_forward=8: the weights of .*first were trained with 16, and do not fit",
        ),
        (("model.num_head=8",), "model.num_head"),
        (("recipe=multi30k_de_en", "model.num_heads=2"), "recipe=multi30k_de_en: init_from="),
        (("study=heads_by_kind", "study.arm=cross_8"), "leave it out, or add model.cross_heads=null"),
        (("study=lineage", "study/arm=rnn"), "study/arm=rnn: init_from="),
    ],
)
def test_impossible_fine_tuning_gets_one_line(home, tiny, tmp_path, arguments, expected):
    options = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    line = failed("train", *options, f"init_from={home}/runs/first", *arguments, cwd=tmp_path)[-1]
    assert expected in line or re.search(expected, line)


@pytest.mark.medium
@pytest.mark.parametrize("place", ["recipe/mine", "recipe/multi30k_short", "train"])
def test_fine_tuning_drops_no_setting_of_the_model_in_ones_own_configs(place, home, tiny, tmp_path):
    options = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    file = tmp_path / "own" / f"{place}.yaml"
    file.parent.mkdir(parents=True)
    of_command = (CONF / "train.yaml").read_text() if place == "train" else "# @package _global_\n"
    file.write_text(f"{of_command}\nmodel:\n  num_heads: 4\n")
    words = [place.replace("/", "=")] if place != "train" else []
    run = f"init_from={home}/runs/first"
    (line,) = failed("train", "--config-dir=own", *options, *words, run, cwd=tmp_path)
    assert "brings its own model, with other settings; leave it out, or add model.num_heads=2" in line
    file.write_text(file.read_text().replace("num_heads: 4", "num_heads: 2"))
    trained(tmp_path, "--config-dir=own", *options, *words, run, "steps=1")


@pytest.mark.medium
def test_a_setting_by_which_loaded_weights_act_otherwise_is_told(home, tiny, tmp_path):
    options = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    first = home / "runs" / "first"
    other = {"model.num_heads=4": "2", "model.positions=rotary": "sinusoidal", "model.local_heads=1": "0"}
    run = trained(tmp_path, *options, f"init_from={first}", *other, "model.dropout=0.2", "steps=1")
    told = re.findall(r"(model\S+): the weights of .* were trained with (.*)", (run / "train.log").read_text())
    assert dict(told) == other
    assert config(run)["data"]["vocab_size"] == config(run)["tokenizer"]["vocab_size"] == 320
    same = trained(tmp_path, *options, f"init_from={first}", "steps=1")
    assert "were trained with" not in (same / "train.log").read_text()
