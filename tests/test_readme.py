"""Every command of the README and docs: run, with fewer steps and smaller data, or composed where it takes hours."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from headcount.cli import CONF
from headcount.grammar import Grammar
from headcount.grammar.phenomena import PHENOMENA
from headcount.run.resolvers import register_resolvers

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "bench"))
import run as bench  # noqa: E402

STEPS = 4
SMALL = [
    "model.d_model=16",
    "model.d_feed_forward=16",
    f"steps={STEPS}",
    "validation.every=2",
    "tokenizer.vocab_size=500",
    "trainer.accelerator=cpu",
    "search.beam=2",
    "search.max_ratio=1",
    "data.directory=data",
]
SMALL_GRAMMAR = ["data.train_size=2000", "data.valid_size=8", "data.test_size=16"]
RUN = ("README.md", "docs/training.md", "docs/studies.md")  # pages whose commands are run; quick are those of the first
ON_HUB = ("recipe=multi30k_en_de", "recipe=multi30k_quick")
# What takes hours or minutes, or names a RUN: only its config is composed.
COMPOSED = ("make ablate", "make bench")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "data" / "README.md"]
    if path.name != "report.md"
)


def commands_of(page: str) -> list[str]:
    """The command lines of a page, each once."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def run_here(pages: tuple[str, ...] = RUN) -> list[str]:
    """The commands that are run, each once, in the order of the pages."""
    lines = dict.fromkeys(line for page in pages for line in commands_of(page))
    composed = [line for line in lines if line.startswith(COMPOSED) or re.search("RUN_A|=RUN ", line)]
    composed += [line for line in lines if "sweep=runs/recurrent_grammar_study" in line]  # which takes hours to make
    return [line for line in lines if line != "make test" and line not in composed]


def script_of(command: str) -> list[str]:
    """What a command runs, make and headcount looked through: a script and its arguments."""
    words = shlex.split(command)
    if "headcount" in words:  # by srun and torchrun too
        words = words[words.index("headcount") :]
        script = f"scripts/{words[1]}.py"
        return [script, *words[2:]] if (ROOT / script).exists() else ["src/headcount/__main__.py", *words[1:]]
    if words[0] == "make":
        dry_run = ["make", "--dry-run", *words[1:]]
        printed = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=True)
        line = next(line for line in printed.stdout.splitlines() if re.search("scripts/|bin/headcount", line))
        words = shlex.split(line.removesuffix("; \\"))
        if words[0].endswith("/headcount"):
            return ["src/headcount/__main__.py", *words[1:]]
    return words[next(i for i, word in enumerate(words) if word.startswith("scripts/")) :]


def made_small(words: list[str]) -> list[str]:
    """A training command with little to do."""
    if any(word.startswith("resume=") and word != "resume=auto" for word in words):
        return [*words, f"steps={STEPS + 2}"]
    elsewhere = ("data=multi30k", "data=files", *ON_HUB)
    corpus = [] if any(word in elsewhere for word in words) else SMALL_GRAMMAR
    if any(word.startswith("init_from=") for word in words):  # its model and vocabulary are small
        return [*words, f"steps={STEPS}", "search.max_ratio=1", *corpus]
    if any(word in ON_HUB for word in words):
        corpus = ["schedule.warmup_steps=2"]
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


def as_run(command: str) -> list[str]:
    """The script of a command and its arguments, made small, with the corpus here in place of the hub."""
    words = script_of(command)
    if words[0] == "scripts/train.py":
        words = made_small(words)
        on_hub = {"data=multi30k", *ON_HUB} & set(words)
        if on_hub and not any(word.startswith("data.root=") for word in words):
            words.append("data.root=data/multi30k")
    return [*words, "search.samples=4"] if "search=mbr" in words else words


