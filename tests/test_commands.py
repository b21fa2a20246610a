"""Commands as they are typed: `headcount NAME`, make, scripts/, and the lines that headcount prints to type next."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, TINY, command, completed
from hydra.core.override_parser.overrides_parser import OverridesParser

import headcount
from headcount import command_lines
from headcount.cli import COMMANDS

ROOT = SCRIPTS.parent
PROGRAM = (sys.executable, "-m", "headcount")


def begun(*words: object, cwd: Path = ROOT, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A real process that must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, input=stdin, capture_output=True, text=True
    )
    assert ended.returncode == 0, (words, ended.stderr)
    return ended


@pytest.mark.medium
def test_help_comes_without_torch_and_says_all_settings():
    shown = begun(*PROGRAM, "--help")
    lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines() if line.startswith("  ")]
    assert [name for name, _ in lines] == list(COMMANDS)
    code = (
        "import sys; from headcount.cli import COMMANDS, main\n"
        "for name in COMMANDS: print(f'\\f{name}'); sys.argv = ['headcount', name, '--help']; main()\n"
        'print(f\'\\f{sorted({"torch", "pytorch_lightning", "datasets", "pydantic"} & set(sys.modules))}\')'
    )
    *pages, loaded = begun(sys.executable, "-c", code).stdout.split("\f")[1:]
    assert ast.literal_eval(loaded) == []
    assert [page.partition("\n")[0] for page in pages] == list(COMMANDS)
    for page in pages:
        name, _, text = page.partition("\n")
        assert f"  headcount {name}" in text
        assert "\ndebug: false" in text
        assert "_self_" not in text
    modules = ", ".join(f"headcount.commands.{name}" for name in ("evaluate", "translate", "serve"))
    code = f"import sys, {modules}; print({{'pytorch_lightning', 'torch._dynamo'}} & set(sys.modules))"
    assert begun(sys.executable, "-c", code).stdout == "set()\n"  # a translation would begin twice as late
    choices = pages[0].partition("== Choices")[2].partition("== Settings")[0]
    assert "\nmodel: base, big, " in choices


def test_words_that_are_no_command():
    lines = {
        "trian": "error: trian: no such command; did you mean train? headcount --help lists all\n",
        "xyz": "error: xyz: no such command; headcount --help lists all\n",
        "tr\nain": "error: tr\\nain: no such command; did you mean train? headcount --help lists all\n",
    }
    for name, line in lines.items():
        assert command(name).err == line
    assert completed("--version").out == f"headcount {headcount.__version__}\n"
    assert f'version = "{headcount.__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for page in ("CITATION.cff", "CHANGELOG.md", "README.md"):
        assert headcount.__version__ in (ROOT / page).read_text(encoding="utf-8"), page


ODD = "runs/a=1,b 'x' (ü)"


@pytest.mark.medium
def test_a_training_and_all_that_it_says_to_type_next(text, tmp_path):
    own = ("data.directory=prepared", f"data.root={text}", "steps=2", "hydra.run.dir=" + command_lines.quoted(ODD))
    trained = begun(*PROGRAM, "train", *TINY, *own, cwd=tmp_path)
    assert (tmp_path / ODD / "model.safetensors").is_file()
    hints = [line.strip() for line in trained.stdout.partition("next:  ")[2].splitlines()]
    names = [name for hint in hints for name in COMMANDS if f"headcount {name} " in hint]
    assert names == ["doctor", "translate", "evaluate"]
    for hint in hints[1:]:  # the doctor finds enough in two steps, and its exit code says so
        line = re.sub(r"^\S*headcount ", f"{shlex.join(PROGRAM)} ", hint)
        assert begun("bash", "-c", line, cwd=tmp_path, stdin="the dog\n").stdout


ODD_NAMES = (
    *("1e5", "007", "1_0", ".5", "null", "true", "inf", "a=b", "a,b", "x (1)", "it's", "jürgen", "[x]", "a:b", "~x"),
    *("..", "'x'", "a/1e5", "x&y", "$HOME", "a!b", "{x}", "#x", "a;b", 'say "x"', "a\\'b", "a\\b", "日本", "a  b"),
    *("`x`", "*", "%x", "runs/x/model.num_heads=1,seed=2"),
)


def words_of(line: str, program: str) -> list[str]:
    """The words that a shell gives a program."""
    stub = f"{program}() {{ printf '%s\\0' \"$@\"; }}; {line}"
    return begun("bash", "-c", stub).stdout.split("\0")[:-1]


def made(line: str) -> list[str]:
    """The words that make gives to headcount."""
    shown = begun("bash", "-c", line.replace("make ", "make --dry-run ", 1)).stdout
    return words_of(re.sub(r"@?\.venv/bin/headcount", "headcount", shown.splitlines()[-1]), "headcount")


@pytest.mark.medium
def test_a_printed_command_names_the_run_that_it_is_of(monkeypatch):
    monkeypatch.setattr(command_lines, "program", lambda: "headcount")
    parse = OverridesParser.create().parse_override
    lines = (command_lines.command("x", run=name).removeprefix("headcount ") for name in ODD_NAMES)
    assert [parse(word).value() for word in words_of("\n".join(lines), "x")] == list(ODD_NAMES)


def test_the_program_is_named_as_this_environment_types_it(monkeypatch, tmp_path):
    own = tmp_path / "bin" / "headcount"
    own.parent.mkdir()
    own.touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert command_lines.program() == "bin/headcount"
    monkeypatch.setenv("PATH", str(own.parent))
    assert command_lines.program() == "headcount"
    assert (
        command_lines.command("train", "seed=1", run="a b", steps=3) == "headcount train \"run='a b'\" steps=3 seed=1"
    )


@pytest.mark.medium
def test_every_target_of_make_takes_the_same_run():
    parse = OverridesParser.create().parse_override
    runs = {"x/model.num_heads=1,seed=2": None, "[A,B]": ["A", "B"], "x y": None}
    for target in ("evaluate", "translate", "doctor", "explore", "export", "serve", "heads", "prune"):
        assert parse(made(f"make {target}")[1]).value() == "runs/latest"
    for target in ("evaluate", "prune"):
        for given, value in runs.items():
            assert parse(made(f"make {target} {shlex.quote(f'RUN={given}')}")[1]).value() == (value or given)
    for target, given in (("report", "a=1, b"), ("heads", "x y")):
        assert parse(made(f"make {target} {shlex.quote(f'SWEEP={given}')}")[1]).value() == given
    ablate = made("make ablate STUDY=kv_heads JOBS=2 RECIPE=multi30k_study")
    assert ablate[:3] == ["train", "--multirun", "study=kv_heads"]
    assert {"report=true", "hydra.launcher.n_jobs=2", "recipe=multi30k_study"} <= set(ablate)


def test_make_shows_its_targets():
    shown = begun("make", "help").stdout
    targets = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    (declared,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets == set(declared.split())
