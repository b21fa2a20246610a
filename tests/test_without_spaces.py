"""A language written without spaces, from its text to its figures: the toy language in Chinese characters."""

import json
from pathlib import Path

import pytest
from conftest import command

FIRST = 0x4E00  # of the block of Chinese characters


def without_spaces(text: str, known: dict[str, str]) -> str:
    """A text with two Chinese characters for every word, the same ones for the same word."""
    for word in text.split():
        known.setdefault(word, chr(FIRST + 2 * len(known)) + chr(FIRST + 2 * len(known) + 1))
    return "".join(known[word] for word in text.split()) + "。"


@pytest.fixture(scope="module")
def chinese(text, tmp_path_factory) -> Path:
    """A folder with the toy corpus, of which de is now zh, and a line that is as long as a chapter."""
    folder, known = tmp_path_factory.mktemp("zh"), {}
    for split in ("train", "valid", "test"):
        lines = (text / f"{split}.de").read_text(encoding="utf-8").splitlines()
        own = [without_spaces(line, known) for line in lines]
        source = (text / f"{split}.en").read_text(encoding="utf-8").splitlines()
        if split == "train":
            own, source = [*own, "".join(own)], [*source, " ".join(source)]
        (folder / f"{split}.zh").write_text("".join(f"{line}\n" for line in own), encoding="utf-8")
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in source), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(chinese, tiny, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    options = [option for option in tiny if not option.startswith("data.root=")]
    learn = ("trainer.max_steps=80", "validation.every=80", "model.d_model=32")
    text = ("data.source=en", "data.target=zh", f"data.root={chinese}", "data.cleaning.max_words=null")
    result = command("train", *options, *learn, *text, "hydra.run.dir=run", cwd=home)
    assert result.code == 0, result.err
    return home / "run"


def test_it_is_cleaned_like_any_other(run, tiny):
    directory = next(option for option in tiny if option.startswith("data.directory=")).partition("=")[2]
    reports = [json.loads(path.read_text()) for path in Path(directory).glob("prepared/*/report.json")]
    counts = [report["counts"]["train"] for report in reports if report["counts"]["train"]["read"] == 141]
    assert [(each["too many pieces"], each["kept"]) for each in counts] == [(1, 140)]  # and nothing for its lengths


def test_it_is_learned_and_scored_as_chinese(run):
    figures = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["test"]
    assert figures["bleu"] > 10
    assert "tok:zh" in figures["signature"]["bleu"]
    hypotheses = (run / "test.hyp.zh").read_text(encoding="utf-8").splitlines()
    assert len(hypotheses) == len((run / "test.ref.zh").read_text(encoding="utf-8").splitlines()) == 30
    assert not any(" " in line for line in hypotheses)


def test_it_is_translated_into(run):
    result = command("translate", f"run={run}", stdin=b"the dog sees the cat\n", cwd=run.parent)
    assert result.code == 0, result.err
    (line,) = result.out.splitlines()
    assert line
    assert " " not in line
