"""Commands: `headcount NAME` and scripts/NAME.py have one main function, in a checkout and installed anywhere."""

import argparse
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, completed, refused
from hydra.core.override_parser.overrides_parser import OverridesParser

import headcount
from headcount import command_lines as place
from headcount import commands
from headcount.__main__ import main

ROOT = SCRIPTS.parent


def typed(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    """Exit code and output of `headcount WORDS`."""
    monkeypatch.setattr(sys, "argv", ["headcount", *words])
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    return code, *capsys.readouterr()


def test_every_command_has_a_line_and_the_doors_run_the_same():
    names = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert set(commands.NAMES) == names
    for path in SCRIPTS.glob("*.py"):
        _, *code = path.read_text(encoding="utf-8").split("\n\n", 1)
        main = f'from headcount.commands.{path.stem} import main\n\nif __name__ == "__main__":\n    main()\n'
        assert (code == [main]) == (path.stem in names), path


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_overview_imports_no_command(words):
    code = (
        f"import sys; sys.argv = ['headcount', *{words}]; from headcount.__main__ import main; main(); "
        "assert not {'torch', 'hydra', 'omegaconf', 'pytorch_lightning'} & set(sys.modules)"
    )
    environment = {"PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines() if line.startswith("  ")]
    assert [name for name, _ in lines] == list(commands.NAMES)
    assert all(about[0].isupper() and len(about) < 90 for _, about in lines)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("trian", "error: trian: no such command; did you mean train? headcount --help lists all\n"),
        ("xyz", "error: xyz: no such command; headcount --help lists all\n"),
        ("tr\nain", "error: tr\\nain: no such command; did you mean train? headcount --help lists all\n"),
    ],
)
def test_an_unknown_command_is_one_line(monkeypatch, capsys, name, line):
    assert typed(monkeypatch, capsys, name) == (2, "", line)


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
    assert typed(monkeypatch, capsys, "--version") == (0, f"headcount {headcount.__version__}\n", "")
    assert f'version = "{headcount.__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for page in ("CITATION.cff", "CHANGELOG.md", "README.md"):
        assert headcount.__version__ in (ROOT / page).read_text(encoding="utf-8"), page


