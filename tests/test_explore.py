"""The page that runs the model: the same pieces, translations and log-probabilities as in Python."""

import copy
import json
import re
import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from built import TWO_LAYERS, built, random_model, sentence_piece
from conftest import completed, refused

from headcount.data.tokenizer import TokenizerPair
from headcount.decoding.beam import greedy
from headcount.errors import InputError
from headcount.explore.architecture import unsupported
from headcount.explore.page import check, content, rendered, short_names
from headcount.explore.tensors import Tensors, quantised
from headcount.heads.interface import Heads
from headcount.report.attention_maps import attention_maps
from headcount.run.opened import make_translator, open_run

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node: the page's JavaScript cannot run")
TEXTS = ["the dog sees the cat", "the bear likes the wolf", "the bird chases the horse sees the dog", "the the", "dog"]
MODELS = {
    "default": {"num_heads": 2},
    "post": {"num_heads": 4, "norm": "post", "kv_heads": 2, "positions": "rotary", "feed_forward": "swiglu"},
    "learned": {
        "num_heads": 4,
        "positions": "learned",
        "max_positions": 24,
        "feed_forward": "gelu",
        "local_heads": 2,
        "local_window": 1,
        "logit_cap": 4.0,
        "tied_embeddings": False,
    },
    "uneven": {"num_heads": [1, 3], "cross_heads": [0, 2], "head_size": 6, "qk_norm": "learned", "qk_scale": 2.0},
    "multi_query": {"num_heads": 4, "kv_heads": 1, "qk_norm": "fixed", "positions": "rotary", "embedding_scale": 2.0},
    "unscaled": {"num_heads": 2, "self_attention": "luong_dot", "cross_attention": "luong_dot", "kv_heads": 1},
}
QUICK = ("default", "post", "learned")


def run_of(home: Path, name: str = "default", beam: int = 5):
    run = open_run(home / "runs" / "first", device="cpu", search={"beam": beam})
    return with_model(run, random_model(run.tokenizer.vocab_size, **MODELS[name]))


def with_model(run, model, **changes):
    translator = make_translator(model, run.tokenizer, changes.get("search", run.translator.search), False)
    return replace(run, model=model, translator=translator)


def by_greedy(run):
    return with_model(run, run.model, search=greedy(run.translator.search)).translator


def page_of(folder: Path, *runs, weights: str = "float32") -> Path:
    path = folder / "explore.html"
    path.write_text(rendered(content({str(i): run for i, run in enumerate(runs)}, weights, [])), encoding="utf-8")
    return path


def javascript(page: Path, *tasks):
    """The answers of the page's JavaScript to some tasks."""
    command = [NODE, str(Path(__file__).parent / "explore.js"), str(page)]
    answer = subprocess.run(command, input=json.dumps(tasks), capture_output=True, text=True, encoding="utf-8")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.medium
@needs_node
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_the_page_translates_as_python_does(name, home, tmp_path):
    run = run_of(home, name)
    heads = Heads(run.model)
    off = [str(head) for head in heads.names[::2]]
    page = page_of(tmp_path, run)
    pairs = [[text, "der Hund sieht den Kater"] for text in TEXTS]
    whole, without, scored, gated, alternatives = javascript(
        page,
        {"task": "greedy", "texts": TEXTS},
        {"task": "greedy", "texts": TEXTS, "off": off},
        {"task": "logProb", "pairs": pairs},
        {"task": "logProb", "pairs": pairs, "off": off},
        {"task": "alternatives", "texts": TEXTS[:2]},
    )

    def agrees(found, expected):
        assert [each["text"] for each in found] == [each.text for each in expected]
        np.testing.assert_allclose([e["score"] for e in found], [e.score for e in expected], rtol=1e-4, atol=1e-4)

    agrees(whole, [best for (best,) in by_greedy(run).nbest(TEXTS, 1)])
    scores = run.scorer.score(*zip(*pairs, strict=True))[0]
    np.testing.assert_allclose(scored, scores, rtol=1e-4)
    with heads.gated(dict.fromkeys(off, 0.0)):
        agrees(without, [best for (best,) in by_greedy(run).nbest(TEXTS, 1)])
        np.testing.assert_allclose(gated, run.scorer.score(*zip(*pairs, strict=True))[0], rtol=1e-4)
    assert np.abs(np.subtract(scored, gated)).max() > 0.01
    for found, expected in zip(alternatives, run.translator.nbest(TEXTS[:2], 5), strict=True):
        agrees(found, expected)


