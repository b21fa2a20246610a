"""Heads against gold structure: planted heads are found, random heads and shuffled links show nothing, alignment error
by hand."""

import gzip
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import planted
import pytest
from conftest import TINY, completed, failed

from headcount.errors import InputError
from headcount.evaluation.gold import read_gold
from headcount.heads.effects import read_parts
from headcount.heads.links import (
    ABSENT,
    GOLD,
    RULES,
    Link,
    aligned,
    alignment,
    aligns,
    best_offset,
    claimed_roles,
    first_target,
    gold,
    matched,
    met,
    others,
)
from headcount.heads.measure import part_key
from headcount.heads.roles import roles
from headcount.heads.spelling import spelling

HEADS = ["encoder1.1", "encoder1.2", "decoder1.1", "decoder1.2", "cross1.1", "cross1.2"]


def measured(model, **changes):
    given = planted.analysis(model, **changes)
    return roles(given, lambda done: None), gold(given, lambda done: None)


@pytest.fixture(scope="module")
def found():
    return measured(planted.planted_model())


def ablation(harmful=(), phenomenon="agreement"):
    """Results in which `harmful` heads, and no others, take a phenomenon its margin."""
    random = np.random.default_rng(3)
    row = np.arange(60)
    names = np.array(["agreement", "case"] * 30)
    margins = 2 + 0.1 * random.standard_normal((1 + len(HEADS), 60))
    for head in harmful:
        margins[1 + HEADS.index(head), names == phenomenon] -= 2
    reference = -random.random((1 + len(HEADS), 120))
    return {
        "zero.reference": reference,
        "zero.lengths": np.full(60, 2),
        "head": np.array(HEADS),
        "zero.right": margins,
        "zero.wrong": np.zeros_like(margins),
        "row": row,
        "phenomenon": names,
    }


def test_a_role_is_claimed_where_attention_and_effect_agree(found):
    claims = claimed_roles(*found, ablation(["encoder1.2", "cross1.1"]))
    (claim,) = (claim for claim in claims if claim.claimed)
    assert (claim.head, claim.relation, claim.direction) == ("encoder1.2", "subject", "forward")
    assert (claim.rate, claim.phenomenon) == (1, "agreement")
    assert claim.relative == pytest.approx(1, abs=0.1)
    assert claim.fixed < 0.3 > claim.matched
    assert {claim.head for claim in claims if claim.matters} == {"encoder1.2", "cross1.1"}


@pytest.mark.parametrize("effects", [ablation(), ablation(["encoder1.2"], "case"), ablation(["encoder1.1"])])
def test_no_role_without_the_effect_on_its_phenomenon(found, effects):
    claims = claimed_roles(*found, effects)
    assert [claim.head for claim in claims if claim.attends] == ["encoder1.2"]
    assert not any(claim.claimed for claim in claims)
    effects["phenomenon"] = np.where(effects["phenomenon"] == "case", "case", "order")  # none of the relation
    unmeasured = claimed_roles(*found, effects)
    assert [(claim.head, claim.phenomenon) for claim in unmeasured if claim.attends] == [("encoder1.2", "")]
    assert not any(claim.claimed for claim in unmeasured)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("model", "changes"), [(planted.random_model, {}), (planted.planted_model, {"shuffled": True})]
)
def test_random_models_and_shuffled_links_show_no_gain(model, changes):
    claims = claimed_roles(*measured(model(), **changes), ablation(HEADS))
    assert len(claims) >= 4
    assert not any(claim.attends for claim in claims)


@pytest.mark.medium
def test_a_word_of_many_pieces_that_every_query_prefers_is_no_role():
    claims = claimed_roles(*measured(planted.even_model(), split=True), ablation(HEADS))
    nouns = [claim for claim in claims if claim.head == "encoder1.1"]
    assert [(claim.rate, claim.others, claim.gain) for claim in nouns] == [(1, 1, 0)]
    assert max(nouns[0].fixed, nouns[0].matched) < 0.3
    assert not any(claim.attends for claim in claims)


