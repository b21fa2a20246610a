"""Interventions act where they say or raise: in batches and searches, in other processes, within one another."""

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from test_translator import Letters, translator

from headcount.data.batches import Sentences
from headcount.decoding.ensemble import Ensemble
from headcount.errors import InputError
from headcount.evaluation.likelihood import TargetScorer
from headcount.heads.interface import Head, Heads, Layer
from headcount.heads.likelihood import token_log_probs
from headcount.heads.observed import recorded_attention

VOCAB = 30
LINES = ["abc", "", "zyxwvutsr", "b", "hello"]  # short ones first: a search sorts them
SHORT = {"batch_tokens": 24, "max_ratio": 0.5, "max_extra": 2}
FULL = [line for line in LINES if line]


@pytest.fixture(scope="module")
def heads():
    torch.manual_seed(4)
    model = built("model/nano", **{**ONE_LAYER, "decoder_layers": 2}, vocab_size=VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # far from uniform, so that different sources get different translations
    return Heads(model)


@pytest.fixture(autouse=True)
def nothing_is_left(heads):
    yield
    assert all(module.head_gate is None for module in heads.layers.values())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in heads.model.modules())


def searching(heads):
    """A translator of several batches, which it searches in two processes."""
    torch.set_num_threads(2)
    return translator(heads.model, built("search/beam", beam=2, **SHORT))


def scorer(heads):
    return TargetScorer(heads.model, Letters().encode, Letters().encode, batch_tokens=24)


def batch():
    torch.manual_seed(0)
    source, target = torch.randint(4, VOCAB, (2, 3, 6))
    return source, None, target


def by_row(heads, rows):
    return torch.rand(rows, len(heads), generator=torch.Generator().manual_seed(1))


@pytest.mark.medium
def test_gates_and_patches_of_each_sentence_are_refused_where_sentences_change_places(heads):
    patch = {"encoder1.1": torch.zeros(len(LINES), 4, 8)}
    for context in (lambda: heads.gated(by_row(heads, len(LINES))), lambda: heads.patched(patch)):
        for act in (
            lambda: searching(heads).translate(LINES),
            lambda: searching(heads).nbest(LINES, 2),
            lambda: translator(Ensemble([heads.model, heads.model]), built("search/beam", **SHORT)).translate(LINES),
            lambda: scorer(heads).score(LINES, LINES),
            lambda: token_log_probs(heads, *[Sentences.of(Letters().encode(FULL))] * 2, heads.gates()[None]),
            lambda: heads.model.start(torch.ones(len(LINES), 4, dtype=torch.long), None),
        ):
            with context(), pytest.raises(InputError, match=r"of each sentence: .*give gates"):
                act()
    cross = heads.layers[Layer("cross", 2)]
    cross.head_gate = torch.ones(2, 2)
    with pytest.raises(InputError, match="of each sentence"):
        searching(heads).translate(LINES)
    cross.head_gate = None


@pytest.mark.medium
def test_gates_act_in_a_search_in_other_processes_as_a_head_cut_out_does(heads):
    whole, scores = searching(heads).translate(LINES), scorer(heads).score(LINES, LINES)[0]
    for head in heads.names[::4]:
        with heads.gated({head: 0}):
            gated, scored = searching(heads).translate(LINES), scorer(heads).score(LINES, LINES)[0]
        weight = heads.layers[head.place].output.weight
        kept, own = weight.detach().clone(), slice(8 * head.head - 8, 8 * head.head)
        weight.data[:, own] = 0
        assert searching(heads).translate(LINES) == gated
        assert scorer(heads).score(LINES, LINES)[0] == pytest.approx(scored, abs=1e-4)
        weight.data.copy_(kept)
        assert scored != pytest.approx(scores, abs=1e-2)
        assert gated != whole


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["beam", "diverse", "sample"])
def test_what_is_recorded_in_a_search_is_there_line_by_line(heads, kind):
    search = translator(heads.model, built(f"search/{kind}", **SHORT))
    torch.set_num_threads(2)
    with heads.recorded() as records:
        found = search.translate(LINES)
    torch.set_num_threads(1)
    assert kind == "sample" or found == search.translate(LINES)
    for line, output in zip(FULL, records[Layer("encoder", 1)], strict=True):
        (ids,) = Letters().encode([line])
        with heads.recorded() as alone:
            heads.model.encode(torch.tensor([[*ids, 3]]), None)
        torch.testing.assert_close(output, alone[Layer("encoder", 1)][0])
    steps = {len(records[layer]) for layer in heads.layers if layer.kind != "encoder"}
    assert len(steps) == 1
    assert steps.pop() > len(FULL)


