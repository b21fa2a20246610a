"""Search against brute force, on models small enough to write down."""

import math

import pytest
import torch
from built import built, settings
from toy import BOS, EOS, BrokenModel, TableModel, every_translation, found_by, log_prob, spell

from headcount.decoding.beam import BeamSearch, best_extensions, length_penalty
from headcount.decoding.diverse import DiverseBeamSearch
from headcount.decoding.search import MULTIPLE
from headcount.errors import InputError
from headcount.settings import build


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("seed", "count"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (8, 4), (8, 12)])
def test_a_wide_beam_is_exhaustive(seed, count, alpha):
    model, limits = TableModel(vocab=5, seed=seed), [4, 0, 3, 1]
    found = found_by(built("search/beam", beam=5**4, alpha=alpha), model, [0, 1, 2, 3], limits, count)
    for sentence, limit in enumerate(limits):
        expected = every_translation(model, sentence, limit, alpha)[:count]
        assert [tokens for tokens, _ in found[sentence][:count]] == [tokens for _, tokens in expected]
        assert [score for _, score in found[sentence][:count]] == pytest.approx([s for s, _ in expected], abs=1e-5)


def test_n_best_texts_are_sorted_and_distinct_and_have_the_score_of_the_best_spelling():
    model, limit = TableModel(vocab=6, seed=2), 3
    search = built("search/beam", beam=4**4, alpha=0)
    found = found_by(search, model, [5], [limit], 40)
    (translations,) = search.choose(found, 40, spell)
    best: dict[str, float] = {}
    for score, tokens in every_translation(model, 5, limit):
        best[spell([tokens])[0]] = max(score, best.get(spell([tokens])[0], -math.inf))
    expected = sorted(best.items(), key=lambda item: -item[1])[:40]
    assert len(best) < len(every_translation(model, 5, limit))
    # Of 40 hypotheses some spell the same, so that fewer texts may be among those that were looked for.
    texts = [text for text, _ in translations]
    assert texts == [text for text, _ in expected][: len(texts)]
    assert [score for _, score in translations] == pytest.approx([s for _, s in expected][: len(texts)], abs=1e-5)
    assert search.choose(found, 1, spell) == [translations[:1]]


@pytest.mark.parametrize("seed", range(10))
def test_beam_1_is_greedy(seed):
    model = TableModel(vocab=6, seed=seed)
    found = found_by(built("search/beam", beam=1), model, [7], [12])
    history, expected = (7, BOS), []
    while len(expected) < 12:
        token = int(model.log_probs(history).argmax())
        if token == EOS:
            break
        expected.append(token)
        history = (*history, token)
    assert [hypothesis.tokens for hypothesis in found[0]] == [expected]


FEW, MANY = [9, 2, 5, 9, 1], [1 + 7 * sentence % 13 for sentence in range(48)]  # limits; the many end one by one


SEARCHES = [
    built("search/beam", beam=1),
    built("search/beam", beam=4),
    built("search/beam", beam=4, alpha=0),
    built("search/diverse", beam=6, groups=3),
    built("search/sample", samples=3),
    built("search/sample", samples=3, top_p=0.9),
    built("search/sample", samples=3, top_k=2),
    built("search/mbr", samples=3),
]


@pytest.mark.medium
@pytest.mark.parametrize("limits", [FEW, MANY])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_company_changes_nothing_and_hypotheses_are_sorted_and_true(search, limits):
    model = TableModel(vocab=7, seed=5, sharpness=2.0)
    width = getattr(search, search.width_setting)
    count = min(2, width)
    together = found_by(search, model, list(range(len(limits))), limits, count)
    for sentence, limit in enumerate(limits):
        (alone,) = found_by(search, model, [sentence], [limit], count)
        assert together[sentence] == alone
        assert len(alone) <= width
        if isinstance(search, BeamSearch):
            scores = [score for _, score in alone]
            assert scores == sorted(scores, reverse=True)
            distinct = {tuple(tokens) for tokens, _ in alone}
            assert len(distinct) == len(alone) or isinstance(search, DiverseBeamSearch)
        for tokens, score in alone:
            assert len(tokens) <= limit
            penalty = length_penalty(len(tokens) + 1, getattr(search, "alpha", 0))
            assert score == pytest.approx(log_prob(model, sentence, tokens) / penalty, abs=1e-5)