def test_the_aligning_head_is_found_and_the_first_of_the_last_layer_is_another(found):
    aligning = alignment(found[1])
    assert aligning.heads == ("cross1.1", "cross1.2")
    assert (aligning.best, aligning.marian) == ((0, 1, 0), (0, 0, 0))
    assert aligning.errors.value[0, :, 0] == pytest.approx([0.9, 0], abs=0.1)
    assert aligning.errors.value[0, 1, 1] > 0.8
    # Each word is aligned with that at its place, which needs no attention: no head is better than that.
    assert (aligning.rule, aligning.baseline.value) == ("diagonal", 0)
    assert aligning.excess.value == pytest.approx(aligning.errors.value)


def test_alignment_error_rate_worked_by_hand():
    # Three target words, two source words; gold: 0-0, 0-1, 1-2. The head points to 0, 1, 1 before, to 1, 1, 0 after.
    pairs = np.array([[0, 0], [0, 1], [1, 2]])
    largest = {"cross": np.array([[[0, 1, 1]]]), "after": np.array([[[1, 1, 0]]])}
    counts = aligned(largest, pairs, np.ones(3, dtype=bool), 2, 3)
    assert counts["right"].tolist() == [[[4, 0]]]
    assert (counts["targets"], counts["pairs"]) == (3, 3)
    by_rule = dict(zip(RULES, counts["fixed"].tolist(), strict=True))
    # The same relative place: 0, 1, 1. One word on: 1, 1, 1; one word back: 0, 0, 1; at the place itself 0, 1, 1.
    assert [by_rule[rule] for rule in ("diagonal", "+1", "-1", "+0")] == [4, 2, 6, 4]
    arrays = {name: np.array([value] * 4) for name, value in counts.items()}
    arrays |= {f"valid.{name}": value for name, value in arrays.items()} | {"head": np.array(["cross1.1"])}
    made = alignment(arrays | {"rule": np.array(RULES)})
    errors = made.errors
    assert (made.rule, made.baseline.value) == ("-1", 0)
    assert made.excess.value[0, 0] == pytest.approx([1 / 3, 1])
    assert errors.value.flatten().tolist() == pytest.approx([1 - 2 * 2 / 6, 1])
    assert errors.low[0, 0, 0] == pytest.approx(1 / 3)


def test_sure_and_possible_links_worked_by_hand():
    # A: 0-0, 1-1, 1-2. S: 0-0; P: 0-0, 0-1, 1-2. A and S share 1, A and P share 2: 1 - (1 + 2) / (3 + 1).
    pairs, sure = np.array([[0, 0], [0, 1], [1, 2]]), np.array([True, False, False])
    largest = {"cross": np.array([[[0, 1, 1]]]), "after": np.array([[[1, 0, 0]]])}
    counts = aligned(largest, pairs, sure, 2, 3)
    assert (counts["targets"], counts["pairs"]) == (3, 1)
    unknown = aligned(largest, pairs[:0], sure[:0], 2, 3)  # changes nothing
    arrays = {name: np.array([value, unknown[name]] * 4) for name, value in counts.items()}
    arrays |= {f"valid.{name}": value for name, value in arrays.items()} | {"head": np.array(["cross1.1"])}
    errors = alignment(arrays | {"rule": np.array(RULES)}).errors.value.flatten()
    # After the word: 1-0, 0-1, 0-2 share 0-1 with P alone.
    assert errors.tolist() == pytest.approx([1 - 3 / 4, 1 - 1 / 4])
    assert aligns(arrays)
    assert not aligns({name: np.array([value]) for name, value in unknown.items()})


def test_a_link_as_each_kind_of_head_meets_it():
    first = first_target(np.array([[0, 3], [0, 1], [2, 4], [3, 0]]))
    assert first == {0: 1, 2: 4, 3: 0}
    assert met("encoder", 2, 0, first, 5) == Link(2, 0, 5)
    assert met("cross", 2, 0, first, 5) == Link(4, 0, 5)
    assert met("cross", 1, 0, first, 5) == ABSENT
    assert met("decoder", 2, 0, first, 5) == Link(4, 1, 4)
    for unwritten in ((0, 2), (2, 1), (1, 2), (0, 0)):
        assert met("decoder", *unwritten, first, 5) == ABSENT


def test_other_words_that_attend_to_the_same_word_worked_by_hand():
    largest = np.array([[[0, 0, 1, 0, 1]]])
    assert others(largest, Link(3, 0, 5), "encoder") == 2 / 4
    assert others(largest, Link(3, 1, 3), "decoder") == 2 / 2
    assert others(largest, Link(4, 3, 4), "decoder") == 0
    assert others(largest, Link(1, 1, 5), "cross") == 2 / 4


