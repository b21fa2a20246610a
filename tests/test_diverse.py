"""Diverse beam search: groups of beams that avoid each other's words."""

import pytest
import torch
from built import built
from toy import BOS, EOS, TableModel, log_prob

from headcount.decoding.beam import length_penalty
from headcount.decoding.search import search_loop

LIMITS = torch.tensor([6, 2, 5, 9])


def found_by(search, model, count=1, limits=LIMITS):
    sentences = list(range(len(limits)))
    hypotheses = search.begin([[sentence] for sentence in sentences], limits, count, EOS)
    return search_loop(model, model.start(sentences), limits, hypotheses, BOS, EOS), hypotheses


@pytest.mark.parametrize("diversity", [0.0, 3.0])
@pytest.mark.parametrize("count", [1, 3])
def test_one_group_is_beam_search(diversity, count):
    model = TableModel(vocab=7, seed=3, sharpness=2.0)
    diverse, _ = found_by(built("search/diverse", beam=4, groups=1, diversity=diversity), model, count)
    assert diverse == found_by(built("search/beam", beam=4), model, count)[0]


@pytest.mark.parametrize(("beam", "groups"), [(6, 2), (6, 3), (4, 4)])
def test_without_diversity_each_group_is_a_beam_of_its_size(beam, groups):
    model = TableModel(vocab=7, seed=4, sharpness=2.0)
    size = beam // groups
    plain, _ = found_by(built("search/beam", beam=size), model)
    diverse, _ = found_by(built("search/diverse", beam=beam, groups=groups, diversity=0), model)
    assert diverse == [[one for one in hypotheses for _ in range(groups)] for hypotheses in plain]


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_one_choose_by_the_definition(seed):
    model, diversity, limit, groups = TableModel(vocab=6, seed=seed), 0.7, 5, 3
    search = built("search/diverse", beam=groups, groups=groups, diversity=diversity, alpha=0)
    found, _ = found_by(search, model, limits=torch.tensor([limit]))
    histories: list[list[int]] = [[] for _ in range(groups)]
    over = [False] * groups
    for step in range(limit + 1):
        chosen: list[int] = []
        for group in range(groups):
            if over[group]:
                continue
            scores = model.log_probs((0, BOS, *histories[group])).clone()
            if step == limit:
                token = EOS
            else:
                for earlier in chosen:
                    scores[earlier] -= diversity
                token = int(scores.argmax())
            if token == EOS:
                over[group] = True
            else:
                histories[group].append(token)
                chosen.append(token)
    assert all(over)
    assert sorted(tokens for tokens, _ in found[0]) == sorted(histories)
    for tokens, score in found[0]:
        assert score == pytest.approx(log_prob(model, 0, tokens), abs=1e-5)


@pytest.mark.medium
def test_company_changes_nothing():
    model = TableModel(vocab=7, seed=5, sharpness=2.0)
    search = built("search/diverse", beam=6, groups=3, diversity=0.5)
    limits = torch.tensor([1 + 7 * sentence % 13 for sentence in range(20)])
    together, _ = found_by(search, model, 2, limits)
    for sentence, limit in enumerate(limits):
        alone = search.begin([[0]], limit[None], 2, EOS)
        assert search_loop(model, model.start([sentence]), limit[None], alone, BOS, EOS) == [together[sentence]]
        for tokens, score in together[sentence]:
            expected = log_prob(model, sentence, tokens) / length_penalty(len(tokens) + 1, 1.0)
            assert score == pytest.approx(expected, abs=1e-5)
