"""Run directories of strangers: no command runs what is in one, hangs, takes its memory, or writes outside."""

import shutil
import sys
from pathlib import Path

import pytest
from conftest import command
from hostile import CHECKPOINT, CONFIG, METRICS, TOKENIZER, WEIGHTS, bounded

TEXT = "the dog sees the cat\n"
TRAIN = (
    "data=multi30k",
    "trainer=cpu",
    "logger=csv",
    "trainer.max_steps=10",
    "data.batch_tokens=200",
    "data.max_length=50",
)
OPEN = {
    "translate": ("run=run",),
    "evaluate": ("run=run",),
    "score": ("run=run", "source=a.txt", "target=a.txt"),
    "attention": ("run=run", "text=the dog", "output=maps"),
    "heads": ("run=run", "parts=[ablation]", "output=page"),
    "prune": ("run=run", "cut=[encoder1.1]", "timed=0", "output=smaller"),
    "diversify": ("run=run", "out=diverse"),
    "checkpoint": ("run=run", "checkpoint=run/checkpoints/last.ckpt", "source=a.txt", "target=a.txt"),
    "resume": ("resume=run", "trainer.max_steps=10"),
    "init_from": ("init_from=run", "hydra.run.dir=new", *TRAIN),
    "report": ("sweep=.",),
}
SCRIPT = {"checkpoint": "score", "resume": "train", "init_from": "train"}
ATTACKS = {
    f"{kind}: {name}": (kind, *attack)
    for kind, attacks in {
        "config": CONFIG,
        "weights": WEIGHTS,
        "tokenizer": TOKENIZER,
        "metrics": METRICS,
        "checkpoint": CHECKPOINT,
    }.items()
    for name, attack in attacks.items()
}


@pytest.fixture
def run(home, tmp_path) -> Path:
    """A run to spoil, in a working directory in a folder that is watched."""
    work = tmp_path / "work"
    shutil.copytree(home / "runs" / "second", work / "run")
    (work / "a.txt").write_text(TEXT)
    return work / "run"


def opened(run: Path, name: str, text: Path) -> list[str]:
    """The error lines of a command on the run, after it has been checked that it ended well or with one line, and wrote
    nothing outside of its working directory; nor anything at all, where it ended with a line."""
    places = (f"data.root={text}",) if name == "init_from" else ()
    before, watched = snapshot_of(run), run.parents[1]
    with bounded():
        result = command(SCRIPT.get(name, name), *OPEN[name], *places, stdin=TEXT.encode(), cwd=run.parent)
    assert not (watched / "ran").exists()
    assert {path.name for path in watched.iterdir()} == {"work"}
    assert result.code in (0, 2), result
    errors = [line for line in result.errors if line.startswith("error: ")]
    assert len(errors) == (result.code == 2), result.err
    assert "Traceback" not in result.err
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


@pytest.mark.reliability
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_command_on_a_spoiled_run(attack, run, text, undrawn):
    _, spoil, words = ATTACKS[attack]
    spoil(run)
    found = {name: opened(run, name, text) for name in OPEN}
    lines = [line for errors in found.values() for line in errors]
    assert not words or any(words in line for line in lines), found
    sys.stdout.write(f"{attack}: {len(OPEN)} commands, {len(lines)} lines\n")
