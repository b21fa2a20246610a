"""Diverse beam search: groups of beams that avoid each other's words."""

import pytest
from built import built
from toy import BOS, EOS, TableModel, found_by, log_prob

SENTENCES = [0, 1, 2, 3], [6, 2, 5, 9]  # and their limits


@pytest.mark.parametrize("diversity", [0.0, 3.0])
@pytest.mark.parametrize("count", [1, 3])
def test_one_group_is_beam_search(diversity, count):
    model = TableModel(vocab=7, seed=3, sharpness=2.0)
    diverse = found_by(built("search/diverse", beam=4, groups=1, diversity=diversity), model, *SENTENCES, count)
    assert diverse == found_by(built("search/beam", beam=4), model, *SENTENCES, count)


@pytest.mark.parametrize(("beam", "groups"), [(6, 2), (6, 3), (4, 4)])
def test_without_diversity_each_group_is_a_beam_of_its_size(beam, groups):
    model = TableModel(vocab=7, seed=4, sharpness=2.0)
    size = beam // groups
    plain = found_by(built("search/beam", beam=size), model, *SENTENCES)
    diverse = found_by(built("search/diverse", beam=beam, groups=groups, diversity=0), model, *SENTENCES)
    assert diverse == [[one for one in hypotheses for _ in range(groups)] for hypotheses in plain]


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_one_choose_by_the_definition(seed):
    model, diversity, limit, groups = TableModel(vocab=6, seed=seed), 0.7, 5, 3
    search = built("search/diverse", beam=groups, groups=groups, diversity=diversity, alpha=0)
    found = found_by(search, model, [0], [limit])
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
