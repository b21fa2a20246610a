"""Optimizers: each learns a toy corpus and resumes exactly; Muon against torch's own and against the SVD."""

import csv
import json
from types import SimpleNamespace

import pytest
import torch
from built import ONE_LAYER, built
from conftest import completed
from torch import nn

from headcount.training.averaging import ScheduleFreeAverage, own_weights
from headcount.training.module import parameter_groups
from headcount.training.muon import Muon, orthogonalised

JORDAN = (3.4445, -4.7750, 2.0315)
SHAPES = [(16, 16), (24, 16), (16, 24), (16, 16)]


NAMES = ["adamw", "nadamw", "muon", "schedule_free", "soap"]
PACKAGES = {"schedule_free": "schedulefree", "soap": "pytorch_optimizer"}


def quick(names: list[str], *few: str) -> list:
    """Names for a test, of which only a few are for the quick tests."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in names]


def options(name: str) -> tuple[str, ...]:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    averaging = "none" if name == "schedule_free" else "ema"
    return (f"optimizer={name}", "schedule.kind=constant", f"averaging.kind={averaging}", "schedule.warmup_steps=2")


@pytest.mark.medium
@pytest.mark.parametrize("name", quick(NAMES, "muon"))
def test_a_stopped_run_resumes_as_if_never_stopped(name, tiny, tmp_path):
    # One of the two stops between two validations, and leaves layers out: some weights have no gradient in a step.
    given = (*tiny, *options(name), "validation.every=3", "model.layer_dropout=0.3", "model.decoder_layers=2")
    completed("train", *given, "hydra.run.dir=whole", cwd=tmp_path)
    completed("train", *given, "steps=4", "hydra.run.dir=half", cwd=tmp_path)
    completed("train", "resume=half", "steps=8", cwd=tmp_path)
    states = [torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True) for run in ("whole", "half")]
    one, other = ({**state["state_dict"]} for state in states)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[parameter], other[parameter]) for parameter in one)
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "half")]
    assert weights[0] == weights[1]


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls(name, tiny, tmp_path):
    learn = (*tiny, *options(name), "steps=40", "validation.every=20", "optimizer.lr=0.01")
    completed("train", *learn, "hydra.run.dir=run", cwd=tmp_path)
    with (tmp_path / "run" / "logs" / "metrics.csv").open(encoding="utf-8") as file:
        losses = [float(row["valid/loss"]) for row in csv.DictReader(file) if row["valid/loss"]]
    first, last = losses
    assert last < first - 0.2
    assert json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))["train"]["steps"] == 40


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


@pytest.mark.medium
def test_soap_has_no_preconditioner_for_the_side_of_the_vocabulary():
    pytest.importorskip("pytorch_optimizer")
    model = built("model/nano", vocab_size=1030, **ONE_LAYER)
    optimizer = built("optimizer/soap")(parameter_groups(model, built("optimizer/soap")))
    tokens = torch.ones(1, 4, dtype=torch.int64)
    model.output(model(tokens, tokens > 0, tokens)).logsumexp(-1).sum().backward()
    optimizer.step()

    def sides(weight: torch.Tensor) -> list[int]:
        return [len(basis) for basis in optimizer.state[weight]["Q"]]

    assert sides(model.output.weight) == [0, 16]
    assert sides(model.encoder[0].self_attention.output.weight) == [16, 16]
    assert sides(model.encoder_norm.weight) == [0]


def muon(parameters, **changes) -> Muon:
    torch.manual_seed(0)
    return built("optimizer/muon", **changes)([{"params": parameters, "hidden": True}, {"params": [vector()]}])


def vector() -> nn.Parameter:
    return nn.Parameter(torch.ones(3))


def matrices() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_muon_is_that_of_torch(adjust, nesterov):
    ours, theirs = matrices(), matrices()
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.5, "adjust_lr_fn": adjust, "nesterov": nesterov}
    optimizers = muon(ours, **settings), torch.optim.Muon(theirs, **settings)
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    start = matrices()
    for one, other, before in zip(ours, theirs, start, strict=True):
        moved = (other - before).norm()
        assert (one - other).norm() < 0.01 * moved  # the products are rounded to bfloat16


@pytest.mark.parametrize("shape", [(12, 12), (8, 20), (20, 8)])
def test_orthogonalised_is_u_v_of_the_svd(shape):
    torch.manual_seed(2)
    batch = torch.randn(3, *shape)
    u, s, v = torch.linalg.svd(batch, full_matrices=False)
    batch = u @ torch.diag_embed(s.clamp(min=0.2 * s.max())) @ v
    # A sequence of coefficients that converges; those of Jordan et al. leave singular values within a band.
    exact = orthogonalised(batch, 30, (2.0, -1.5, 0.5), torch.float32)
    assert torch.allclose(exact, u @ v, atol=1e-4)
    five = torch.linalg.svdvals(orthogonalised(batch, 5, JORDAN, torch.float32))
    assert five.min() > 0.6
    assert five.max() < 1.3


def test_a_step_of_muon_is_as_large_as_one_of_adamw():
    (weight,) = parameters = [nn.Parameter(torch.zeros(32, 64))]
    optimizer = muon(parameters, lr=0.01, weight_decay=0, ns_dtype="float32")
    weight.grad = torch.randn(32, 64)
    optimizer.step()
    # 0.2 sqrt(64) times a matrix with 32 singular values of about 1
    assert weight.square().mean().sqrt().item() == pytest.approx(0.01 * 0.2, rel=0.2)


def test_the_other_parameters_are_those_of_adamw():
    torch.manual_seed(3)
    ours, theirs = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.zeros(4, 3))
    theirs.data.copy_(ours.data)
    settings = {"weight_decay": 0.5, "betas": (0.9, 0.98), "eps": 1e-9}
    factory = built("optimizer/muon", lr=7.0, adamw_lr=0.01, weight_decay=0.5)
    optimizers = factory([{"params": [ours]}]), torch.optim.AdamW([theirs], lr=0.01, fused=True, **settings)
    for _ in range(3):
        ours.grad = torch.randn(4, 3)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_adamw_has_a_rate_of_hidden_matrices_and_one_of_all_else():
    weights, copies = [*matrices(), vector()], [*matrices(), vector()]
    groups = [{"params": weights[:-1], "hidden": True}, {"params": weights[-1:], "weight_decay": 0.0}]
    optimizer = built("optimizer/adamw", lr=0.01, other_lr=0.04, weight_decay=0.5)(groups)
    settings = {"betas": (0.9, 0.98), "eps": 1e-9, "fused": True}
    hidden = torch.optim.AdamW(copies[:-1], lr=0.01, weight_decay=0.5, **settings)
    others = torch.optim.AdamW(copies[-1:], lr=0.04, weight_decay=0.0, **settings)
    for _ in range(3):
        for weight, copy in zip(weights, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            copy.grad = weight.grad.clone()
        for each in (optimizer, hidden, others):
            each.step()
    assert all(torch.equal(weight, copy) for weight, copy in zip(weights, copies, strict=True))
    with pytest.raises(ValueError, match=r"optimizer.other_lr=-1: must be 0 or more"):
        built("optimizer/adamw", lr=0.01, other_lr=-1)(groups)


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("betas", [[0.9], [0.9, 1.5]])
def test_wrong_betas_are_named(name, betas):
    with pytest.raises(
        ValueError, match=r"optimizer\.betas=\[0\.9.*\]: must be two numbers from 0 up to, not including, 1"
    ):
        built(f"optimizer/{name}", betas=betas)([{"params": [vector()]}])


def test_a_step_that_the_device_skips_changes_nothing():
    """As `found_inf` of torch's fused optimizers: on a GPU nobody has to wait for the gradient's norm."""
    weights, after = [*matrices(), vector()], {}
    for skips in (False, True):
        groups = [{"params": weights[:-1], "hidden": True}, {"params": weights[-1:]}]
        optimizer = built("optimizer/muon", weight_decay=0.5)(groups)
        optimizer.found_inf = torch.tensor(0.0)
        for number in range(3):
            for weight in weights:
                weight.grad = torch.full_like(weight, number + 1.0)
            optimizer.step()
            if skips:
                before = [weight.clone() for weight in weights]
                for weight in weights:
                    weight.grad = torch.full_like(weight, torch.nan)
                optimizer.found_inf = torch.tensor(1.0)
                optimizer.step()
                assert all(torch.equal(one, other) for one, other in zip(before, weights, strict=True))
                optimizer.found_inf = torch.tensor(0.0)
        after[skips] = [weight.detach().clone() for weight in weights]
        weights = [*matrices(), vector()]
    assert all(torch.equal(one, other) for one, other in zip(after[False], after[True], strict=True))


@pytest.mark.parametrize("model", ["nano", "rnn_luong"])
@pytest.mark.parametrize("tied", [True, False])
def test_muon_has_the_matrices_of_linear_layers_but_not_the_output(model, tied):
    sizes = ONE_LAYER if model == "nano" else {"d_model": 16, "num_heads": 2}
    made = built(f"model/{model}", vocab_size=12, tied_embeddings=tied, **sizes)
    hidden, rest, others = parameter_groups(made, built("optimizer/muon"))
    assert hidden["hidden"]
    own = {id(p): name for name, p in made.named_parameters()}
    names = [{own[id(p)] for p in group["params"]} for group in (hidden, rest, others)]
    assert set.union(*names) == set(own.values())
    assert sum(map(len, names)) == len(own)
    assert all(p.dim() == 2 for p in hidden["params"])
    assert {name for name in own.values() if "embedding" in name or name.startswith("output")} <= names[1]
    assert any("query" in name for name in names[0])
    assert all("embedding" not in name for name in names[0])
    assert others["weight_decay"] == 0


def test_a_processor_without_bf16_computes_in_float32(monkeypatch):
    """There torch emulates products in bf16, which takes many times as long."""
    used = []

    def orthogonalised(matrices, steps, coefficients, dtype):
        used.append(dtype)
        return matrices.to(dtype)

    monkeypatch.setattr("headcount.training.muon.orthogonalised", orthogonalised)
    for native in (False, True):
        monkeypatch.setattr("headcount.training.muon.multiplies_bf16", lambda native=native: native)
        weights = list(matrices())
        optimizer = built("optimizer/muon")([{"params": weights, "hidden": True}, {"params": [vector()]}])
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        used.clear()
        optimizer.step()
        assert set(used) == {torch.bfloat16 if native else torch.float32}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("kind", ["additive", "luong_general", "gaussian_window"])
def test_positions_and_what_scores_have_of_their_own_are_not_decayed(kind, optimizer):
    kinds = {f"{side}_attention": built(f"attention/{kind}") for side in ("self", "cross")}
    made = built("model/nano", vocab_size=12, positions="learned", **ONE_LAYER, **kinds)
    *decayed, others = parameter_groups(made, built(f"optimizer/{optimizer}"))
    assert others["weight_decay"] == 0
    own = {id(p): name for name, p in made.named_parameters()}
    left = {own[id(p)] for p in others["params"]}
    assert {name for name in own.values() if "positions" in name or ".attend." in name} <= left
    assert len(left) + sum(len(group["params"]) for group in decayed) == len(own)
    assert {own[id(p)].rsplit(".", 1)[1] for group in decayed for p in group["params"]} == {"weight"}


def test_matrices_of_recurrent_cells_are_decayed():
    made = built("model/rnn_luong", vocab_size=12, d_model=16, num_heads=2)
    *matrices, others = parameter_groups(made, built("optimizer/adamw"))
    decayed = {id(p) for group in matrices for p in group["params"]}
    names = {name for name, p in made.named_parameters() if id(p) in decayed}
    assert {"encoder.weight_hh_l0", "decoder.weight_ih_l0"} <= names
    assert all(p.dim() == 1 or p.dim() == 3 for p in others["params"])