@pytest.mark.medium
def test_hooks_of_a_user_act_in_a_search_or_are_refused(heads):
    model, seen = heads.model, []

    def collect(part, given, found=None):
        seen.append(part)

    expected = searching(heads).translate(LINES)
    cross = model.decoder[1].cross_attention
    parts = (cross.attend, cross.output, model.decoder[1].self_attention.query, model.output, model.source_embedding)
    hooks = [(part, "register_forward_hook") for part in parts]
    for acting, register in ((model.encoder[0], "register_forward_pre_hook"), *hooks):
        seen.clear()
        handle = getattr(acting, register)(collect)
        assert searching(heads).translate(LINES) == expected
        handle.remove()
        assert len(seen) >= len(FULL)
        assert set(seen) == {acting}
    seen.clear()
    handle = model.encoder[0].register_forward_hook(collect)
    torch.set_num_threads(2)
    translator(Ensemble([model, model]), built("search/beam", **SHORT)).translate(LINES)
    handle.remove()
    assert len(seen) == 2 * len(FULL)


def outputs_of(heads, *contexts):
    """The model's output within contexts, the first outermost."""
    if not contexts:
        with torch.no_grad():
            return heads.model(*batch())
    with contexts[0]:
        return outputs_of(heads, *contexts[1:])


@pytest.mark.medium
def test_contexts_within_one_another_act_together(heads):
    half, zero = {"cross1.1": 0.5}, {"cross2.1": 0.0}
    both = outputs_of(heads, heads.gated(half | zero))
    assert not both.allclose(outputs_of(heads, heads.gated(zero)), atol=1e-3)
    torch.testing.assert_close(outputs_of(heads, heads.gated(zero), heads.gated(half)), both)
    torch.testing.assert_close(
        outputs_of(heads, heads.gated(half), heads.gated(half)), outputs_of(heads, heads.gated({"cross1.1": 0.25}))
    )
    rows = by_row(heads, 3)
    product = outputs_of(heads, heads.gated(rows * heads.gates(zero)))
    torch.testing.assert_close(outputs_of(heads, heads.gated(rows), heads.gated(zero)), product)
    torch.testing.assert_close(outputs_of(heads, heads.gated(zero), heads.gated(rows)), product)
    torch.testing.assert_close(
        outputs_of(heads, heads.gated(rows), heads.gated(rows)), outputs_of(heads, heads.gated(rows * rows))
    )
    # Many settings at once keep the gates around them.
    sides = [Sentences.of(Letters().encode(FULL))] * 2
    with heads.gated(half):
        found = token_log_probs(heads, *sides, heads.gates(zero)[None]).values
    assert found == pytest.approx(token_log_probs(heads, *sides, heads.gates(half | zero)[None]).values, abs=1e-5)
    # Edits act one after the other, and a gate on what they leave.
    one, two = ({"cross1.1": torch.full((8,), value)} for value in (1.0, 2.0))
    double = {"cross1": lambda output: 2 * output}
    last = outputs_of(heads, heads.edited(double), heads.patched(two))
    torch.testing.assert_close(outputs_of(heads, heads.patched(one), heads.edited(double)), last)
    assert not last.allclose(outputs_of(heads, heads.patched(two)), atol=1e-3)
    torch.testing.assert_close(
        outputs_of(heads, heads.gated(half), heads.edited(double), heads.patched(two)),
        outputs_of(heads, heads.edited(double), heads.patched(one)),
    )
    with heads.gated(zero):
        with pytest.raises(KeyError), heads.gated(half):
            raise KeyError
        assert heads.layers[Layer("cross", 1)].head_gate.tolist() == [1, 1]
        assert heads.layers[Layer("cross", 2)].head_gate.tolist() == [0, 1]


