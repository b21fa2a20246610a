"""Verdicts, endpoints, flags and names of rows, on toy sweeps."""

import re
from pathlib import Path

import pytest
import sacrebleu
from reports import edit, job, page_of, rows_of, section_of, table_of_section
from sweeps import sentences, write_plan, write_run

from headcount.report.endpoint import bleu_endpoint
from headcount.report.page import markdown
from headcount.report.read import read_sweep
from headcount.report.verdicts import pair_verdict, power, summary
from headcount.statistics.comparison import compare


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([[30.0, 31.0, 30.5], [36.0, 37.0, 36.5]], "4 > 1"),
        ([[36.0, 37.0, 36.5], [30.0, 31.0, 30.5]], "1 > 4"),
        ([[36.0, 36.01, 36.02], [36.2, 36.21, 36.22]], "4 > 1, by less than 0.5"),
        ([[36.0, 36.1, 36.2], [36.05, 36.1, 36.15]], "equal within 0.5"),
        ([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]], "inconclusive"),
    ],
)
def test_a_pair_differs_is_equal_or_inconclusive(scores, words):
    (pair,) = compare(scores).differences
    assert pair_verdict(pair, ["1", "4"], 0.5) == words


def test_of_two_losses_the_lower_wins():
    (pair,) = compare([[1.0, 1.1, 1.05], [2.0, 2.1, 2.05]]).differences
    assert pair_verdict(pair, ["1", "4"], 0.02, higher=False) == "1 > 4"


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([[30.0, 31.0], [36.0, 37.0]], "4 has the highest test BLEU, 36.5, and is above 1."),
        (
            [[36.0, 37.0], [36.4, 36.9]],
            "Inconclusive: no two conditions differ in test BLEU. "
            "Pairs of conditions: 0 differ, 0 equal, 1 inconclusive.",
        ),
        (
            [[36.0, 36.1, 36.2], [36.05, 36.1, 36.15]],
            "Equal: no two conditions differ in test BLEU. Pairs of conditions: 0 differ, 1 equal, 0 inconclusive.",
        ),
        (
            [[30.0, 30.1, 30.2], [32.0, 32.1, 32.2], [20.0, 34.0, 48.0]],
            "Inconclusive: the condition with the highest test BLEU differs from no other. "
            "Pairs of conditions: 1 differ, 0 equal, 2 inconclusive.",
        ),
        ([[36.0], [30.0]], "Inconclusive: with one seed each and no text, the error of test BLEU is unknown."),
        ([[36.0, 36.1]], "There is a single condition, so there is nothing to compare."),
        (
            [[30.0, 31.0], [36.0, 37.0], [36.2, 36.9]],
            '"16, rnn" has the highest test BLEU, 36.5, and is above 1. Inconclusive: 4.',
        ),
    ],
)
def test_sentences_of_a_study(scores, text):
    labels = ["1", "4", "16, rnn"][: len(scores)]
    assert summary(compare(scores), labels, "test BLEU", 0.5) == text


def test_a_study_says_which_differences_it_detects():
    text = power(compare([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]]))
    assert re.fullmatch(r"This study detects 1\.\d to 1\.\d BLEU with a power of 80 %\.", text)
    assert power(compare([[36.0], [36.0]])) == ""


def test_bleu_is_compared_on_all_held_out_sentences(sweep, undrawn):
    endpoint = bleu_endpoint(read_sweep(sweep), 100)
    assert (endpoint.splits, endpoint.sentences, endpoint.name) == (("valid", "test"), 60, "BLEU on valid + test")
    run = sweep / job(4, 2)
    texts = ("".join((run / f"{split}.{kind}.de").read_text() for split in endpoint.splits) for kind in ("hyp", "ref"))
    hypotheses, references = (text.splitlines() for text in texts)
    assert endpoint.scores[1][1] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    shown = {row[0] for row in table_of_section(page_of(sweep), "Quality").cells}
    assert {"BLEU on valid + test", "valid BLEU", "test BLEU", "length ratio"} <= shown
    assert not endpoint.flags


def test_without_validation_text_the_test_set_decides(sweep, undrawn):
    (sweep / job(4, 2) / "valid.hyp.de").unlink()
    page = page_of(sweep)
    assert f"no valid.ref or valid.hyp of {job(4, 2)}" in " ".join(page.flags)
    assert "The primary endpoint is test BLEU" in markdown(page)
    assert "30 sentences" in markdown(page)


@pytest.mark.medium
def test_the_bound_of_rows_that_vary_unlike_is_named(sweep, undrawn):
    note = section_of(page_of(sweep), "Every pair of conditions").blocks[3]
    assert "(studentised range; deviation" in note
    for path in sweep.glob("*/metrics.json"):
        heads, seed = (int(part.rpartition("=")[2]) for part in path.parent.name.split(","))
        edit(path, valid__loss=2 + seed * (1.0 if heads == 1 else 1e-6))
    note = section_of(page_of(sweep), "Every pair of conditions").blocks[3]
    assert "(studentised range or Bonferroni's bound, whichever is larger; deviation" in note


TYPED = (("tiny", "pre"), ("tiny", "post"), ("big", "pre"))


def varied(folder: Path, plan: dict | None) -> list[str]:
    """The names of rows that differ in several settings, of which one follows from another."""
    for index, (norm, size, width) in enumerate([("pre", 16, 32), ("post", 16, 32), ("pre", 64, 128)]):
        model = {"norm": norm, "d_model": size, "d_feed_forward": width}
        write_run(folder / f"run{index},seed=1", sentences(5), 0.2, 1, {"model": model})
    if plan:
        write_plan(folder, plan)
    return rows_of(folder)


def test_long_names_are_values_alone_where_these_are_words(tmp_path, monkeypatch):
    plan = {f"run{i},seed=1": [f"model={size}", f"model.norm={norm}", "seed=1"] for i, (size, norm) in enumerate(TYPED)}
    assert varied(tmp_path, plan) == ["model=big, norm=pre", "model=tiny, norm=post", "model=tiny, norm=pre"]
    monkeypatch.setattr("headcount.report.rows.LONGEST", 20)
    assert rows_of(tmp_path) == ["big, pre", "tiny, post", "tiny, pre"]
