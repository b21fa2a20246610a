"""The page that runs a model: the same pieces, translations, log-probabilities and attention as in Python."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from built import TWO_LAYERS, built, random_model, sentence_piece
from conftest import SCRIPTS
from datasets import Dataset

from headcount.data.tokenizer import TokenizerPair
from headcount.decoding.beam import greedy
from headcount.export.page.write import Tensors, chosen_sentences, content, quantised, rendered
from headcount.heads.attention import attention_arrays
from headcount.heads.interface import Heads
from headcount.run.opened import make_translator, open_run

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node: the page's JavaScript cannot run")
TEXTS = ["the dog sees the cat", "the bear likes the wolf", "the bird chases the horse sees the dog", "the the", "dog"]
LEARNED = {"positions": "learned", "max_positions": 24, "feed_forward": "gelu", "tied_embeddings": False}
MODELS = {  # each option of each part, and pairs of them
    "post": {"num_heads": 4, "norm": "post", "kv_heads": 2, "positions": "rotary", "feed_forward": "swiglu"},
    "learned": {"num_heads": 4, **LEARNED},
    "uneven": {"num_heads": [1, 3], "cross_heads": [0, 2], "head_size": 6},
    "unscaled": {"num_heads": 2, "self_attention": "luong_dot", "cross_attention": "luong_dot"},
}


@pytest.fixture
def run(home):
    return open_run(home / "runs" / "first", device="cpu")


def with_model(run, model):
    """The run with another model, by greedy search."""
    translator = make_translator(model, run.tokenizer, greedy(run.translator.search))
    return replace(run, model=model, translator=translator)


def javascript(folder: Path, run, *tasks, weights: str = "float32"):
    """The answers of the page's JavaScript to some tasks."""
    page = folder / "page.html"
    page.write_text(rendered(content(run, weights, [])), encoding="utf-8")
    command = ["node", str(Path(__file__).parent / "page.js"), str(page)]
    answer = subprocess.run(command, input=json.dumps(tasks), capture_output=True, text=True, encoding="utf-8")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def whole_characters(texts):
    """Texts where bytes that are no character are one U+FFFD, however many they are."""
    return [re.sub("\ufffd+", "\ufffd", text) for text in texts]


def agrees(found, run):
    expected = [best for (best,) in run.translator.nbest(TEXTS, 1)]
    assert whole_characters(each["text"] for each in found) == whole_characters(each.text for each in expected)
    np.testing.assert_allclose([e["score"] for e in found], [e.score for e in expected], rtol=1e-4, atol=1e-4)


@pytest.mark.medium
@needs_node
@pytest.mark.parametrize("name", MODELS)
def test_the_page_translates_as_python_does(name, run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, **MODELS[name]))
    heads = Heads(run.model)
    off = [str(head) for head in heads.names[::2]]
    pairs = [[text, "der Hund sieht den Kater"] for text in TEXTS]
    greedily, given = {"task": "greedy", "texts": TEXTS}, {"task": "logProb", "pairs": pairs}
    tasks = (greedily, greedily | {"off": off}, given, given | {"off": off})
    whole, without, scored, gated = javascript(tmp_path, run, *tasks)
    agrees(whole, run)
    sides = zip(*pairs, strict=True)
    sources, targets = map(list, sides)
    np.testing.assert_allclose(scored, run.scorer.score(sources, targets)[0], rtol=1e-4)
    with heads.gated(dict.fromkeys(off, 0.0)):
        agrees(without, run)
        np.testing.assert_allclose(gated, run.scorer.score(sources, targets)[0], rtol=1e-4)
    assert np.abs(np.subtract(scored, gated)).max() > 0.01


@pytest.mark.medium
@needs_node
def test_the_attention_weights_are_those_of_python(run, tmp_path):
    run = with_model(run, run.model)
    best = [best for (best,) in run.translator.nbest(TEXTS, 1)]
    scores = run.scorer.score(TEXTS, [each.text for each in best])[0]
    # Python draws the maps of a text's usual pieces. A short training may have written it in others.
    usual = [text for text, own, score in zip(TEXTS, best, scores, strict=True) if abs(own.score - score) < 1e-3]
    assert usual
    for text, maps in zip(
        usual, javascript(tmp_path, run, *({"task": "maps", "text": text} for text in usual)), strict=True
    ):
        arrays = attention_arrays(run, [text], run.translator.translate([text]))
        expected = {name.replace("_", ""): each[0] for name, each in arrays.items() if each.ndim == 4}
        assert maps.keys() == expected.keys()
        for name, layer in expected.items():
            for head, rows in enumerate(maps[name]):
                width = layer.shape[-1]
                found = [row + [0.0] * (width - len(row)) for row in rows]  # of a target, the past alone
                np.testing.assert_allclose(found, layer[head], atol=1e-5, rtol=1e-4)


HOSTILE = ["", "  ", "e\u0301t\u00e9", "\u5c0f\u72d7\U0001f43b", "a\x1cb\x85c\ufeffd\u2028e", "\u2581dog", "\ud800x"]
HOSTILE += ["<s></s>", "\x00", "dog" * 40]


