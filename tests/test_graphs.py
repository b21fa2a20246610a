"""CUDA graphs of training steps: a batch with room for more tokens has the loss and gradients of one without."""

import re

import numpy as np
import pytest
import torch
from built import built, random_model, task_without_data
from conftest import completed
from safetensors.torch import load_file
from test_synchronisation import LOSSES, SIZES, VOCABULARY

from headcount.data.batches import Sentences, collate
from headcount.training import graphs as graphs_module
from headcount.training.graphs import StepGraphs, places_of
from headcount.training.loss import LabelSmoothing
from headcount.training.module import TranslationTask, parameter_groups

ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def batch_of(*lengths: int):
    random = np.random.default_rng(sum(lengths))
    sentences = Sentences.of([random.integers(4, VOCABULARY, length).tolist() for length in lengths])
    return collate(sentences, sentences, np.arange(len(lengths)), sum(lengths) + len(lengths), pad_to=4)


def roomy(batch, places: int):
    """The batch with so many places for tokens, read from memory in which a longer one was before."""
    packed = batch._packed()
    memory = torch.full((len(packed) - len(batch.real) + places,), 1)
    memory[: len(packed)] = packed
    return batch.placed(memory, torch.tensor(len(batch.real)))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("options", [{}, {"logit_cap": 5.0}])
def test_places_without_a_token_count_for_nothing(loss, options):
    found = []
    for change in (lambda batch: batch, lambda batch: roomy(batch, len(batch.real) + 5)):
        model = random_model(VOCABULARY, **SIZES | options | {"dropout": 0.0}).train()
        task = task_without_data(model, loss)
        torch.manual_seed(1)
        losses = task._losses(change(batch_of(3, 5, 2)), loss)
        losses[0].backward()
        found.append([*losses, *(weight.grad for weight in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_batches_of_similar_content_have_one_shape():
    full, padded, shorter = batch_of(7, 7, 7, 7), batch_of(7, 7, 6, 7), batch_of(7, 1, 1, 1)
    assert places_of(full) == full.target_out.numel() == len(full.real)
    assert places_of(padded) == places_of(full)
    assert len(shorter.real) <= places_of(shorter) < places_of(full)


def gradients_of(graphs: StepGraphs, model, batch, objective, mixed: bool = False, adds: bool = False):
    torch.manual_seed(1)
    with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=mixed):
        loss, likelihood, mean = graphs(batch, objective, 0.5, adds)
    if not adds:
        model.zero_grad()
    (mean * 2 / 2).backward()  # as Lightning scales the losses of micro-batches
    values = [loss, likelihood, mean, *(weight.grad for weight in model.parameters())]
    return [value.detach().clone() for value in values]


class FakeGraph:
    """Stands for a CUDA graph: a replay makes the passes again, and writes what they compute into the same memory."""

    def __init__(self, passes) -> None:
        self.passes, self.computed = passes, passes()

    def replay(self) -> None:
        torch.manual_seed(1)  # to record draws nothing on a GPU
        again = self.passes()
        assert again.reached == self.computed.reached
        for here, new in zip(self.computed[:3], again[:3], strict=True):
            here.copy_(new)


@pytest.fixture
def captured(monkeypatch):
    """The shapes that were recorded."""
    graphs = []

    def capture(self, passes):
        graphs.append(FakeGraph(passes))
        return graphs[-1], graphs[-1].computed

    monkeypatch.setattr(StepGraphs, "_capture", capture)
    return graphs


@pytest.mark.medium
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_shape_is_recorded_at_its_second_batch(loss, captured):
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.1}).train()
    task = task_without_data(model, loss)
    graphs = StepGraphs(task._losses, model)
    batches = [batch_of(3, 5, 2), batch_of(9, 9), batch_of(2, 5, 3), batch_of(4, 5, 2), batch_of(9, 8)]
    for number, batch in enumerate(batches):
        plain = gradients_of(StepGraphs(task._losses, model), model, batch, loss)
        replayed = gradients_of(graphs, model, batch, loss)
        for one, other in zip(replayed, plain, strict=True):
            torch.testing.assert_close(one, other)
        assert len(captured) == [0, 0, 1, 1, 1 if places_of(batch) != places_of(batches[1]) else 2][number]


