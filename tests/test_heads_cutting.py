"""Cutting: orders find a useless head, gates close it and keep the needed one, curves and limits are those by hand."""

import shutil

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed

from headcount.data.batches import Sentences, collate
from headcount.data.tokenizer import BOS, EOS
from headcount.decoding.beam import greedy
from headcount.errors import InputError
from headcount.evaluation.metrics import bleu
from headcount.heads.cutting_curves import curves, free
from headcount.heads.effects import read_parts
from headcount.heads.hard_concrete import GateTraining, closing_order
from headcount.heads.interface import Heads
from headcount.heads.orders import ORDERS, Choice, estimated_anew
from headcount.run.opened import make_translator, open_run
from headcount.statistics.bootstrap import bleu_of, sentence_counts

VOCAB = 20
NEEDED, USELESS = "cross1.2", ("encoder1.1", "encoder1.2", "decoder1.2", "cross1.1")


@pytest.fixture(scope="module")
def planted():
    """A model that copies the source, for which one head is trained; of four the columns of W_O stay 0."""
    torch.manual_seed(2)
    model = built("model/nano", **ONE_LAYER | {"d_model": 16}, dropout=0.0, vocab_size=VOCAB)
    heads = Heads(model)
    source = Sentences.of(np.random.default_rng(0).integers(4, VOCAB, (200, 4)).tolist())
    batch = collate(source, source, np.arange(200), 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(120):
        with torch.no_grad():
            for head in (heads.names[heads.number(name)] for name in USELESS):
                heads.layers[head.place].output.weight[:, (head.head - 1) * 8 : head.head * 8] = 0
        hidden = model(batch.source, batch.source_mask, batch.target_in)
        loss = torch.nn.functional.cross_entropy(model.output(hidden).flatten(0, 1), batch.target_out.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for head in (heads.names[heads.number(name)] for name in USELESS):
            heads.layers[head.place].output.weight[:, (head.head - 1) * 8 : head.head * 8] = 0
    model.eval().zero_grad()
    return heads, source


def choice(planted, penalties=(0.01, 0.1), steps=40):
    heads, source = planted
    return Choice(heads, source, source, GateTraining(penalties, steps, 1), lambda done: None)


@pytest.mark.medium
@pytest.mark.parametrize(
    "order", [pytest.param(name, marks=pytest.mark.slow) if name == "hard_concrete" else name for name in ORDERS]
)
def test_an_order_cuts_useless_heads_first_and_the_needed_one_last(planted, order):
    found = [str(planted[0].names[number]) for number in ORDERS[order](choice(planted))]
    assert sorted(found) == sorted(str(head) for head in planted[0].names)
    assert set(found[:4]) == set(USELESS)
    if order != "gradient":  # within its layer it is the only one, whatever its norm
        assert found[-1] == NEEDED


def sentence_loss(model, source, target):
    """Nats of one target, a token at a time."""
    hidden = model(torch.tensor([[*source, EOS]]), None, torch.tensor([[BOS, *target]]))[0]
    return -sum(model.output(h).log_softmax(0)[token] for h, token in zip(hidden, [*target, EOS], strict=True))


def test_gates_are_trained_by_the_equations_as_printed():
    """Against one sentence at a time: gates of equations 10 and 11 on the columns of W_O, the penalty of equation 12,
    its gradients by numbers, Adam by hand. Only the draws are shared."""
    torch.manual_seed(0)
    heads = Heads(built("model/nano", **ONE_LAYER | {"num_heads": 1}, vocab_size=VOCAB).double().eval())
    sides = [[[5, 7, 9], [8, 4, 6]], [[6, 5, 10], [4, 9, 7]]]
    source, target = map(Sentences.of, sides)
    found = GateTraining((0.02, 0.3), 2, 7).log_alpha(heads, source, target)
    outputs = [module.output.weight for module in heads.layers.values()]
    whole = [weight.detach().clone() for weight in outputs]
    draws = torch.Generator().manual_seed(7)
    alpha, first, second, step, expected = np.full(3, 2.0), np.zeros(3), np.zeros(3), 0, []

    def objective(alpha, noise, penalty):
        nats = 0.0
        for row, u in enumerate(noise):
            s = 1 / (1 + np.exp(-(np.log(u) - np.log(1 - u) + alpha) / 0.33))
            for weight, kept, gate in zip(outputs, whole, np.minimum(1, np.maximum(0, s * 1.2 - 0.1)), strict=True):
                weight.data.copy_(kept * gate)
            nats += float(sentence_loss(heads.model, sides[0][row], sides[1][row]))
        return nats / 8 + penalty * (1 / (1 + np.exp(-(alpha - 0.33 * np.log(0.1 / 1.1))))).sum()

    with torch.no_grad():
        for penalty in (0.02, 0.3):
            for _ in range(2):
                torch.randint(1, (), generator=draws)  # there is one batch
                noise = torch.rand(2, 3, generator=draws).double().numpy()
                step, ends = step + 1, 1e-4 * np.eye(3)
                slope = [objective(alpha + e, noise, penalty) - objective(alpha - e, noise, penalty) for e in ends]
                first = 0.9 * first + 0.1 * np.array(slope) / 2e-4
                second = 0.998 * second + 0.002 * (np.array(slope) / 2e-4) ** 2
                alpha = alpha - 0.1 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.998**step)) + 1e-8)
            expected.append(alpha)
    assert found == pytest.approx(np.array(expected), abs=1e-3)
    assert abs(np.diff([np.full(3, 2.0), *expected], axis=0)).min() > 0.01


