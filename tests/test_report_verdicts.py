"""Verdicts, endpoints, flags and names of rows, on toy sweeps."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from reports import edit, job, page_of, page_with, rows_of, table_of_section
from sweeps import STUDY, sentences, write_run

from headcount.report.endpoint import bleu_endpoint
from headcount.report.page import markdown
from headcount.report.read import read_sweep
from headcount.report.verdicts import needed, pair_verdict, summary
from headcount.statistics.comparison import compare, interaction


def named(folder: Path) -> Names:
    return Names.of(read_sweep(folder))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([[30.0, 31.0, 30.5], [36.0, 37.0, 36.5]], "differ: 4 heads beat 1"),
        ([[36.0, 37.0, 36.5], [30.0, 31.0, 30.5]], "differ: 1 head beats 4"),
        ([[36.0, 36.01, 36.02], [36.2, 36.21, 36.22]], "differ: 4 heads beat 1, by less than 0.5 BLEU"),
        ([[36.0, 36.1, 36.2], [36.05, 36.1, 36.15]], "equal within 0.5 BLEU"),
        ([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]], "undecided"),
    ],
)
def test_a_pair_differs_is_equal_or_undecided(scores, words, sweep):
    (pair,) = compare(scores).differences
    assert pair_verdict(pair, named(sweep), 0.5, "BLEU") == words


def test_of_two_losses_the_lower_wins(sweep):
    (pair,) = compare([[1.0, 1.1, 1.05], [2.0, 2.1, 2.05]]).differences
    assert pair_verdict(pair, named(sweep), 0.02, "nats", higher=False) == "differ: 1 head beats 4"


def test_seeds_needed_come_with_their_interval():
    text = needed(compare([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]]), 0.3, "BLEU")
    about, low, high = (int(number) for number in re.findall(r"(?:about|:|to) (\d+)", text))
    assert low < about < high
    assert 40 <= about < 50
    simulated = r"A power of 80 %, simulated with the deviations of these rows, .* of 1\.\d BLEU with as many seeds"
    assert re.match(simulated, text)
    drawn = np.random.default_rng(0).normal(size=(1000, 2))
    of_sentences = interaction(np.repeat(drawn, 2, axis=1), [0, 0, 1, 1], 1000)
    text = needed(compare([[36.0, 36.1], [36.0, 36.2]], of_sentences), 0.3, "BLEU")
    assert text.endswith(" with as many seeds as here. For 0.3 BLEU no number of seeds is enough on these sentences.")
    assert needed(compare([[36.0], [36.0]], interaction(drawn, [0, 1], 1000)), 0.3, "BLEU") == ""


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([[30.0, 31.0], [36.0, 37.0]], r"4 heads reach the highest test BLEU, 36\.5 on average, and beat 1\.$"),
        (
            [[36.0, 37.0], [36.4, 36.9]],
            r"No rows differ by test BLEU; means over seeds are 36\.5 to 36\.6\. They are undecided\.$",
        ),
        (
            [[36.0, 36.1, 36.2], [36.05, 36.1, 36.2]],
            r"No rows differ by test BLEU; means over seeds are 36\.1 to 36\.1\. They are equal within 0\.5 BLEU\.$",
        ),
        ([[36.0], [30.0]], r"1 head reaches the highest test BLEU, 36\.0\. With one seed a row and no text"),
        ([[36.0, 36.1]], "There is a single row"),
        (
            [[36.0, 37.0], [36.4, 36.8], [36.1, 37.1]],
            r"No rows differ by test BLEU; means over seeds are 36\.5 to 36\.6\. Of 3 pairs of rows, none differs, ",
        ),
        (
            [[30.0, 30.1, 30.2], [31.0, 31.1, 31.2], [1.0, 37.0, 60.0]],
            r"No row differs from 16 heads, the highest, by test BLEU; means over seeds are 30\.1 to 32\.7\. Of 3 ",
        ),
        (
            [[30.0, 31.0], [36.0, 37.0], [36.2, 36.9]],
            r"16 heads reach the highest test BLEU, 36\.\d on average, and beat 1\. Undecided against 4\. Of 3 pairs "
            r"of rows, 2 differ, none is equal within 0\.5 BLEU and 1 is undecided\.$",
        ),
    ],
)
def test_sentences_of_a_study(scores, text, sweep):
    write_run(sweep / "more", sentences(30), 0.2, 1, {"model": {"num_heads": 16, "norm": "pre"}, "study": STUDY})
    assert re.match(text, summary(compare(scores), named(sweep), "test BLEU", 0.5))


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        (("1 rnn", "8 dot"), "differ: step 1 rnn beats step 8 dot"),  # no counts
        (("gru, after", "lstm"), 'differ: "gru, after" beats lstm'),  # no two rows
    ],
)
def test_labels_read_as_one_name_each(arms, words, tmp_path):
    for arm in arms:
        study = STUDY | {"varies": "study.arm", "arm": arm, "label": "step"}
        write_run(tmp_path / arm, sentences(5), 0.2, 1, {"study": study})
    (pair,) = compare([[36.0, 37.0, 36.5], [30.0, 31.0, 30.5]]).differences
    assert pair_verdict(pair, named(tmp_path), 0.5, "BLEU") == words


def test_bleu_is_compared_on_all_held_out_sentences(sweep, undrawn):
    endpoint = bleu_endpoint(read_sweep(sweep), 100)
    assert (endpoint.splits, endpoint.sentences, endpoint.name) == (("valid", "test"), 60, "BLEU on valid + test")
    run = sweep / job(4, 2)
    texts = ("".join((run / f"{split}.{kind}.de").read_text() for split in endpoint.splits) for kind in ("hyp", "ref"))
    hypotheses, references = (text.splitlines() for text in texts)
    assert endpoint.scores[1][1] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    headers = table_of_section(page_of(sweep), "Results").headers
    assert {"BLEU on valid + test", "valid BLEU", "test BLEU", "length ratio"} <= set(headers)
    assert not endpoint.flags


def test_without_validation_text_the_test_set_decides(sweep, undrawn):
    (sweep / job(4, 2) / "valid.hyp.de").unlink()
    page = page_of(sweep)
    assert f"{job(4, 2)} lacks the valid translations (valid.hyp)" in " ".join(page.flags)
    assert "The primary endpoint is test BLEU" in markdown(page)
    assert "30 sentences" in markdown(page)


@pytest.mark.parametrize("counted", [True, False], ids=["from the text", "from metrics.json"])
def test_the_length_ratio_stands_beside_bleu(counted, sweep, undrawn):
    for path in () if counted else sweep.glob("*/*.ref.de"):
        path.unlink()
    table = table_of_section(page_with(sweep, test__length_ratio=0.875), "Results")
    shown = [row[table.headers.index("length ratio")] for row in table.cells]
    assert all(0.9 < float(ratio) < 1.1 for ratio in shown) if counted else shown == ["0.875", "0.875"]


def test_a_spread_that_the_draw_of_sentences_explains_is_flagged(sweep):
    drawn = np.random.default_rng(0).normal(size=(1000, 4))
    for noise in (0.1, 2.0):
        comparison = compare(((36.0, 37.0), (36.2, 37.2)), interaction(noise * drawn, [0, 0, 1, 1], 60))
        explained = "The draw of sentences alone explains the spread of these runs."
        assert needed(comparison, 5.0, "BLEU").endswith(explained) == (noise > 1)


@pytest.mark.medium
def test_the_bound_of_rows_that_vary_unlike_is_named(sweep, undrawn):
    pairs = "Every pair of rows: validation loss"
    note = table_of_section(page_of(sweep), pairs).note
    assert "(studentised range), over seeds" in note
    for path in sweep.glob("*/metrics.json"):
        heads, seed = (int(part.rpartition("=")[2]) for part in path.parent.name.split(","))
        edit(path, valid__loss=2 + seed * (1.0 if heads == 1 else 1e-6))
    note = table_of_section(page_of(sweep), pairs).note
    assert "(studentised range or Bonferroni's bound, whichever is larger), over seeds" in note


TYPED = (("tiny", "pre"), ("tiny", "post"), ("big", "pre"))


def varied(folder: Path, plan: dict | None) -> list[str]:
    """The names of rows that differ in several settings, of which one follows from another."""
    for index, (norm, size, width) in enumerate([("pre", 16, 32), ("post", 16, 32), ("pre", 64, 128)]):
        model = {"norm": norm, "d_model": size, "d_feed_forward": width}
        write_run(folder / f"run{index},seed=1", sentences(5), 0.2, 1, {"model": model})
    if plan:
        (folder / "sweep.json").write_text(json.dumps({"overrides": [], "jobs": plan}), encoding="utf-8")
    return rows_of(folder)


def test_rows_are_named_by_their_overrides(tmp_path):
    plan = {f"run{i},seed=1": [f"model={size}", f"model.norm={norm}", "seed=1"] for i, (size, norm) in enumerate(TYPED)}
    assert varied(tmp_path, plan) == ["model=big, norm=pre", "model=tiny, norm=post", "model=tiny, norm=pre"]


def test_rows_are_named_by_as_few_settings_as_distinguish_them(tmp_path):
    names = [f"d_feed_forward={rest}" for rest in ("32, norm=post", "32, norm=pre", "128, norm=pre")]
    assert varied(tmp_path, None) == names


def test_long_names_are_values_alone_where_these_are_words(tmp_path, monkeypatch):
    plan = {f"run{i},seed=1": [f"model={size}", f"model.norm={norm}", "seed=1"] for i, (size, norm) in enumerate(TYPED)}
    assert varied(tmp_path, plan) == ["model=big, norm=pre", "model=tiny, norm=post", "model=tiny, norm=pre"]
    monkeypatch.setattr("headcount.report.rows.LONGEST", 20)
    assert rows_of(tmp_path) == ["big, pre", "tiny, post", "tiny, pre"]


def test_a_name_that_would_be_long_is_that_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.report.rows.LONGEST", 5)
    assert varied(tmp_path, None) == ["run0", "run1", "run2"]


def test_one_of_a_count_is_in_the_singular(sweep):
    rows = read_sweep(sweep).rows
    names = Names("heads of keys and values", rows)
    assert [names.full(row) for row in (0, 1)] == ["1 head of keys and values", "4 heads of keys and values"]
    assert Names("d_k", rows).full(1) == "4"


def test_a_study_may_vary_a_setting_of_its_own(tmp_path):
    for arm in ("base", "encoder_1"):
        study = STUDY | {"varies": "study.arm", "arm": arm}
        write_run(tmp_path / arm, sentences(5), 0.2, 1, {"study": study})
    assert rows_of(tmp_path) == ["base", "encoder_1"]
    assert not read_sweep(tmp_path).notes
