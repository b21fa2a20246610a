"""BLEU by length of the reference."""

import itertools

import pytest
from sacrebleu import corpus_bleu
from sweeps import changed, sentences

from headcount.report.measures import by_length
from headcount.statistics.bootstrap import sentence_counts


@pytest.mark.medium
def test_each_group_is_scored_as_a_test_set_of_its_own():
    references = sentences(300)
    translations = [[changed(references, errors, seed) for seed in (1, 2)] for errors in (0.1, 0.3)]
    groups = by_length([[sentence_counts(lines, references, "13a") for lines in row] for row in translations])
    tokens = [len(line.split()) + 1 for line in references]  # the full stop is one of its own
    assert sum(group.sentences for group in groups) == len(references)
    assert min(group.sentences for group in groups) > 40
    assert [groups[0].shortest, groups[-1].longest] == [min(tokens), max(tokens)]
    for group in groups:
        own = [place for place, length in enumerate(tokens) if group.shortest <= length <= group.longest]
        assert group.sentences == len(own)
        for row, mean in zip(translations, group.comparison.means, strict=True):
            scores = [corpus_bleu([run[i] for i in own], [[references[i] for i in own]]).score for run in row]
            assert mean == pytest.approx(sum(scores) / len(scores))
    assert all(group.comparison.means[0] > group.comparison.means[1] for group in groups)
    assert all(before.longest < after.shortest for before, after in itertools.pairwise(groups))


def test_sentences_of_one_length_make_no_groups():
    references = ["a b c d e."] * 20
    assert by_length([[sentence_counts(references, references, "13a")]]) == []


def test_a_corpus_without_sentences_of_a_length_has_no_bleu_of_them():
    short, long = [["a b c d"] * 4 + [f"{'a b ' * 4}c d"] * more for more in (0, 4)]
    counts = [[sentence_counts(lines, lines, "13a") for lines in (short, long, long)] for _ in range(2)]
    assert by_length(counts) == []
    assert [group.sentences for group in by_length([row[1:] for row in counts])] == [4, 4]