def test_the_closing_order_is_by_penalty_then_by_gate():
    log_alpha = np.array([[3.0, -5.0, 3.0, 3.0, -4.0], [-6.0, -9.0, 3.0, 2.9, -9.0]])
    assert closing_order(log_alpha) == [1, 4, 0, 3, 2]
    for wrong in ((0.1, 0.01), (), ("x",), (0.0, 1.0)):
        with pytest.raises(InputError, match=r"gate_penalties=.*rising order"):
            GateTraining(wrong, 1, 1)


def test_an_order_looks_again_after_each_cut_and_of_many_heads_cuts_several_at_once():
    worth = {(): [3, 1, 2.0], (1,): [1, 9, 2.0], (1, 0): [9, 9, 1.0]}
    assert estimated_anew(lambda cut: np.array(worth[tuple(cut)]), 3) == [1, 0, 2]
    asked = []
    assert estimated_anew(lambda cut: asked.append(len(cut)) or np.arange(60.0), 60) == list(range(60))
    assert asked == list(range(0, 60, 3))


def arrays_of(loss, right, counts):
    """Two orders, one drawn, of three heads; settings of each: all heads, one, none left."""
    won = np.repeat(np.array(right), 20, axis=1) > np.tile(np.arange(20), 2)  # [setting, pair]
    return {
        "head": np.array(["encoder1.1", "decoder1.1", "cross1.1"]),
        "order": np.array([[0, 1, 2], [2, 1, 0]]),
        "order_name": np.array(["greedy", "random"]),
        "setting_order": np.array([0, 0, 0, 1, 1, 1]),
        "left": np.array([0, 1, 3, 0, 1, 3]),
        "loss": np.repeat(np.array(loss, dtype=np.float32)[:, None], 40, axis=1),
        "tokens": np.full(40, 2),
        "right": np.where(won, np.float32(1), np.float32(-1)),
        "wrong": np.zeros((6, 40), dtype=np.float32),
        "phenomenon": np.array(["case"] * 20 + ["order"] * 20),
        "bleu_setting": np.array([1, 2]),
        "bleu_counts": counts,
    }


