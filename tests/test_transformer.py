"""The Transformer against torch's own layers, and its invariants."""

import copy
from collections.abc import Mapping

import pytest
import torch
from built import built, composed
from invariants import check_cached_decoding, check_padding_changes_nothing, check_reorder
from omegaconf import OmegaConf
from torch import nn

from headcount.command_lines import CONF
from headcount.errors import InputError
from headcount.model.attention import TokenPositions
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.transformer import Transformer
from headcount.run.build import new_model, without_other_kinds
from headcount.settings import KINDS as WORDS

SMALL = {"vocab_size": 11, "d_model": 16, "d_feed_forward": 24, "num_heads": 4}
SMALL |= {"encoder_layers": 2, "decoder_layers": 2}
KINDS = sorted(WORDS["attention"])
WITHOUT = {"encoder_heads": [0, 2], "decoder_heads": [3, 0], "cross_heads": [0, 1], "head_size": 4}
WINDOW = {"self_attention": "gaussian_window", "gaussians": 3}
OPTIONS = [
    {},
    {"norm": "post", "positions": "learned"},
    {"num_heads": [1, 2], "head_size": 5},
    WITHOUT | {"kv_heads": 1, "positions": "rotary", "norm": "post"},
    {"positions": "rotary", "encoder_heads": [2, 4], "decoder_heads": [8, 1], "max_positions": 1},
    {"feed_forward": "gelu", "layer_dropout": 0.5},
    {"kv_heads": 2, "cross_heads": [2, 8], "head_dropout": 0.5},
    {"positions": "rotary", "feed_forward": "swiglu", "kv_heads": 2, "layer_dropout": 0.5, "norm": "post"},
    {"local_heads": 2, "local_window": 1},
    {"local_heads": 4, "local_window": 2, "kv_heads": 2},
    {"qk_norm": "fixed", "qk_scale": 3.0},
    {"qk_norm": "learned", "logit_cap": 4.0, "positions": "rotary", "kv_heads": 2, "cross_heads": [2, 8]},
    {"head_gate": "head", "positions": "rotary", "kv_heads": 2, "cross_heads": [2, 8], "norm": "post"},
    WITHOUT | {"head_gate": "element", "cross_attention": "gaussian_window"},
    {"init": "zero_output", "embedding_scale": 1.0, "embedding_std": 0.5, "norm": "post", "feed_forward": "swiglu"},
    *({"self_attention": kind, "cross_attention": kind} | WITHOUT for kind in KINDS),
    *(
        pytest.param(settings, marks=pytest.mark.medium)
        for kind in KINDS
        for settings in (
            {"cross_attention": kind, "kv_heads": 2, "cross_heads": [2, 4]},
            {"self_attention": kind, "kv_heads": 2, "local_heads": 2, "local_window": 1}
            | ({} if kind == "gaussian_window" else {"positions": "rotary", "qk_norm": "learned"}),
        )
    ),
]


def kinds(settings: Mapping[str, object]) -> dict[str, object]:
    """The attentions that `settings` name."""
    attends = [name for name in ("self_attention", "cross_attention") if name in settings]
    return {name: built(f"attention/{settings[name]}") for name in attends}


def transformer(**settings: object) -> Transformer:
    return built("model/nano", **(SMALL | settings | kinds(settings)))


def make(**settings: object) -> Transformer:
    torch.manual_seed(0)
    model = transformer(**({"dropout": 0.0} | settings)).double().eval()
    with torch.no_grad():  # biases and gains away from 0 and 1, so that a forgotten one shows
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    source = torch.randint(4, 11, (3, 6))
    mask = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
    return source.masked_fill(~mask, 0), mask, torch.randint(4, 11, (3, 5))


