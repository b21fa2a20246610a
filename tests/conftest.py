"""Fixtures: a small corpus, a way to run commands, and one trained run. Shapes in annotations are checked."""

import contextlib
import copy
import functools
import io
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

# Before anything imports them: shapes in annotations are checked in tests, and only there.
CHECKED = ["headcount.model", "headcount.decoding", "headcount.training.loss"]
# A whole number may stand where a float is declared, as everywhere in Python.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
jaxtyping.install_import_hook(CHECKED, f"{__name__}.check")

import yaml  # noqa: E402
from clauses import CLAUSES, NOUNS, VERBS  # noqa: E402
from hydra._internal import defaults_list  # noqa: E402
from hydra._internal.hydra import Hydra  # noqa: E402

from headcount.cli import main  # noqa: E402

# Tests run make themselves, each as a person would: without the options and variables of the make that runs pytest.
for variable in [name for name in os.environ if name.startswith(("MAKE", "MFLAGS")) or name == "ARGS"]:
    del os.environ[variable]

# Hydra composes each command's config twice, the first time only for hydra.mode, which no test sets.
Hydra.get_mode = lambda self, config_name, overrides: None
# conf/ has no interpolation in a list of defaults, for which Hydra would map all choices: a quarter of a composition.
defaults_list._create_interpolation_map = lambda *_: None


def once(load: Callable) -> Callable:
    """yaml.load, which parses the same text once: each command reads the same files of conf/, and to parse them takes a
    tenth of the time of a command that does little else."""
    parsed = {}

    @functools.wraps(load)
    def loaded(stream, Loader):  # noqa: N803
        text = stream
        if hasattr(stream, "read"):
            begin = stream.tell()
            text = stream.read()
            stream.seek(begin)  # parsed as a file, which errors name
        key = (text, Loader.__name__)  # OmegaConf makes a new class of the same name each time
        if key not in parsed:
            parsed[key] = load(stream, Loader)
        return copy.deepcopy(parsed[key])

    return loaded


yaml.load = once(yaml.load)

SCRIPTS = Path(__file__).parents[1] / "scripts"
# The German words as a language without spaces.
WORDS = ("der", "den", *NOUNS.values(), *VERBS.values())
SPELLED = ("", "", "小狗", "公猫", "老马", "飞鸟", "棕熊", "灰狼", "看见", "听见", "寻找", "喜欢", "追赶")
CHARACTERS = dict(zip(WORDS, SPELLED, strict=True))
TINY = (
    "data=multi30k",
    "tokenizer.vocab_size=320",
    "data.batch_tokens=200",
    "data.max_length=50",
    "schedule.warmup_steps=20",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_feed_forward=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.1",
    "schedule.kind=inverse_sqrt",  # of which the first steps are those of a longer run
    "trainer=cpu",
    "steps=8",
    "trainer.log_every_n_steps=1",
    "validation.every=4",
    "logger=csv",
    "search.max_ratio=1",
    "search.max_extra=2",  # a model that is not trained does not end by itself
)


@dataclass
class Result:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line]


def command(script: str, *arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> Result:
    """Run `headcount <script>` as a shell would, but in this process, which saves the imports.

    Shapes are not checked meanwhile: that is for the tests of single functions, and is a quarter of a command's time.
    """
    out, err = io.StringIO(), io.StringIO()
    argv, environment, stream = sys.argv, dict(os.environ), sys.stdin
    sys.argv, sys.stdin = ["headcount", script, *arguments], io.TextIOWrapper(io.BytesIO(stdin))
    code = 0
    logger = logging.getLogger("headcount")
    level = logger.level
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(cwd or Path.cwd()):
            main()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
        sys.argv, sys.stdin = argv, stream
        os.environ.clear()
        os.environ.update(environment)
        logger.setLevel(level)
    return Result(code, out.getvalue(), err.getvalue())


def completed(script: str, *arguments: str, **options) -> Result:
    """The answer of a command that must succeed."""
    result = command(script, *arguments, **options)
    assert result.code == 0, result.err
    return result


def failed(script: str, *arguments: str, **options) -> list[str]:
    """The error lines of a command that must fail as wrong input does, without their `error: `."""
    result = command(script, *arguments, **options)
    assert result.code == 2, result
    return [line.removeprefix("error: ") for line in result.errors if line.startswith("error: ")]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes and every folder; links are left out."""
    paths = [path for path in folder.rglob("*") if not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in paths}


def refused(script: str, *arguments: str, cwd: Path, watched: Path | None = None, **options) -> list[str]:
    """The error lines of a command that must print nothing else and change no file under `watched`, or `cwd`."""
    before = snapshot(watched or cwd)
    result = command(script, *arguments, cwd=cwd, **options)
    assert (result.code, result.out) == (2, ""), result
    assert snapshot(watched or cwd) == before
    assert all(line.startswith("error: ") for line in result.errors), result.err
    return [line.removeprefix("error: ") for line in result.errors]


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def one_thread_at_first():
    """With more threads of torch, workers of pytest would wait for one another."""
    # Imported here, since pytest's first process, which only hands out the tests, would take seconds for it.
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread(one_thread_at_first):
    """What a test sets lasts no longer than the test."""
    import torch

    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """A folder with a toy corpus: train, valid, test in en and de."""
    folder = tmp_path_factory.mktemp("text")
    pairs = list(CLAUSES)
    random.Random(1).shuffle(pairs)
    for split, part in {"train": pairs[:140], "valid": pairs[140:150], "test": pairs[150:]}.items():
        for language, lines in zip(("en", "de"), zip(*part, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def chinese(text, tmp_path_factory) -> Path:
    """A folder with the toy corpus in en and zh, which is de in Chinese characters."""
    folder = tmp_path_factory.mktemp("zh")
    for split in ("train", "valid", "test"):
        shutil.copy(text / f"{split}.en", folder)
        lines = (text / f"{split}.de").read_text(encoding="utf-8").splitlines()
        spelled = ["".join(CHARACTERS[word] for word in line.split()) + "。\n" for line in lines]
        (folder / f"{split}.zh").write_text("".join(spelled), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(text, tmp_path_factory) -> tuple[str, ...]:
    """Overrides that make scripts/train.py take a second: toy corpus, toy model, a few steps."""
    return (*TINY, f"data.root={text}", f"data.directory={tmp_path_factory.mktemp('prepared')}")


@pytest.fixture(scope="session")
def home(tiny, tmp_path_factory) -> Path:
    """A working directory in which two runs have been trained, runs/first and runs/second; not to be written to."""
    folder = tmp_path_factory.mktemp("home")
    # Long enough for the first to learn the toy language.
    learn = (*tiny, "steps=100", "validation.every=100", "model.d_model=32")
    for name, options in {"first": learn, "second": tiny}.items():
        completed("train", *options, f"hydra.run.dir=runs/{name}", cwd=folder)
    return folder


@pytest.fixture
def sweep(tmp_path) -> Path:
    """A small toy sweep to be changed."""
    from sweeps import write_sweep

    return write_sweep(tmp_path / "sweep", {1: 0.45, 4: 0.2}, seeds=(1, 2), lines=30)


@pytest.fixture
def undrawn(monkeypatch):
    """Plots are empty, since drawing takes most of the time."""
    from headcount.report import page  # here, since few tests need it

    monkeypatch.setattr(page, "drawn", lambda spec: "<svg></svg>")
    monkeypatch.setattr(page, "bundle", lambda: "")
