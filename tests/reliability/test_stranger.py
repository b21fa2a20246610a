"""Run directories of strangers: no command runs what is in one, hangs, takes its memory, or writes outside."""

import collections
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import command, completed
from hostile import CHECKPOINT, CONFIG, CURVES, MARKUP, METRICS, PLACED, RESUMED, TOKENIZER, WEIGHTS, bounded
from omegaconf import OmegaConf

pytestmark = pytest.mark.reliability

TEXT = "the dog sees the cat\n"
TRAIN = ("data=multi30k", "trainer=cpu", "logger=csv", "steps=10", "data.batch_tokens=200", "data.max_length=50")
# Those that write into the run come last, since they may mend it.
OPEN = {
    "report": ("sweep=.",),
    "translate": ("run=run",),
    "doctor": ("run=run",),
    "score": ("run=run", "input=a.txt", "hypotheses=a.txt"),
    "rerank": ("run=run", "rerank=[]"),
    "attention": ("run=run", "text=the dog", "attention=maps"),
    "prune": ("run=run", "cut=[encoder1.1]", "timed=0", "output=smaller"),
    "checkpoint": ("run=run", "checkpoint=run/checkpoints/last.ckpt", "input=a.txt", "hypotheses=a.txt"),
    "init_from": ("init_from=run", "hydra.run.dir=new", *TRAIN),
    "heads": ("run=run", "parts=[ablation]", "output=page"),
    "export": ("run=run", "format=page", "examples=1", "output=page.html"),
    "evaluate": ("run=run",),
    "resume": ("resume=run", "steps=10"),
}
SCRIPT = {"checkpoint": "evaluate", "score": "evaluate", "rerank": "evaluate", "attention": "heads", "prune": "heads"}
SCRIPT |= {"resume": "train", "init_from": "train"}
ATTACKS = {
    f"{kind}: {name}": (*attack, commands)
    for kind, attacks, commands in [
        ("config", CONFIG, OPEN),
        ("weights", WEIGHTS, OPEN),
        ("tokenizer", TOKENIZER, OPEN),
        ("metrics", METRICS, OPEN),
        ("checkpoint", CHECKPOINT, OPEN),
        # The others open a run as `translate` does.
        ("place", PLACED, ("report", "translate", "checkpoint", "init_from", "heads", "evaluate", "resume")),
        ("curves", CURVES, ("report", "doctor", "resume")),
        ("resumed", RESUMED, ("resume",)),
    ]
    for name, attack in attacks.items()
}


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run to spoil, in a working directory in a folder that is watched."""
    work = tmp_path / "work"
    shutil.copytree(home / "runs" / "second", work / "run")
    (work / "a.txt").write_text(TEXT)
    return work / "run"


@pytest.fixture(scope="module")
def tally():
    """Counts of the commands by how they ended, printed at the end."""
    counts = collections.Counter()
    yield counts
    sys.stdout.write(
        f"\nstranger: {counts['attacks']} attacks, {counts.total() - counts['attacks']:,} commands: "
        f"{counts['refused']:,} refused in one line, {counts['worked']:,} worked; nothing was run, or written outside\n"
    )


def opened(run: Path, name: str, text: Path) -> list[str]:
    """The error lines of a command on the run, after it has been checked that it ended well or with one line, and wrote
    nothing outside of its working directory; nor anything at all, where it ended with a line."""
    places = (f"data.root={text}",) if name == "init_from" else ()
    before, outside = snapshot_of(run), outside_of(run)
    with bounded():
        result = command(SCRIPT.get(name, name), *OPEN[name], *places, stdin=TEXT.encode(), cwd=run.parent)
    assert outside_of(run) == outside
    assert result.code in ((0, 1, 2) if name == "doctor" else (0, 2)), result  # 1: a warning
    errors = [line for line in result.errors if line.startswith("error: ")]
    assert len(errors) == (result.code == 2), result.err
    assert "Traceback" not in result.err
    assert not [line for line in errors if "not enough memory" in line or not line.isprintable()]
    if result.code == 2:
        assert snapshot_of(run) == before
    return errors


def snapshot_of(run: Path) -> dict[str, object]:
    """The files of the run by size and time: some are too large to be read."""
    return {
        str(path.relative_to(run)): (status.st_size, status.st_mtime_ns)
        for path in sorted(run.rglob("*"))
        if not path.is_dir() and path.name != ".lock"
        for status in [path.lstat()]
    }


def outside_of(run: Path) -> dict[str, object]:
    """All that is around the working directory, by size and time."""
    return {
        str(path): (status.st_size, status.st_mtime_ns)
        for folder in run.parents[1].iterdir()
        if folder != run.parent
        for path in (folder, *folder.rglob("*"))
        for status in [path.lstat()]
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_command_on_a_spoiled_run(attack, run, text, undrawn, tally):
    spoil, words, commands = ATTACKS[attack]
    spoil(run)
    found = {name: opened(run, name, text) for name in commands}
    lines = [line for errors in found.values() for line in errors]
    tally.update(["attacks", *("refused" if errors else "worked" for errors in found.values())])
    assert all(any(each in line for each in words.split(" or ")) for line in lines), found
    if attack.partition(": ")[2] not in PLACED:  # many a place is only written to, and that anew
        assert bool(lines) == bool(words), found


def test_no_page_has_the_markup_of_a_run(home, tmp_path):
    """Neither of its figures, settings, translations, logs and text, nor of its name."""
    name = "<img src=x onerror=alert(3)>"
    run = shutil.copytree(home / "runs" / "second", tmp_path / name)
    figures = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps(marked_up(figures) | {MARKUP: figures["test"]}))
    for path in (*run.glob("*.hyp.*"), *run.glob("*.ref.*")):
        path.write_text(f"{MARKUP}\n" * len(path.read_text().splitlines()))
    shutil.copytree(run, tmp_path / "sweep" / name)
    config = OmegaConf.load(run / "config.yaml")
    config.study = {"title": MARKUP, "label": MARKUP, "about": MARKUP}
    config[MARKUP] = MARKUP
    OmegaConf.save(config, tmp_path / "sweep" / name / "config.yaml")
    failed = shutil.copytree(tmp_path / "sweep" / name, tmp_path / "sweep" / f"{name}2")
    (failed / "metrics.json").unlink()
    (failed / "job.json").write_text(json.dumps({"state": MARKUP}))
    (failed / "job.log").write_text(f"error: {MARKUP}\n")
    plan = {"overrides": [MARKUP], "jobs": {name: [MARKUP], f"{name}2": [MARKUP], f"{name}3": [MARKUP]}}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(plan))
    completed("report", "sweep=sweep", cwd=tmp_path)
    completed("heads", f"run='{name}'", "parts=[ablation]", cwd=tmp_path)
    completed("heads", f"run='{name}'", f"text='{MARKUP}'", "attention=maps", cwd=tmp_path)
    completed("export", "format=page", f"run='{name}'", "examples=1", cwd=tmp_path)
    pages = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".md", ".svg")]
    shown = {path: path.read_text() for path in pages}
    for path in tmp_path.rglob("*.md"):
        shown[path] = re.sub(r"```.*?```|`[^`\n]*`", "", shown[path], flags=re.DOTALL)  # code is shown as it is
    found = [str(path) for path in pages if re.search(r"(?<!\\)<(script>alert|img src=x)", shown[path])]
    assert {path.suffix for path in pages} == {".html", ".md", ".svg"}
    assert not found
    sys.stdout.write(f"\nstranger: no markup of a run in {len(pages)} pages and pictures\n")


def marked_up(node: object) -> object:
    """With markup at the end of all text."""
    if isinstance(node, dict):
        return {key: marked_up(value) for key, value in node.items()}
    return (
        [marked_up(each) for each in node]
        if isinstance(node, list)
        else f"{node}{MARKUP}"
        if isinstance(node, str)
        else node
    )