def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def torch_twin(model: Transformer, pre: bool) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """torch's own encoder and decoder, with our model's weights."""
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
    norms = [nn.LayerNorm(16) if pre else None for _ in range(2)]
    layer = nn.TransformerEncoderLayer(16, 4, 24, **settings)
    encoder = nn.TransformerEncoder(layer, 2, norm=norms[0], enable_nested_tensor=False).double()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 24, **settings), 2, norm=norms[1]).double()
    with torch.no_grad():
        for ours, theirs in zip([*model.encoder, *model.decoder], [*encoder.layers, *decoder.layers], strict=True):
            copy_attention(ours.self_attention, theirs.self_attn)
            if hasattr(theirs, "multihead_attn"):
                copy_attention(ours.cross_attention, theirs.multihead_attn)
            theirs.linear1.load_state_dict(ours.feed_forward[0].state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward[3].state_dict())
            for number, residual in enumerate(ours.residuals, start=1):
                getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())
        if pre:
            encoder.norm.load_state_dict(model.encoder_norm.state_dict())
            decoder.norm.load_state_dict(model.decoder_norm.state_dict())
    return encoder, decoder


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_torch_transformer_with_copied_weights_outputs_and_gradients(norm):
    model = make(norm=norm, positions="learned", max_positions=9, tied_embeddings=False)
    encoder, decoder = torch_twin(model, pre=norm == "pre")
    source, mask, target = batch()
    ours = model(source, mask, target)
    embedded = model._embed("source", model.source_embedding, source).detach().requires_grad_()
    memory = encoder(embedded, src_key_padding_mask=~mask)
    causal = ~torch.ones(5, 5, dtype=torch.bool).tril()
    given = model._embed("target", model.target_embedding, target).detach().requires_grad_()
    theirs = decoder(given, memory, tgt_mask=causal, memory_key_padding_mask=~mask)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)

    direction = torch.randn_like(ours)
    ours.backward(direction)
    theirs.backward(direction)
    # The gradient that reaches the embeddings has gone through everything.
    expected = torch.zeros_like(model.source_embedding.weight)
    expected.index_add_(0, source.flatten(), embedded.grad.flatten(0, 1) * 4)
    torch.testing.assert_close(model.source_embedding.weight.grad, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", OPTIONS)
def test_padding_and_company_change_nothing(settings):
    check_padding_changes_nothing(make(**settings), batch())


@pytest.mark.parametrize("settings", OPTIONS)
def test_a_later_target_token_changes_nothing_before_it(settings):
    model = make(**settings)
    source, mask, target = batch()
    before = model(source, mask, target)
    changed = target.clone()
    changed[:, 3] = (changed[:, 3] - 3) % 7 + 4
    after = model(source, mask, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3], after[:, 3])


@pytest.mark.medium
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("settings", OPTIONS)
def test_cached_decoding_equals_uncached(settings, beam):
    check_cached_decoding(make(**settings), batch(), beam)


WINDOWS = [{"cross_attention": "gaussian_window"}, {"self_attention": "gaussian_window", "kv_heads": 2}]


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "kv_heads": 2}, *WINDOWS])
def test_reorder_follows_rows_and_drops_sentences(settings):
    check_reorder(make(**settings), batch())


def test_local_heads_see_nearby_and_the_others_everything():
    model, (source, mask, target) = make(local_heads=1, local_window=1), batch()
    encoder, decoder, cross = model.attention_weights(source, mask, target)
    for weights, whole in ((encoder, mask[:, None, None] & mask[:, None, :, None]), (decoder, torch.ones(5, 5).tril())):
        size = weights[0].shape[-1]
        near = torch.ones(size, size).tril(1).triu(-1).bool()
        for layer in weights:
            shown = layer * whole  # what padding looks at is nobody's matter
            assert not shown[:, 0].masked_select(~near).any()
            assert (shown[:, 1:] > 0).equal((whole > 0).expand_as(shown[:, 1:]))
    assert all((layer.sum(-1) - 1).abs().max() < 1e-9 for layer in cross)


def test_each_side_turns_its_self_attention_and_no_other():
    model = make(positions="rotary", encoder_heads=[2, 4], decoder_heads=[1, 8])
    assert [layer.self_attention.rotate.d_head for layer in (*model.encoder, *model.decoder)] == [8, 4, 16, 2]
    assert all(layer.cross_attention.rotate is None for layer in model.decoder)