@pytest.mark.medium
def test_curves_and_limits_are_those_by_hand():
    texts = ["the dog sees the small cat"] * 38 + ["a wolf hears the old bear"] * 2
    worse = [*texts[:38], "a bear hears the old wolf", "x y z"]
    counts = np.stack([sentence_counts(each, texts, "13a") for each in (worse, texts)])
    right = [(10, 10), (20, 11), (20, 20), (10, 10), (12, 12), (20, 20)]
    arrays = arrays_of([4.0, 0.4, 0.4, 4.0, 2.0, 0.4], right, counts)
    greedy, drawn = curves(arrays)
    assert greedy.left.tolist() == drawn.left.tolist() == [0, 1, 3]
    assert greedy.loss == pytest.approx([2.0, 0.2, 0.2])
    assert greedy.worst == pytest.approx([50, 55, 100])
    assert greedy.bleu == pytest.approx([bleu("13a").corpus_score(worse, [texts]).score, 100])
    assert free(arrays, "loss", 0.01) == {"greedy": 2}
    assert (free(arrays, "bleu", 0.5), free(arrays, "bleu", 50)) == ({"greedy": 0}, {"greedy": 2})


@pytest.mark.slow
def test_the_part_measures_a_run_and_pruning_cuts_in_its_order(home, tmp_path):
    run = shutil.copytree(home / "runs" / "first", tmp_path / "run")
    orders = ("gate_penalties=[0.1,1]", "gate_steps=2", "order_sentences=6")
    few = ("parts=[cutting,bleu]", f"output={tmp_path}/page", "random_orders=3", "valid=4", "bleu_sentences=8")
    completed("heads", f"run={run}", *few, *orders, cwd=home)
    parts = read_parts(run / "heads" / "effects.nc")
    arrays, whole = parts["cutting"], open_run(run)
    heads, texts = Heads(whole.model), whole.data().data["test"]
    assert arrays["order_name"].tolist() == [*ORDERS, *["random"] * 3]
    assert all(sorted(order) == list(range(6)) for order in arrays["order"].tolist())
    every = curves(arrays)
    assert all(curve.left.tolist() == list(range(7)) for curve in every)
    assert len({float(curve.loss[-1]) for curve in every}) == len({float(curve.loss[0]) for curve in every}) == 1
    assert every[0].bleu_left.tolist() == [2, 3, 4, 5, 6]
    rows, order = texts.select(arrays["test_row"]), arrays["order"][3]
    with heads.gated(dict.fromkeys(order[:2].tolist(), 0.0)):
        expected = -np.array(whole.scorer.score(rows["source"], rows["target"])[0])
    setting = np.flatnonzero((arrays["setting_order"] == 3) & (arrays["left"] == 4))
    assert arrays["loss"][setting[0]] == pytest.approx(expected, abs=1e-3)
    # BLEU without each head is that of gates one at a time.
    found = parts["bleu"]
    assert found["counts"].shape == (7, 8, 10)
    lines = texts.select(found["test_row"])
    search = make_translator(whole.model, whole.tokenizer, greedy(whole.translator.search))
    for number in (0, 4):
        with heads.gated({number - 1: 0} if number else {}):
            written = search.translate(list(lines["source"]))
        expected = bleu(whole.bleu_tokenizer).corpus_score(written, [list(lines["target"])])
        assert bleu_of(found["counts"][number].sum(axis=0).astype(float)) == pytest.approx(expected.score)
    for name, order in zip(ORDERS, arrays["order"].tolist(), strict=False):
        new = ("prune=3", f"order={name}", f"output={tmp_path}/{name}")
        completed("heads", f"run={run}", *new, *orders, cwd=home)
        made = open_run(tmp_path / name).config.pruned
        assert list(made.cut) == [str(heads.names[number]) for number in sorted(order[:3])]
        on = ("train", len(whole.data().data["train"])) if name == "hard_concrete" else ("valid", 6)
        assert (made.chosen_on, made.sentences) == on