@pytest.mark.medium
@pytest.mark.parametrize(
    ("pages", "least"), [(RUN[:1], 2), pytest.param(RUN, 15, marks=pytest.mark.slow)], ids=["readme", "doors"]
)
def test_the_commands_of_the_readme_and_of_its_doors_run(pages, least, tmp_path, monkeypatch, capfd):
    commands = [command for command in run_here(pages) if "sweep" not in command and "--multirun" not in command]
    assert len(commands) > least
    write_corpora(tmp_path)
    monkeypatch.chdir(tmp_path)
    done: list[set[str]] = []
    for command in commands:
        if command.startswith("torchrun"):
            continue  # test_end_to_end has one
        if command.startswith("sacrebleu"):
            subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True)
            continue
        given, _, command = command.rpartition(" | ")
        words = as_run(command)
        if given:
            capfd.readouterr()
            piped = tmp_path / "piped"
            piped.write_text(shlex.split(given)[1] + "\n", encoding="utf-8")
            with piped.open() as source:
                monkeypatch.setattr(sys, "stdin", source)
                run_script(words, monkeypatch)
                assert len(capfd.readouterr().out.splitlines()) == 1
        elif set(words) not in done:  # two commands may differ in where the corpus is, and there is one place here
            run_script(words, monkeypatch)
            done.append(set(words))
    assert (tmp_path / "runs" / "latest" / "metrics.json").exists()


@pytest.mark.slow
def test_the_commands_on_a_sweep_run(tmp_path, monkeypatch):
    """Slow: each job is a process, and imports Lightning anew."""
    commands = [command for command in run_here() if "sweep" in command or "--multirun" in command]
    assert len(commands) > 2
    monkeypatch.chdir(tmp_path)
    for command in commands:
        run_script(as_run(command), monkeypatch)
    assert len(list((tmp_path / "runs" / "sweep_grammar").glob("model.num_heads=*/metrics.json"))) == 2
    job = tmp_path / "runs" / "sweep_grammar" / "model.num_heads=1,seed=1"
    figures = json.loads((job / "metrics.json").read_text())
    assert set(figures["test"]["contrastive"]) == set(PHENOMENA)
    assert set(figures["valid"]["contrastive"]) <= set(PHENOMENA)  # its plain sentences have no contrast


def test_the_python_of_the_page_on_training_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "headcount.load" in code
    calls: list[list[str]] = []

    class Stub:
        def translate(self, lines: list[str]) -> list[str]:
            calls.append(lines)
            return lines

    monkeypatch.setattr("headcount.run.opened.load", lambda run: Stub())
    exec(compile(code, "training.md", "exec"), {})
    assert calls == [["The old doctor sleeps in the garden."]]


@pytest.mark.medium
@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_the_commands_of_a_page_compose(page):
    """Those that the quick test above does not run: some take minutes or hours."""
    register_resolvers()
    composed = [command for command in commands_of(page) if command not in run_here(RUN[:1])]
    for command in composed:
        if command.startswith("make bench"):
            bench.options().parse_args(script_of(command)[1:])
            continue
        if not re.search(r"scripts/\w+\.py|headcount |^make (train|ablate)", command) or command.startswith("pip "):
            continue  # of the system, or without settings
        script, *words = script_of(command)
        if script == "src/headcount/__main__.py":
            script, *words = [*words, ""]
        if not (CONF / f"{Path(script).stem}.yaml").exists():
            continue  # without settings of Hydra
        parsed = OverridesParser.create().parse_overrides([word for word in words if "=" in word])
        ((first_job, *_),) = BasicSweeper.split_arguments(parsed, None)
        with initialize_config_dir(str(CONF), version_base="1.3"):
            compose(Path(script).stem, first_job)


def test_the_worked_example_of_attention_prints_what_the_page_shows(capsys):
    page = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "attention.md", "exec"), {})
    torch.set_printoptions(profile="default")
    assert capsys.readouterr().out == printed


def test_the_page_on_development_names_every_folder_of_the_package():
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"## What is where\n\n```\n(.*?)```", page, re.DOTALL)
    folders: list[str] = []
    named = set()
    for line in tree.splitlines():
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        folders[indent // 2 :] = [name]
        named.add("".join(folders).rstrip("/"))
    assert all((ROOT / name).is_dir() for name in named), [name for name in named if not (ROOT / name).is_dir()]
    assert {str(path.parent.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")} <= named


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target
    for name in re.findall(r"`([\w/]+\.(?:py|yaml))`", text):
        assert "NAME" in name or any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "headcount")), name


def test_the_readme_is_a_front_door():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150


@pytest.mark.parametrize(
    ("heading", "pages"),
    [("What was found", ["docs/claims.md", "docs/results/grammar.md"]), ("How fast", ["docs/performance.md"])],
)
def test_the_figures_of_the_readme_are_those_of_the_pages_that_it_links_to(heading, pages):
    (section,) = re.findall(rf"## {heading}\n(.*?)\n## ", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    known = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    assert all(figure in known for figure in re.findall(r"\d+\.\d+", section))