def test_baselines_worked_by_hand():
    links = np.array([[3, 2, 9], [4, 3, 9], [1, 5, 9], [-1, -1, 0], [-1, -1, 0], [-1, -1, 0]])
    assert best_offset(links) == -1
    assert best_offset(links[3:]) is None
    # Offsets -1, -1, 4: in the second sentence of four words only -1 fits behind word 2.
    offsets, query, keys = np.array([-1, -1, 4]), np.array([3, 2, 1]), np.array([9, 4, 9])
    found = np.array([[-1, -1, 4], [4, 1, 0]])
    expected = [[2 / 3, 1, 1 / 3], [1 / 3, 0, 0]]
    assert matched(offsets, found, -query, keys - query).tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.medium
def test_validation_sentences_without_links_are_no_error(found):
    given = planted.analysis(planted.planted_model())
    given.own_valid = replace(given.valid, rows=given.valid.rows.map(lambda row: {"links": []}))
    arrays = gold(given, lambda done: None)
    assert arrays["valid.encoder.link"].shape == (0, 2, 3)
    rates = [claim.fixed for claim in claimed_roles(found[0], arrays, ablation())]
    assert set(rates) == {0}
    given.own_test = replace(given.test, rows=given.test.rows.map(lambda row: {"links": []}))
    without = gold(given, lambda done: None)
    assert {name: (values.shape[1:], values.dtype.kind) for name, values in without.items()} == {
        name: (values.shape[1:], values.dtype.kind) for name, values in found[1].items()
    }
    assert claimed_roles(found[0], without, ablation()) == []


@pytest.mark.medium
def test_a_run_of_both_directions_is_measured_in_its_own(tmp_path):
    sizes = ("data.train_size=600", "data.valid_size=32", "data.test_size=32", "tokenizer.vocab_size=400")
    own = [option for option in TINY if not option.startswith(("data=", "tokenizer.vocab_size", "data.max_length"))]
    both = (*sizes, "data.max_length=100", "data.both_directions=true", "steps=2", "validation.every=2")
    completed("train", *own, *both, "hydra.run.dir=run", cwd=tmp_path)
    completed("heads", "run=run", "parts=[importance,gold]", cwd=tmp_path)
    found = read_parts(tmp_path / "run" / "heads" / "effects.nc")
    assert len(found["importance"]["loss"]) == 32
    assert len(set(found["importance"]["phenomenon"].tolist())) == 8
    assert found["gold"]["valid.targets"].shape == (32,)


def lines_of(rows, relation="subject", alignment=True):
    """Sentences of `planted` as the lines of a file."""
    lines = ["source\ttarget\tlinks" + alignment * "\talignment"]
    for row in rows:
        links = " ".join(f"{relation}:{link['dependent'] + 1}-{link['head'] + 1}" for link in row["links"])
        pairs = " ".join(f"{pair['source'] + 1}-{pair['target'] + 1}" for pair in row["alignment"])
        lines.append("\t".join([row["source"], row["target"], links, *[pairs] * alignment]))
    return lines


def test_sentences_of_a_file_give_what_those_of_the_corpus_give(tmp_path, found):
    given = planted.analysis(planted.planted_model())
    given.settings = SimpleNamespace(test=None, valid=None, seed=1)
    rows = [row for pair in zip(given.test.rows, given.valid.rows, strict=True) for row in pair]

    def asked(relation, aligned=True):
        path = tmp_path / "gold.tsv"
        path.write_text("\n".join(lines_of(rows, relation, aligned)))
        given.gold = read_gold(str(path))
        return gold(given, lambda done: None), part_key(given, GOLD, "weights")

    (same, key), (other, other_key), (unaligned, _) = asked("subject"), asked("nsubj:pass"), asked("subject", False)
    assert all(np.array_equal(found[1][name], values) for name, values in same.items())
    assert key != other_key
    claims = claimed_roles(found[0], other, ablation(HEADS))
    assert [(claim.head, claim.relation) for claim in claims if claim.attends] == [("encoder1.2", "nsubj:pass")]
    assert not any(claim.claimed for claim in claims)
    claims = claimed_roles(found[0], unaligned, ablation(HEADS))
    assert {claim.head for claim in claims} == {"encoder1.1", "encoder1.2"}
    assert [claim.head for claim in claims if claim.claimed] == ["encoder1.2"]
    assert (aligns(same), aligns(unaligned)) == (True, False)


