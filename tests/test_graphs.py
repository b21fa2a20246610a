"""CUDA graphs of training, with a stand-in for a graph on the processor, and on a GPU."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from built import built, random_model, task_without_data
from conftest import completed
from safetensors.torch import load_file
from test_synchronisation import LOSSES, SIZES, VOCABULARY, a_batch

from headcount.training import graphs
from headcount.training.graphs import CudaGraphs, RecordedPasses

ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.fixture
def recorded(monkeypatch):
    """The shapes that were recorded, by a stand-in whose replay makes a pass again."""
    found = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, capture_error_mode: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8, 10))
    make = graphs.Graph.__init__

    def noted(self, passes, inputs, parameters, pool):
        found.append(inputs[0].shape)
        make(self, passes, inputs, parameters, pool)

        def forward():
            with torch.enable_grad():
                self.again = passes(*self.inputs)
            self.output.copy_(self.again.detach())

        def backward():
            self.gradients = torch.autograd.grad(self.again, parameters, self.by_output, allow_unused=True)

        self.forward.replay, self.backward.replay = forward, backward

    monkeypatch.setattr(graphs.Graph, "__init__", noted)
    return found


def gradients(model, task, batch, loss):
    model.zero_grad()
    values = task._losses(batch, loss)
    values[0].backward()
    return [values[0].detach(), *(weight.grad for weight in model.parameters())]


@pytest.mark.medium
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
def test_a_step_with_graphs_is_the_step_without(device, request):
    shapes = request.getfixturevalue("recorded") if device == "cpu" else None
    loss = LOSSES["label smoothing"]
    options = {"dropout": 0.0, "tied_embeddings": False, "head_gate": "head"}
    model = random_model(VOCABULARY, **SIZES | options).train().to(device)
    task = task_without_data(model, loss)
    plain, passes = model.forward, RecordedPasses(model)
    batches = [a_batch(device, lengths) for lengths in ((3, 5, 2), (9, 9), (2, 5, 3), (4, 5, 2), (9, 8))]
    for number, batch in enumerate(batches * 2):
        model.forward = plain
        expected = gradients(model, task, batch, loss)
        model.forward = passes
        for one, other in zip(gradients(model, task, batch, loss), expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
        if shapes is not None:
            assert len(shapes) == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2][number]  # the second batch of a shape


@pytest.mark.parametrize(
    ("device", "options", "loss", "batches", "records"),
    [
        ("cuda", {}, "label smoothing", 1, True),
        ("cpu", {}, "label smoothing", 1, False),
        ("cuda", {"layer_dropout": 0.1}, "label smoothing", 1, False),
        ("cuda", {}, "r_drop", 1, False),
        ("cuda", {}, "label smoothing", 2, False),
    ],
)
def test_graphs_are_for_steps_that_are_alike(device, options, loss, batches, records):
    model = built("model/nano", vocab_size=VOCABULARY, **SIZES | options)
    trainer = SimpleNamespace(world_size=1, accumulate_grad_batches=batches)
    module = SimpleNamespace(model=model, loss=LOSSES[loss], device=torch.device(device))
    CudaGraphs().on_train_start(trainer, module)
    assert isinstance(model.forward, RecordedPasses) == records
    CudaGraphs().on_train_end(trainer, module)
    assert not isinstance(model.forward, RecordedPasses)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_run_with_graphs_learns_what_one_without_does(tiny, tmp_path):
    # Muon's steps have a fixed size in every direction: where a gradient is hardly more than rounding, they are noise.
    settings = ("trainer=gpu", "data.workers=0", "trainer.precision=32-true", "optimizer=adamw")
    settings += ("optimizer.eps=1e-3", "data.batch_tokens=200", "averaging.kind=none", "steps=12")
    found = []
    for word in ("auto", "false"):
        completed("train", *tiny, *settings, f"cuda_graphs={word}", f"hydra.run.dir=runs/{word}", cwd=tmp_path)
        found.append(load_file(tmp_path / "runs" / word / "model.safetensors"))
    one, other = found
    assert max(float((weight - other[name]).abs().max()) for name, weight in one.items()) < 1e-4
