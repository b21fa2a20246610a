"""Errors on the command line: a line for each mistake, exit code 2, and nothing left behind."""

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
from conftest import command, completed, failed, refused, rewrite
from safetensors.torch import load_file, save_file

from headcount.decoding.search import NOT_FINITE, NotFiniteError

SRC = Path(__file__).parents[1] / "src"
TOGETHER = {  # reported together: every part of a config is looked at before anything is read
    "model.num_heads=3": "model.num_heads=3 does not divide model.d_model=16: the nearest that do are 2 and 4",
    "steps=x": "steps=x: must be a valid integer",
    "seed=x": "seed=x: must be a valid integer",
    "optimizer.lr=-1": "optimizer.lr=-1: must be ",
    "optimizer.adamw_lr=-1": "optimizer.adamw_lr=-1: must be ",
    "validation.every=0": "validation.every=0: must be greater than or equal to 1",
    "averaging.last=0": "averaging.last=0: must be ",
    "checkpoint.every=0": "checkpoint.every=0: must be ",
    "schedule.warmup_steps=x": "schedule.warmup_steps=x: must be a valid integer",
    "loss.smoothing=1": "loss.smoothing=1: ",
    "data.batch_tokens=x": "data.batch_tokens=x: must be a valid integer",
    "data.cleaning.max_ratio=x": "data.cleaning.max_ratio=x: must be a valid number or null",
    "tokenizer.vocab_size=100": "tokenizer.vocab_size=100",
    "data.source=de": "data.source=de and data.target=de are the same language",
    "trainer.precision=16-mixed": "trainer.precision=16-mixed: must be 'auto', '32-true', ",
    "trainer.gradient_clip_val=-1": "trainer.gradient_clip_val=-1: must be ",
    "logger=x": "logger=x: must be 'default', 'csv', ",
}
ALONE = [  # what is typed, and the line
    ("model.num_head=3", "model.num_head: no such setting; did you mean model.num_heads"),
    ("modle.num_heads=3", "modle.num_heads: no such setting; did you mean model.num_heads or "),
    ("averaging.kind=x", "averaging.kind=x: must be one of none, checkpoints, ema, best"),
    ("loss=null", "loss=null: is a group of settings, such as loss.kind"),
    ("segmentation=5", "segmentation=5: is a group of settings"),
    ("model.kind=[a]", "model.kind=[a]: must be one of transformer, recurrent"),
    ("heads=4", "heads: no such setting; did you mean model.num_heads?"),
    ("trainer.kind=cpu", "trainer.kind: no such setting; did you mean "),
    ("data.tests=5", "data.tests=5: must be "),
    ("averaging=ema", "averaging=ema: is a group of settings, such as averaging.kind"),
    ("search=default", "search=default: is no option; there are beam, diverse, greedy, mbr, sample"),
    ("schedule.final=0.1 schedule.kind=constant", "schedule.final=0.1: has no effect with schedule.kind=constant"),
    ("model.cross_attention=x", "model.cross_attention=x: must be one of scaled_dot, luong_dot, "),
    ("trainer.devices=2", "trainer.devices=2 trainer.num_nodes=1: 1 processes were started on each of 1 machines"),
    ("bleu_tokenizer=x", "bleu_tokenizer=x: must be null or one of none, zh, 13a"),
    ("resume=nothing", "nothing is not a run directory"),
    ("resume=", "resume=: is empty; give a path, or leave it out"),
    ("data=files data.target=de", "data.source: not given"),
    ("recipe=tatoeba_en_de", "data.path: not given; needed are the name of a data set and both language codes"),
    ("+data.held_out.train=5", "data.held_out.train: no such setting; there are valid, test, seed"),
    ("extensions=[absent]", "extensions=[absent]: No module named 'absent'"),
    ("loss.kind=r_drop model.dropout=0", "loss: r_drop compares two passes that differ by dropout; give model.dropout"),
    ("segmentation.kind=sampled", "segmentation: SampledSegmentation needs tokenizer"),
    ("--multirun --cfg job seed=1,2", "--cfg: shows one job; leave out --multirun, and give one value of each"),
    ("--config-dir nowhere", "Additional config directory"),
    ("optimizer.adjust_lr_fn=rms", "optimizer.adjust_lr_fn=rms: must be 'original' or "),
    ("optimizer=nadamw optimizer.lr=-1", "optimizer: Invalid learning rate: -1"),
    ("optimizer=schedule_free schedule.kind=constant", "optimizer=schedule_free averages the weights itself, "),
    ("study=kv_heads study.varies=3", "study.varies=3: must be a valid string or null"),
    ("+validation.patiense=5", "validation.patiense: no such setting; did you mean validation.patience?"),
    ("++divergence.stopafter=1", "divergence.stopafter: no such setting; did you mean divergence.stop_after?"),
    ("+data.budget.warmup=10", "data.budget: no such setting; "),
    ("+study.varries=x", "study.varries: no such setting; did you mean study.varies?"),
    ("+search.bean=3", "search.bean: no such setting; did you mean search.beam?"),
    ("+trainer.max_epochs=1", "trainer.max_epochs: no such setting; "),
    ("data.both_directions=true tokenizer.kind=separate", "data.both_directions=true: needs one vocabulary of both"),
    ("data=files data.tests={seed:x.tsv}", "data.tests.seed: metrics.json has a figure of that name; give another"),
]
if not torch.cuda.is_available():
    ALONE.append(("trainer=gpu", "trainer.accelerator=gpu: no GPU found; use trainer=cpu"))


