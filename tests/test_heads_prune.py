"""Pruning: the smaller model computes what the masked one does, for every kind of head; a pruned run is a run."""

import json
import re
import shlex

import pytest
import torch
from built import built
from conftest import completed, failed, refused, snapshot
from test_transformer import KINDS, SMALL, batch, kinds, make

from headcount.errors import InputError
from headcount.heads.interface import Heads
from headcount.heads.prune import kv_heads, settings, weights
from headcount.model.flops import operations_per_token
from headcount.model.transformer import Transformer
from headcount.run.opened import fill, open_run

CUTS = {
    "one of each kind": ("encoder1.1", "decoder2.3", "cross1.4"),
    "a layer": ("encoder2.1", "encoder2.2", "encoder2.3", "encoder2.4", "cross1.2", "decoder1.1", "decoder1.4"),
}
MODELS = {
    "default": {},
    "post-norm": {"norm": "post", "tied_embeddings": False},
    "rotary": {"positions": "rotary", "feed_forward": "swiglu", "kv_heads": 2},
    "multi-query": {"kv_heads": 1},
    "local": {"local_heads": 1},
    "QK-norm": {"qk_norm": "learned", "qk_scale": 2.0, "logit_cap": 3.0, "positions": "rotary", "kv_heads": 2},
    "gates": {"head_gate": "head", "kv_heads": 2},
    "gates, element": {"head_gate": "element", "positions": "rotary"},
    "QK-norm, fixed": {"qk_norm": "fixed", "self_attention": "additive"},
    **{kind: {"self_attention": kind, "cross_attention": kind} for kind in KINDS if kind != "scaled_dot"},
    **{f"{kind}, shared": {"self_attention": kind, "cross_attention": kind, "kv_heads": 2} for kind in KINDS},
}


def smaller(heads: Heads, model: dict, kept) -> Transformer:
    changes = {**SMALL, **model, **settings(heads, kept), **kinds(model), "dropout": 0.0}
    pruned = built("model/nano", **changes).double().eval()
    fill(pruned, weights(heads, kept))
    return pruned


def kept_without(heads: Heads, cut) -> dict:
    return {
        layer: [head.head - 1 for head in heads.names if head.place == layer and str(head) not in cut]
        for layer in heads.layers
    }


@pytest.mark.medium
@torch.no_grad()
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("model", MODELS)
def test_pruned_is_masked(model, cut):
    heads, cut = Heads(make(**MODELS[model])), CUTS[cut]
    if model == "local":
        cut = [head for head in cut if not head.endswith(".1")] + ["cross2.1"]
        cut = [head for head in cut if not head.startswith("encoder2")]
    source, mask, target = batch()
    with heads.gated(dict.fromkeys(cut, 0.0)):
        masked = heads.model(source, mask, target)
    pruned = smaller(heads, MODELS[model], kept_without(heads, cut))
    torch.testing.assert_close(pruned(source, mask, target), masked, rtol=0, atol=1e-9)
    assert not masked.allclose(heads.model(source, mask, target), atol=1e-3)
    sizes = [sum(each.numel() for each in one.parameters()) for one in (pruned, heads.model)]
    assert sizes[0] < sizes[1] or "shared" in model or MODELS[model].get("kv_heads")


def test_shared_keys_stay_shared_where_one_number_says_how():
    heads = Heads(make(kv_heads=2))  # of four heads each
    second = {str(head) for head in heads.names if head.head > 2}
    assert kv_heads(heads, kept_without(heads, second)) == 1
    assert kv_heads(heads, kept_without(heads, {f"{layer}.{head}" for layer in heads.layers for head in (1, 4)})) == 2
    whole_layer = {f"cross1.{head}" for head in range(1, 5)}
    assert kv_heads(heads, kept_without(heads, whole_layer)) == 2
    assert kv_heads(heads, kept_without(heads, {"cross1.1"})) is None
    assert kv_heads(Heads(make()), kept_without(heads, second)) is None


@pytest.mark.medium
def test_what_no_settings_describe_is_refused():
    everything = {str(head) for head in Heads(make()).names}
    for model, cut, message in (
        ({}, everything, "no head is left"),
        ({"num_heads": [2, 4]}, set(), "heads of sizes 4 and 8 stay, but model.head_size is one"),
        ({"local_heads": 2}, {"encoder1.1"}, "model.local_heads: 1 and 2 local heads of a layer stay"),
    ):
        heads = Heads(make(**model))
        with pytest.raises(InputError, match=message):
            settings(heads, kept_without(heads, cut))
    heads = Heads(make(num_heads=[2, 4]))
    counts = settings(heads, kept_without(heads, {str(head) for head in heads.names if head.layer == 1}))
    assert (counts["encoder_heads"], counts["head_size"]) == ([0, 4], 4)


