"""Cutting: orders find a useless head, gates close it and keep the needed one, curves and limits are those by hand."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from built import BOUNDS, ONE_LAYER, built
from conftest import completed

from headcount.data.batches import Sentences, collate
from headcount.data.tokenizer import BOS, EOS
from headcount.decoding.beam import greedy
from headcount.errors import InputError
from headcount.evaluation.metrics import bleu
from headcount.heads.cutting_curves import curves, free_by_bleu, free_by_loss
from headcount.heads.hard_concrete import GateTraining, closing_order, final, open_heads, probability_open, sampled
from headcount.heads.interface import Heads
from headcount.heads.likelihood import token_log_probs
from headcount.heads.orders import ORDERS, Choice, estimated_anew, random_orders, without
from headcount.heads.results import Results
from headcount.heads.table import cuts
from headcount.run.opened import make_translator, open_run
from headcount.statistics.bootstrap import bleu_of, sentence_counts

VOCAB = 20
NEEDED, USELESS = "cross1.2", ("encoder1.1", "encoder1.2", "decoder1.2", "cross1.1")


@pytest.fixture(scope="module")
def planted():
    """A model that copies the source, for which one head is trained with the others at 0; four outputs are 0."""
    torch.manual_seed(2)
    model = built("model/nano", **ONE_LAYER | {"d_model": 16}, dropout=0.0, vocab_size=VOCAB)
    heads = Heads(model)
    with torch.no_grad():
        for name in USELESS:
            head = heads.names[heads.number(name)]
            heads.layers[head.place].output.weight[:, (head.head - 1) * 8 : head.head * 8] = 0
    random = np.random.default_rng(0)
    rows = [random.integers(4, VOCAB, 4).tolist() for _ in range(200)]
    source = Sentences.of(rows)
    batch = collate(source, source, np.arange(200), 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    masks = [heads.layers[heads.names[heads.number(name)].place].output for name in USELESS]
    for _ in range(120):
        hidden = model(batch.source, batch.source_mask, batch.target_in)
        loss = torch.nn.functional.cross_entropy(model.output(hidden).flatten(0, 1), batch.target_out.flatten())
        optimizer.zero_grad()
        loss.backward()
        for name, output in zip(USELESS, masks, strict=True):
            head = heads.names[heads.number(name)]
            output.weight.grad[:, (head.head - 1) * 8 : head.head * 8] = 0
        optimizer.step()
    model.eval()
    for parameter in model.parameters():
        parameter.grad = None
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


@pytest.mark.medium
def test_gates_close_useless_heads_and_keep_the_needed_one(planted):
    heads = planted[0]
    before = {name: weight.clone() for name, weight in heads.model.state_dict().items()}
    weak, strong = open_heads(choice(planted, (0.003, 0.1), 60).log_alpha())
    closed = {str(heads.names[number]) for number in np.flatnonzero(~strong)}
    assert set(USELESS) <= closed
    assert NEEDED not in closed
    assert weak.sum() >= strong.sum()
    assert all(weight.equal(before[name]) for name, weight in heads.model.state_dict().items())
    assert all(parameter.grad is None for parameter in heads.model.parameters())


def test_a_hard_concrete_gate_is_as_published():
    log_alpha = torch.tensor([-8.0, -1.0, 0.0, 2.0, 8.0])
    gates = sampled(log_alpha, 20000, torch.Generator().manual_seed(1))
    assert gates.min() == 0
    assert gates.max() == 1
    # P(open) by drawing is that of equation 12, with 0.33 log(0.1 / 1.1) added.
    assert (gates > 0).double().mean(0).numpy() == pytest.approx(probability_open(log_alpha).numpy(), abs=0.01)
    assert probability_open(torch.zeros(1)).item() == pytest.approx(1 / (1 + (0.1 / 1.1) ** 0.33))
    assert final(log_alpha).tolist() == pytest.approx([0, 0.2227, 0.5, 0.957, 1], abs=1e-3)
    log_alpha.requires_grad_()
    sampled(log_alpha, 100, torch.Generator().manual_seed(1)).sum().backward()
    assert log_alpha.grad[1:4].gt(0).all()


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


def test_gates_refuse_what_is_no_training():
    for changed, message in (
        ({"penalties": (0.1, 0.01)}, "gate_penalties=.*rising order"),
        ({"penalties": ()}, "gate_penalties"),
        ({"penalties": ("x",)}, "gate_penalties"),
        ({"steps": 0}, "gate_steps=0: must be 1 or more"),
    ):
        with pytest.raises(InputError, match=message):
            GateTraining(**{"penalties": (0.1,), "steps": 1, "seed": 1} | changed)


@pytest.mark.medium
def test_gates_of_a_point_have_as_many_heads_left(planted):
    heads, source = planted
    order = random_orders(len(heads), 1, 0)[0]
    gates = without(heads, order, [0, 2, 6])
    assert gates.sum(1).tolist() == [0, 2, 6]
    assert gates[1].nonzero()[:, 0].tolist() == sorted(order[-2:])
    whole = token_log_probs(heads, source, source, heads.gates()[None]).values
    assert np.array_equal(token_log_probs(heads, source, source, gates[2:]).values, whole)


@contextmanager
def cut_out(heads, numbers):
    """Without gates: no row of the next layer reads these heads."""
    parts = [(heads.layers[head.place].output.weight, head.head - 1) for head in map(heads.names.__getitem__, numbers)]
    before = [weight[:, 8 * place : 8 * place + 8].detach().clone() for weight, place in parts]
    for weight, place in parts:
        weight.data[:, 8 * place : 8 * place + 8] = 0
    yield
    for (weight, place), columns in zip(parts, before, strict=True):
        weight.data[:, 8 * place : 8 * place + 8] = columns


def sentence_loss(model, source, target):
    """Nats of one target, a token at a time."""
    hidden = model(torch.tensor([[*source, EOS]]), None, torch.tensor([[BOS, *target]]))[0]
    return -sum(model.output(h).log_softmax(0)[token] for h, token in zip(hidden, [*target, EOS], strict=True))


def greedy_step_by_step(heads, pairs, cut):
    """The loss without each of the heads that are left, those in `cut` being gone."""
    harm = {}
    for number in set(range(len(heads))) - set(cut):
        with cut_out(heads, [*cut, number]), torch.no_grad():
            harm[number] = sum(float(sentence_loss(heads.model, *pair)) for pair in pairs)
    return harm


def gradient_step_by_step(heads, pairs, cut):
    """E |dL / d gate| of the heads that are left: a gate scales its columns of W_O."""
    harm = dict.fromkeys(set(range(len(heads))) - set(cut), 0.0)
    with cut_out(heads, cut):
        for pair in pairs:
            outputs = [module.output.weight for module in heads.layers.values()]
            gradients = torch.autograd.grad(sentence_loss(heads.model, *pair), outputs)
            by_head = [(w * g).unflatten(1, (-1, 8)).sum(dim=(0, 2)) for w, g in zip(outputs, gradients, strict=True)]
            for number in harm:
                harm[number] += abs(float(torch.cat(by_head).detach()[number]))
    return harm


@pytest.mark.medium
@pytest.mark.parametrize(("name", "slow"), [("greedy", greedy_step_by_step), ("gradient_again", gradient_step_by_step)])
def test_an_order_looks_again_after_each_cut(name, slow):
    """Against a model that is run anew for every sentence and every head, after every cut."""
    torch.manual_seed(3)
    heads = Heads(built("model/nano", **ONE_LAYER | {"decoder_layers": 2}, vocab_size=VOCAB).double().eval())
    for module in heads.layers.values():
        module.output.weight.data *= 3  # heads that hang on one another
    random = np.random.default_rng(0)
    sides = [[random.integers(4, VOCAB, length).tolist() for length in (3, 6, 4, 5)] for _ in range(2)]
    pairs, order = list(zip(*sides, strict=True)), []
    once = slow(heads, pairs, [])
    while len(order) < len(heads):
        harm = slow(heads, pairs, order)
        order.append(min(harm, key=harm.__getitem__))
    source, target = map(Sentences.of, sides)
    assert ORDERS[name](Choice(heads, source, target, GateTraining((0.1,), 1, 1), lambda done: None)) == order
    assert order[:4] != sorted(once, key=once.__getitem__)[:4]  # a second cut that depends on the first


def test_of_many_heads_several_are_cut_at_once():
    asked = []

    def harm(order):
        asked.append(len(order))
        return np.arange(60.0)

    assert estimated_anew(harm, 60) == list(range(60))
    assert asked == list(range(0, 60, 3))


def arrays_of(loss, right, counts):
    """Two orders, one drawn, of three heads; settings of each: all heads, one, none left."""
    sentences = 40
    loss = np.repeat(np.array(loss)[:, None], sentences, axis=1)
    margin = np.zeros((6, sentences))
    for setting, wins in enumerate(right):
        for phenomenon, won in enumerate(wins):
            margin[setting, phenomenon * 20 : phenomenon * 20 + 20] = np.where(np.arange(20) < won, 1, -1)
    return {
        "head": np.array(["encoder1.1", "decoder1.1", "cross1.1"]),
        "order": np.array([[0, 1, 2], [2, 1, 0]]),
        "order_name": np.array(["greedy", "random"]),
        "setting_order": np.array([0, 0, 0, 1, 1, 1]),
        "left": np.array([0, 1, 3, 0, 1, 3]),
        "loss": loss.astype(np.float32),
        "tokens": np.full(sentences, 2),
        "right": margin.astype(np.float32),
        "wrong": np.zeros((6, sentences), dtype=np.float32),
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
    assert greedy.left.tolist() == [0, 1, 3]
    assert greedy.loss.tolist() == pytest.approx([2.0, 0.2, 0.2])
    assert greedy.worst == pytest.approx([50, 55, 100])
    assert greedy.bleu[1] == 100
    score = bleu("13a").corpus_score(worse, [texts]).score
    assert greedy.bleu[0] == pytest.approx(score)
    assert drawn.left.tolist() == [0, 1, 3]

    assert free_by_loss(arrays, 0.01) == {"greedy": 2}
    assert free_by_bleu(arrays, 0.5) == {"greedy": 0}
    found = cuts(Results("a", Path("a"), ("en", "de"), {"cutting": arrays}, BOUNDS))
    assert [(row.column, row.estimate) for row in found if row.endpoint == "cut.greedy"] == [("bleu", 0), ("loss", 2)]
    assert free_by_bleu(arrays, bound=50) == {"greedy": 2}


@pytest.mark.slow
def test_the_part_measures_a_run_and_its_summary_needs_no_model(home, tmp_path):
    run = shutil.copytree(home / "runs" / "first", tmp_path / "run")
    orders = ("gate_penalties=[0.1,1]", "gate_steps=2", "order_sentences=6")
    few = ("parts=[cutting]", f"output={tmp_path}/page", "random_orders=3", "valid=4")
    completed("heads", f"run={run}", *few, *orders, cwd=home)
    with np.load(run / "heads" / "cutting.npz") as file:
        arrays = dict(file)
    assert arrays["order_name"].tolist() == [*ORDERS, *["random"] * 3]
    assert all(sorted(order) == list(range(6)) for order in arrays["order"].tolist())
    every = curves(arrays)
    assert all(curve.left.tolist() == list(range(7)) for curve in every)
    assert len({float(curve.loss[-1]) for curve in every}) == len({float(curve.loss[0]) for curve in every}) == 1
    assert every[0].bleu_left.tolist() == [2, 3, 4, 5, 6]
    whole = open_run(run)
    rows = whole.data().data["test"].select(arrays["test_row"])
    order = arrays["order"][3]
    heads = Heads(whole.model)
    page = (tmp_path / "page" / "heads.md").read_text(encoding="utf-8")
    assert "How many heads can go?" in page
    assert "by chance" not in page  # a corpus without contrasts
    cut = dict.fromkeys(order[:2].tolist(), 0.0)
    with heads.gated(cut):
        expected = -np.array(whole.scorer.score(rows["source"], rows["target"])[0])
    setting = np.flatnonzero((arrays["setting_order"] == 3) & (arrays["left"] == 4))
    assert arrays["loss"][setting[0]] == pytest.approx(expected, abs=1e-3)
    # BLEU without each head is that of gates one at a time.
    completed("heads", f"run={run}", "parts=[bleu]", f"output={tmp_path}/page", "valid=4", "bleu_sentences=8", cwd=home)
    with np.load(run / "heads" / "bleu.npz") as file:
        found = dict(file)
    assert found["counts"].shape == (7, 8, 10)
    lines = whole.data().data["test"].select(found["test_row"])
    search = make_translator(whole.model, whole.tokenizer, greedy(whole.translator.search), False)
    for number in (0, 4):
        with heads.gated({number - 1: 0} if number else {}):
            texts = search.translate(list(lines["source"]))
        expected = bleu(whole.bleu_tokenizer).corpus_score(texts, [list(lines["target"])])
        assert bleu_of(found["counts"][number].sum(axis=0).astype(float)) == pytest.approx(expected.score)
    # Pruning cuts in the order that the curve measured.
    for name, order in zip(ORDERS, arrays["order"].tolist(), strict=False):
        new = ("prune=3", f"order={name}", f"output={tmp_path}/{name}", "timed=0")
        completed("heads", f"run={run}", *new, *orders, cwd=home)
        made = open_run(tmp_path / name).config.pruned
        assert list(made.cut) == [str(heads.names[number]) for number in sorted(order[:3])]
        on = ("train", len(whole.data().data["train"])) if name == "hard_concrete" else ("valid", 6)
        assert (made.chosen_on, made.sentences) == on