HEADER = "source\ttarget\tlinks\talignment"


def test_a_file_of_gold_structure(tmp_path):
    first = [HEADER, "He left , too .\tEr ging auch .\tnsubj:pass:1-2 nsubj:pass:1-2\t2p2 1-1 1p1 4p3 2p2"]
    (tmp_path / "first.tsv").write_text("\n".join(first))
    with gzip.open(tmp_path / "second.tsv.gz", "wt") as file:
        file.write("id\ttarget\tsource\talignment\n7\tJa .\tYes .\t1-1\n")
    rows = read_gold([str(tmp_path / "first.tsv"), str(tmp_path / "second.tsv.gz")])
    assert rows["links"][:] == [[{"relation": "nsubj:pass", "dependent": 0, "head": 1}], []]
    pairs = [[(pair["source"], pair["target"], pair["sure"]) for pair in row] for row in rows["alignment"]]
    assert pairs == [[(1, 1, False), (0, 0, True), (3, 2, False)], [(0, 0, True)]]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["source\tlinks", "a b\tr:1-2"], "gold.tsv, line 1: no column target"),
        ([HEADER], "holds no row below its header"),
        ([HEADER, "a b\tc\tr:1-2\t"], "1 sentences; give two or more"),
        ([HEADER, "a b\tc\t\t"], "line 2: neither links nor alignment"),
        ([HEADER, "a b\tc\t\t1-1", "a b\tc\tr:0-1\t"], "line 3: 'r:0-1': no word 0 in a source of 2; positions count"),
        ([HEADER, "a b\tc\tr:1-3\t"], "no word 3 in a source of 2"),
        ([HEADER, "a b\tc\tr:1-1\t"], "links a word with itself"),
        ([HEADER, "a b\tc\t1-2\t"], "'1-2' is no link; write relation:dependent-head"),
        ([HEADER, "a b\tc\t\t1-2"], "'1-2': no word 2 in a target of 1"),
        ([HEADER, "a b\tc\t\t0-1"], "'0-1': no word 0 in a source of 2"),
        ([HEADER, "a b\tc\t\t1:1"], "'1:1' is no pair of words"),
        ([HEADER, f"a b\tc\t\t1-{'9' * 5000}"], "is no pair of words"),
        ([HEADER, "a  b\tc\t\t1-1"], "the source has 3 words between spaces, of which the model reads 2"),
        ([HEADER, "a\tc\u00a0d\t\t1-1"], "the target has 1 words between spaces, of which the model reads 2"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, lines, said):
    (tmp_path / "gold.tsv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(said)) as raised:
        read_gold(str(tmp_path / "gold.tsv"))
    assert "\n" not in str(raised.value)


def test_words_between_spaces_are_spelled_as_they_stand():
    # ▁U.S . ▁ , ▁wo n't; six words where punctuation marks are words
    sizes = np.array([6, 1, 3, 1, 5, 3])
    assert spelling(sizes, "U.S. , won't", str.split).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2]
    assert spelling(sizes, "U.S. , won't").shape == (6, 6)


@pytest.mark.medium
def test_the_page_of_any_run_shows_links_and_alignment_of_a_file(tmp_path, home):
    shutil.copytree(home / "runs" / "first", tmp_path / "run")
    row = "a b c d\ta b c d\tnext:1-2 next:2-3 next:3-4\t1-1 2-2 3-3 4p4"
    (tmp_path / "gold.tsv").write_text("\n".join([HEADER, *[row] * 40]))
    assert "needs gold=FILE.tsv" in failed("heads", "run=run", "parts=[gold]", cwd=tmp_path)[0]
    completed("heads", "run=run", "parts=[roles,gold,ablation]", "gold=gold.tsv", cwd=tmp_path)
    table = pd.read_csv(tmp_path / "run" / "heads" / "heads.csv")
    assert set(table[table["endpoint"] == "link.gain"]["column"].str.partition(",")[0]) == {"next"}
    assert not (table["endpoint"] == "link.lost").any()
    assert "Which cross head aligns" in (tmp_path / "run" / "heads" / "heads.md").read_text()