@pytest.mark.medium
def test_layers_that_are_left_out_are_as_if_not_there():
    model, (source, mask, target) = make(layer_dropout=0.5, encoder_layers=3, decoder_layers=3), batch()
    model.train()
    seen = set()
    for seed in range(8):
        torch.manual_seed(seed)
        encoder, decoder = ([*model.layer_dropout(layers)] for layers in (model.encoder, model.decoder))
        small = copy.deepcopy(model)
        small.layer_dropout.p = 0.0
        small.encoder = nn.ModuleList(small.encoder[i] for i, layer in enumerate(model.encoder) if layer in encoder)
        small.decoder = nn.ModuleList(small.decoder[i] for i, layer in enumerate(model.decoder) if layer in decoder)
        torch.manual_seed(seed)
        model.zero_grad()
        output = model(source, mask, target)
        torch.testing.assert_close(output, small(source, mask, target), rtol=0, atol=1e-12)
        output.sum().backward()
        for layer in model.decoder:
            assert all((parameter.grad is not None) == (layer in decoder) for parameter in layer.parameters())
        seen.add((len(encoder), len(decoder)))
    assert len(seen) > 3
    model.eval()
    assert [len(weights) for weights in model.attention_weights(source, mask, target)] == [3, 3, 3]


@pytest.mark.parametrize("settings", OPTIONS)
def test_every_weight_has_a_finite_gradient(settings):
    model, (source, mask, target) = make(**settings | {"layer_dropout": 0.0}).train(), batch()
    model.output(model(source, mask, target)).square().sum().backward()
    # Several processes would wait for a gradient that is missing.
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize("kind", ["head", "element"])
def test_gates_begin_as_one_half_and_change_no_other_weight(kind):
    models = []
    for settings in ({}, {"head_gate": kind}):
        torch.manual_seed(0)
        models.append(transformer(dropout=0.0, **settings).eval())
    plain, gated = models
    own = gated.state_dict()
    assert all(own[name].equal(weight) for name, weight in plain.state_dict().items())
    assert {name.partition("output_gate")[1] for name in own if name not in plain.state_dict()} == {"output_gate"}
    for layer in (*gated.encoder, *gated.decoder):
        for part in layer.children():
            if isinstance(part, MultiHeadAttention):
                part.output.weight.data *= 2
    source, mask, target = batch()
    assert gated(source, mask, target).equal(plain(source, mask, target))


@pytest.mark.parametrize("feed_forward", ["relu", "swiglu"])
def test_layers_whose_last_matrices_are_zero_begin_as_the_identity(feed_forward):
    torch.manual_seed(0)
    model = transformer(init="zero_output", feed_forward=feed_forward, head_gate="element", dropout=0.0)
    source, mask, target = batch()
    embedded = model._embed("source", model.source_embedding, source)
    torch.testing.assert_close(model.encode(source, mask), model.encoder_norm(embedded))
    model.output(model(source, mask, target)).square().sum().backward()
    assert model.decoder[0].cross_attention.output.weight.grad.any()


def test_embeddings_have_the_scale_and_the_deviation_asked_for():
    torch.manual_seed(0)
    tokens = torch.tensor([[5, 6]])
    for settings, scale, deviation in (({}, 4, 0.25), ({"embedding_scale": 3.0, "embedding_std": 0.01}, 3, 0.01)):
        model = transformer(vocab_size=2000, positions="rotary", dropout=0.0, **settings)  # it adds nothing to them
        embedded = model._embed("source", model.source_embedding, tokens)
        torch.testing.assert_close(embedded, model.source_embedding(tokens) * scale)
        assert model.output.weight.std().item() == pytest.approx(deviation, rel=0.03)


def test_a_cap_acts_on_every_logit():
    capped, plain, (source, mask, target) = make(logit_cap=2.0), make(), batch()
    hidden = plain(source, mask, target) * 3
    expected = 2 * torch.tanh(hidden @ plain.output.weight.T / 2)
    torch.testing.assert_close(capped.output(hidden), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(plain.output(hidden), hidden @ plain.output.weight.T)  # no bias


def test_attention_weights_are_those_of_every_head():
    model, (source, mask, target) = make(encoder_heads=[2, 4], decoder_heads=1, cross_heads=8), batch()
    weights = model.attention_weights(source, mask, target)
    assert [[layer.shape[1] for layer in kind] for kind in weights] == [[2, 4], [1, 1], [8, 8]]
    assert model.head_counts == {"encoder_heads": [2, 4], "decoder_heads": [1, 1], "cross_heads": [8, 8]}
    assert make(kv_heads=2).head_counts == make().head_counts | {"kv_heads": [2]}
    for layer in weights.cross:
        assert (layer[1, :, :, 4:] == 0).all()
        torch.testing.assert_close(layer.sum(-1), torch.ones(3, 8, 5).double())


def test_tied_embeddings_are_one_matrix():
    tied, untied = make(), make(tied_embeddings=False)
    assert tied.output.weight is tied.source_embedding.weight is tied.target_embedding.weight
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters()) == 2 * 11 * 16


