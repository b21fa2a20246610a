"""Gaussian window attention against its recurrence."""

import math

import pytest
import torch

from headcount.model.attention import TokenPositions
from headcount.model.attention_kinds import Centres, GaussianWindow

WHOLE = TokenPositions(torch.arange(4), torch.arange(6), None)


def of(heads=2, gaussians=3):
    torch.manual_seed(0)
    window = GaussianWindow(num_heads=heads, d_head=4, dropout=0.0, gaussians=gaussians).double()
    with torch.no_grad():
        for parameter in window.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return window


def given(heads=2):
    torch.manual_seed(1)
    query, value = torch.randn(2, heads, 4, 4).double(), torch.randn(2, heads, 6, 4).double()
    return query, value, (torch.arange(6) < torch.tensor([6, 4])[:, None])[:, None, None]


def test_the_window_is_its_recurrence():
    """Equations 46 to 51, a step at a time."""
    window, (query, value, mask) = of(), given()
    output, weights, state = window(query, value, value, mask, WHOLE, None, True)
    assert state is None
    for b in range(2):
        for h in range(2):
            centres = [0.0] * 3
            for t in range(4):
                sums = [
                    float(window.bias[h, 0, p].detach())
                    + sum(float(query[b, h, t, i] * window.weight[h, i, p].detach()) / math.sqrt(4) for i in range(4))
                    for p in range(9)
                ]
                heights, widths = ([math.exp(x) for x in sums[start : start + 3]] for start in (0, 3))
                centres = [centre + math.exp(step) for centre, step in zip(centres, sums[6:], strict=True)]
                expected = [
                    sum(a * math.exp(-w * (c - u) ** 2) for a, w, c in zip(heights, widths, centres, strict=True))
                    * float(mask[b, 0, 0, u - 1])
                    for u in range(1, 7)
                ]
                assert weights[b, h, t].tolist() == pytest.approx(expected, abs=1e-9)
                context = [sum(expected[u] * float(value[b, h, u, i]) for u in range(6)) for i in range(4)]
                assert output[b, h, t].tolist() == pytest.approx(context, abs=1e-9)


def test_step_by_step_is_as_all_at_once():
    window, (query, value, mask) = of(), given()
    whole = window(query, value, value, mask, WHOLE, None, True)
    state = window.begin(2)
    for t in range(4):
        output, weights, state = window(query[:, :, t : t + 1], value, value, mask, WHOLE, state, True)
        torch.testing.assert_close(output, whole.output[:, :, t : t + 1], rtol=0, atol=1e-12)
        torch.testing.assert_close(weights, whole.weights[:, :, t : t + 1], rtol=0, atol=1e-12)


def test_each_hypothesis_has_a_window_of_its_own():
    window, (query, value, mask) = of(), given()
    state = Centres(torch.rand(8, 2, 3).double())  # four hypotheses of each of two sentences
    together = window(query, value, value, mask, WHOLE, state, False)
    chosen = together.state.select(torch.tensor([6, 1]))
    for number, (sentence, beam) in enumerate([(1, 2), (0, 1)]):
        one = slice(sentence, sentence + 1)
        own = Centres(state.centres[4 * sentence + beam][None])
        alone = window(query[one, :, beam : beam + 1], value[one], value[one], mask[one], WHOLE, own, False)
        torch.testing.assert_close(alone.output[:, :, 0], together.output[one, :, beam])
        torch.testing.assert_close(alone.state.centres[0], chosen.centres[number])


@pytest.mark.medium
def test_gradients():
    window, (query, value, mask) = of(), given()

    def output(query, value, weight, bias):
        own = {"weight": weight, "bias": bias}
        return torch.func.functional_call(window, own, (query, value, value, mask, WHOLE, None, False))[0]

    inputs = [x.detach().requires_grad_() for x in (query, value, window.weight, window.bias)]
    assert torch.autograd.gradcheck(output, inputs)


def test_there_must_be_a_gaussian():
    with pytest.raises(ValueError, match=r"gaussians=0: must be 1 or more"):
        of(gaussians=0)


def test_nothing_overflows():
    window, (query, value, mask) = of().float(), given()
    query = (1e4 * query).float().requires_grad_()
    output, _, _ = window(query, value.float(), value.float(), mask, WHOLE, None, True)
    output.sum().backward()
    for found in (output, query.grad, window.weight.grad, window.bias.grad):
        assert found.isfinite().all()
