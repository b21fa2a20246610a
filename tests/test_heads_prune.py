"""Pruning: the smaller model computes what the masked one does, for every kind of head; a pruned run is a run."""

import numpy as np
import pytest
import torch
from built import built
from test_transformer import KINDS, SMALL, batch, make

from headcount.errors import InputError
from headcount.heads.interface import Heads
from headcount.heads.prune import kv_heads, settings, weights
from headcount.model.transformer import Transformer
from headcount.run.opened import fill

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
    **{kind: {"self_attention": kind, "cross_attention": kind} for kind in KINDS if kind != "scaled_dot"},
    **{f"{kind}, shared": {"self_attention": kind, "cross_attention": kind, "kv_heads": 2} for kind in KINDS},
}


def smaller(heads: Heads, model: dict, kept) -> Transformer:
    kinds = {name: KINDS[model[name]] for name in ("self_attention", "cross_attention") if name in model}
    pruned = built("model/nano", **{**SMALL, **model, **settings(heads, kept), **kinds, "dropout": 0.0}).double().eval()
    fill(pruned, weights(heads, kept))
    return pruned


def kept_without(heads: Heads, cut) -> dict:
    return {
        layer: [head.head - 1 for head in heads.names if head.place == layer and str(head) not in cut]
        for layer in heads.layers
    }


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
