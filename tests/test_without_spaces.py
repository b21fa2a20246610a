"""A language without spaces, from text to figures: the toy language in Chinese characters."""

import json
from pathlib import Path

import pytest
from conftest import completed


@pytest.fixture(scope="module")
def run(chinese, tiny, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    options = [option for option in tiny if not option.startswith("data.root=")]
    learn = ("steps=80", "validation.every=80", "model.d_model=32")
    text = ("data.source=en", "data.target=zh", f"data.root={chinese}")
    completed("train", *options, *learn, *text, "hydra.run.dir=run", cwd=home)
    return home / "run"


@pytest.mark.medium
def test_it_is_learned_and_scored_as_chinese(run):
    figures = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["test"]
    assert figures["bleu"] > 10
    assert "tok:zh" in figures["signature"]["bleu"]
    hypotheses = (run / "test.hyp.zh").read_text(encoding="utf-8").splitlines()
    assert len(hypotheses) == len((run / "test.ref.zh").read_text(encoding="utf-8").splitlines()) == 30
    assert not any(" " in line for line in hypotheses)


@pytest.mark.medium
def test_it_is_translated_into(run):
    result = completed("translate", f"run={run}", stdin=b"the dog sees the cat\n", cwd=run.parent)
    (line,) = result.out.splitlines()
    assert line
    assert " " not in line
