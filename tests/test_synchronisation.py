"""Steps of training and search make the processor wait for a GPU as seldom as can be: the meta device stands for it."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import built, random_model, task_without_data
from synchronising import SynchronisationError, Unsynchronised
from torch import Tensor, nn

from headcount.data.batches import Sentences, collate
from headcount.decoding import search as searching
from headcount.decoding.search import search_loop
from headcount.training.averaging import ExponentialAverage
from headcount.training.callbacks import StopOnInterrupt, TrainingProgress
from headcount.training.loss import LabelSmoothing, RDrop, SimCut
from headcount.training.module import TranslationTask

VOCABULARY = 12
SIZES = {"d_model": 8, "d_feed_forward": 8, "num_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1}
LOSSES = {
    "label smoothing": LabelSmoothing(smoothing=0.1),
    "r_drop": RDrop(alpha=5.0, smoothing=0.1, start=0),
    "simcut": SimCut(alpha=3.0, p_cut=0.05, smoothing=0.1, start=0),
}


def a_batch(device: str = "meta", lengths: tuple[int, ...] = (3, 2)):
    """A batch of pairs of so many tokens, on its way to the device."""
    draw = np.random.default_rng(1)
    sentences = Sentences.of([draw.integers(4, VOCABULARY, length).tolist() for length in lengths])
    batch = collate(sentences, sentences, np.arange(len(lengths)), sum(lengths) + len(lengths))
    return TranslationTask.transfer_batch_to_device(None, batch, torch.device(device), 0)


def trained(model: nn.Module, loss: object, log_every: int = 50) -> TranslationTask:
    task = task_without_data(model, loss)
    counts = {"global_step": 3, "max_steps": 100, "log_every_n_steps": log_every, "accumulate_grad_batches": 1}
    alone = {"world_size": 1, "global_rank": 0, "is_global_zero": True}
    strategy = SimpleNamespace(reduce=lambda tokens, **options: tokens)
    task._trainer = SimpleNamespace(**counts, **alone, strategy=strategy, gradient_clip_val=1.0, should_stop=False)
    return task


def one_step(task: TranslationTask, optimizer: object) -> None:
    """A training step as Lightning makes it, with the callbacks that have something to do at each."""
    average, progress = ExponentialAverage(share=0.1, decay=None), TrainingProgress(task.skipped)
    average.on_train_start(task._trainer, SimpleNamespace(model=task.model, device=task.model.device))
    batch = a_batch(task.model.device.type)
    task.on_train_batch_start(batch, 3)
    task.zero_grad()
    task.optimizer_step(0, 3, optimizer, lambda: task.training_step(batch, 3).backward())
    for callback in (StopOnInterrupt(), progress, average):
        callback.on_train_batch_end(task._trainer, task, None, batch, 3)


@pytest.fixture(autouse=True)
def without_autocast(monkeypatch):
    """Which the meta device does not know."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device != "meta" and enabled(device))
    plain = lambda device, *args, **options: nullcontext() if device == "meta" else autocast(device, *args, **options)  # noqa: E731
    monkeypatch.setattr(torch, "autocast", plain)


@pytest.mark.medium
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    "options", [{}, {"positions": "rotary", "kv_heads": 1, "local_heads": 1, "norm": "post"}, {"head_gate": "head"}]
)
def test_a_training_step_waits_for_the_gradient_norm_alone(loss, options, monkeypatch):
    model = built("model/nano", vocab_size=VOCABULARY, **SIZES | options).to("meta").train()
    task, norms = trained(model, loss), []
    monkeypatch.setattr(Tensor, "__float__", lambda norm: norms.append(norm.shape) or 1.0)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.1}], step=lambda: None)
    with Unsynchronised():
        one_step(task, optimizer)
    assert norms == [()]
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.medium
def test_a_validation_step_waits_for_nothing():
    task = trained(built("model/nano", vocab_size=VOCABULARY, **SIZES).to("meta").eval(), None)
    with Unsynchronised(), torch.no_grad():
        task.validation_step(a_batch(), 0)
    assert [each.shape for each in task._valid_sums] == [(2,)]


@pytest.mark.medium
@pytest.mark.parametrize("search", ["beam", "greedy", "diverse", "sample"])
def test_steps_of_a_search_wait_for_nothing(search, monkeypatch):
    model = built("model/nano", vocab_size=VOCABULARY, **SIZES).to("meta").eval()
    method, steps = built(f"search/{search}"), 0
    limits = torch.full((3,), 20, device="meta")
    state = model.start(torch.ones(3, 4, dtype=torch.long, device="meta"), None)
    hypotheses = method.begin([[5, 6, 7]] * 3, torch.full((3,), 20), 1, 3)
    for part in (hypotheses, *getattr(hypotheses, "groups", ())):
        tensors = {name: value for name, value in vars(part).items() if isinstance(value, Tensor)}
        vars(part).update({name: value.to("meta") for name, value in tensors.items()})
    model_step = model.step

    def counted(tokens, state):
        nonlocal steps
        steps += 1
        return model_step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    monkeypatch.setattr(Tensor, "__int__", lambda limit: 20)
    with Unsynchronised(), pytest.raises(SynchronisationError, match="nonzero"):
        search_loop(model, state, limits, hypotheses, 2, 3)  # until it looks which sentences are done
    assert steps == 8


@pytest.mark.medium
@pytest.mark.parametrize("option", ["beam", "diverse", "sample"])
def test_a_search_that_looks_seldom_finds_the_same(option, monkeypatch):
    """As on a GPU, where sentences that are done stay in the batch until the next look."""
    model = random_model(VOCABULARY)
    method = built(f"search/{option}")
    sources = [[5, 6, 7, 8], [9, 4], [10, 11, 6]]
    expected, seldom = [], []
    with torch.inference_mode():
        for found, every in ((expected, 1), (seldom, 8)):
            monkeypatch.setitem(searching.LOOK_EVERY, "cpu", every)
            for limits in ([3, 9, 20], [12, 12, 12]):
                source = torch.tensor([[*row, 3, 0, 0][:5] for row in sources])
                state = model.start(source, source != 0)
                hypotheses = method.begin(sources, torch.tensor(limits), 1, 3)
                found.append(search_loop(model, state, torch.tensor(limits), hypotheses, 2, 3))
    for batch, other in zip(expected, seldom, strict=True):
        assert [[tokens for tokens, _ in row] for row in batch] == [[tokens for tokens, _ in row] for row in other]
        scores, others = ([score for row in each for _, score in row] for each in (batch, other))
        assert scores == pytest.approx(others, abs=1e-5)