@pytest.mark.medium
def test_gradients_of_micro_batches_add_up(captured):
    loss = LOSSES["label smoothing"]
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    task = task_without_data(model, loss)
    graphs = StepGraphs(task._losses, model)
    batches = batch_of(3, 5, 2), batch_of(4, 5, 2)
    for adds in (False, False, True, True, False, True):
        total = gradients_of(graphs, model, batches[adds], loss, adds=adds)
    alone = [gradients_of(StepGraphs(task._losses, model), model, batch, loss) for batch in batches]
    assert len(captured) == 1
    for one, other, both in zip(alone[0][3:], alone[1][3:], total[3:], strict=True):
        torch.testing.assert_close(one + other, both)


@pytest.mark.medium
def test_a_gate_that_is_set_acts_in_steps_that_were_recorded(captured):
    loss, batch = LOSSES["label smoothing"], batch_of(3, 5, 2)
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    task = task_without_data(model, loss)
    graphs = StepGraphs(task._losses, model)
    before = [gradients_of(graphs, model, batch, loss)[0] for _ in range(3)][-1]
    attention = model.encoder[0].self_attention
    attention.head_gate = torch.tensor([0.0, 1.0])
    after = [gradients_of(graphs, model, batch, loss)[0] for _ in range(3)]
    attention.head_gate[0] = 1
    again = [gradients_of(graphs, model, batch, loss)[0] for _ in range(3)]
    assert len({float(each) for each in after}) == 1
    assert after[0] != before
    torch.testing.assert_close(torch.stack(again), before.expand(3))
    assert len(captured) == 3


@pytest.mark.medium
def test_without_memory_for_graphs_steps_go_on(captured, monkeypatch, caplog):
    loss, batch = LOSSES["label smoothing"], batch_of(3, 5, 2)
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    task = task_without_data(model, loss)
    graphs = StepGraphs(task._losses, model)

    def refused(passes):
        passes()
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(graphs, "_capture", refused)
    found = [gradients_of(graphs, model, batch, loss) for _ in range(4)]
    for one, other in zip(found[0], found[-1], strict=True):
        assert torch.equal(one, other)
    assert caplog.text.count("not enough memory for CUDA graphs") == 1


@pytest.mark.medium
def test_an_objective_that_changes_is_followed(captured):
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    graphs = StepGraphs(task_without_data(model, None)._losses, model)
    for step in range(4):
        objective = LabelSmoothing(smoothing=step / 10)
        plain = StepGraphs(task_without_data(model, None)._losses, model)
        found = [gradients_of(each, model, batch_of(3, 5, 2), objective)[0] for each in (graphs, plain)]
        torch.testing.assert_close(*found)
    assert not captured


@pytest.mark.medium
def test_a_parameter_that_is_trained_later_gets_a_gradient(captured):
    loss, batch = LOSSES["label smoothing"], batch_of(3, 5, 2)
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    graphs = StepGraphs(task_without_data(model, loss)._losses, model)
    frozen = model.encoder[0].self_attention.query.weight.requires_grad_(False)
    for trained in (False, True):
        frozen.requires_grad_(trained)
        for _ in range(3):
            model.zero_grad()
            graphs(batch, loss, 0.5, False)[2].backward()
            assert (frozen.grad is not None) == trained
    assert len(captured) == 2


