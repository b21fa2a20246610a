"""Every command that the README shows, run as it stands but for fewer steps and smaller data."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.grammar import Grammar
from headcount.grammar.phenomena import PHENOMENA

ROOT = Path(__file__).parents[1]
STEPS = 4
SMALL = [
    "model.d_model=16",
    "model.d_feed_forward=16",
    f"trainer.max_steps={STEPS}",
    "validation.every=2",
    "data.vocab_size=500",
    "trainer.accelerator=cpu",
    "search.beam=2",
    "search.max_ratio=1",
    "data.directory=data",
]
SMALL_GRAMMAR = ["data.train_size=2000", "data.valid_size=8", "data.test_size=16"]
NOT_HERE = ("make test", "make ablate")  # the tests do not run themselves, nor a dozen trainings


def readme_commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and line not in NOT_HERE]


def script_of(command: str) -> list[str]:
    """What a command runs, make looked through: a script and its arguments."""
    words = shlex.split(command)
    if words[0] == "make":
        dry_run = ["make", "--dry-run", *words[1:]]
        printed = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=True)
        words = shlex.split(next(line for line in printed.stdout.splitlines() if "scripts/" in line))
    return words[next(i for i, word in enumerate(words) if word.startswith("scripts/")) :]


def made_small(words: list[str]) -> list[str]:
    """A training command with little to do."""
    if any(word.startswith("resume=") for word in words):
        return [*words, f"trainer.max_steps={STEPS + 2}"]
    if any(word.startswith("init_from=") for word in words):  # its model and vocabulary are small
        return [*words, f"trainer.max_steps={STEPS}", "search.max_ratio=1", *SMALL_GRAMMAR]
    elsewhere = ("data=multi30k", "data=files", "recipe=multi30k_en_de")
    corpus = [] if any(word in elsewhere for word in words) else SMALL_GRAMMAR
    if "recipe=multi30k_en_de" in words:
        corpus = ["data.budget.warmup_steps=2"]
    if any(word.startswith("data.held_out") for word in words):
        corpus = ["data.held_out.valid=8", "data.held_out.test=16"]
    if "--multirun" in words:  # named as without what makes it small
        name = "hydra.sweep.subdir='model.num_heads=${model.num_heads},seed=${seed}'"
        words = [*words, name, "seed=1", "threads=1"]
    return [*words, *SMALL, *corpus]


def run_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script in this process: starting Python and importing torch anew would take most of the time."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / words[0]), *words[1:]])
    code = None
    try:
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    assert not code, f"{words} ended with {code}"


def write_corpora(folder: Path) -> None:
    data = Grammar(train_size=2000, valid_size=8, test_size=16, seed=1).load()
    for place in ("my", "data/multi30k"):
        (folder / place).mkdir(parents=True)
        for split, rows in data.items():
            for language, column in {"en": "source", "de": "target"}.items():
                text = "".join(line + "\n" for line in rows[column])
                (folder / place / f"{split}.{language}").write_text(text, encoding="utf-8")
    rows = zip(data["train"]["source"], data["train"]["target"], strict=True)
    table = "".join(f"{en}\t{de}\n" for en, de in [("en", "de"), *rows])
    (folder / "my" / "train.tsv").write_text(table, encoding="utf-8")


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capfd):
    commands = readme_commands()
    assert len(commands) > 10
    write_corpora(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if command.startswith("torchrun"):
            continue  # test_end_to_end has one
        if command.startswith("sacrebleu"):
            subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True)
            continue
        given, _, command = command.rpartition(" | ")
        words = script_of(command)
        if words[0] == "scripts/train.py":
            words = made_small(words)
            on_hub = {"data=multi30k", "recipe=multi30k_en_de"} & set(words)
            if on_hub and not any(word.startswith("data.root=") for word in words):
                words.append("data.root=data/multi30k")  # there is no hub here
        if given:
            capfd.readouterr()
            piped = tmp_path / "piped"
            piped.write_text(shlex.split(given)[1] + "\n", encoding="utf-8")
            with piped.open() as source:
                monkeypatch.setattr(sys, "stdin", source)
                run_script(words, monkeypatch)
                assert len(capfd.readouterr().out.splitlines()) == 1
        else:
            run_script(words, monkeypatch)
    assert (tmp_path / "runs" / "latest" / "metrics.json").exists()
    assert len(list((tmp_path / "runs" / "sweep_grammar").glob("model.num_heads=*/metrics.json"))) == 2
    job = tmp_path / "runs" / "sweep_grammar" / "model.num_heads=1,seed=1"
    figures = json.loads((job / "metrics.json").read_text())
    assert set(figures["test"]["contrastive"]) == set(PHENOMENA)
    assert set(figures["valid"]["contrastive"]) <= set(PHENOMENA)  # its plain sentences have no contrast


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "headcount.load" in code
    calls: list[list[str]] = []

    class Stub:
        def translate(self, lines: list[str]) -> list[str]:
            calls.append(lines)
            return lines

    monkeypatch.setattr("headcount.run.opened.load", lambda run: Stub())
    exec(compile(code, "README.md", "exec"), {})
    assert calls == [["The old doctor sleeps in the garden."]]


def test_the_files_that_the_readme_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", text):
        assert (ROOT / target).exists(), target
    assert os.access(ROOT / "Makefile", os.R_OK)
