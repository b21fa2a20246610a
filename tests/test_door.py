"""The heads of a run from Python: what is switched off, patched and read is what the model computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from built import random_model

import headcount
from headcount.errors import InputError

pytestmark = pytest.mark.medium

PAIR = "the dog sees the cat", "der Hund sieht die Katze"
OTHER = "the cat sees the wolf", "die Katze sieht den Wolf"
LONGER = "the dog sees the cat and the cat", "der Hund sieht die Katze"


@pytest.fixture(scope="module")
def run(home):
    return headcount.open_run(home / "runs" / "first", device="cpu")


def test_heads_off_add_up_and_are_settings_of_one_pass(run):
    one, two = (str(run.heads.names[number]) for number in (0, -1))
    sources, targets = zip(PAIR, OTHER, strict=True)
    loss = run.loss(sources, targets, off=[[], [one], [one, two]])
    assert loss.dims == ("setting", "sentence")
    assert loss.setting.values.tolist() == ["whole", one, f"{one}+{two}"]
    with run.heads.off(one):
        np.testing.assert_allclose(run.loss(sources, targets), loss[1], rtol=1e-5)
        with run.heads.off(two):
            np.testing.assert_allclose(run.loss(sources, targets), loss[2], rtol=1e-5)
    log_probs, tokens = run.scorer.score(sources, targets)
    np.testing.assert_allclose(-loss[0], log_probs, rtol=1e-5)
    assert loss.tokens.values.tolist() == tokens
    assert len(set(loss.values[:, 0].round(4))) == 3


@torch.no_grad()
def test_a_cache_holds_what_the_model_computes(run):
    cache, model = run.cache(*PAIR), run.model
    for layer, module in run.heads.layers.items():
        own = [cache[head] for head in run.heads.names if head.place == layer]
        for head in own:
            assert head.pattern.shape == (len(head.queries), len(head.keys))
            torch.testing.assert_close(head.pattern.sum(dim=-1), torch.ones(len(head.queries)))
            torch.testing.assert_close(head.z, head.pattern @ head.value)
        outputs = module.output.weight.unflatten(1, (len(own), -1)).unbind(1)
        written = own[0].value @ outputs[0].T
        torch.testing.assert_close(own[0].norm, own[0].pattern * written.norm(dim=-1))
    last = cache.residual[f"decoder{len(model.decoder)}"]
    torch.testing.assert_close(model.output(model.decoder_norm(last))[None], run.run_with_hooks(*PAIR))
    assert cache["cross1.1"].queries[0] == "<s>"
    assert cache["cross1.1"].keys[-1] == "</s>"
    log_probs = run.run_with_hooks(*PAIR)[0].log_softmax(dim=-1)
    assert float(-log_probs.gather(1, cache.predicted[1][:, None]).sum()) == pytest.approx(
        float(run.loss(*PAIR)[0]), rel=1e-5
    )


def test_a_patch_puts_another_pair_s_output_in_the_place(run):
    whole, own, other = float(run.loss(*PAIR)[0]), run.cache(*PAIR), run.cache(OTHER[0], PAIR[1])
    every = dict.fromkeys(run.heads.names, own)
    with run.heads.patch(every):
        assert float(run.loss(*PAIR)[0]) == pytest.approx(whole, rel=1e-6)
    with run.heads.patch({"cross1.1": other}):
        patched = float(run.loss(*PAIR)[0])
    with run.heads.patched({"cross1.1": other["cross1.1"].z}):
        assert float(run.loss(*PAIR)[0]) == pytest.approx(patched, rel=1e-6)
    assert patched != pytest.approx(whole, rel=1e-4)
    with (
        pytest.raises(InputError, match=r"encoder1\.1: outputs \[\d+, \d+\] for"),
        run.heads.patch({"encoder1.1": run.cache(*LONGER)}),
    ):
        run.loss(*PAIR)
    mixed = tuple(map(list, zip(PAIR, LONGER, strict=True)))
    with pytest.raises(InputError, match="pairs of as many tokens"), run.heads.patch({"cross1.1": own}):
        run.loss(*mixed)
    assert run.loss(*mixed)[0] == pytest.approx(whole, rel=1e-5)  # the patch has ended


@torch.no_grad()
@pytest.mark.parametrize(("kind", "size"), [("head", 1), ("element", 8)])
def test_learnt_gates_are_read_and_a_patch_has_the_other_pair_s(run, kind, size):
    gated = replace(run, model=random_model(run.tokenizer.vocab_size, num_heads=2, head_gate=kind))
    cache, other = gated.cache(*PAIR), gated.cache(OTHER[0], PAIR[1])
    own = cache["cross2.1"]
    assert own.gate.shape == (len(own.queries), size)
    torch.testing.assert_close(own.z, own.gate * (own.pattern @ own.value))
    found = gated.attention(*zip(PAIR, LONGER, strict=True))
    assert found.gate.dims == ("sentence", "head", "query")
    gate = found.gate.sel(head="cross2.1")[0].dropna("query")
    np.testing.assert_allclose(gate, own.gate.mean(dim=-1), rtol=1e-5)
    module, outputs = gated.model.decoder[1].cross_attention, []
    hook = module.register_forward_hook(lambda *each: outputs.append(each[-1].output[0]))
    gated.cache(*PAIR)
    with gated.heads.patch({"cross2.1": other}):
        gated.cache(*PAIR)
    hook.remove()
    changed = (other["cross2.1"].z - own.z) @ module.output.weight[:, : own.z.shape[1]].T
    torch.testing.assert_close(outputs[1] - outputs[0], changed, rtol=1e-4, atol=1e-5)
    assert run.cache(*PAIR)["cross1.1"].gate is None
    assert "gate" not in run.attention(*PAIR)


def test_encoder_heads_are_patched_word_by_word(run):
    cache = run.cache(*LONGER)
    there = run.align(PAIR[0], LONGER[0])
    keys, longer = run.cache(*PAIR)["encoder1.1"].keys, cache["encoder1.1"].keys
    assert [longer[place] for place in there] == keys
    back = run.align(LONGER[0], PAIR[0])
    assert (back == -1).any()
    with run.heads.patch({"encoder1.1": run.cache(*PAIR)}, source=LONGER[0]), run.heads.recorded() as record:
        run.loss(*LONGER)
    own, patched = cache["encoder1.1"].z, record[run.heads.names[0].place][0][0, 0]
    # `recorded` is the later hook, so it sees what the patch has written.
    torch.testing.assert_close(patched[back == -1], own[back == -1])
    torch.testing.assert_close(patched[back >= 0], run.cache(*PAIR)["encoder1.1"].z[back[back >= 0]])


def test_attention_of_many_sentences_has_their_tokens(run):
    sources, targets = zip(PAIR, LONGER, strict=True)
    found = run.attention(sources, targets, "cross")
    assert found.pattern.dims == found.norm.dims == ("sentence", "head", "query", "key")
    cache = run.cache(*PAIR)
    for name in ("pattern", "norm"):
        own = found[name].sel(head="cross1.1")[0].dropna("key", how="all").dropna("query", how="all")
        np.testing.assert_allclose(own, getattr(cache["cross1.1"], name), rtol=1e-5)
    assert [token for token in found["keys"].values[0] if token] == cache["cross1.1"].keys


@torch.no_grad()
def test_direct_logit_attribution_is_the_heads_share_of_the_logits(run):
    found, cache, model = run.logit_attribution(*PAIR), run.cache(*PAIR), run.model
    last, norm = cache.residual[f"decoder{len(model.decoder)}"], model.decoder_norm
    heads = [head for head in run.heads.names if head.kind != "encoder"]
    written = 0
    for head in heads:
        module = run.heads.layers[head.place]
        written = (
            written + cache[head].z @ module.output.weight.unflatten(1, (module.heads.count, -1))[:, head.head - 1].T
        )
    rest = last - written
    scale = (last.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    through = (rest - rest.mean(dim=-1, keepdim=True)) * scale * norm.weight + norm.bias
    logits = run.run_with_hooks(*PAIR)[0]
    others = model.output(through)
    both = (each.gather(1, cache.predicted[1][:, None])[:, 0] - each.mean(dim=1) for each in (logits, others))
    all_logits, without = (each.detach().numpy() for each in both)
    np.testing.assert_allclose(found.sum("head"), all_logits - without, rtol=1e-3, atol=1e-4)


def test_names_and_hooks_of_transformer_lens(run):
    head = run.heads.names[-1]
    passes = []
    hook = run.model.encoder[0].register_forward_hook(lambda *_: passes.append(1))
    logits, cache = run.run_with_cache(*PAIR)
    hook.remove()
    assert len(passes) == 1
    torch.testing.assert_close(logits, run.run_with_hooks(*PAIR))
    assert "decoder_blocks.0.self_attn.hook_pattern" in cache
    name = f"decoder_blocks.{head.layer - 1}.cross_attn.hook_z"
    own = run.cache(*PAIR)[head]
    torch.testing.assert_close(cache[name][0, :, head.head - 1], own.z)
    torch.testing.assert_close(cache[name.replace("hook_z", "hook_pattern")][0, head.head - 1], own.pattern)

    def off(value, hook):
        assert hook == name
        value = value.clone()
        value[:, :, head.head - 1] = 0
        return value

    changed = run.run_with_hooks(*PAIR, fwd_hooks=[(name, off)])
    with run.heads.off(head):
        torch.testing.assert_close(run.run_with_hooks(*PAIR), changed)
    assert not torch.equal(changed, logits)


def test_a_head_that_is_off_writes_nothing(run):
    with run.heads.off("cross1.1"):
        found = run.logit_attribution(*PAIR)
    assert not found.sel(head="cross1.1").any()
    assert found.sel(head="cross1.2").any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.loss(*PAIR, off=["cross1.1"]), r"off=cross1\.1: give lists of heads"),
        (lambda run: run.attention([PAIR[0]], [PAIR[1]] * 2), "1 sources and 2 targets"),
        (lambda run: run.attention(*PAIR, "sideways"), "attention of sideways: no such heads"),
        (lambda run: run.loss(PAIR[0], list(OTHER)), "1 sources and 2 targets"),
        (lambda run: run.cache(*PAIR)["cross9.9"], r"cross9\.9: no head of this model"),
        (
            lambda run: run.run_with_hooks(*PAIR, fwd_hooks=[("hook_x", None)]),
            r"hook_x: no hook of this model, which has encoder_blocks\.0\.attn\.hook_z",
        ),
        (lambda run: run.cache([PAIR[0]], PAIR[1]), "give one source and one target"),
        (lambda run: run.heads.patch({"cross1.1": torch.zeros(1)}), r"cross1\.1: patch takes what `cache`"),
        (lambda run: run.heads.off(["cross1.1"]), "no head of this model"),
        (lambda run: run.translate(["a line"]), "give one line of text"),
        (
            lambda run: run.run_with_hooks(
                *PAIR, fwd_hooks=[("encoder_blocks.0.attn.hook_z", lambda value, hook: value[:, :1])]
            ),
            r"encoder_blocks\.0\.attn\.hook_z: the function must give a tensor",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(run, call, message):
    with pytest.raises(InputError, match=message):
        call(run)