@pytest.mark.medium
def test_a_shape_takes_the_place_of_the_rarest_once_it_has_come_twice_as_often(captured, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(graphs_module, "MAX_GRAPHS", 2)
    loss = LOSSES["label smoothing"]
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    graphs = StepGraphs(task_without_data(model, loss)._losses, model)
    one, two, three = batch_of(3, 5, 2), batch_of(9, 9), batch_of(1, 1)
    for batch in (one, one, one, two, two, three, three, three, three):
        gradients_of(graphs, model, batch, loss)
    assert len(captured) == 2
    gradients_of(graphs, model, three, loss)  # the fifth time, against two
    assert len(captured) == 3
    for batch in (two, one, three, two, one, three):
        gradients_of(graphs, model, batch, loss)
    assert len(captured) == 3
    assert caplog.text.count("2 shapes of batches have CUDA graphs") == 1


@pytest.mark.medium
def test_counts_of_shapes_are_halved_where_there_are_many(captured, monkeypatch):
    monkeypatch.setattr(graphs_module, "MAX_SEEN", 2)
    loss = LOSSES["label smoothing"]
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    graphs = StepGraphs(task_without_data(model, loss)._losses, model)
    for batch in (batch_of(3, 5, 2), batch_of(3, 5, 2), batch_of(3, 5, 2), batch_of(9, 9), batch_of(1, 1)):
        gradients_of(graphs, model, batch, loss)
    assert list(graphs._batches.values()) == [1]
    gradients_of(graphs, model, batch_of(3, 5, 2), loss)
    assert len(captured) == 1


def test_a_validation_that_needs_the_memory_of_graphs_gets_it(caplog):
    caplog.set_level("INFO")
    loss, batch = LOSSES["label smoothing"], batch_of(3, 5, 2)
    task = task_without_data(random_model(VOCABULARY, **SIZES).eval(), loss)
    losses, tried = task._losses, []

    def short_of_memory(*given):
        tried.append(given)
        if task.graphs is None or task.graphs._recorded:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(*given)

    task._losses = short_of_memory
    with pytest.raises(torch.OutOfMemoryError):  # without graphs there is no more
        task.validation_step(batch, 0)
    task.graphs = StepGraphs(losses, task.model)
    task.graphs._recorded["shape"] = None
    task.validation_step(batch, 0)
    assert len(tried) == 3
    assert len(task._valid_sums) == 1
    assert caplog.text.count("CUDA graphs are dropped, since memory is short") == 1


class FakeUpdate:
    """Stands for the CUDA graph of an optimizer step, which is not made when it is recorded."""

    def __init__(self, make) -> None:
        self.make, self.norm, self.replays = make, torch.zeros(()), 0

    def replay(self) -> None:
        self.replays += 1
        self.norm.copy_(self.make())


@pytest.mark.medium
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_recorded_optimizer_step_is_the_step(name, device, monkeypatch):
    recorded = []

    def capture(self, make):
        recorded.append(FakeUpdate(make))
        return recorded[-1], recorded[-1].norm

    if device == "cpu":
        monkeypatch.setattr(StepGraphs, "_capture", capture)
    loss, weights, norms = LOSSES["label smoothing"], {}, {}
    for graphed in (False, True):
        model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train().to(device)
        rates = {"muon": {"adamw_lr": 0.02}, "adamw": {"other_lr": 0.02}}.get(name, {})
        make = built(f"optimizer/{name}", lr=0.01, weight_decay=0.1, eps=1e-3, **rates)
        if name == "muon":
            make.keywords["ns_dtype"] = "float32"
        optimizer = make(parameter_groups(model, make))
        graphs = StepGraphs(task_without_data(model, loss)._losses, model)
        graphs._on = False  # of each shape of batch
        norms[graphed] = []
        for number in range(8):
            adds = number == 4  # gradients of two micro-batches
            gradients_of(graphs, model, batch_of(3, 5, 2).to(device), loss, adds=adds)
            graphs._on = True
            if number == 6:
                model.output.weight.grad[0, 0] = torch.nan
            for group in optimizer.param_groups:
                group["lr"] *= 0.9
            if graphed:
                norm = graphs.step(optimizer, 0.5)
            else:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.grad_scale, optimizer.found_inf = None, (~norm.isfinite()).float()
                optimizer.step()
            graphs._on = False
            norms[graphed].append(norm.clone())
            assert all(isinstance(group["lr"], float) for group in optimizer.param_groups)
            assert all(group.get("capturable", False) is False for group in optimizer.param_groups)
        weights[graphed] = [weight.detach().clone() for weight in model.parameters()]
    one, other = (torch.stack(norms[graphed]) for graphed in (True, False))
    torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-4, atol=1e-4)
    assert norms[True][6].isnan()
    for one, other in zip(weights[True], weights[False], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    if device == "cpu":
        assert [each.replays for each in recorded] == [6]  # all but the first, and that of two micro-batches


def test_without_memory_for_the_graph_of_the_optimizer_step_it_is_made_without(monkeypatch, caplog):
    def refused(self, step):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(StepGraphs, "_capture", refused)
    loss, batch = LOSSES["label smoothing"], batch_of(3, 5, 2)
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    make = built("optimizer/muon", lr=0.01)
    optimizer = make(parameter_groups(model, make))
    graphs = StepGraphs(task_without_data(model, loss)._losses, model)
    for number in range(4):
        gradients_of(graphs, model, batch_of(*[3 + number] * 3), loss)
        before = [weight.detach().clone() for weight in model.parameters()]
        assert graphs.step(optimizer, 1.0).isfinite()
        assert any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert caplog.text.count("not enough memory for CUDA graphs") == 1
    gradients_of(graphs, model, batch, loss)


@pytest.mark.medium
def test_nothing_is_recorded_while_torch_looks_for_anomalies(captured):
    loss = LOSSES["label smoothing"]
    model = random_model(VOCABULARY, **SIZES | {"dropout": 0.0}).train()
    graphs = StepGraphs(task_without_data(model, loss)._losses, model)
    with torch.autograd.detect_anomaly(check_nan=True):
        for _ in range(3):
            gradients_of(graphs, model, batch_of(3, 5, 2), loss)
    assert not captured


@pytest.mark.medium
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_of_replayed_steps_ends_with_the_weights_of_a_plain_run(
    accumulate, tiny, tmp_path, captured, monkeypatch
):
    settings = (
        *tiny,
        "data.pad_to=8",
        "model.dropout=0",
        "averaging.kind=ema",
        "trainer.precision=32-true",
        "optimizer=adamw",
    )
    settings += (f"trainer.accumulate_grad_batches={accumulate}", "steps=12", "validation.every=5")
    settings += ("optimizer.eps=1e-3",)  # so that the size of a step goes by the size of its gradient
    completed("train", *settings, "hydra.run.dir=runs/plain", cwd=tmp_path)
    start = TranslationTask.on_train_start

    def with_graphs(task: TranslationTask) -> None:
        start(task)
        task.graphs = StepGraphs(task._losses, task.model)

    monkeypatch.setattr(TranslationTask, "on_train_start", with_graphs)
    completed("train", *settings, "hydra.run.dir=runs/replayed", cwd=tmp_path)
    assert captured
    curves = [(tmp_path / "runs" / name / "train.log").read_text() for name in ("plain", "replayed")]
    losses = [re.findall(r"validation loss [0-9.]+", text) for text in curves]
    assert losses[0] == losses[1] != []
    plain, replayed = (load_file(tmp_path / "runs" / name / "model.safetensors") for name in ("plain", "replayed"))
    for name, weight in plain.items():
        torch.testing.assert_close(replayed[name], weight, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("loss", [pytest.param(loss, id=name, marks=ON_GPU) for name, loss in LOSSES.items()])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("options", [{}, {"d_model": 32, "positions": "rotary"}])
def test_a_replayed_step_is_the_step(loss, mixed, options):
    model = random_model(VOCABULARY, **SIZES | options | {"dropout": 0.1}).train().cuda()
    task = task_without_data(model, loss)
    batches = [batch_of(3, 5, 2).to("cuda"), batch_of(3, 3, 2).to("cuda"), batch_of(9, 9).to("cuda")]
    graphs = StepGraphs(task._losses, model)
    plain = [gradients_of(StepGraphs(task._losses, model), model, each, loss, mixed) for each in batches]
    for _ in range(3):  # as it is, recorded, replayed
        for batch, expected in zip(batches, plain, strict=True):
            for one, other in zip(gradients_of(graphs, model, batch, loss, mixed), expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    first = gradients_of(graphs, model, batches[0], loss, mixed)
    both = gradients_of(graphs, model, batches[2], loss, mixed, adds=True)
    for one, other, total in zip(first[3:], plain[2][3:], both[3:], strict=True):
        torch.testing.assert_close(one + other, total, atol=1e-4, rtol=1e-3)
