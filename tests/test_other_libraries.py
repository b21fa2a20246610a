"""Every head off is the same in headcount, and on the exported run by torch, nnsight and TransformerLens."""

from dataclasses import replace

import pytest
import torch
from built import random_model

import headcount
from headcount.commands.export import export
from headcount.data.tokenizer import BOS, EOS
from headcount.export.hugging_face import SIDES
from headcount.heads.door import hook_name
from headcount.run.opened import make_translator

PAIR = "the dog sees the cat", "der Hund sieht die Katze"
PARTS = {"encoder": "encoder.self_attn", "decoder": "decoder.self_attn", "cross": "decoder.encoder_attn"}
MODELS = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "learned positions": {"norm": "pre", "positions": "learned", "max_positions": 40},
    "learned positions, post-norm": {"norm": "post", "positions": "learned", "max_positions": 40},
}


@pytest.fixture(scope="module", params=MODELS)
def both(request, home, tmp_path_factory):
    """A run, the model that transformers reads from its export, and a pair of sentences as that model reads it."""
    transformers = pytest.importorskip("transformers")
    run = headcount.open_run(home / "runs" / "first", device="cpu")
    model = random_model(run.tokenizer.vocab_size, num_heads=4, **MODELS[request.param])
    run = replace(run, model=model, translator=make_translator(model, run.tokenizer, run.translator.search))
    folder = tmp_path_factory.mktemp("exported") / "huggingface"
    learned, sinusoids = model.positions, random_model(run.tokenizer.vocab_size).positions
    model.positions = sinusoids  # the format has no other positions
    export(run, {"format": "huggingface", "quantization": None, "max_positions": 32, "output": str(folder)})
    model.positions = learned
    source, target = run.translator.encode([PAIR[0]])[0], run.tokenizer.target.encode([PAIR[1]])[0]
    inputs = {"input_ids": torch.tensor([[*source, EOS]]), "decoder_input_ids": torch.tensor([[BOS, *target]])}

    def read(**options):
        found = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, **options).eval()
        for side, language in SIDES.items() if "positions" in MODELS[request.param] else ():
            table = model.positions[language].table[:32]
            table = torch.cat([table[:, ::2], table[:, 1::2]], dim=1)  # as the exported states are
            getattr(found.model, side).embed_positions.weight.data.copy_(table)
        return found

    read.folder = folder
    return run, read, inputs


def by_torch(run, read, inputs):
    model = read()

    def without(head):
        def zero(_, given):
            return (given[0] * kept(run, head),)

        hook = projection(model, head).register_forward_pre_hook(zero)
        logits = model(**inputs).logits
        hook.remove()
        return logits

    return without


def by_nnsight(run, read, inputs):
    model = pytest.importorskip("nnsight").NNsight(read())

    def without(head):
        with model.trace(**inputs):
            part = projection(model, head)
            part.input = part.input * kept(run, head)
            logits = model.output.logits.save()
        return logits

    return without


def by_transformer_lens(run, read, inputs):
    builder = pytest.importorskip("transformer_lens.model_bridge.sources._bridge_builder")
    model = read()
    bridge = builder.build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    given = {"input": inputs["input_ids"], "decoder_input": inputs["decoder_input_ids"]}

    def without(head):
        def zero(value, hook):
            return value.flatten(2).mul(kept(run, head)).view_as(value)

        return bridge.run_with_hooks(**given, fwd_hooks=[(f"{hook_name(head.place)}.hook_z", zero)])

    return without


def projection(model, head):
    side, part = PARTS[head.kind].split(".")
    return getattr(getattr(model.model, side).layers[head.layer - 1], part).out_proj


def kept(run, head):
    """1 for the outputs of the other heads of a layer, side by side, and 0 for those of this one."""
    plan = run.heads.layers[head.place].heads
    return (torch.arange(plan.count) != head.head - 1).float().repeat_interleave(plan.size)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("library", [by_torch, by_nnsight, by_transformer_lens])
def test_every_head_off_gives_the_same_log_probabilities(both, library):
    run, read, inputs = both
    whole, without = run.run_with_hooks(*PAIR).log_softmax(dim=-1), library(run, read, inputs)
    for head in run.heads.names:
        with run.heads.off(head):
            own = run.run_with_hooks(*PAIR).log_softmax(dim=-1)
        torch.testing.assert_close(without(head).log_softmax(dim=-1), own, rtol=0, atol=1e-4)
        assert not own.allclose(whole, atol=1e-3)


@pytest.mark.slow
@torch.no_grad()
def test_bertviz_draws_the_attention_of_every_head(both):
    bertviz = pytest.importorskip("bertviz")
    run, read, inputs = both
    found = read(attn_implementation="eager")(**inputs, output_attentions=True)
    cache = run.cache(*PAIR)
    drawn = {"encoder": found.encoder_attentions, "decoder": found.decoder_attentions, "cross": found.cross_attentions}
    for head in run.heads.names:
        pattern = drawn[head.kind][head.layer - 1][0, head.head - 1]
        torch.testing.assert_close(pattern, cache[str(head)].pattern, rtol=0, atol=1e-4)
    words = [list(map(str, inputs[name][0].tolist())) for name in ("input_ids", "decoder_input_ids")]
    names = {f"{kind}_attention": patterns for kind, patterns in drawn.items()}
    page = bertviz.model_view(**names, encoder_tokens=words[0], decoder_tokens=words[1], html_action="return")
    assert "<script" in page.data


@pytest.mark.slow
def test_inseq_attributes_a_translation_to_its_source(both):
    inseq = pytest.importorskip("inseq")
    _, read, _ = both
    model = inseq.load_model(read(), "input_x_gradient", tokenizer=str(read.folder))
    (found,) = model.attribute([PAIR[0]], [PAIR[1]], show_progress=False)
    assert found.source_attributions.isfinite().all()
    assert found.source_attributions.abs().sum() > 0
