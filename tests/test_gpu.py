"""On a GPU: steps, skipped steps, resume, search, one process of several. Run by `pytest -m gpu`."""

import os
from copy import copy
from pathlib import Path

import pytest
import torch
from built import built, random_model
from conftest import completed
from safetensors.torch import load_file
from test_synchronisation import LOSSES, SIZES, VOCABULARY, a_batch, one_step, trained
from torch import Tensor

from headcount.decoding.search import search_loop
from headcount.training.optimizers import parameter_groups

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product: it cannot be set afterwards


@pytest.fixture(autouse=True)
def exact():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    "options", [{}, {"positions": "rotary", "kv_heads": 1, "norm": "post"}, {"local_heads": 1, "head_gate": "head"}]
)
def test_a_step_is_that_of_the_processor(loss, options):
    gradients, loss = [], copy(loss)
    loss.p_cut = loss.p_cut and 1e-9  # what simcut cuts is drawn on the device
    for device in ("cpu", "cuda"):
        model = random_model(VOCABULARY, **SIZES | options | {"dropout": 0.0}).train().to(device)
        task, batch = trained(model, loss), a_batch(device)
        torch.manual_seed(1)
        task.training_step(batch, 3).backward()
        gradients.append({name: weight.grad.cpu() for name, weight in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_without_finite_gradients_changes_nothing(name):
    model = built("model/nano", vocab_size=VOCABULARY, **SIZES).cuda().train()
    make = built(f"optimizer/{name}", lr=0.01)
    task, optimizer = trained(model, LOSSES["label smoothing"]), make(parameter_groups(model, make))
    task.skipped.stop_after = 9
    one_step(task, optimizer)
    before = [weight.detach().clone() for weight in model.parameters()]
    for factor, in_a_row in ((float("nan"), 1), (1.0, 0)):
        task.zero_grad()
        loss = task.training_step(a_batch("cuda"), 3) * factor
        task.optimizer_step(0, 3, optimizer, loss.backward)
        same = [torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True)]
        assert (task.skipped.total, task.skipped.in_a_row, all(same)) == (1, in_a_row, bool(in_a_row))
    assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize("option", ["beam", "greedy", "diverse"])
@pytest.mark.parametrize(
    "options", [{}, {"positions": "rotary", "kv_heads": 1}, {"local_heads": 1, "head_gate": "element"}]
)
def test_a_search_finds_what_it_finds_on_the_processor(option, options):
    method, sources = built(f"search/{option}"), [[5, 6, 7, 8], [9, 4], [10, 11, 6], [4]]
    found = []
    for device in ("cpu", "cuda"):
        model = random_model(VOCABULARY, **options).to(device)
        source = torch.tensor([[*row, 3, 0, 0, 0][:5] for row in sources], device=device)
        with torch.inference_mode():
            state = model.start(source, source != 0)
            limits = torch.tensor([30, 7, 12, 20], device=device)
            found.append(search_loop(model, state, limits, method.begin(sources, limits, 1, 3), 2, 3))
    for here, there in zip(*found, strict=True):
        assert here[0].tokens == there[0].tokens
        assert here[0].score == pytest.approx(there[0].score, abs=1e-3)


GPU = ("trainer=gpu", "data.workers=0", "trainer.deterministic=true", "data.batch_tokens=200")


def trained_weights(directory: Path) -> dict[str, Tensor]:
    return load_file(directory / "model.safetensors")


def test_a_resumed_run_is_the_same_bit_for_bit(tiny, tmp_path):
    whole = (*tiny, *GPU, "checkpoint.every=4", "hydra.run.dir=runs/whole")
    completed("train", *whole, cwd=tmp_path)
    part = (*tiny, *GPU, "checkpoint.every=4", "steps=4", "hydra.run.dir=runs/part")
    completed("train", *part, cwd=tmp_path)
    completed("train", "resume=runs/part", "steps=8", cwd=tmp_path)
    one, other = (trained_weights(tmp_path / "runs" / name) for name in ("whole", "part"))
    assert one.keys() == other.keys()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.mark.parametrize("more", ["model.cross_attention=gaussian_window", "search=sample"])
def test_a_deterministic_run_has_cumulative_sums(more, tiny, tmp_path):
    completed("train", *tiny, *GPU, "cuda_graphs=false", more, "hydra.run.dir=runs/run", cwd=tmp_path)


def test_a_layer_without_heads_translates_in_bf16(tiny, tmp_path):
    heads = ("model.encoder_heads=[0,4]", "model.decoder_heads=[0,4]", "model.head_size=16")
    completed("train", *tiny, *GPU, "model.encoder_layers=2", "model.decoder_layers=2", *heads, cwd=tmp_path)


def test_one_process_of_several_trains_as_without(tiny, tmp_path):
    # Muon's steps have a fixed size in every direction: where a gradient is hardly more than rounding, they are noise.
    smooth = ("optimizer=adamw", "optimizer.eps=1e-3", "trainer.precision=32-true", "averaging.kind=none")
    completed("train", *tiny, *GPU, *smooth, "hydra.run.dir=runs/plain", cwd=tmp_path)
    several = ("trainer=ddp", "trainer.accelerator=gpu", "trainer.deterministic=true")
    rate = "data.rate_tokens=200"  # as trainer=gpu has it for this batch
    completed("train", *tiny, *several, *smooth, rate, "hydra.run.dir=runs/several", cwd=tmp_path)
    one, other = (trained_weights(tmp_path / "runs" / name) for name in ("plain", "several"))
    assert max(float((weight - other[name]).abs().max()) for name, weight in one.items()) < 1e-5


def test_a_run_as_a_gpu_has_it_by_default(tiny, tmp_path):
    result = completed("train", *tiny, "trainer=gpu", "data.batch_tokens=200", "hydra.run.dir=runs/run", cwd=tmp_path)
    assert "BLEU" in result.out
