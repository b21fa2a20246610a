"""A language without spaces, from text to figures: the toy language in Chinese characters."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import completed


@pytest.fixture(scope="module")
def with_chapter(chinese, tmp_path_factory) -> Path:
    """The Chinese toy corpus, and a line that is as long as a chapter."""
    folder = shutil.copytree(chinese, tmp_path_factory.mktemp("zh") / "text")
    for language, between in {"en": " ", "zh": ""}.items():
        path = folder / f"train.{language}"
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(f"{line}\n" for line in [*lines, between.join(lines)]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(with_chapter, tiny, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    options = [option for option in tiny if not option.startswith("data.root=")]
    learn = ("steps=80", "validation.every=80", "model.d_model=32")
    text = ("data.source=en", "data.target=zh", f"data.root={with_chapter}", "data.cleaning.max_words=null")
    completed("train", *options, *learn, *text, "hydra.run.dir=run", cwd=home)
    return home / "run"


@pytest.mark.slow
def test_it_is_cleaned_like_any_other(run, tiny):
    directory = next(option for option in tiny if option.startswith("data.directory=")).partition("=")[2]
    reports = [json.loads(path.read_text()) for path in Path(directory).glob("prepared/*/report.json")]
    counts = [report["counts"]["train"] for report in reports if report["counts"]["train"]["read"] == 141]
    assert [(each["too many pieces"], each["kept"]) for each in counts] == [(1, 140)]  # and nothing for its lengths


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
