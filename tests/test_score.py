"""Scoring of given translations: log-probability, tokens and perplexity."""

import math

import pytest
from conftest import command, completed, refused

from headcount.run.opened import open_run

SOURCES = ["the dog sees the cat", "the bear likes the wolf", "", "the dog sees the cat"]
TARGETS = ["der Hund sieht den Kater", "der Hund", "der Bär", ""]


@pytest.fixture
def folder(home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    for name, lines in {"a.en": SOURCES, "a.de": TARGETS, "short.de": TARGETS[:2], "none": []}.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return tmp_path


def score(folder, *arguments):
    return completed("score", "run=runs/first", *arguments, cwd=folder)


@pytest.mark.medium
def test_a_line_a_pair_and_a_summary(folder):
    result = score(folder, "source=a.en", "target=a.de")
    rows = [line.split("\t") for line in result.out.splitlines()]
    tokenizer = open_run(folder / "runs" / "first").tokenizer
    tokens = [len(ids) + 1 for ids in tokenizer.encode(TARGETS)]
    assert [int(row[1]) for row in rows] == tokens
    log_probs = [float(row[0]) for row in rows]
    for log_prob, count, row in zip(log_probs, tokens, rows, strict=True):
        assert log_prob < 0
        assert float(row[2]) == pytest.approx(math.exp(-log_prob / count), rel=1e-3)
    (summary,) = result.errors
    assert summary.startswith(f"4 pairs, {sum(tokens)} tokens: log-probability ")
    assert float(summary.split()[5]) == pytest.approx(sum(log_probs), abs=1e-3)
    assert float(summary.split()[-1]) == pytest.approx(math.exp(-sum(log_probs) / sum(tokens)), rel=1e-3)


@pytest.mark.medium
def test_what_search_finds_has_the_score_that_search_gave_it(folder):
    arguments = ("run=runs/first", "search=beam", "search.alpha=0", "nbest=1")
    found = command("translate", *arguments, stdin=SOURCES[0].encode(), cwd=folder)
    _, text, value = found.out.rstrip("\n").split(" ||| ")
    (folder / "x.en").write_text(SOURCES[0] + "\n", encoding="utf-8")
    (folder / "x.de").write_text(text + "\n", encoding="utf-8")
    (line,) = score(folder, "source=x.en", "target=x.de").out.splitlines()
    assert float(line.split("\t")[0]) == pytest.approx(float(value), abs=1e-3)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source=a.en"], "target=null: must be a file of their translations"),
        (["target=a.de"], "source=null: must be a file of sentences"),
        (["source=a.en", "target=short.de"], "a.en has 4 lines and short.de has 2"),
        (["source=a.en", "target=x.de"], "x.de: there is no such file"),
        (["source=none", "target=none"], "none: holds no line"),
        (["source=a.en", "target=a.de", "checkpoint=x"], "x: no such file"),
    ],
)
def test_wrong_wishes(arguments, message, folder):
    (line,) = refused("score", "run=runs/first", *arguments, cwd=folder)
    assert line.startswith(message)
