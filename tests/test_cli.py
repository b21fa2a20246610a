"""Errors on the command line: a line for each mistake, exit code 2, and nothing left behind."""

import errno
import io
import json
import logging
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, command, completed, failed, refused, rewrite
from safetensors.torch import load_file, save_file

from headcount import commands
from headcount.cli import _StandardError, open_streams
from headcount.decoding.search import NotFiniteError

# Reported together: every part of a config is looked at before anything is read.
WRONG_SETTINGS = [
    {
        "model.num_heads=3": "model.num_heads=3 does not divide model.d_model=16: the nearest that do are 2 and 4",
        "steps=x": "steps=x: must be a whole number",
        "optimizer.lr=-1": "optimizer.lr=-1: must be 0 or more",
        "validation.every=0": "validation.every=0: must be 1 or more",
        "averaging.last=0": "averaging.last=0: must be 1 or more",
        "checkpoint.every=0": "checkpoint.every=0: must be 1 or more",
        "schedule.warmup_steps=0": "schedule.warmup_steps=0: must be 1 or more",
        "loss.smoothing=1": "loss.smoothing=1: from 0 (off) up to, not including, 1",
        "search.beam=0": "search.beam=0: must be 1 (greedy) or more",
        "data.batch_tokens=x": "data.batch_tokens=x: must be a whole number",
        "data.cleaning.max_ratio=x": "data.cleaning.max_ratio=x: must be a number or null",
        "tokenizer.vocab_size=100": "tokenizer.vocab_size=100 is too small",
        "data.source=de": "data.source=de and data.target=de are the same language",
        "seed=x": "seed=x: must be a whole number",
    },
    {
        "model.d_model=abc": "model.d_model=abc: must be a whole number",
        "model.num_heads=[2,x]": "model.num_heads=[2,x]: must be a whole number or a list",
        "model.dropout=true": "model.dropout=true: must be a number",
        "trainer.accumulate_grad_batches=x": "trainer.accumulate_grad_batches=x: must be a whole number",
        "steps=null": "steps=null: must be a whole number",
        "optimizer.adamw_lr=abc": "optimizer.adamw_lr=abc: must be a number",
        "validation.every=x": "validation.every=x: must be a whole number",
        "validation.patience=0": "validation.patience=0: must be 1 or more",
        "schedule.warmup_steps=x": "schedule.warmup_steps=x: must be a whole number",
        "search.beam=x": "search.beam=x: must be a whole number",
        "logger.csv.name=3": "logger.csv.name=3: must be text or null",
    },
    {
        "model.norm=x": "model.norm=x: must be one of pre, post",
        "steps=-1": "steps=-1: must be 1 or more",
        "trainer.gradient_clip_val=-1": "trainer.gradient_clip_val=-1: must be 0 or more",
        "trainer.precision=99": "trainer: Precision 99 is invalid",
        "data.workers=-1": "data.workers=-1 is too small",
    },
    {"model.d_model=0": "model.d_model=0: must be 1 or more"},
    {"trainer.precision=16-mixed": "trainer.precision=16-mixed: float16 would need scaled gradients"},
    {"+search.bean=3": "search.bean: no such setting; there are max_ratio, max_extra, "},
    {"model=huge": "In 'train': Could not find 'model/huge'; Available options in 'model': base; big; "},
    {"model.num_head=3": "Could not override 'model.num_head'; To append to your config use +model.num_head=3"},
    {"models=3": "models: no such setting; did you mean model?"},
    {"modle.num_heads=3": "modle.num_heads: no such setting; did you mean model.num_heads?"},
    {"+modle.num_heads=3": "modle.num_heads: no such setting; did you mean model.num_heads?"},
    {"++zebra.x=3": "zebra.x: no such setting; headcount train --help lists all"},
    {"+zebra=3": "zebra: no such setting; headcount train --help lists all"},
    {"model.d_model": "model.d_model: is not NAME=VALUE"},
    {"num_heads=4": "num_heads: no such setting; did you mean model.num_heads?"},
    {"heads=4": "heads: no such setting; did you mean model.num_heads or "},
    {"max_step=4": "max_step: no such setting; did you mean steps?"},
    {"+validation.patiense=5": "validation.patiense: no such setting; did you mean validation.patience?"},
    {
        "++divergence.stopafter=1": "divergence.stopafter: no such setting; did you mean divergence.stop_after?",
        "+data.budget.warmup=10": "data.budget.warmup: no such setting; did you mean schedule.warmup_steps?",
        "+study.varries=x": "study.varries: no such setting; did you mean study.varies?",
        "+orders=default": "orders: no such setting; ",
        "+experiment=x": "experiment: is now recipe=NAME",
    },
    {"preset=gpu": "preset: no such setting; "},
    {"averaging=[1]": "averaging=[1]: is no option; there are best, checkpoints, ema, none"},
    {"averaging=null": "averaging=null: is no option; there are best, checkpoints, ema, none"},
    {"search=default": "search=default: is no option; there are beam, diverse, greedy, mbr, sample"},
    {"model=default": "model=default: is no option; there are base, big, "},
    {"model.cross_attention=additive": "model.cross_attention=additive: is chosen with a slash: model/"},
    {"model.cross_attention=x": "model.cross_attention=x: must be an option of its group"},
    {"trainer.devices=2": "trainer.devices=2, but one process was started: start one a device with torchrun"},
    {"bleu_tokenizer=x": "bleu_tokenizer=x: must be null or one of none, zh, 13a"},
    {"resume=nothing": "nothing is not a run directory"},
    {"resume=/": "/ is not a run directory: it has no config.yaml"},
]


