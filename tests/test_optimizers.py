"""Optimizers: each learns a toy corpus (test_finite resumes them); Muon against torch's own and against the SVD."""

import csv
from types import SimpleNamespace

import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed
from torch import nn

from headcount.training.averaging import ScheduleFreeAverage, own_weights
from headcount.training.optimizers import orthogonalised, parameter_groups

SHAPES = [(16, 16), (24, 16), (16, 24), (16, 16)]
PACKAGES = {"schedule_free": "schedulefree", "soap": "pytorch_optimizer"}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["adamw", "nadamw", "muon", "schedule_free", "soap"])
def test_the_loss_falls(name, tiny, tmp_path):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    averaging = "averaging.kind=none" if name == "schedule_free" else "averaging.kind=ema"
    learn = (f"optimizer={name}", "optimizer.lr=0.01", averaging, "steps=40", "validation.every=20")
    constant = ("schedule.kind=constant", "schedule.warmup_steps=2", "hydra.run.dir=run")
    completed("train", *tiny, *learn, *constant, cwd=tmp_path)
    with (tmp_path / "run" / "logs" / "metrics.csv").open(encoding="utf-8") as file:
        first, last = (float(row["valid/loss"]) for row in csv.DictReader(file) if row["valid/loss"])
    assert last < first - 0.2


@pytest.mark.medium
def test_a_schedule_free_optimizer_is_validated_and_kept_at_its_average():
    pytest.importorskip("schedulefree")
    model = nn.Linear(4, 3)
    module = SimpleNamespace(model=model)
    optimizer = built("optimizer/schedule_free", lr=0.1)([{"params": list(model.parameters())}])
    average, trainer = ScheduleFreeAverage(), SimpleNamespace(optimizers=[optimizer])
    average.setup(trainer, module, "fit")
    start = own_weights(model)
    assert all(torch.equal(start[name], tensor) for name, tensor in average.weights(model, 0).items())
    average.on_train_start(trainer, module)
    for _ in range(5):
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = {name: tensor.clone() for name, tensor in own_weights(model).items()}
    kept = average.weights(model, 5)
    average.on_validation_start(trainer, module)
    assert all(torch.equal(kept[name], tensor) for name, tensor in own_weights(model).items())
    assert any(not torch.equal(kept[name], tensor) for name, tensor in trained.items())
    average.on_validation_end(trainer, module)
    assert all(torch.equal(trained[name], tensor) for name, tensor in own_weights(model).items())
    optimizer.eval()  # of the package, which computes the same in place
    assert all(torch.allclose(kept[name], tensor, atol=1e-7) for name, tensor in own_weights(model).items())


def vector() -> nn.Parameter:
    return nn.Parameter(torch.ones(3))


def matrices() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def step_alike(optimizers, ours, theirs, steps: int) -> None:
    """Steps with the same gradients of two copies of some parameters."""
    for _ in range(steps):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_muon_is_that_of_torch(adjust):
    ours, theirs = matrices(), matrices()
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.5, "adjust_lr_fn": adjust}
    muon = built("optimizer/muon", **settings)([{"params": ours, "hidden": True}, {"params": [vector()]}])
    step_alike((muon, torch.optim.Muon(theirs, **settings)), ours, theirs, 4)
    for one, other, before in zip(ours, theirs, matrices(), strict=True):
        moved = (other - before).norm()
        assert (one - other).norm() < 0.01 * moved  # the products are rounded to bfloat16


@pytest.mark.parametrize("shape", [(12, 12), (8, 20), (20, 8)])
def test_orthogonalised_is_u_v_of_the_svd(shape):
    torch.manual_seed(2)
    batch = torch.randn(3, *shape)
    u, s, v = torch.linalg.svd(batch, full_matrices=False)
    batch = u @ torch.diag_embed(s.clamp(min=0.2 * s.max())) @ v
    # A sequence of coefficients that converges; those of Jordan et al. leave singular values within a band.
    exact = orthogonalised(batch, torch.float32, 30, (2.0, -1.5, 0.5))
    assert torch.allclose(exact, u @ v, atol=1e-4)
    five = torch.linalg.svdvals(orthogonalised(batch, torch.float32))
    assert five.min() > 0.6
    assert five.max() < 1.3


@pytest.mark.parametrize(("name", "rate"), [("muon", "adamw_lr"), ("adamw", "other_lr")])
def test_all_parameters_but_hidden_matrices_have_adamw_at_a_rate_of_their_own(name, rate):
    ours, theirs = matrices(), matrices()
    optimizer = built(f"optimizer/{name}", **{"lr": 7.0, rate: 0.01}, weight_decay=0.5)([{"params": ours}])
    settings = {"weight_decay": 0.5, "betas": (0.9, 0.98), "eps": 1e-9, "fused": True}
    step_alike((optimizer, torch.optim.AdamW(theirs, lr=0.01, **settings)), ours, theirs, 3)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def names_of_groups(model: nn.Module, optimizer: str) -> list[set[str]]:
    """The names of the parameters of each group; the last one has no weight decay."""
    groups = parameter_groups(model, built(f"optimizer/{optimizer}"))
    assert groups[-1]["weight_decay"] == 0
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    names = [[own[id(parameter)] for parameter in group["params"]] for group in groups]
    assert sorted(name for group in names for name in group) == sorted(own.values())
    return [set(group) for group in names]


@pytest.mark.parametrize("model", ["nano", "rnn_luong"])
@pytest.mark.parametrize("tied", [True, False])
def test_muon_has_the_matrices_of_linear_layers_but_not_the_output(model, tied):
    sizes = ONE_LAYER if model == "nano" else {"d_model": 16, "num_heads": 2}
    made = built(f"model/{model}", vocab_size=12, tied_embeddings=tied, **sizes)
    hidden, rest, _ = names_of_groups(made, "muon")
    named = dict(made.named_parameters())
    assert all(named[name].dim() == 2 for name in hidden)
    assert {name for name in named if "embedding" in name or name.startswith("output")} <= rest
    assert any("query" in name for name in hidden)


@pytest.mark.parametrize("kind", ["additive", "luong_general", "gaussian_window"])
def test_positions_and_what_scores_have_of_their_own_are_not_decayed(kind):
    kinds = {f"{side}_attention": built(f"attention/{kind}") for side in ("self", "cross")}
    made = built("model/nano", vocab_size=12, positions="learned", **ONE_LAYER, **kinds)
    *decayed, others = names_of_groups(made, "adamw")
    assert {name for name, _ in made.named_parameters() if "positions" in name or ".attend." in name} <= others
    assert {name.rsplit(".", 1)[1] for name in set.union(*decayed)} == {"weight"}


def test_matrices_of_recurrent_cells_are_decayed():
    made = built("model/rnn_luong", vocab_size=12, d_model=16, num_heads=2)
    *decayed, others = names_of_groups(made, "adamw")
    assert {"encoder.weight_hh_l0", "decoder.weight_ih_l0"} <= set.union(*decayed)
    assert all(dict(made.named_parameters())[name].dim() in (1, 3) for name in others)