@pytest.mark.medium
def test_all_wrong_settings_are_reported_together(tiny, tmp_path):
    lines = refused("train", *tiny, *TOGETHER, cwd=tmp_path)
    for expected in TOGETHER.values():
        assert any(line.startswith(expected) for line in lines), (expected, lines)
    assert len(lines) == len(TOGETHER), lines


@pytest.mark.medium
@pytest.mark.parametrize(("words", "expected"), ALONE, ids=[words for words, _ in ALONE])
def test_what_cannot_be_is_one_line(words, expected, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.data.module.TranslationData.prepare_data", None)  # it would not come to that
    given = [] if words.startswith(("data=files", "recipe=")) else tiny
    flags, settings = (words.split(), ()) if words.startswith("--") else ((), words.split())
    lines = refused("train", *flags, *given, *settings, cwd=tmp_path)
    assert lines[0].startswith(expected), lines
    assert len(lines) == 1


@pytest.mark.medium
@pytest.mark.parametrize("value", ["runs/jürgen", "runs/copy (1)", "a=b", "it's", "[x", "{x}", "a#b", "~/x", "a,b"])
def test_a_value_that_needs_quotes_is_named_with_them(value, tmp_path):
    (line,) = refused("translate", f"run={value}", cwd=tmp_path)
    assert line.startswith("run: this value needs quotes: \"run='")
    (word, *_) = shlex.split(line.removeprefix("run: this value needs quotes: "))
    (line,) = refused("translate", word.removesuffix(","), cwd=tmp_path)
    assert line.startswith(f"{value} is not a run directory: train one with `")


@pytest.mark.medium
@pytest.mark.parametrize("asked", ["debug=True", "debug=1", "++debug=true", "", "debug=false"])
def test_debug_shows_the_traceback(asked, tiny, tmp_path):
    (tmp_path / "own" / "recipe").mkdir(parents=True)
    (tmp_path / "own" / "recipe" / "mine.yaml").write_text("# @package _global_\ndebug: true\n")
    words = [asked] if asked else ["--config-dir=own", "recipe=mine"]
    result = command("train", *words, *tiny, "model.norm=x", cwd=tmp_path)
    assert result.code == 2
    assert ("Traceback" in result.err) == (asked != "debug=false")
    assert result.errors[-1].startswith("error: model.norm=x: must be")
    if asked:  # nor is there a config yet where a setting is wrong
        assert ("Traceback" in command("train", "modle=x", asked, cwd=tmp_path).err) == (asked != "debug=false")


WRONG_TEXT = {
    "a line short": ("train.de", lambda text: text[: text.rstrip().rindex(b"\n") + 1], "train.en has 140 lines and "),
    "not UTF-8": ("valid.de", lambda text: text.replace("ä".encode(), b"\xe4", 1), "not valid UTF-8"),
    "empty after cleaning": ("train.en", lambda text: b"\n" * 140, "no pair of the train split is left"),
    "missing": ("test.de", None, "has no test.de or test.de.gz"),
}


@pytest.mark.medium
@pytest.mark.parametrize("case", WRONG_TEXT)
def test_wrong_text(case, tiny, text, tmp_path):
    name, change, expected = WRONG_TEXT[case]
    folder, work = shutil.copytree(text, tmp_path / "text"), tmp_path / "work"
    work.mkdir()
    (folder / name).write_bytes(change((folder / name).read_bytes())) if change else (folder / name).unlink()
    (line,) = refused("train", *tiny, f"data.root={folder}", cwd=work)
    assert expected in line


@pytest.mark.medium
def test_places_that_cannot_be_used(tiny, home, tmp_path):
    (line,) = refused("train", *tiny, "hydra.run.dir=runs/first", cwd=home)
    assert line.startswith("runs/first holds a run already: continue it with resume=auto")
    for place in ("/proc/nothing", "/dev/full/data"):
        (line,) = refused("train", *tiny, f"data.directory={place}", cwd=tmp_path)
        assert line.startswith(place)
        assert "give another, such as with data.directory= or hydra.run.dir=" in line
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    assert "runs/latest is in the way" in refused("train", *tiny, cwd=tmp_path)[0]


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run to spoil."""
    return Path(shutil.copytree(home / "runs" / "first", tmp_path / "run"))


def configured(old: str, new: str):
    """Replaces the first `old` in the config of a run."""
    return lambda run: rewrite(run / "config.yaml", lambda text: text.replace(old, new, 1))


def diverged(run: Path) -> None:
    """Make one weight not a number."""
    weights = load_file(run / "model.safetensors")
    weights["decoder.0.cross_attention.key.weight"][1, 2] = float("nan")
    save_file(weights, run / "model.safetensors")


SPOILED = {
    "unknown kind": (configured("kind: transformer", "kind: os.system"), "model.kind=os.system: must be one of "),
    "earlier": (configured("kind: transformer", "_target_: x.Transformer"), "python scripts/migrate_run.py run renews"),
    "interpolation": (configured("beam: 5", "beam: ${oc.env:HOME}"), "the config of a run, whose settings have values"),
    "another YAML": (lambda run: (run / "config.yaml").write_text("a: 1"), "config.yaml: not the config of a run"),
    "no weights": (lambda run: (run / "model.safetensors").unlink(), "training may still be under way"),
    "bad weights": (lambda run: (run / "model.safetensors").write_bytes(b"x" * 99), ".safetensors: no weights can be"),
    "weights without numbers": (diverged, "key.weight is not of finite numbers"),
    "other weights": (configured("d_model: 32", "d_model: 64"), "does not fit the model"),
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
def test_weights_that_do_not_fit_a_run(run, home, tmp_path):
    shutil.copy(home / "runs" / "second" / "checkpoints" / "last.ckpt", tmp_path / "other.ckpt")
    for words, expected in {
        "checkpoint=run/config.yaml": "run/config.yaml: no weights can be read from it",
        "checkpoint=other.ckpt": "other.ckpt: does not fit the model in run: size mismatch for",
        "run=[run,nothing]": "nothing is not a run directory",
        "device=abacus": "device=abacus: not available here",
    }.items():
        (line,) = refused("evaluate", "run=run", words, cwd=tmp_path)
        assert line.startswith(expected)


@pytest.mark.medium
def test_translate_is_a_filter(run, tmp_path):
    source = "the dog sees the cat\n\nthe bear likes\u2028the wolf\r\nthe cat hears the dog"
    result = command("translate", "run=run", stdin=source.encode(), cwd=tmp_path)
    lines = result.out.split("\n")
    assert (result.code, result.err, len(lines), lines[1], lines[4]) == (0, "", 5, "", "")
    backwards = command("translate", "run=run", stdin="\n".join(source.split("\n")[::-1]).encode(), cwd=tmp_path)
    assert backwards.out.split("\n")[:4] == lines[3::-1]
    for words, given, printed in (([], b"", 0), (["precision=bfloat16", "search.beam=1"], source.encode(), 4)):
        assert completed("translate", "run=run", *words, stdin=given, cwd=tmp_path).out.count("\n") == printed


@pytest.mark.medium
def test_translate_names_the_line_that_it_cannot_take(run, tmp_path, monkeypatch):
    result = command("translate", "run=run", stdin=b"the dog\n\nthe \xff\nthe cat\n", cwd=tmp_path)
    assert (result.code, result.out.count("\n")) == (2, 2)  # what came before it
    (line,) = result.errors
    assert line.startswith(
        "error: standard input, line 3: not valid UTF-8; unpack a packed file, or convert the text from its encoding"
    )
    monkeypatch.setattr("headcount.commands.translate.LINES_AT_ONCE", 2)
    source = b"the dog\n\nthe cat\n" + b"the dog sees the cat " * 300 + b"\nthe cat\n"
    result = command("translate", "run=run", stdin=source, cwd=tmp_path)
    assert (result.code, result.out.count("\n")) == (2, 3)
    (line,) = result.errors
    assert re.match(r"error: standard input, line 4: [\d,]+ subwords, more than search.max_source=1000; cut it ", line)


@pytest.mark.medium
def test_a_validation_without_probabilities_ends_the_training_in_a_line(tiny, tmp_path, monkeypatch):
    def diverged(*search):
        raise NotFiniteError(NOT_FINITE)

    monkeypatch.setattr("headcount.decoding.translator.search_loop", diverged)
    line = failed("train", *tiny, cwd=tmp_path)[-1]
    assert line.startswith("step 4: after it the model's probabilities are no finite numbers")


@pytest.mark.slow
def test_translate_prompts_who_types(run, tmp_path):
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    words = (sys.executable, "-m", "headcount", "translate", "run=run")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(words, env=environment, cwd=tmp_path, close_fds=True, **streams)
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