@pytest.mark.medium
def test_a_command_is_that_of_its_script(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(monkeypatch, capsys, "translate", "run=nothing")
    assert (code, out) == (2, "")
    assert [f"error: {line}" for line in refused("translate", "run=nothing", cwd=tmp_path)] == err.splitlines()
    assert "train one with `headcount train`" in err


COMMANDS = [  # in a checkout, elsewhere, and what it is made of
    ("make train", "headcount train", ["train"], {}),
    ("headcount export format=page", "headcount export format=page", ["export", "format=page"], {}),
    ("python scripts/train.py seed=1", "headcount train seed=1", ["train", "seed=1"], {}),
    ("make translate RUN=runs/a", "headcount translate run=runs/a", ["translate"], {"run": "runs/a"}),
    (
        'make heads RUN=runs/a ARGS="prune=3 order=x"',
        "headcount heads run=runs/a prune=3 order=x",
        ["heads", "prune=3", "order=x"],
        {"run": "runs/a"},
    ),
    ("make evaluate RUN=a=1,b=2", "headcount evaluate \"run='a=1,b=2'\"", ["evaluate"], {"run": "a=1,b=2"}),
    ("make report SWEEP='a b'", "headcount report \"sweep='a b'\"", ["report"], {"sweep": "a b"}),
    ("make translate RUN=null", "headcount translate \"run='null'\"", ["translate"], {"run": "null"}),
    ("python scripts/train.py 'x=[1,$]'", "headcount train 'x=[1,$]'", ["train", "x=[1,$]"], {}),
]


@pytest.mark.parametrize(("here", "elsewhere", "words", "settings"), COMMANDS)
def test_the_command_to_type_next_works_where_one_is(monkeypatch, tmp_path, here, elsewhere, words, settings):
    monkeypatch.chdir(ROOT)
    assert place.command(*words, **settings) == here
    monkeypatch.chdir(tmp_path)
    assert place.command(*words, **settings) == elsewhere
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(place, "CHECKOUT", None)
    assert place.command(*words, **settings) == elsewhere


ODD_NAMES = [
    *(
        "1e5",
        "007",
        "1_0",
        ".5",
        "null",
        "true",
        "inf",
        "a=b",
        "a,b",
        "x (1)",
        "it's",
        "jürgen",
        "[x]",
        "a:b",
        "~x",
        "..",
        "'x'",
    ),
    *("a/1e5", "x&y", "$HOME", "a!b", "{x}", "#x", "a;b", 'say "x"', "a\\'b", "a\\b", "日本", "a  b", "`x`", "*", "%x"),
]


def words_of(line: str, program: str) -> list[str]:
    """The words that a shell gives a program."""
    stub = f"{program}() {{ printf '%s\\0' \"$@\"; }}; {line}"
    return subprocess.run(["bash", "-c", stub], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")


def made(line: str) -> list[str]:
    """The words that a line of make gives to Python."""
    dry = ["bash", "-c", line.replace("make ", "make --dry-run ", 1)]
    shown = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return words_of(re.sub(r"@?\.venv/bin/(python|headcount)", "program", shown.splitlines()[-1]), "program")[1:]


@pytest.mark.medium
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_printed_command_names_the_run_that_it_is_of(name, monkeypatch, tmp_path):
    """Through the shell, and Hydra's parser; in a checkout also through make."""
    word = f"resume={place.hydra_text(name)}"
    monkeypatch.chdir(ROOT)
    here, only_words = place.command("heads", word, run=name), place.command("heads", word)
    assert here.startswith("make heads RUN=")
    monkeypatch.chdir(tmp_path)
    elsewhere = place.command("heads", word, run=name)
    parse = OverridesParser.create().parse_overrides
    expected = {"run": name, "resume": name}
    for words in (made(here), words_of(elsewhere, "headcount")[1:]):
        assert {each.key_or_group: each.value() for each in parse(words[:-1])} == expected, words
    (only,) = parse(words_of(only_words, "python")[1:-1])
    assert only.value() == name


@pytest.mark.medium
@pytest.mark.parametrize("target", ["evaluate", "translate", "doctor", "explore", "export", "serve", "heads", "prune"])
def test_every_target_takes_the_same_run(target):
    parse = OverridesParser.create().parse_override
    for given, value in {
        "a=1,b=2": "a=1,b=2",
        "[A,B]": ["A", "B"],
        "'[x]'": "[x]",
        "x y": "x y",
        "it's": "it's",
    }.items():
        assert parse(made(f"make {target} {shlex.quote(f'RUN={given}')}")[0]).value() == value
    assert parse(made(f"make {target}")[0]).value() == "runs/latest"
    for target, given in (("report", "a=1, b"), ("heads", "it's")):
        assert parse(made(f"make {target} {shlex.quote(f'SWEEP={given}')}")[0]).value() == given


@pytest.mark.parametrize(("code", "written"), [(0, "sweep='runs/mine (1)'"), (2, "sweep='runs/x'"), (2, "")])
def test_ablate_reports_on_what_it_trained(code, written, tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    train = f"printf %s {shlex.quote(written)} > $HEADCOUNT_SWEEP_FILE; exit {code}"
    python.write_text(f'#!/bin/sh\necho "$@" >> words\ncase $1 in */train.py) {train};; esac\n')
    python.chmod(0o755)
    make = ["make", "-f", ROOT / "Makefile", "-o", ".venv/study", "ablate", "BIN=bin", "JOBS=1", "ARGS=name=mine"]
    (tmp_path / "tmp").mkdir()
    ended = subprocess.run(make, cwd=tmp_path, capture_output=True, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})
    train, *report = (tmp_path / "words").read_text().splitlines()
    assert train.endswith("name=mine")
    assert report == ([f"scripts/report.py {written}"] if written else [])
    assert ended.returncode == code
    assert not any((tmp_path / "tmp").iterdir())


def test_configs_are_found_inside_of_an_installed_package(tmp_path):
    package = tmp_path / "headcount"
    (package / "run").mkdir(parents=True)
    for name in ("__init__.py", "run/__init__.py", "run/place.py"):
        shutil.copy(ROOT / "src" / "headcount" / name, package / name)
    show = [sys.executable, "-c", "from headcount.command_lines import CHECKOUT, CONF; print(CHECKOUT, CONF)"]
    environment = {"PYTHONPATH": str(tmp_path)}
    (package / "conf").mkdir()
    found = subprocess.run(show, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == f"None {package / 'conf'}\n"
    assert place.CONF == ROOT / "conf"


def test_init_writes_a_folder_once(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = typed(monkeypatch, capsys, "init", "my/settings")
    assert code == 0
    assert "headcount train --config-dir my/settings\n" in out
    copies = {path.relative_to(tmp_path / "my/settings") for path in tmp_path.rglob("*.yaml")}
    assert copies == {path.relative_to(place.CONF) for path in place.CONF.rglob("*.yaml")}
    Path("my/settings/train.yaml").write_text("mine")
    code, out, err = typed(monkeypatch, capsys, "init", "my/settings")
    assert (code, out) == (2, "")
    assert err == "error: my/settings is there already: move it away, or give another folder\n"
    assert Path("my/settings/train.yaml").read_text() == "mine"
    assert [path.name for path in Path("my").iterdir()] == ["settings"]
    Path("file").touch()
    assert typed(monkeypatch, capsys, "init", "file/x")[0] == 2
    for words in ((), ("a", "b"), ("--force",)):
        assert typed(monkeypatch, capsys, "init", *words)[2].startswith("error: init: give the folder to write")
    assert typed(monkeypatch, capsys, "init", "--help")[:1] == (0,)


@pytest.mark.medium
def test_an_edited_file_of_the_folder_acts_and_the_others_come_from_headcount(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, capsys, "init", "settings")
    for name, old, new in (("train.yaml", "seed: 1", "seed: 71"), ("model/nano.yaml", "d_model: ", "d_model: 8")):
        path = tmp_path / "settings" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(f"\n{old}") == 1, name
        path.write_text(text.replace(f"\n{old}", f"\n{new}"), encoding="utf-8")
    own = ("--config-dir", "settings", "--cfg", "job", "model=nano")
    plain = completed("train", *own[2:], cwd=tmp_path).out
    width = next(line.split()[1] for line in plain.splitlines() if line.startswith("  d_model: "))
    shown = completed("train", *own, cwd=tmp_path).out
    assert "\nseed: 71\n" in shown
    assert f"\n  d_model: 8{width}\n" in shown
    for path in (tmp_path / "settings").iterdir():
        if path.is_dir() and path.name != "model":
            shutil.rmtree(path)
    assert completed("train", *own, cwd=tmp_path).out == shown
    assert "seed: 71" not in completed("train", *own[2:], cwd=tmp_path).out
    (line,) = refused("train", "--config-dir", "nowhere", cwd=tmp_path)
    assert "nowhere' not found" in line


def test_hydra_parses_under_an_argparse_that_checks_help(monkeypatch, tmp_path):
    def check(self, action):  # as Python 3.14 does
        raise ValueError("badly formed help string")

    monkeypatch.setattr(argparse.ArgumentParser, "_check_help", check, raising=False)
    assert "nothing is not a run directory" in refused("translate", "run=nothing", cwd=tmp_path)[0]
