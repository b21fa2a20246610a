"""Import of fairseq's `transformer`: the same log-probabilities as its definition, written out here."""

import argparse
import math
import re

import pytest
import torch
import torch.nn.functional as F
from conftest import completed, refused
from torch import Tensor

from headcount.errors import InputError
from headcount.run.fairseq import model_settings, read_checkpoint, read_dictionaries
from headcount.run.opened import open_run

SYMBOLS = {"xx": ["a", "b", "@@c"], "yy": [f"w{number}" for number in range(12)]}
D_MODEL, HEADS, LAYERS, FFN, POSITIONS = 12, 3, 2, 20, 40


def checkpoint(folder, *, pre: bool, learned: bool, shared: bool, activation: str = "relu"):
    """Write a random model as fairseq does, with its dictionaries; its settings and weights."""
    generator = torch.Generator().manual_seed(1)
    sizes = {name: -(-(len(symbols) + 4) // 8) * 8 for name, symbols in SYMBOLS.items()}

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.4

    weights = {}
    for side, size in (("encoder", sizes["xx"]), ("decoder", sizes["yy"])):
        weights[f"{side}.version"] = torch.tensor([3.0])
        weights[f"{side}.embed_tokens.weight"] = random(size, D_MODEL)
        weights[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if learned:
            weights[f"{side}.embed_positions.weight"] = random(POSITIONS + 2, D_MODEL)
        norms = ["self_attn_layer_norm", "final_layer_norm"] + ["encoder_attn_layer_norm"] * (side == "decoder")
        attentions = ["self_attn"] + ["encoder_attn"] * (side == "decoder")
        for layer in (f"{side}.layers.{number}" for number in range(LAYERS)):
            for name in (f"{attention}.{part}_proj" for attention in attentions for part in ("q", "k", "v", "out")):
                weights |= {f"{layer}.{name}.weight": random(D_MODEL, D_MODEL), f"{layer}.{name}.bias": random(D_MODEL)}
            for name, shape in {"fc1": (FFN, D_MODEL), "fc2": (D_MODEL, FFN)}.items():
                weights |= {f"{layer}.{name}.weight": random(*shape), f"{layer}.{name}.bias": random(shape[0])}
            for name in norms:
                weights |= {f"{layer}.{name}.weight": 1 + random(D_MODEL), f"{layer}.{name}.bias": random(D_MODEL)}
        if pre:
            weights |= {f"{side}.layer_norm.weight": 1 + random(D_MODEL), f"{side}.layer_norm.bias": random(D_MODEL)}
    if not shared:
        weights["decoder.output_projection.weight"] = random(sizes["yy"], D_MODEL)
    args = {"activation_fn": activation, "no_scale_embedding": False, "max_source_positions": POSITIONS}
    args |= {"max_target_positions": POSITIONS, "share_decoder_input_output_embed": shared, "dropout": 0.1}
    for side in ("encoder", "decoder"):
        args |= {f"{side}_embed_dim": D_MODEL, f"{side}_ffn_embed_dim": FFN, f"{side}_layers": LAYERS}
        args |= {f"{side}_attention_heads": HEADS, f"{side}_normalize_before": pre, f"{side}_learned_pos": learned}
    torch.save({"args": argparse.Namespace(**args), "model": weights}, folder / "theirs.pt")
    for name, symbols in SYMBOLS.items():
        (folder / f"dict.{name}.txt").write_text("".join(f"{symbol} 9\n" for symbol in symbols))
    return args, weights


def their_log_probs(args, weights, source: list[int], target: list[int]) -> Tensor:
    """log p of each target token, by fairseq's definition: its own numbers, the target beginning with </s> (2)."""

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (D_MODEL,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    def attention(x, memory, name, causal):
        q, k, v = (
            linear(each, f"{name}.{part}_proj").unflatten(1, (HEADS, -1)).transpose(0, 1)
            for part, each in (("q", x), ("k", memory), ("v", memory))
        )
        score = q @ k.transpose(1, 2) / math.sqrt(D_MODEL / HEADS)
        if causal:
            score = score.masked_fill(torch.ones_like(score[0], dtype=torch.bool).triu(1), -torch.inf)
        return linear((score.softmax(2) @ v).transpose(0, 1).flatten(1), f"{name}.out_proj")

    def embedded(tokens, side):
        x = math.sqrt(D_MODEL) * weights[f"{side}.embed_tokens.weight"][tokens]
        if (table := weights.get(f"{side}.embed_positions.weight")) is None:
            rate = math.log(10000) / (D_MODEL // 2 - 1)
            angles = [[pos * math.exp(-rate * i) for i in range(D_MODEL // 2)] for pos in range(POSITIONS + 2)]
            table = torch.tensor([[*map(math.sin, row), *map(math.cos, row)] for row in angles])
        return x + table[2 : 2 + len(tokens)]

    def sublayer(x, name, inner):
        return x + inner(norm(x, name)) if args["encoder_normalize_before"] else norm(x + inner(x), name)

    act = {"relu": F.relu, "gelu": F.gelu}[args["activation_fn"]]

    def stack(x, side, memory=None):
        for layer in (f"{side}.layers.{number}" for number in range(LAYERS)):
            own = f"{layer}.self_attn"
            x = sublayer(x, f"{own}_layer_norm", lambda y, own=own: attention(y, y, own, memory is not None))
            if memory is not None:
                cross = f"{layer}.encoder_attn"
                x = sublayer(x, f"{cross}_layer_norm", lambda y, cross=cross: attention(y, memory, cross, False))
            x = sublayer(
                x, f"{layer}.final_layer_norm", lambda y, at=layer: linear(act(linear(y, f"{at}.fc1")), f"{at}.fc2")
            )
        return norm(x, f"{side}.layer_norm") if args["encoder_normalize_before"] else x

    memory = stack(embedded([*source, 2], "encoder"), "encoder")
    hidden = stack(embedded([2, *target], "decoder"), "decoder", memory)
    output = weights.get("decoder.output_projection.weight", weights["decoder.embed_tokens.weight"])
    return (hidden @ output.T).log_softmax(1)[range(len(target) + 1), [*target, 2]]


def imported(folder):
    (folder / "my.xx").write_text("a b\nb @@c a\na\n")
    (folder / "my.yy").write_text("w1 w2\nw0 w11 w3\nw4\n")
    given = ["checkpoint=theirs.pt", "dictionaries=[dict.xx.txt,dict.yy.txt]", "output=ours"]
    text = [f"data.{split}=[my.xx,my.yy]" for split in ("train", "valid", "test")]
    return [*given, "data.source=xx", "data.target=yy", *text, "data.cleaning.enabled=false"]


@pytest.mark.medium
@pytest.mark.parametrize(
    "kind",
    [
        {"pre": False, "learned": False, "shared": False},
        {"pre": True, "learned": True, "shared": True},
        {"pre": True, "learned": False, "shared": False, "activation": "gelu"},
    ],
)
def test_an_imported_model_gives_the_log_probabilities_of_its_definition(kind, tmp_path):
    args, weights = checkpoint(tmp_path, **kind)
    completed("import", *imported(tmp_path), cwd=tmp_path)
    run = open_run(tmp_path / "ours")
    sources, targets = ["a b @@c zz", ""], ["w1 w11 nothing w0", "w5"]
    numbers = {name: {symbol: 4 + n for n, symbol in enumerate(symbols)} for name, symbols in SYMBOLS.items()}
    theirs = [
        [[numbers[name].get(word, 3) for word in text.split()] for text in texts]
        for name, texts in zip(SYMBOLS, (sources, targets), strict=True)
    ]
    expected = [float(their_log_probs(args, weights, *pair).sum()) for pair in zip(*theirs, strict=True)]
    found, tokens = run.scorer.score(sources, targets)
    assert tokens == [5, 2]
    assert found == pytest.approx(expected, abs=1e-4)
    assert len(run.translator.translate(["a b"])) == 1
    completed("evaluate", "run=ours", "split=test", cwd=tmp_path)


@pytest.mark.medium
def test_what_is_no_such_checkpoint_is_one_line(tmp_path):
    checkpoint(tmp_path, pre=False, learned=False, shared=False)
    given = imported(tmp_path)
    assert refused("import", *given[1:], cwd=tmp_path) == [
        "checkpoint=: is missing; headcount import --help shows an example"
    ]
    (tmp_path / "other.pt").write_bytes(b"no checkpoint")
    (line,) = refused("import", "checkpoint=other.pt", *given[1:], cwd=tmp_path)
    assert line == "checkpoint=other.pt: no checkpoint of fairseq can be read from it"
    (line,) = refused("import", *given, "dictionaries=[dict.yy.txt,dict.yy.txt]", cwd=tmp_path)
    assert line == "dictionaries: give 16 symbols where the checkpoint has 8 (source_embedding)"
    (tmp_path / "bad.txt").write_text("a 9\nb\n")
    with pytest.raises(InputError, match=re.escape("bad.txt, line 2: must be a symbol, a space and its count")):
        read_dictionaries([tmp_path / "bad.txt"] * 2)
    (tmp_path / "bad.txt").write_text("a 9\na 1\n")
    with pytest.raises(InputError, match=re.escape("bad.txt, line 2: a is there twice")):
        read_dictionaries([tmp_path / "bad.txt"] * 2)
    (tmp_path / "cut.txt").write_text("b 9\nmadeupword0000 0\n")
    assert read_dictionaries([tmp_path / "cut.txt"] * 2).vocab_size == 7
    args, _ = read_checkpoint(tmp_path / "theirs.pt")
    with pytest.raises(InputError, match="has a norm of the embeddings"):
        model_settings(args | {"layernorm_embedding": True}, tmp_path)
    assert not (tmp_path / "ours").exists()