def test_sinusoidal_positions_are_those_of_the_paper_and_grow():
    model = make(max_positions=4)
    table = model.positions["source"]
    encoded = table(torch.zeros(1, 7, 16).double(), start=2)[0]
    for position in range(7):
        for i in range(8):
            angle = torch.tensor((2 + position) / 10_000 ** (2 * i / 16), dtype=torch.float64)
            assert encoded[position, 2 * i].item() == pytest.approx(angle.sin().item(), abs=1e-6)
            assert encoded[position, 2 * i + 1].item() == pytest.approx(angle.cos().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 5}, r"num_heads=5 does not divide model\.d_model=16: the nearest that do are 4 and 8"),
        ({"encoder_heads": [4, 4, 4]}, r"encoder_heads=\[4, 4, 4\]: 3 numbers for 2 layers"),
        ({"decoder_heads": 0}, r"decoder_heads=0: must be 1 or more; 0, a layer without heads, needs model\.head_size"),
        ({"decoder_heads": -1, "head_size": 4}, r"decoder_heads=-1: must be 0 or more$"),
        ({"positions": "rotary", "head_size": 5}, r"positions=rotary: .* even, not 5; set an even model"),
        ({"kv_heads": 3, "cross_heads": [6, 8], "head_size": 2}, r"kv_heads=3: must divide every number of heads"),
        ({"local_heads": 5}, r"local_heads=5: must be 0 to 4, the heads"),
        (WINDOW | {"positions": "rotary"}, "positions=rotary: acts on keys, which GaussianWindow does not read"),
        ({"head_gate": "none"}, "head_gate=none: must be 'head' or 'element' or null"),
        (WINDOW | {"qk_norm": "learned"}, "qk_norm: acts on keys, which GaussianWindow does not read"),
        ({"d_model": 0, "encoder_layers": 257}, "d_model=0: must be greater.*\n.*encoder_layers=257: must be less"),
    ],
)
def test_wrong_settings_say_what_is_allowed(settings, message):
    node = OmegaConf.to_container(without_other_kinds(composed("train", "model=nano")).model)
    node |= {name: value for name, value in SMALL.items() if name != "vocab_size"} | settings
    with pytest.raises(InputError, match=rf"^model\.{message}"):
        new_model(node, 11)


def test_a_layer_without_heads_adds_a_bias_alone():
    attention, mask = make(**WITHOUT).encoder[0].self_attention, batch()[1]
    x, positions = torch.randn(3, 6, 16).double(), TokenPositions(torch.arange(6), torch.arange(6), None)
    output = attention(x, attention.project(x), mask[:, None, None], positions).output
    assert output.equal(attention.output.bias.expand(3, 6, 16))


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    [f"model.{side}_attention={kind}" for side in ("self", "cross") for kind in KINDS]
    + [f"model={path.stem}" for path in sorted((CONF / "model").glob("rnn*.yaml"))],
)
def test_search_in_half_precision_is_close_to_exact(options):
    torch.manual_seed(0)
    sizes = [] if "rnn" in options else ["model.encoder_layers=1", "model.decoder_layers=1"]
    model = new_model(without_other_kinds(composed("train", "model=nano", options, *sizes)).model, 40).eval()
    (source, mask), target = (torch.randint(4, 40, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [6]])), [2, 7, 30]
    found = {}
    for precision in (torch.float32, torch.bfloat16):
        state = model.to(precision).start(source, mask)
        for token in target:
            found[precision], state = model.step(torch.full((3,), token), state)
    assert found[torch.bfloat16].dtype == torch.float32
    distance = (found[torch.bfloat16] - found[torch.float32]).abs()
    assert distance.max() < 0.1 * found[torch.float32].std() + 0.05
