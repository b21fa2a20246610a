"""Data diversification: originals first, each pair once with its provenance, and in either direction."""

import json
import os
import subprocess
import sys

import pytest
from conftest import SCRIPTS, completed

from headcount.run.opened import open_run


def diversify(folder, *words) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent / "src")}
    command = [sys.executable, SCRIPTS / "diversify.py", *words]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stderr


def rows(path) -> list[tuple[str, str, str]]:
    return [tuple(json.loads(line).values()) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.medium
def test_originals_come_first_and_each_translation_names_its_run(home, text, tiny, tmp_path):
    turned = ("data.source=de", "data.target=en", "steps=2")
    completed("train", *tiny, *turned, f"hydra.run.dir={tmp_path / 'back'}", cwd=tmp_path)
    (tmp_path / "runs").symlink_to(home / "runs")
    names = ("runs/first", "back")
    said = diversify(tmp_path, "new", *names, "--search", '{"beam": 1}')
    sources, targets = ((text / f"train.{language}").read_text().splitlines() for language in ("en", "de"))
    expected = dict.fromkeys(zip(sources, targets, strict=True), "original")
    there, back = (open_run(tmp_path / name, search={"beam": 1}).translator for name in names)
    made = [(zip(sources, there.translate(sources), strict=True), names[0])]
    made += [(zip(back.translate(targets), targets, strict=True), names[1])]
    for pairs, name in made:
        for pair in pairs:
            if all(pair):
                expected.setdefault(pair, name)
    assert rows(tmp_path / "new/train.jsonl") == [(*pair, name) for pair, name in expected.items()]
    for split in ("valid", "test"):
        references = (text / f"{split}.de").read_text().splitlines()
        assert [row[1] for row in rows(tmp_path / f"new/{split}.jsonl")] == references
    corpus = said.split("train with ")[1].split()
    given = [option for option in tiny if not option.startswith(("data=", "data.root"))]
    completed("train", *corpus, *given, "steps=1", "hydra.run.dir=trained", cwd=tmp_path)
    diversify(tmp_path, "new", names[0], "--distilled", "--search", '{"beam": 1}')
    assert {row[2] for row in rows(tmp_path / "new/train.jsonl")} == {names[0]}