def test_what_stays_of_a_large_batch_is_a_multiple_and_no_sentence_is_lost(monkeypatch):
    model, limits, sizes = TableModel(vocab=6, seed=1), [sentence % 16 for sentence in range(48)], []
    step = model.step
    monkeypatch.setattr(model, "step", lambda tokens, state: (sizes.append(len(tokens)), step(tokens, state))[1])
    found = found_by(built("search/beam", beam=1), model, list(range(48)), limits)
    assert all(size % MULTIPLE == 0 or size <= 2 * MULTIPLE for size in sizes)
    assert len(set(sizes)) > 4
    for sentence, limit in enumerate(limits):
        assert [found[sentence]] == found_by(built("search/beam", beam=1), model, [sentence], [limit])


@pytest.mark.parametrize("vocab", [1, 5, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("count", [1, 2, 6, 10])
def test_the_best_extensions_are_those_of_a_full_sort(vocab, count):
    torch.manual_seed(vocab)
    # Rounded, so that there are ties; and many that are impossible.
    log_probs = (torch.randn(4, 3, vocab) * 3).round().masked_fill(torch.rand(4, 3, vocab) < 0.3, -math.inf)
    scores = torch.tensor([[0.0, -1, -1], [0, -2, -math.inf], [-1, -1, -1], [-math.inf] * 3])
    values, beams, tokens = best_extensions(scores, log_probs, count)
    total = scores[:, :, None] + log_probs
    assert torch.equal(values, total.flatten(1).sort(dim=1, descending=True).values[:, :count])
    possible = values > -math.inf
    assert torch.equal(total[torch.arange(4)[:, None], beams, tokens][possible], values[possible])
    for row, real in zip(beams * vocab + tokens, possible, strict=True):
        assert len(row[real].unique()) == real.sum()
    assert tokens.max() < vocab


def test_length_penalty_is_equation_14():
    assert [length_penalty(*given) for given in ((1, 0.6), (7, 1.0), (19, 0.5))] == [1, 2, 2]


WRONG = {
    "all NaN": (math.nan, slice(None)),
    "one NaN": (math.nan, slice(4, 5)),
    "the end NaN": (math.nan, slice(EOS, EOS + 1)),
    "one infinite": (math.inf, slice(4, 5)),
    "none possible": (-math.inf, slice(None)),
}


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_search_ends_and_says_so_where_probabilities_are_not_finite(search, wrong):
    with pytest.raises(InputError, match=r"not finite numbers .* take an earlier checkpoint"):
        found_by(search, BrokenModel(*WRONG[wrong]), [0, 1], [9, 12])


WRONG_SETTINGS = [
    ("beam", {"beam": 0}, "beam=0: must be greater than or equal to 1"),
    ("beam", {"max_ratio": 0, "max_extra": 0}, "max_ratio=0, search.max_extra=0: must not both be 0"),
    ("beam", {"max_source": 0}, "max_source=0: must be greater than or equal to 1 or null"),
    ("diverse", {"beam": 5, "groups": 2}, "groups=2: must divide search.beam=5"),
    ("sample", {"temperature": 0}, "temperature=0: must be greater than or equal to 0.001"),
    ("sample", {"top_p": 1.5}, "top_p=1.5: must be less than or equal to 1 or null"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), WRONG_SETTINGS)
def test_wrong_settings_are_named(kind, changes, message):
    with pytest.raises(InputError, match=rf"search\.{message}"):
        build("search", dict(settings(f"search/{kind}")) | changes)