@pytest.mark.medium
@needs_node
@pytest.mark.parametrize("kind", ["unigram", "separate"])
def test_the_page_segments_text_as_sentencepiece_does(kind, text, run, tmp_path):
    lines = {side: (text / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")}
    first, second = (
        sentence_piece(size, "unigram" if kind == "unigram" else "bpe").train(*sides)
        for size, sides in ((300, lines.values()), (290, [lines["de"]]))
    )
    tokenizer = TokenizerPair(first, second) if kind == "separate" else first
    sizes = {"vocab_size": tokenizer.vocab_size, "source_vocab_size": 300 if kind == "separate" else None}
    run = with_model(replace(run, tokenizer=tokenizer), built("model/nano", **TWO_LAYERS, **sizes, num_heads=2).eval())
    texts = [*(line for side in lines.values() for line in side), *TEXTS, *HOSTILE]
    draws = np.random.default_rng(0).integers(4, tokenizer.vocab_size, (300, 12))
    tokens = [row.tolist() for row in draws] + [[1, 2, 0, 9], [4 + 0xE5, 4 + 0xB0, 4 + 0x8F]]
    encode = {"task": "encode", "texts": texts}
    tasks = encode, encode | {"side": "target"}, {"task": "decode", "tokens": tokens}
    pieces, targets, texts_again = javascript(tmp_path, run, *tasks)
    assert pieces == tokenizer.source.encode(texts)
    assert targets == tokenizer.target.encode(texts)
    assert whole_characters(texts_again) == whole_characters(tokenizer.decode(tokens))


@pytest.mark.medium
@needs_node
def test_int8_is_the_model_with_rounded_weights(run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=2))
    (found,) = javascript(tmp_path, run, {"task": "greedy", "texts": TEXTS}, weights="int8")
    exact = [best.score for (best,) in run.translator.nbest(TEXTS, 1)]
    assert max(abs(each["score"] - score) for each, score in zip(found, exact, strict=True)) > 1e-3
    with torch.no_grad():
        for weight in run.model.parameters():
            if weight.dim() == 2:
                scales, whole = quantised(weight.numpy())
                assert (np.abs(whole * scales[:, None] - weight.numpy()) <= 0.5001 * scales[:, None]).all()
                weight.copy_(torch.from_numpy(whole * scales[:, None]))
    agrees(found, run)


@pytest.mark.medium
@needs_node
def test_every_head_is_tried_alone(run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=2))
    heads = Heads(run.model)
    right, wrong = "der Hund sieht den Kater", "der Hund jagt das Pferd"
    examples = [{"source": TEXTS[0], "target": right, "contrast": wrong}, {"source": TEXTS[0]}]
    tasks = [{"task": "every", "example": each, "heads": heads.labels.tolist()} for each in examples]
    compared, alone = javascript(tmp_path, run, *tasks)
    whole = run.scorer.score(TEXTS[:1] * 2, [right, wrong])[0]
    assert list(compared) == list(alone) == heads.labels.tolist()
    for head in compared:
        with heads.off(head):
            first, second = np.subtract(run.scorer.score(TEXTS[:1] * 2, [right, wrong])[0], whole)
        assert compared[head] == pytest.approx(first - second, abs=1e-3)
    assert max(map(abs, alone.values())) > 0.01


@pytest.mark.medium
def test_examples_are_those_that_one_head_decides(run):
    run = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=4))
    words = ["der", "Hund", "sieht", "den", "Kater"]
    targets = [(" ".join(words), " ".join(words[place:] + words[:place])) for place in (1, 2, 3, 4)]
    pairs = [(source, *pair[::way]) for source in TEXTS for pair in targets for way in (1, -1)]
    columns = ("source", "target", "contrast", "phenomenon")
    rows = Dataset.from_list([dict(zip(columns, (*pair, "order"), strict=True)) for pair in pairs])
    found = chosen_sentences(run, rows, 10)
    assert 0 < len(found) <= 10
    for each in found:
        for off, right in (({}, True), ({each["head"]: 0.0}, False)):
            with Heads(run.model).gated(off):
                scores = run.scorer.score([each["source"]] * 2, [each["target"], each["contrast"]])[0]
            assert (scores[0] > scores[1]) == right
    same = rows.map(lambda row: {"contrast": row["target"]})  # which no head decides
    assert [each.get("head") for each in chosen_sentences(run, same, 3)] == [None] * 3


def test_shared_weights_are_kept_once():
    tensors, matrix = Tensors("float32"), torch.randn(6, 5)
    assert [tensors.add(matrix), tensors.add(matrix[0]), tensors.add(matrix)] == [0, 1, 0]
    assert [(each["rows"], each["columns"]) for each in tensors.packed] == [(6, 5), (1, 5)]


def test_nothing_of_a_run_becomes_markup_and_no_network_is_used(run):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{ script }}"
    page = rendered(content(run, "int8", [{"source": evil, "target": "<!--"}]) | {"name": evil})
    elements = re.findall(r"<(?:script|img)\b[^>]*>", page)
    assert elements == ['<script type="application/json" id="data">', "<script>"]
    assert "&lt;img src=x" in re.search(r"<title>(.*)</title>", page)[1]
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data)["examples"][0]["source"] == evil
    assert not re.search(r"innerHTML|https?:|\bsrc=(?!x)|\bhref=|url\(|@import|fetch\(", page.replace(data, ""))


@pytest.mark.medium
def test_the_command_writes_one_file_with_examples(home, tmp_path):
    """In a process of its own, as a person runs it."""
    words = ["format=page", "run=runs/first", f"output={tmp_path / 'page.html'}", "examples=3"]
    environment = {"PYTHONPATH": str(SCRIPTS.parent / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "headcount", "export", *words], cwd=home, env=environment, check=True)
    data = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text("utf-8"))[1])
    assert data["name"] == "first"
    assert len(data["tokenizers"]) == 1
    assert len(data["examples"]) == 3
    assert all(set(example) == {"source", "target"} for example in data["examples"])