@pytest.mark.medium
@needs_node
def test_the_attention_weights_are_those_of_python(home, tmp_path):
    run = with_model(run_of(home), open_run(home / "runs" / "first", device="cpu").model)
    run = replace(run, translator=by_greedy(run))
    best = [best for (best,) in run.translator.nbest(TEXTS, 1)]
    scores = run.scorer.score(TEXTS, [each.text for each in best])[0]
    # Python draws the maps of a text's usual pieces. A short training may have written it in others.
    usual = [text for text, own, score in zip(TEXTS, best, scores, strict=True) if abs(own.score - score) < 1e-3]
    assert usual
    tasks = [{"task": "maps", "text": text} for text in usual]
    for text, maps in zip(usual, javascript(page_of(tmp_path, run), *tasks), strict=True):
        expected = attention_maps(run, text)
        assert len(maps) == len(expected.layers)
        for layer in expected.layers:
            for head, rows in enumerate(maps[f"{layer.kind}{layer.number}"]):
                width = len(layer.keys)
                found = torch.tensor([row + [0.0] * (width - len(row)) for row in rows])  # of a target, the past alone
                torch.testing.assert_close(found, layer.weights[head], atol=1e-5, rtol=1e-4)


HOSTILE = [
    "",
    "  ",
    "e\u0301t\u00e9",
    "\u5c0f\u72d7\U0001f43b",
    "a\x1cb\x85c\ufeffd\u2028e",
    "\u2581dog",
    "\ud800x",
    "<s></s>",
    "\x00",
    "dog" * 40,
]


@pytest.mark.medium
@needs_node
@pytest.mark.parametrize("kind", ["bpe", "unigram", "separate"])
def test_the_page_segments_text_as_sentencepiece_does(kind, text, home, tmp_path):
    lines = {side: (text / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")}
    first, second = (
        sentence_piece(size, "unigram" if kind == "unigram" else "bpe").train(*sides)
        for size, sides in ((300, lines.values()), (290, [lines["de"]]))
    )
    tokenizer = TokenizerPair(first, second) if kind == "separate" else first
    run = open_run(home / "runs" / "first", device="cpu")
    sizes = {"vocab_size": tokenizer.vocab_size, "source_vocab_size": 300 if kind == "separate" else None}
    model = built("model/nano", **TWO_LAYERS, **sizes, num_heads=2).eval()
    run = with_model(replace(run, tokenizer=tokenizer), model)
    texts = [*(line for side in lines.values() for line in side), *TEXTS, *HOSTILE]
    draws = np.random.default_rng(0).integers(4, tokenizer.vocab_size, (300, 12))
    tokens = [row.tolist() for row in draws] + [[5, 3, 9], [1, 2, 0, 9], [4 + 0xE5, 4 + 0xB0, 4 + 0x8F]]
    pieces, targets, texts_again = javascript(
        page_of(tmp_path, run),
        {"task": "encode", "texts": texts},
        {"task": "encode", "texts": texts, "side": "target"},
        {"task": "decode", "tokens": tokens},
    )
    assert pieces == tokenizer.source.encode(texts)
    assert targets == tokenizer.target.encode(texts)
    assert texts_again == tokenizer.decode(tokens)


@pytest.mark.medium
@needs_node
def test_int8_is_the_model_with_rounded_weights(home, tmp_path):
    run = run_of(home)
    (found,) = javascript(page_of(tmp_path, run, weights="int8"), {"task": "greedy", "texts": TEXTS})
    exact = [best.score for (best,) in by_greedy(run).nbest(TEXTS, 1)]
    rounded = copy.deepcopy(run.model)
    with torch.no_grad():
        for weight in rounded.parameters():
            if weight.dim() == 2:
                scales, whole = quantised(weight.numpy())
                weight.copy_(torch.from_numpy(whole * scales[:, None]))
    expected = [best for (best,) in by_greedy(with_model(run, rounded)).nbest(TEXTS, 1)]
    assert [each["text"] for each in found] == [each.text for each in expected]
    np.testing.assert_allclose([each["score"] for each in found], [each.score for each in expected], rtol=1e-4)
    assert max(abs(each["score"] - score) for each, score in zip(found, exact, strict=True)) > 1e-3


@pytest.mark.medium
@needs_node
def test_words_are_pieces_joined(home, tmp_path):
    pieces = ["<s>", "\u2581the", "\u2581do", "g", ".", "</s>"]
    rows = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2]]
    groups, between, changed, lost = javascript(
        page_of(tmp_path, run_of(home)),
        {"task": "words", "pieces": pieces},
        {"task": "between", "rows": rows, "queries": [[0, 1]], "keys": [[0], [1, 2], [3]]},
        {"task": "difference", "before": "the old dog sees", "after": "the dog saw it"},
        {"task": "difference", "before": "the dog does not see", "after": "the dog does"},
    )
    assert groups == [[0], [1], [2, 3], [4], [5]]
    np.testing.assert_allclose(between, [[0.3, 0.4, 0.3]])
    old = [["the", ""], ["old", "del"], ["dog", ""]]
    assert changed == [*old, ["sees", "del"], ["saw", "ins"], ["it", "ins"]]
    assert lost == [["the", ""], ["dog", ""], ["does", ""], ["not", "del"], ["see", "del"]]