@pytest.mark.medium
def test_a_pruned_run_is_a_run(home, tiny, tmp_path):
    first = home / "runs" / "first"
    arguments = (f"run={first}", f"output={tmp_path}/smaller", "order_sentences=4")
    result = completed("heads", *arguments, "prune=4", "order=greedy", cwd=home)
    assert "heads: 6 before, 4 now" in result.out
    run, whole = open_run(tmp_path / "smaller"), open_run(first)
    assert sum(sum(counts) for counts in run.model.head_counts.values()) == 4
    lengths = whole.data().mean_lengths  # both runs count operations at the lengths that training met
    for each in (whole, run):
        counted = json.loads((each.directory / "metrics.json").read_text())["operations_per_token"]
        assert counted == operations_per_token(each.model, *lengths)
    assert run.config.pruned.run == str(first)
    assert run.config.pruned.order == "greedy"
    lines = ["the dog sees the cat", "the wolf hears the bear", "the bird likes the horse"]
    with Heads(whole.model).gated(dict.fromkeys(run.config.pruned.cut, 0.0)):
        assert run.translator.translate(lines) == whole.translator.translate(lines)
        masked = whole.scorer.score(lines, lines)[0]
    assert run.scorer.score(lines, lines)[0] == pytest.approx(masked, abs=1e-5)
    assert whole.scorer.score(lines, lines)[0] != pytest.approx(masked, abs=1e-2)
    (line,) = refused("heads", *arguments, "prune=3", cwd=home, watched=tmp_path)
    assert line.endswith("smaller is there already: move it away, or give another output=")

    completed("evaluate", f"run={tmp_path}/smaller", cwd=home)
    assert "bleu" in json.loads((tmp_path / "smaller" / "metrics.json").read_text())["test"]
    options = [option for option in tiny if not option.startswith(("model.", "tokenizer.vocab_size"))]
    tune = (*options, f"init_from={tmp_path}/smaller", "steps=3", "hydra.run.dir=tuned")
    completed("train", *tune, cwd=tmp_path)
    tuned = open_run(tmp_path / "tuned")
    (scratch,) = re.findall(r"headcount train (model.*) \.\.\. \(the same head counts", result.out)
    completed("train", *tiny, *shlex.split(scratch), "steps=1", "hydra.run.dir=scratch", cwd=tmp_path)
    assert open_run(tmp_path / "scratch").model.head_counts == run.model.head_counts
    assert tuned.model.head_counts == run.model.head_counts
    assert tuned.scorer.score(lines, lines)[0] != pytest.approx(masked, abs=1e-5)
    (line,) = failed("train", f"resume={tmp_path}/smaller", cwd=tmp_path)
    assert "nothing to resume" in line


@pytest.mark.medium
def test_a_layer_without_heads_is_written_and_read(home, tmp_path):
    cut = "cut=[encoder1.1,encoder1.2,cross1.1]"
    completed("heads", f"run={home}/runs/second", f"output={tmp_path}/smaller", cut, cwd=home)
    assert open_run(tmp_path / "smaller").model.head_counts["encoder_heads"] == [0]
    result = completed("translate", f"run={tmp_path}/smaller", stdin=b"the dog sees the cat\n", cwd=home)
    assert len(result.out.splitlines()) == 1


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prune=6",), "prune=6: must be 1 to 5; the run has 6 heads"),
        (("prune=[cross9.1]",), "cross9.1: no head of this model, which has encoder1.1 to encoder1.2"),
        (("prune=3", "cut=[cross1.1]"), "prune, cut: give one of them"),
        (("cut=[]",), "cut=[]: names no head"),
        (("prune=3", "order=best"), "order=best: must be one of gradient, "),
        (
            ("prune=3", "gate_penalties=[0.1,0.01]"),
            "gate_penalties=[0.1, 0.01]: must be numbers above 0 in rising order",
        ),
    ],
)
def test_wrong_settings_get_one_line(home, tmp_path, arguments, message):
    (line,) = refused(
        "heads", f"run={home}/runs/first", f"output={tmp_path}/new", *arguments, cwd=home, watched=tmp_path
    )
    assert line.startswith(message)


@pytest.mark.medium
def test_a_run_is_written_whole_or_not_at_all(home, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "model.safetensors")

    monkeypatch.setattr("headcount.run.written.save_weights", fail)
    before = snapshot(tmp_path)
    failed("heads", f"run={home}/runs/first", f"output={tmp_path}/new", "cut=[cross1.1]", cwd=home)
    assert snapshot(tmp_path) == before