@pytest.mark.medium
@pytest.mark.parametrize("wrong", WRONG_SETTINGS, ids=lambda wrong: next(iter(wrong)))
def test_wrong_settings(wrong, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.TranslationData.prepare_data", None)  # it would not come to that
    lines = refused("train", *tiny, *wrong, cwd=tmp_path)
    for expected in wrong.values():
        assert any(line.startswith(expected) for line in lines), (expected, lines)
    assert len(lines) == len(wrong), lines


QUOTED = [
    "/home/jürgen/x",
    "runs/copy (1)",
    "a=b",
    "a&b",
    "it's",
    "[x",
    "{x}",
    "a#b",
    "~/x",
    "a;b",
    "runs/[x]",
    "a,b",
    "日本",
]


@pytest.mark.medium
@pytest.mark.parametrize("value", QUOTED)
@pytest.mark.parametrize("script", ["translate", "heads"])
def test_a_value_that_needs_quotes_is_named_with_them(script, value, tmp_path):
    (line,) = refused(script, f"run={value}", cwd=tmp_path)
    assert line.startswith("run: this value needs quotes: \"run='")
    assert "hydra.cc" not in line
    (word, *_) = shlex.split(line.removeprefix("run: this value needs quotes: "))
    (line,) = refused(script, word.removesuffix(","), cwd=tmp_path)
    assert line.startswith(f"{value} is not a run directory")


@pytest.mark.medium
def test_what_is_no_setting_gets_a_line_that_says_what_to_type(tmp_path):
    assert refused("translate", "run=[jürgen,b]", cwd=tmp_path) == [
        "run: this value needs quotes: \"run=['jürgen',b]\""
    ]
    for text in ("Hello", "The old dog."):
        (line,) = refused("translate", text, cwd=tmp_path)
        assert line.startswith(f"{text}: is not NAME=VALUE; the text comes through standard input: echo ... | ")
    assert refused("evaluate", "rün=x", cwd=tmp_path) == ["rün=x: is not NAME=VALUE"]
    assert refused("translate", "beam=3", cwd=tmp_path) == ["beam: no such setting; did you mean search.beam?"]


@pytest.mark.medium
def test_a_setting_that_another_config_of_the_command_has_is_known(tiny, tmp_path):
    for name, setting in (("prepare", "++seed=3"), ("prepare", "++validation.every=3"), ("train", "++study.title=x")):
        (line,) = refused(name, *tiny, setting, "data.source=x1", "data.target=x1", cwd=tmp_path)
        assert line.startswith("data.source=x1 and data.target=x1 are the same language")
    (line,) = refused("doctor", "++data.workers=-1", cwd=tmp_path)
    assert line.startswith("data.workers=-1 is too small")


@pytest.mark.medium
def test_a_path_that_begins_with_an_old_word_is_a_path(tiny, tmp_path):
    (tmp_path / "experiment").touch()
    (line,) = refused("prepare", *tiny[:-1], "data.directory=experiment/x", cwd=tmp_path)
    assert line.startswith("experiment/x")


@pytest.mark.medium
def test_the_config_of_a_sweep_is_refused_in_one_line(tmp_path):
    line = "--cfg: shows one job; leave out --multirun, and give one value of each setting"
    assert refused("train", "--multirun", "seed=1,2", "--cfg", "job", cwd=tmp_path) == [line]


@pytest.mark.medium
def test_files_want_their_paths(tmp_path):
    (line,) = refused("train", "data=files", cwd=tmp_path)
    assert line.startswith("data.source, data.target, data.train_source")


@pytest.mark.medium
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(tiny, tmp_path):
    no_gpu = "trainer.accelerator=gpu: no GPU found; use trainer=cpu"
    assert refused("train", *tiny, "trainer=gpu", cwd=tmp_path) == [no_gpu]


@pytest.mark.medium
@pytest.mark.parametrize("asked", ["debug=true", "debug=True", "debug=1", "++debug=true", "", "debug=false"])
def test_debug_shows_the_traceback(asked, tiny, tmp_path):
    words = [asked] if asked else ["recipe=mine"]
    (tmp_path / "own" / "recipe").mkdir(parents=True)
    (tmp_path / "own" / "recipe" / "mine.yaml").write_text("# @package _global_\ndebug: true\n")
    own = () if asked else ("--config-dir=own",)
    result = command("train", *own, *tiny, "model.norm=x", *words, cwd=tmp_path)
    assert result.code == 2
    assert ("Traceback" in result.err) == (asked != "debug=false")
    assert result.errors[-1].startswith("error: model.norm=x: must be")
    if asked:  # nor is there a config yet where a setting is wrong
        assert ("Traceback" in command("train", "modle=x", asked, cwd=tmp_path).err) == (asked != "debug=false")


WRONG_TEXT = {
    "a line short": ("train.de", lambda text: text[: text.rstrip().rindex(b"\n") + 1], "train.en has 140 lines and "),
    "not UTF-8": ("valid.de", lambda text: text.replace("ä".encode(), b"\xe4", 1), "not valid UTF-8"),
    "empty after cleaning": ("train.en", lambda text: b"\n" * 140, "no pair of the train split is left"),
}


@pytest.mark.medium
def test_missing_text_is_named_and_empty_lines_of_test_are_translated(tiny, text, tmp_path):
    folder, work = shutil.copytree(text, tmp_path / "text"), tmp_path / "work"
    work.mkdir()
    (folder / "test.en").write_bytes(b"\n" * 30)
    completed("train", *tiny, f"data.root={folder}", "steps=1", cwd=work)
    (folder / "test.de").unlink()
    (line,) = refused("train", *tiny, f"data.root={folder}", cwd=work)
    assert "has no test.de or test.de.gz" in line


@pytest.mark.medium
@pytest.mark.parametrize("case", WRONG_TEXT)
def test_wrong_text(case, tiny, text, tmp_path):
    name, change, expected = WRONG_TEXT[case]
    folder, work = shutil.copytree(text, tmp_path / "text"), tmp_path / "work"
    work.mkdir()
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    (line,) = refused("train", *tiny, f"data.root={folder}", cwd=work)
    assert expected in line
    if case == "not UTF-8":
        wrong = next(n for n, row in enumerate((folder / "valid.de").read_bytes().splitlines(), 1) if b"\xe4" in row)
        assert f"valid.de, line {wrong}:" in line


@pytest.mark.medium
def test_no_half_prepared_data(tiny, tmp_path):
    (line,) = failed("train", *tiny, "tokenizer.vocab_size=5000", "data.directory=prepared", cwd=tmp_path)
    expected = "tokenizer.vocab_size=5000 is more than the training text can fill; the largest that works is"
    assert line.startswith(expected)
    assert not list(tmp_path.rglob("*.part*"))
    assert not list(tmp_path.rglob("runs"))


@pytest.mark.medium
def test_hub_that_cannot_be_reached(tiny, tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("headcount.data.corpora.hub.HfApi.dataset_info", unreachable)
    monkeypatch.setattr("datasets.load_dataset", unreachable)
    (line,) = refused("train", *tiny, "data.root=null", cwd=tmp_path)
    assert "(no route to host)" in line
    assert "data.root=DIR with train.en, train.de" in line


@pytest.mark.medium
def test_an_old_run_is_never_written_over(tiny, home):
    (line,) = refused("train", *tiny, "hydra.run.dir=runs/first", cwd=home)
    assert line.startswith("runs/first holds a run al")


@pytest.mark.medium
def test_latest_in_the_way(tiny, tmp_path):
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    (line,) = refused("train", *tiny, cwd=tmp_path)
    assert "runs/latest is in the way" in line


@pytest.mark.medium
@pytest.mark.parametrize("script", ["evaluate", "translate"])
def test_no_run(script, tmp_path):
    assert "nothing is not a run directory" in refused(script, "run=nothing", cwd=tmp_path)[0]
    (tmp_path / "nothing").mkdir()
    assert "it has no config.yaml" in refused(script, "run=nothing", cwd=tmp_path)[0]


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run to spoil."""
    return Path(shutil.copytree(home / "runs" / "first", tmp_path / "run"))


def configured(old: str, new: str):
    """Replaces the first `old` in the config of a run."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return lambda run: rewrite(run / "config.yaml", change)


TRANSFORMER = "headcount.model.transformer.Transformer"


def diverged(run: Path) -> None:
    """Make one weight not a number."""
    weights = load_file(run / "model.safetensors")
    weights["decoder.0.cross_attention.key.weight"][1, 2] = float("nan")
    save_file(weights, run / "model.safetensors")


UNRESOLVED = "must be resolved, but holds '${oc.env:HOME}'"
SPOILED = {
    "foreign code": (configured(TRANSFORMER, "os.system"), "wants to build 'os.system'"),
    "interpolation": (configured("norm: pre", "norm: ${oc.env:HOME}"), UNRESOLVED),
    "interpolation elsewhere": (configured("beam: 5", "beam: ${oc.env:HOME}"), UNRESOLVED),
    "not YAML": (lambda run: (run / "config.yaml").write_text("{["), "config.yaml: not a readable config"),
    "another YAML": (lambda run: (run / "config.yaml").write_text("a: 1"), "config.yaml: not the config of a run"),
    "half a config": (lambda run: (run / "config.yaml").write_text("model: 1\ndata: 2"), "config.yaml: not the config"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), "training may still be under way"),
    "bad weights": (lambda run: (run / "model.safetensors").write_bytes(b"x" * 99), ".safetensors: no weights can be"),
    "weights without numbers": (diverged, "key.weight is not of finite numbers"),
    "other weights": (configured("d_model: 32", "d_model: 64"), "does not fit the model"),
    "no tokenizer": (lambda run: (run / "tokenizer.model").unlink(), "tokenizer.model: cannot be read"),
    "bad tokenizer": (lambda run: (run / "tokenizer.model").write_bytes(b"x"), "not a sentencepiece model"),
    "bad metrics": (lambda run: (run / "metrics.json").write_text("{"), "metrics.json: "),
}


@pytest.mark.medium
@pytest.mark.parametrize("case", SPOILED)
def test_spoiled_run(case, run, tmp_path):
    spoil_it, expected = SPOILED[case]
    spoil_it(run)
    (line,) = refused("evaluate", "run=run", cwd=tmp_path)
    assert expected in line


@pytest.mark.medium
def test_trust_lets_a_class_of_ones_own_in(run, tmp_path, monkeypatch):
    code = "from headcount.decoding.beam import BeamSearch\nclass Mine(BeamSearch): ...\n"
    (tmp_path / "own_search.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    configured("headcount.decoding.beam.BeamSearch", "own_search.Mine")(run)
    (line,) = refused("translate", "run=run", cwd=tmp_path)
    assert "add trust=[own_search.Mine]" in line
    completed("translate", "run=run", "trust=[own_search.Mine]", stdin=b"the dog", cwd=tmp_path)


@pytest.mark.medium
def test_a_corpus_of_ones_own_trains_and_only_trusted_goes_on(tiny, tmp_path, monkeypatch):
    code = "from headcount.data.corpora import HubCorpus\nclass Mine(HubCorpus): ...\n"
    (tmp_path / "own_corpus.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    completed("train", *tiny, "data._target_=own_corpus.Mine", cwd=tmp_path)
    (line,) = refused("train", "resume=runs/latest", "steps=10", cwd=tmp_path)
    assert "'own_corpus.Mine'" in line
    trusted = ("resume=runs/latest", "steps=10", "trust=[own_corpus.Mine]")
    completed("train", *trusted, cwd=tmp_path)


WRONG_EVALUATIONS = {
    "run=[]": "run=[]: give a run directory",
    "run=[run,nothing]": "nothing is not a run directory",
    "split=train": "split=train: must be test or valid",
    "input=x": "input= and reference= go together",
    "input=x reference=y": "x: there is no such file",
    "checkpoint=x": "x: no such file",
    "checkpoint=config.yaml": "config.yaml: no weights can be read from it",
    "checkpoint=other.ckpt": "other.ckpt: does not fit the model in run: size mismatch for",
    "run=run,again": """run: this value needs quotes: "run='run,again'", or run=[run,again] as a list""",
    "run=null": "run=null: must be text or a path",
    "search.beam=0": "search.beam=0: must be 1",
    "search.beam=x": "search.beam=x: must be a whole number",
    "search.bean=3": "Could not override 'search.bean'",
    "device=abacus": "device=abacus: not available here",
    "lowercase=maybe": "lowercase=maybe: must be true or false",
    "trust=x": "trust=x: must be a list",
    "bleu_tokenizer=x": "bleu_tokenizer=x: must be null or one of none, zh, 13a",
    "input=empty reference=empty": "empty: holds no line, so there is nothing to score",
}


@pytest.mark.medium
@pytest.mark.parametrize("arguments", WRONG_EVALUATIONS)
def test_wrong_evaluation(arguments, run, home, tmp_path):
    shutil.copy(home / "runs" / "second" / "checkpoints" / "last.ckpt", tmp_path / "other.ckpt")
    shutil.copy(run / "config.yaml", tmp_path)
    (tmp_path / "empty").touch()
    (line,) = refused("evaluate", "run=run", *arguments.split(), cwd=tmp_path)
    assert line.startswith(WRONG_EVALUATIONS[arguments])


@pytest.mark.medium
@pytest.mark.parametrize(
    "script",
    [
        name if name == "train" else pytest.param(name, marks=pytest.mark.slow)
        for name in commands.NAMES
        if name != "init"
    ],
)
def test_help_of_every_command(tmp_path, script):
    result = completed(script, "--help", cwd=tmp_path)
    assert f"headcount {script}" in result.out
    assert "debug: false" in result.out
    lines = [line for line in result.out.splitlines() if not line.startswith(("recipe: ", "study: "))]  # not wrapped
    assert max(map(len, lines)) <= 120


@pytest.mark.medium
def test_translate_is_a_filter(run, tmp_path):
    source = "the dog sees the cat\n\nthe bear likes\u2028the wolf\r\nthe cat hears the dog"
    result = command("translate", "run=run", stdin=source.encode(), cwd=tmp_path)
    lines = result.out.split("\n")
    assert (result.code, result.err, len(lines), lines[1], lines[4]) == (0, "", 5, "", "")
    backwards = command("translate", "run=run", stdin="\n".join(source.split("\n")[::-1]).encode(), cwd=tmp_path)
    assert backwards.out.split("\n")[:4] == lines[3::-1]
    assert command("translate", "run=run", cwd=tmp_path).out == ""
    # A slice a shell would give: one beam is another search.
    assert command("translate", "run=run", "search.beam=1", stdin=source.encode(), cwd=tmp_path).out.count("\n") == 4
    rounded = completed("translate", "run=run", "precision=bfloat16", stdin=source.encode(), cwd=tmp_path)
    assert rounded.out.count("\n") == 4
    (line,) = refused("translate", "run=run", "precision=int8", cwd=tmp_path)
    assert line.startswith("precision=int8: must be")


@pytest.mark.medium
def test_translate_names_the_line_that_is_not_text(run, tmp_path):
    result = command("translate", "run=run", stdin=b"the dog\n\nthe \xff\nthe cat\n", cwd=tmp_path)
    assert result.code == 2
    assert result.out.count("\n") == 2  # what came before it
    (line,) = result.errors
    assert line.startswith("error: standard input, line 3: not valid UTF-8; convert the text from its encoding")


@pytest.mark.medium
def test_translate_names_the_line_that_is_too_long(run, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.commands.translate.LINES_AT_ONCE", 2)
    source = b"the dog\n\nthe cat\n" + b"the dog sees the cat " * 300 + b"\nthe cat\n"
    result = command("translate", "run=run", stdin=source, cwd=tmp_path)
    assert (result.code, result.out.count("\n")) == (2, 3)
    (line,) = result.errors
    assert re.fullmatch(
        r"error: standard input, line 4: [\d,]+ pieces, more than search.max_source=1000; cut it .*", line
    )
    (tmp_path / "en").write_bytes(source)
    (tmp_path / "de").write_text("der Hund\n" * 5, encoding="utf-8")
    (line,) = refused("evaluate", "run=run", "input=en", "reference=de", cwd=tmp_path)
    assert line.startswith("en, line 4: ")
    assert "more than search.max_source=1000" in line


@pytest.mark.medium
def test_sentences_without_a_position_are_named_before_training(tiny, tmp_path):
    lines = refused("train", *tiny, "model.positions=learned", "model.max_positions=7", cwd=tmp_path)
    assert "a target of valid has up to " in "\n".join(lines)
    for line in lines:
        assert re.fullmatch(
            r"a (source|target) of (train|valid|test) has up to \d+ tokens with its end, more than "
            r"model\.max_positions=7: raise that, or take model\.positions=sinusoidal(, or lower data\.max_length)?",
            line,
        )
    learned = ("model.positions=learned", "model.max_positions=50", "segmentation.kind=bpe_dropout")
    drawn = refused("train", *tiny, *learned, cwd=tmp_path)  # data.max_length is 50
    expected = [f"a {side} of train has up to 51 tokens with its end" for side in ("source", "target")]
    assert [line.split(",")[0] for line in drawn] == expected
    lines = refused("train", *tiny, "search.max_source=3", cwd=tmp_path)
    advice = "tokens with its end, more than search.max_source=3: cut it into sentences, or raise that"
    expected = [f"a source of {split} has up to n {advice}" for split in ("valid", "test")]
    assert [re.sub(r"to \d+ tokens", "to n tokens", line) for line in lines] == expected


@pytest.mark.medium
def test_a_validation_without_probabilities_ends_the_training_in_a_line(tiny, tmp_path, monkeypatch):
    def diverged(*search):
        raise NotFiniteError

    monkeypatch.setattr("headcount.decoding.search.grow", diverged)
    line = failed("train", *tiny, cwd=tmp_path)[-1]
    assert line.startswith("step 4: after it the model's probabilities are not finite numbers")


def start(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent / "src")}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment, **options)


@pytest.mark.slow
def test_translate_prompts_who_types(run, tmp_path):
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start(SCRIPTS / "translate.py", f"run={run}", cwd=tmp_path, close_fds=True, **streams)
    os.close(theirs)
    try:
        heard = b""
        while b"en> " not in heard:
            heard += os.read(ours, 1000)
        assert b"Ctrl-D ends" in heard
        os.write(ours, b"the dog sees the cat\n")
        while heard.count(b"en> ") < 2:
            heard += os.read(ours, 1000)
        assert b"de> der " in heard
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(ours)


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(run, tmp_path):
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = start(SCRIPTS / "translate.py", f"run={run}", cwd=tmp_path, **streams)
    process.stdout.close()
    process.stdin.write(b"the dog\n" * 10)
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_importing_the_package_is_light():
    code = "import sys, headcount; print([name for name in ('torch', 'pytorch_lightning') if name in sys.modules])"
    process = start("-c", code, stdout=subprocess.PIPE)
    assert json.loads(process.communicate()[0]) == []


@pytest.mark.medium
def test_commands_that_do_not_train_import_no_lightning():
    """It takes as long as all the rest: a translation would begin twice as late."""
    code = (
        "import json, sys, headcount.commands.evaluate, headcount.commands.translate, headcount.commands.serve; "
        "print(json.dumps([name for name in ('pytorch_lightning', 'torch._dynamo') if name in sys.modules]))"
    )
    process = start("-c", code, stdout=subprocess.PIPE)
    assert json.loads(process.communicate()[0]) == []


@pytest.mark.medium
@pytest.mark.parametrize("place", ["/proc/nothing", "/dev/full/data"])
def test_a_folder_that_cannot_be_made(place, tiny, tmp_path):
    (line,) = refused("train", *tiny, f"data.directory={place}", cwd=tmp_path)
    assert line.startswith(f"{place}")
    assert "give another, such as with data.directory= or hydra.run.dir=" in line


@pytest.mark.medium
def test_a_disk_that_is_full(tiny, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = command("train", *tiny, "hydra.run.dir=run", cwd=tmp_path)
    assert result.code == 2
    assert re.match(
        r"error: \S+/(config.yaml|tokenizer.model): No space left on device, \S+ \w+ are free; \S+ kB are needed; "
        "(the run has no checkpoint to resume from; )?make room, or give",  # the tokenizer of data not prepared before
        result.errors[-1],
    )
    assert "Traceback" not in result.err


@pytest.mark.medium
def test_only_the_first_process_scores_and_sums_up(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.run.begin.TrainingRun.is_first_process", False)
    assert completed("train", *tiny, "hydra.run.dir=run", cwd=tmp_path).out == ""
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_streams_that_are_closed_are_empty_and_text_is_utf_8_in_any_locale(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    open_streams()
    assert sys.stdin.buffer.read() == b""
    sys.stderr.write("nobody reads this")
    sys.stdout.write("schläft")
    sys.stdout.flush()
    assert written.getvalue().decode() == "schläft"


def test_a_log_line_that_nobody_reads_ends_nothing(monkeypatch):
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    _StandardError().emit(logging.makeLogRecord({"msg": "step 20"}))
