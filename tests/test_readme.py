"""Every command of the README and docs: run, with fewer steps and smaller data, or composed where it takes hours."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from built import composed
from conftest import TINY, command
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from headcount.cli import COMMANDS
from headcount.run.build import load_extensions, without_other_kinds
from headcount.settings import check

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "bench"))
import run as bench  # noqa: E402

STEPS = 4
SMALL = (*TINY[1:], f"steps={STEPS}", "data.directory=data", "tokenizer.vocab_size=400")
SMALL_GRAMMAR = ("data.train_size=2000", "data.valid_size=8", "data.test_size=16")
ON_HUB = {"data=multi30k", "recipe=multi30k_en_de", "recipe=multi30k_quick"}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "data" / "README.md"]
    if path.name != "report.md"
)
# Tests of sweeps, of servers and of several processes have these.
ELSEWHERE = ("--multirun", "make ablate", "sweep", "RUN", "torchrun", "make serve")
RUN = ("README.md", "docs/training.md", "docs/studies.md")  # pages whose commands are run; quick are those of the first


def lines_of(page: str) -> list[str]:
    """The command lines of a page, each once."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def words_of(line: str) -> list[str] | None:
    """The name and settings of the headcount command in a line, make looked through; None for another line."""
    if line.startswith("make "):
        dry_run = ["make", "--dry-run", *shlex.split(line, comments=True)[1:]]
        printed = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        line = next((each for each in printed.splitlines() if "bin/headcount " in each), "")
    words = shlex.split(line, comments=True)
    for place, word in enumerate(words[:-1]):
        if Path(word).name == "headcount" and words[place + 1] in COMMANDS:
            return words[place + 1 :]
        if word == "python" and (name := re.fullmatch(r"scripts/(\w+)\.py", words[place + 1])) and name[1] in COMMANDS:
            return [name[1], *words[place + 2 :]]
    return None


def made_small(words: list[str]) -> list[str]:
    """A training with little to do, with the corpus here in place of the hub."""
    if any(word.startswith("resume=") and word != "resume=auto" for word in words):
        return [*words, f"steps={STEPS + 2}"]
    on_hub = ON_HUB & set(words)
    corpus = () if on_hub or "data=files" in words else SMALL_GRAMMAR
    if on_hub:
        corpus = ("schedule.warmup_steps=2", "data.root=data/multi30k")
    if any(word.startswith("data.held_out") for word in words):
        corpus = ("data.held_out.valid=8", "data.held_out.test=16")
    if any(word.startswith("init_from=") for word in words):  # its model and vocabulary are small
        return [*words, f"steps={STEPS}", "search.max_ratio=1", *corpus]
    return [*words, *SMALL, *corpus]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("pages", "least"), [(RUN[:1], 2), pytest.param(RUN, 15, marks=pytest.mark.slow)], ids=["readme", "doors"]
)
def test_the_commands_of_the_readme_and_of_its_doors_run(pages, least, text, tmp_path):
    lines = list(dict.fromkeys(line for page in pages for line in lines_of(page)))
    commands = {line: words for line in lines if (words := words_of(line))}
    assert len(commands) > least
    for place in ("my", "data/multi30k"):
        shutil.copytree(text, tmp_path / place)
    sides = [(text / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "de")]
    rows = ["en\tde", *map("\t".join, zip(*sides, strict=True))]
    (tmp_path / "my" / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = []
    for line, words in commands.items():
        if any(each in line for each in ELSEWHERE):
            continue
        words = made_small(words) if words[0] == "train" else words
        words += ["search.samples=4"] if "search=mbr" in words else []
        stdin = shlex.split(line.partition(" | ")[0])[1].encode() if line.startswith("echo ") else b""
        if words not in done:  # two commands may differ in where the corpus is, and there is one place here
            done.append(words)
            result = command(*words, stdin=stdin, cwd=tmp_path)
            assert result.code in ((0, 1) if words[0] == "doctor" else (0,)), (line, result.err)
            assert not stdin or len(result.out.splitlines()) == 1
    assert (tmp_path / "runs" / "latest" / "metrics.json").exists()


@pytest.mark.medium
@pytest.mark.parametrize("page", [page for page in PAGES if lines_of(page)])
def test_the_commands_of_a_page_compose(page):
    wrong = {}
    for line in lines_of(page):
        try:
            if line.startswith("make bench"):
                given = [word.removeprefix("ARGS=") for word in shlex.split(line) if word.startswith("ARGS=")]
                bench.PARSER.parse_args(shlex.split("".join(given)))
            elif (words := words_of(line)) and "--config-dir" not in words:  # a folder of the reader's
                compose_first_job(*words)
        except (Exception, SystemExit) as error:
            wrong[line] = error
    assert not wrong


def compose_first_job(name: str, *words: str) -> None:
    """Raises an error for a setting or an option that there is not, or a value of another type."""
    parsed = OverridesParser.create().parse_overrides([word for word in words if "=" in word])
    ((first_job, *_),) = BasicSweeper.split_arguments(parsed, None)
    if name == "heads":  # model= is a path here, and a group of conf/ elsewhere
        first_job = [word for word in first_job if not word.startswith("model=")]
    config = composed(name, *[word for word in first_job if not word.startswith("hydra.")])
    if name == "train":
        OmegaConf.set_struct(config, False)
        load_extensions(config)
        without_other_kinds(config)
    elif kind := getattr(import_module(f"headcount.commands.{name}"), "Settings", None):
        given: Any = OmegaConf.to_container(config, resolve=True)
        check(kind, {setting: value for setting, value in given.items() if setting != "search"})


def test_the_worked_example_of_attention_prints_what_the_page_shows(capsys):
    text = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "attention.md", "exec"), {})
    torch.set_printoptions(profile="default")
    assert capsys.readouterr().out == printed


def test_the_page_on_development_names_every_folder_of_the_package():
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    folders = [path for path in (ROOT / "src" / "headcount").rglob("*") if any(path.glob("*.py"))]
    assert [str(path) for path in folders if f"{path.name}/" not in text] == []


def anchors(path: Path) -> set[str]:
    """Those of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_headings_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text)
    places = [((ROOT / page).parent / link if link else ROOT / page, anchor) for link, anchor in links]
    assert [place for place, _ in places if not place.exists()] == []
    pages = [(place, anchor) for place, anchor in places if anchor and place.suffix == ".md"]
    assert [each for each in pages if each[1] not in anchors(each[0])] == []
    names = [
        name
        for name in re.findall(r"`([\w/]+\.(?:py|yaml))`", text)
        if "NAME" not in name and not name.startswith("settings/")
    ]
    places = (ROOT, ROOT / "src" / "headcount", ROOT / "scripts")
    assert [name for name in names if not any((place / name).exists() for place in places)] == []


def test_the_readme_is_a_front_door_whose_figures_are_those_of_the_pages_that_it_links_to():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110
    assert len(text.split()) <= 950
    sections = {"What we found": ["docs/findings.md"], "How fast": ["docs/performance.md"]}
    for heading, pages in sections.items():
        (section,) = re.findall(rf"## {heading}\n(.*?)\n## ", text, re.DOTALL)
        known = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
        assert all(figure in known for figure in re.findall(r"\d+\.\d+", section))