def test_heads_have_the_numbers_of_all_libraries_and_no_other_names(heads):
    for four in (4, np.int64(4), np.uint8(4), torch.tensor(4), "decoder2.1", Head("decoder", 2, 1)):
        assert heads.number(four) == 4
    numbers = (True, np.True_, 4.0, np.float64(4), -1, np.int64(10), None, ["cross1.1"], Head("cross", 1, 3))
    names = ("", "cross1.0", "cross01.1", "cross1.01", "cross１.1", "Cross1.1", "cross1.1 ", "cross1")
    for wrong in (*numbers, *names):
        with pytest.raises(InputError, match="no head of this model, which has encoder1"):
            heads.number(wrong)
        if not isinstance(wrong, list):
            with pytest.raises(InputError, match="no head of this model, which has encoder1"):
                heads.gates({wrong: 0})
    assert heads.columns("cross2") == heads.columns(Layer("cross", 2)) == slice(8, 10)
    for wrong in ("cross", "cross3", "memory1", Layer("encoder", 2), 0, None, Head("cross", 1, 1)):
        with pytest.raises(InputError, match="no layer of this model, which has encoder1, decoder1, decoder2, cross1"):
            heads.columns(wrong)
        with pytest.raises(InputError, match="no layer of this model"), heads.edited({wrong: lambda output: output}):
            pass


def test_gates_and_patches_that_do_not_fit_are_refused(heads):
    for shape in ((len(heads) + 5,), (len(heads) - 1,), (1,), (), (3, 2), (2, 1, len(heads))):
        for gates in (torch.ones(shape), np.ones(shape)):
            message = r"gates \[.*\]: must be \[head\] or \[batch, head\], of 10 heads"
            with pytest.raises(InputError, match=message), heads.gated(gates):
                pass
    for shape in ((7,), (5, 8), (3, 5, 8), (3, 1, 8), (2, 6, 8), (2, 3, 6, 8)):
        with pytest.raises((InputError, RuntimeError)) as caught, heads.patched({"cross1.2": torch.zeros(shape)}):
            heads.model(*batch())
        assert shape[0] == 2 or str(caught.value).startswith(f"cross1.2: outputs {list(shape)} for [3, 6, 8]")
    with pytest.raises(InputError, match=r"cross9\.1: no head"), heads.patched({"cross9.1": torch.zeros(8)}):
        pass


@pytest.mark.medium
def test_patches_and_edits_act_in_a_search(heads):
    whole = searching(heads).translate(LINES)
    with heads.gated({"cross2.1": 0}):
        gated = searching(heads).translate(LINES)
    assert gated != whole
    with heads.patched({"cross2.1": torch.zeros(8)}):
        assert searching(heads).translate(LINES) == gated
    keep = torch.tensor([0.0, 1.0])[:, None, None]
    with heads.edited({"cross2": lambda output: output * keep}):
        assert searching(heads).translate(LINES) == gated
    with heads.patched({"encoder1.1": torch.zeros(4, 8)}), pytest.raises(InputError, match=r"encoder1\.1: outputs"):
        searching(heads).translate(LINES)  # as long as the first line alone


def test_weights_are_recorded_where_the_model_runs_with_them(heads):
    source, _, target = batch()
    mask = torch.ones(3, 6, dtype=torch.bool)
    with torch.no_grad(), recorded_attention(heads) as records:
        weights = heads.model.attention_weights(source, mask, target)
    torch.testing.assert_close(records[Layer("cross", 2)]["pattern"], weights.cross[1])
    for run in (lambda: heads.model(source, mask, target), lambda: searching(heads).translate(LINES)):
        with recorded_attention(heads), pytest.raises(InputError, match="runs without its weights"):
            run()