def test_int8_is_within_half_a_step_and_shared_weights_are_kept_once():
    matrix = torch.randn(6, 5) * torch.tensor([0.0, 1e-6, 1.0, 10.0, 1e3, 1e-2])[:, None]
    scales, whole = quantised(matrix.numpy())
    assert np.abs(whole).max() == 127
    assert (np.abs(whole * scales[:, None] - matrix.numpy()) <= 0.5001 * scales[:, None]).all()
    tensors = Tensors("float32")
    assert [tensors.add(matrix), tensors.add(matrix[0]), tensors.add(matrix)] == [0, 1, 0]
    packed = tensors.packed()
    assert packed["places"] == [[0, 6, 5, "float32"], [120, 1, 5, "float32"]]
    assert b64decode(packed["bytes"]) == matrix.numpy().tobytes() + matrix[0].numpy().tobytes()


def test_nothing_of_a_run_becomes_markup_and_no_network_is_used(home):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{ script }}"
    run = run_of(home)
    page = rendered(
        content({evil.replace("/", "|"): run}, "int8", [{"source": evil, "target": "<!--", "phenomenon": evil}])
    )
    elements = re.findall(r"<(?:script|img)\b[^>]*>", page)
    assert elements == ['<script type="application/json" id="data">', "<script>"]
    assert page.count("</script>") == 2
    assert "&lt;img src=x" in re.search(r"<title>(.*)</title>", page)[1]
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data)["examples"][0]["source"] == evil
    assert "innerHTML" not in page
    assert not re.search(r"https?:|\bsrc=(?!x)|\bhref=|url\(|@import|fetch\(", page.replace(data, ""))
    assert "default-src 'none'" in page


@pytest.mark.medium
def test_a_page_of_tiny_is_small(home):
    run = open_run(home / "runs" / "first", device="cpu")
    tiny = built("model/tiny", vocab_size=5000)
    page = len(rendered(content({"a": with_model(run, tiny)}, "int8", [])))
    vocabulary = 5000 / run.tokenizer.vocab_size * len(json.dumps(content({"a": run}, "int8", [])["tokenizers"]))
    assert page + vocabulary < 3e6


@pytest.mark.medium
def test_all_reasons_are_named_at_once(home):
    run = open_run(home / "runs" / "first", device="cpu")
    window = built("model/cross_attention/gaussian_window")
    sizes = {"vocab_size": run.tokenizer.vocab_size, **TWO_LAYERS, "num_heads": 2}
    model = built("model/nano", **sizes, cross_attention=window, self_attention=built("model/cross_attention/additive"))
    run = with_model(run, model)
    run.translator.hide_source = True
    with pytest.raises(InputError) as error:
        check({"runs/a": run})
    assert str(error.value) == (
        "run=runs/a: a page cannot run this: model.cross_attention is GaussianWindow, neither ScaledDotProduct "
        "nor LuongDot; model.self_attention is Additive, neither ScaledDotProduct nor LuongDot; "
        "data.hide_source=true: its model does not read the source"
    )
    with pytest.raises(InputError, match=r"run=runs/a,runs/b: .*: runs/a: model\.cross_.*; runs/b: model\.cross_"):
        check({"runs/a": run, "runs/b": run})
    rnn = built("model/rnn", vocab_size=run.tokenizer.vocab_size, d_model=16)
    assert unsupported(rnn) == [f"its model is {type(rnn).__name__}, not the Transformer"]


def test_short_names_are_what_differs():
    assert short_names(["a=[1,2],heads=1,seed=1", "a=[1,2],heads=8,seed=1"]) == ["heads=1", "heads=8"]
    assert short_names(["first", "second"]) == ["first", "second"]
    assert short_names(["a,b", "a"]) == ["a,b", "a"]


@pytest.mark.medium
def test_the_command_writes_one_file_with_examples(home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    completed("explore", "run=[runs/first,runs/second]", "output=both.html", "examples=3", cwd=tmp_path)
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [run["name"] for run in data["runs"]] == ["first", "second"]
    assert len(data["tokenizers"]) == 1
    assert len(data["examples"]) == 6
    assert all(set(example) == {"source", "target"} for example in data["examples"])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["output=5"], "output=5: must be text"),
        (["examples=-1"], "examples=-1: must be a whole number, 0 or more"),
        (["examples=0", "weights=int4"], "weights=int4: must be int8 (small) or float32 (exact)"),
        (["examples=0", "output=taken/x"], "output=taken/x: can't be written to"),
        (["run=runs/none"], "runs/none is not a run directory"),
    ],
)
def test_impossible_pages_get_one_line(arguments, line, home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    (tmp_path / "taken").touch()
    run = [] if any(word.startswith("run=") for word in arguments) else ["run=runs/first"]
    (answer,) = refused("explore", *run, *arguments, cwd=tmp_path)
    assert answer.startswith(line)
