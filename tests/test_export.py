"""Exports: CTranslate2 and transformers themselves give the translations and log-probabilities of the run."""

import json
import re
import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import torch.nn.functional as F
import yaml
from built import built, random_model, sentence_piece
from clauses import CLAUSES
from conftest import command, completed, failed, refused, rewrite
from omegaconf import OmegaConf

from headcount.data.tokenizer import BOS, EOS, TokenizerPair, normalise
from headcount.decoding.beam import greedy
from headcount.decoding.translator import Translator
from headcount.errors import InputError
from headcount.export.attention import Shape, in_shape
from headcount.export.card import escaped, model_card
from headcount.export.folder import write_folder
from headcount.heads.interface import Heads
from headcount.model.attention import TokenPositions
from headcount.report.attention_maps import attention_maps
from headcount.run.arrays import write_arrays
from headcount.run.opened import make_translator, open_run, weights_digest

ctranslate2 = pytest.importorskip("ctranslate2")

from headcount.export.engine import with_ctranslate2  # noqa: E402 - after the package that it needs

TEXTS = [source for source, _ in CLAUSES[::17]][:20]
ENOUGH = {"max_ratio": 10.0, "max_extra": 10}  # of tokens: no translation is cut
MODELS = {
    "default": {"num_heads": 2},
    "post": {"num_heads": 4, "norm": "post", "feed_forward": "gelu", "embedding_scale": 1.0},
    "uneven": {"num_heads": [1, 3], "cross_heads": [0, 2], "head_size": 4},
    "sizes": {"encoder_heads": [1, 4], "num_heads": 2, "positions": "rotary", "feed_forward": "swiglu", "kv_heads": 1},
    "learned": {"num_heads": 4, "positions": "learned", "max_positions": 40, "tied_embeddings": False, "kv_heads": 2},
    "wide": {"num_heads": 3, "head_size": 8, "embedding_scale": 2.0, "norm": "post"},
    "unscaled": {"num_heads": 2, "self_attention": "luong_dot", "cross_attention": "luong_dot"},
}
FOR_TRANSFORMERS = ("default", "post", "uneven", "unscaled")


def with_model(run, model, tokenizer=None):
    tokenizer = tokenizer or run.tokenizer
    translator = make_translator(model, tokenizer, run.translator.search, False)
    return replace(run, model=model, tokenizer=tokenizer, translator=translator)


@pytest.fixture
def run(home):
    return open_run(home / "runs" / "first", device="cpu", search=ENOUGH)


def exported(run, folder: Path, format: str = "ctranslate2", **changes) -> Path:
    settings = {"format": format, "quantization": "float32", "max_positions": 64} | changes
    return write_folder(run, output=str(folder / format), **settings)


def pair_of(text: Path) -> TokenizerPair:
    lines = {side: (text / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")}
    return TokenizerPair(*(sentence_piece(size).train(lines[side]) for side, size in (("en", 290), ("de", 300))))


def pieces(tokenizer, texts):
    return [[tokenizer.vocabulary[number] for number in ids] for ids in tokenizer.encode(texts)]


def by_greedy(run):
    return replace(run, translator=make_translator(run.model, run.tokenizer, greedy(run.translator.search), False))


@pytest.mark.medium
@pytest.mark.parametrize("name", MODELS)
def test_ctranslate2_gives_the_log_probabilities_of_the_run(name, run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, **MODELS[name]))
    engine = ctranslate2.Translator(str(exported(run, tmp_path)), intra_threads=1)
    targets = TEXTS[::-1]
    sides = (pieces(getattr(run.tokenizer, side), texts) for side, texts in (("source", TEXTS), ("target", targets)))
    found = [sum(each.log_probs) for each in engine.score_batch(*sides)]
    np.testing.assert_allclose(found, run.scorer.score(TEXTS, targets)[0], rtol=1e-4)


@pytest.mark.medium
def test_separate_vocabularies(run, text, tmp_path):
    pair = pair_of(text)
    model = random_model(300, num_heads=2, source_vocab_size=290, norm="post")
    test_of = with_model(run, model, pair)
    engine = ctranslate2.Translator(str(exported(test_of, tmp_path)), intra_threads=1)
    (found,) = engine.score_batch(pieces(pair.source, TEXTS[:1]), pieces(pair.target, ["der Hund"]))
    np.testing.assert_allclose(sum(found.log_probs), test_of.scorer.score(TEXTS[:1], ["der Hund"])[0], rtol=1e-4)


@pytest.mark.medium
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_engine_finds_the_translations_and_scores_of_the_search(alpha, beam, home):
    run = open_run(home / "runs" / "first", device="cpu", search=ENOUGH | {"beam": beam, "alpha": alpha})
    found, expected = (each.translator.nbest(["", *TEXTS], 1) for each in (with_ctranslate2(run), run))
    assert [each[0].text for each in found] == [each[0].text for each in expected]
    np.testing.assert_allclose([each[0].score for each in found], [each[0].score for each in expected], atol=1e-4)


@pytest.mark.medium
def test_the_engine_gives_as_many_translations_as_it_is_asked_for(run):
    found, expected = (each.translator.nbest(TEXTS, 3) for each in (with_ctranslate2(run), run))
    assert [[each.text for each in best] for best in found] == [[each.text for each in best] for best in expected]


@pytest.mark.medium
def test_the_engine_passes_by_no_gate_and_no_hook_in_silence(run):
    translator, heads = with_ctranslate2(run).translator, Heads(run.model)
    for context in (heads.gated({"cross1.1": 0}), heads.recorded()):
        with context, pytest.raises(InputError, match="gates and hooks do not act in it"):
            translator.translate(TEXTS)


@pytest.mark.medium
def test_greedy_translations_end_where_headcount_lets_them_end(run):
    """Random weights never end a sentence."""
    model = random_model(run.tokenizer.vocab_size, num_heads=2)
    endless = by_greedy(with_model(run, model))
    assert with_ctranslate2(endless).translator.translate(TEXTS) == endless.translator.translate(TEXTS)


@pytest.mark.medium
@pytest.mark.parametrize("tight", [False, True])
def test_sources_of_different_lengths_share_a_batch_but_not_their_limits(tight, home, monkeypatch):
    limits = {"max_ratio": 0.6, "max_extra": 1} if tight else ENOUGH
    run = open_run(home / "runs" / "first", device="cpu", search=limits)
    translator = with_ctranslate2(run).translator
    alone = [translator.nbest([text], 3)[0] for text in TEXTS]
    searched, search = [], translator._search
    monkeypatch.setattr(
        translator, "_search", lambda count, *batch: searched.append(len(batch[0])) or search(count, *batch)
    )
    again, own_search = [], Translator._search
    monkeypatch.setattr(
        Translator,
        "_search",
        lambda self, count, *batch: again.append(len(batch[0])) or own_search(self, count, *batch),
    )
    found = translator.nbest(TEXTS, 3)
    assert (sum(again) > 3) == tight  # those that reach their limit
    assert tight or not again
    for expected in (alone, run.translator.nbest(TEXTS, 3)):
        assert [[one.text for one in each] for each in found] == [[one.text for one in each] for each in expected]
        for each, best in zip(found, expected, strict=True):
            np.testing.assert_allclose([one.score for one in each], [one.score for one in best], atol=1e-4)
    assert len({len(ids) for ids in translator.codec.encode(TEXTS)}) > 3
    assert max(searched) > len(TEXTS) / 4
    assert sum(searched) == len(TEXTS)


MIXED = [*TEXTS[:6], *(" ".join(TEXTS[at : at + 4]) for at in range(0, 16, 2)), " ".join(TEXTS[:1] * 20)]


@pytest.mark.medium
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("exponent", [1e-6, 1.0, 6.0])
def test_translations_depend_neither_on_other_lines_nor_on_the_rank_that_the_engine_gives(
    exponent, count, home, monkeypatch
):
    """Its exponent is that of a length, which is not that of every translation in a batch."""
    run = open_run(home / "runs" / "first", device="cpu", search=ENOUGH)
    translator = with_ctranslate2(run).translator
    monkeypatch.setattr(translator, "penalty", lambda length: exponent)
    together, ours = (each.nbest(MIXED, count) for each in (translator, run.translator))
    alone = [translator.nbest([text], count)[0] for text in MIXED[5:8]]
    texts = [[[one.text for one in each] for each in found] for found in (together, ours, alone)]
    assert texts[0] == texts[1]
    assert texts[0][5:8] == texts[2]


def test_the_engine_leaves_torch_its_threads(run):
    """By which the translator has several batches searched at once."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with_ctranslate2(run).translator.translate(TEXTS)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_sources_longer_than_their_translations(home):
    run = open_run(home / "runs" / "first", device="cpu", search={"max_ratio": 0.1, "max_extra": 3, "max_source": 40})
    once, texts = by_greedy(run), [" ".join(TEXTS)[:80]]
    assert len(run.tokenizer.source.encode(texts)[0]) > run.translator.search.limit(40) + 2
    assert with_ctranslate2(once).translator.translate(texts) == once.translator.translate(texts)


@pytest.mark.medium
def test_a_source_beyond_the_table_of_positions_is_one_line(run, monkeypatch):
    model = random_model(run.tokenizer.vocab_size, num_heads=2)  # positions=sinusoidal
    search = replace(run.translator.search, max_source=None, max_ratio=1.0)
    any_length = replace(run, model=model, translator=make_translator(model, run.tokenizer, search, False))
    monkeypatch.setattr("headcount.export.engine.LONGEST", 12)
    translator = with_ctranslate2(any_length).translator
    text = " ".join(TEXTS * 3)
    assert translator.translate(["a"]) == any_length.translator.translate(["a"])
    with pytest.raises(InputError, match=r"pieces, more than search.max_source=12; cut it into sentences, or raise"):
        translator.translate([text])


def test_a_precision_that_the_machine_lacks_is_one_line(run, monkeypatch):
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: {"float32", "int8", "int16"})
    with pytest.raises(InputError, match=r"precision=bfloat16: CTranslate2 .* machine; give one of float32, int8$"):
        with_ctranslate2(run, "bfloat16")


@pytest.mark.medium
def test_weights_that_are_no_numbers_are_one_line(run):
    model = random_model(run.tokenizer.vocab_size, num_heads=2)
    model.output.weight.data[:] = float("nan")
    with pytest.raises(InputError, match="its probabilities are not finite numbers"):
        with_ctranslate2(with_model(run, model)).translator.translate(TEXTS)


def test_int8_is_near_the_run(run, tmp_path):
    folder = exported(run, tmp_path, quantization="int8")
    engine = ctranslate2.Translator(str(folder), intra_threads=1, compute_type="int8")
    sides = (pieces(getattr(run.tokenizer, side), TEXTS) for side in ("source", "target"))
    found = np.array([sum(each.log_probs) for each in engine.score_batch(*sides)])
    expected = np.array(run.scorer.score(TEXTS, TEXTS)[0])
    assert 0 < np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    assert (folder / "model.bin").stat().st_size < 0.6 * (exported(run, tmp_path / "b") / "model.bin").stat().st_size


def measured(run, folder: Path, right, heads=("cross1.1", "cross1.2")):
    """A copy of the run whose cross heads link so many words rightly."""
    shutil.copytree(run.directory, folder)
    (folder / "heads").mkdir()
    arrays = np.zeros((1, 2, len(right), 2), dtype=np.int16)
    arrays[0, 0, :, 0] = right
    arrays[0, 1, 0] = 99  # by norm, and after the word: not what an engine returns
    names = {"head": heads, "view": ["weight", "norm"], "when": ["before", "after"]}
    names |= {"valid.right": arrays, "valid.targets": [10], "weights": weights_digest(run.model, torch.bfloat16)}
    write_arrays(folder / "heads" / "gold.npz", names)
    return open_run(folder, device="cpu")


@pytest.mark.medium
@pytest.mark.parametrize(("right", "head"), [([3, 7], 1), ([7, 3], 0)])
def test_the_engine_returns_the_attention_of_the_head_that_aligns_best(right, head, run, tmp_path):
    run = measured(run, tmp_path / "run", right)
    folder = exported(run, tmp_path)
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    source = pieces(run.tokenizer, TEXTS[:1])
    result = engine.translate_batch(source, beam_size=1, return_attention=True)[0]
    target = run.tokenizer.decode([[run.tokenizer.vocabulary.index(piece) for piece in result.hypotheses[0]]])[0]
    (maps,) = [layer for layer in attention_maps(run, TEXTS[0], target).layers if layer.kind == "cross"]
    np.testing.assert_allclose(
        result.attention[0], maps.weights[head, : len(result.hypotheses[0]), : len(source[0])], atol=1e-5
    )
    assert f"head cross1.{head + 1}: on the validation set it links 70.0 %" in (folder / "README.md").read_text()


def test_the_engine_returns_the_attention_of_the_last_layer_that_has_cross_heads(run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=2, cross_heads=[2, 0], head_size=8))
    engine = ctranslate2.Translator(str(exported(run, tmp_path)), intra_threads=1)
    source = pieces(run.tokenizer, TEXTS[:1])
    result = engine.translate_batch(source, beam_size=1, return_attention=True, max_decoding_length=1)[0]
    cross = run.model.attention_weights(*(torch.tensor([each]) for each in given(run, source[0]))).cross[0]
    np.testing.assert_allclose(result.attention[0], cross[0].mean(0)[:1, : len(source[0])].detach(), atol=1e-5)


def given(run, source):
    """Ids and mask of a source, and the beginning of its translation."""
    ids = [*(run.tokenizer.source.vocabulary.index(piece) for piece in source), EOS]
    return ids, [True] * len(ids), [BOS]


def test_results_of_other_heads_are_refused(run, tmp_path):
    run = measured(run, tmp_path / "run", [1, 2, 3])
    with pytest.raises(InputError, match="is of other heads than the run has; remove it"):
        exported(run, tmp_path)
    assert not (tmp_path / "ctranslate2").exists()


def pipeline_of(folder: Path):
    """Translation with transformers alone."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)

    def translate(texts, **settings):
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        return tokenizer.batch_decode(model.generate(**inputs, **settings), skip_special_tokens=True)

    def log_probs(texts, targets):
        inputs, labels = (
            tokenizer(texts, return_tensors="pt", padding=True),
            tokenizer(text_target=targets)["input_ids"],
        )
        found = []
        for row, label in enumerate(labels):
            one = {name: each[row : row + 1] for name, each in inputs.items()}
            with torch.inference_mode():
                logits = model(**one, labels=torch.tensor([label])).logits[0]
            found.append(float(logits.log_softmax(-1)[range(len(label)), label].sum()))
        return found

    return translate, log_probs


def test_transformers_translates_as_the_run_does(run, tmp_path):
    translate, _ = pipeline_of(exported(run, tmp_path, "huggingface"))
    assert translate(TEXTS, num_beams=1) == by_greedy(run).translator.translate(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOR_TRANSFORMERS)
def test_transformers_gives_the_log_probabilities_of_the_run(name, run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, **MODELS[name]))
    _, log_probs = pipeline_of(exported(run, tmp_path, "huggingface"))
    expected = run.scorer.score(TEXTS[:5], TEXTS[5:10])[0]
    np.testing.assert_allclose(log_probs(TEXTS[:5], TEXTS[5:10]), expected, rtol=1e-4)


@pytest.mark.slow
def test_transformers_has_separate_vocabularies(run, text, tmp_path):
    pair = pair_of(text)
    run = with_model(run, random_model(300, num_heads=2, source_vocab_size=290, norm="post"), pair)
    _, log_probs = pipeline_of(exported(run, tmp_path, "huggingface"))
    np.testing.assert_allclose(
        log_probs(TEXTS[:1], ["der Hund"]), run.scorer.score(TEXTS[:1], ["der Hund"])[0], rtol=1e-4
    )


EVERYTHING = {
    "num_heads": 4,
    "local_heads": 1,
    "qk_norm": "fixed",
    "logit_cap": 4.0,
    "cross_attention": "additive",
    "positions": "rotary",
    "feed_forward": "swiglu",
    "tied_embeddings": False,
    "embedding_scale": 2.0,
    "encoder_heads": [4, 1],
}
BOTH = ["model.local_heads=1", "model.qk_norm", "model.cross_attention is Additive", "model.logit_cap=4"]
TRANSFORMERS_ALONE = ["model.positions=rotary", "feed_forward=swiglu", "norm=pre", "embedding_scale=2", "head_size"]


@pytest.mark.parametrize(("format", "reasons"), [("ctranslate2", BOTH), ("huggingface", BOTH + TRANSFORMERS_ALONE)])
def test_all_reasons_are_in_one_error(format, reasons, run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, **EVERYTHING))
    run.translator.hide_source = True
    with pytest.raises(InputError) as error:
        exported(run, tmp_path, format, quantization="int3", max_positions=1)
    lines = str(error.value).splitlines()
    reasons = [
        *reasons,
        "data.hide_source=true",
        "quantization=int3: must be one of float32",
        "max_positions=1: must be 2",
    ]
    assert all(any(reason in line for line in lines) for reason in reasons), lines
    assert len(lines) == len(reasons)
    assert all("train with" in line or "must be" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_a_recurrent_model_cannot_be_exported(run, tmp_path):
    run = with_model(run, built("model/rnn", vocab_size=run.tokenizer.vocab_size))
    for format in ("ctranslate2", "huggingface"):
        with pytest.raises(InputError, match=r"its model is Recurrent: .* train with model=nano"):
            exported(run, tmp_path, format)


@pytest.mark.medium
def test_the_command(home, tmp_path):
    shutil.copytree(home / "runs" / "first", tmp_path / "run")
    for format in ("ctranslate2", "huggingface"):
        completed("export", "run=run", f"format={format}", cwd=tmp_path)
        assert (tmp_path / "run" / format / "README.md").exists()
        (line,) = refused("export", "run=run", f"format={format}", cwd=tmp_path)
        assert line == f"output=run/{format}: is there already; move it away, or give another"
    (line,) = refused("export", "run=run", "format=onnx", cwd=tmp_path)
    assert line == "format=onnx: must be one of ctranslate2, huggingface"
    (line,) = refused("export", "run=run", "max_positions=x", cwd=tmp_path)
    assert line == "max_positions=x: must be a whole number"


SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


def translated(folder, *settings, source=SOURCE):
    return command("translate", "run=runs/first", *settings, stdin=source.encode(), cwd=folder)


@pytest.mark.medium
@pytest.mark.parametrize("settings", [(), ("search=greedy",), ("nbest=2",)])
def test_translate_gives_the_same_lines_with_either_engine(settings, home):
    ours, theirs = (
        translated(home, "search.max_ratio=10", *settings, f"engine={engine}")
        for engine in ("headcount", "ctranslate2")
    )
    assert (ours.code, theirs.code) == (0, 0)
    for one, other in zip(ours.out.splitlines(), theirs.out.splitlines(), strict=True):
        *text, score = one.split(" ||| ")
        *same, close = other.split(" ||| ")
        assert text == same
        assert text or score == close
        assert not text or abs(float(score) - float(close)) < 1e-4


@pytest.mark.medium
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["search=sample"], "search: engine=ctranslate2 has beam search alone, not Sampling; give search=beam"),
        (["search=beam", "search.alpha=1000"], "search.alpha=1000: must be 0 (no length penalty) or more, up to 10"),
        (["precision=int3"], "precision=int3: must be one of float32, bfloat16, int8 for engine=ctranslate2"),
        (["run=[runs/first,runs/second]"], "engine=ctranslate2: translates with one run, not with several"),
        (["search.max_source=2"], "standard input, line 1: 8 pieces, more than search.max_source=2; cut it"),
    ],
)
def test_the_engine_refuses_what_it_cannot_do(settings, line, home):
    result = translated(home, "engine=ctranslate2", *settings)
    assert (result.code, result.out) == (2, "")
    assert any(line in error for error in result.errors), result.errors


@pytest.mark.medium
@pytest.mark.parametrize("name", ["translate", "serve"])
def test_an_engine_that_does_not_exist(name, home):
    assert failed(name, "run=runs/first", "engine=fast", cwd=home) == ["engine=fast: must be headcount or ctranslate2"]


@pytest.mark.parametrize("name", ["translate", "serve"])
def test_a_precision_that_the_other_engine_has(name, home):
    line = "precision=int8: must be float32 or bfloat16, or add engine=ctranslate2"
    assert failed(name, "run=runs/first", "precision=int8", cwd=home) == [line]


@pytest.mark.medium
@pytest.mark.parametrize("words", [("export",), ("translate", "engine=ctranslate2"), ("serve", "engine=ctranslate2")])
def test_an_engine_that_is_not_installed_is_one_line(words, home, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == "ctranslate2" or name in ("headcount.export.ctranslate2", "headcount.export.engine"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    (line,) = refused(words[0], "run=runs/first", *words[1:], cwd=home)
    assert line.startswith("ctranslate2 is not installed")
    assert 'pip install "headcount[export]"' in line


def card_of(folder: Path) -> tuple[dict, str]:
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


def test_the_model_card_has_the_figures_of_the_run(run, tmp_path):
    front, body = card_of(exported(run, tmp_path))
    metrics = json.loads((run.directory / "metrics.json").read_text())
    assert front["language"] == ["en", "de"]
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == round(metrics["test"]["bleu"], 2)
    assert metrics["test"]["signature"]["bleu"] in result["metrics"][0]["name"]
    assert f"| test | {metrics['test']['bleu']:.2f} | {metrics['test']['chrf']:.2f} |" in body
    assert escaped(metrics["test"]["signature"]["bleu"]) in body
    assert f"{metrics['train']['steps']} steps" in body
    assert escaped(metrics["hardware"]["processor"]) in body
    assert "d_feed_forward: 16" in body
    assert str(run.config.data.directory) not in body


@pytest.mark.medium
def test_the_figures_of_other_weights_are_not_in_the_card(run, tmp_path):
    shutil.copytree(run.directory, tmp_path / "run")
    shutil.copy(run.directory / "model.safetensors", tmp_path / "other.safetensors")
    other, own = (
        open_run(tmp_path / "run", tmp_path / checkpoint, device="cpu")
        for checkpoint in ("other.safetensors", "run/model.safetensors")
    )
    front, body = card_of(exported(other, tmp_path))
    assert "model-index" not in front
    assert body.count("None: these are the weights of other.safetensors.") == 2
    assert "BLEU" not in body
    assert "seconds of training" not in body
    assert "model-index" in card_of(exported(own, tmp_path / "own"))[0]


PLACES = {"tests": {"news": {"source": "/home/anna/news.en", "target": "/home/anna/b"}}, "path": "/home/anna/corpus"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ["trained from scratch", "trained on the same text"]),
        ({"init_from": "/home/anna/a"}, ["fine-tuned from a run", "that of the run", "init_from: a\n"]),
        ({"pruned": {"run": "runs/a", "cut": ["cross1.1"]}}, ["cut from a run", "run: runs/a", "- cross1.1"]),
    ],
)
def test_the_card_tells_where_the_weights_come_from_but_no_places_of_the_machine(settings, words, run, tmp_path):
    shutil.copytree(run.directory, tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    changed = config | settings | {"data": config["data"] | PLACES, "segmentation": {"files": ["/home/anna/c"]}}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(changed))
    opened = replace(run, directory=tmp_path / "run", config=OmegaConf.create(changed))
    card = model_card(opened, "ctranslate2", "float32", 64)
    assert all(word in card for word in [*words, "source: news.en", "- c\n", "test set of corpus"]), card
    assert ("trained from scratch" in card) == (not settings)
    assert "/home" not in card


@pytest.mark.medium
def test_the_program_of_the_card_translates_all_that_the_model_can(run, tmp_path, capsys):
    folder = exported(run, tmp_path)
    _, body = card_of(folder)
    program = textwrap.dedent(body.split("## Use")[1].split("## Data")[0]).replace("DIR", str(folder))
    exec(program.replace("...", TEXTS[0]), {})
    assert capsys.readouterr().out.strip() == run.translator.translate(TEXTS[:1])[0]
    assert "max_decoding_length=63,\n        max_input_length=0," in body
    assert "A sentence may have 64 tokens at most." in body
    rotary = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=2, positions="rotary"))
    assert "tokens at most" not in model_card(rotary, "ctranslate2", "float32", 64)


ODD = ("the\u00a0dog", "the\tdog", "the\u3000dog", "the\u2009dog", "the \u2581 dog", "the\u200bdog", "the \ud800 dog")
ODD += ("the do\u0308g", "  the  dog ", "the dog\x85sees\u2028it", ">>the dog<< sees", "the <0x41> dog")
ODD += ("the </s> dog", "the <unk> dog", "<pad> the dog", "the dog <s>", ">> the dog << sees >>x<<")


def program_of(folder: Path) -> dict:
    """What the program of the card defines before it reads the model."""
    program = textwrap.dedent(card_of(folder)[1].split("## Use")[1].split("## Data")[0])
    names: dict = {}
    exec("import unicodedata\n" + program[program.index("def normal") :].split("\n\n")[0], names)
    return names


@pytest.mark.parametrize("format", ["ctranslate2", "huggingface"])
def test_the_card_makes_text_what_headcount_reads(format, run, tmp_path):
    folder = exported(run, tmp_path, format)
    normal = program_of(folder)["normal"]
    model = folder / ("tokenizer.model" if format == "ctranslate2" else "source.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    space = " " if format == "huggingface" else ""
    for text in ODD:
        assert normal(text) == normalise(text)
        assert processor.encode(space + normal(text)) == run.tokenizer.encode([text])[0], text
    limits = card_of(folder)[1].partition("## Limits")[2].partition("## Recipe")[0]
    words = ["(NFC)", "plain spaces", "U+2581", "lone surrogates", "normal, above"]
    words += [">>", "</s>", "<s>", "<unk>", "<pad>"] * (format == "huggingface")
    assert all(word in limits for word in words)
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


@pytest.mark.slow
def test_transformers_reads_text_as_the_run_does(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = exported(run, tmp_path, "huggingface")
    tokenizer, normal = transformers.AutoTokenizer.from_pretrained(folder), program_of(folder)["normal"]
    ours = run.tokenizer.encode(list(ODD))
    for text, ids in zip(ODD, ours, strict=True):
        assert tokenizer(" " + normal(text)).input_ids == [*ids, EOS], text
    decoded = tokenizer.batch_decode([[BOS, *ids, EOS] for ids in ours], skip_special_tokens=True)
    assert [" ".join(text.removeprefix("<s>").split()) for text in decoded] == run.tokenizer.decode(ours)


def test_the_card_names_the_directions_of_the_scores_and_one_size_of_the_vocabulary(run, tmp_path):
    def card(**data):
        shutil.copytree(run.directory, tmp_path / "run", dirs_exist_ok=True)
        config = yaml.safe_load((run.directory / "config.yaml").read_text())
        config["data"] |= data
        (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
        return model_card(replace(run, directory=tmp_path / "run"), "ctranslate2", "float32", 64)

    both = "Train and valid, and its scores, have both directions; test sets have en to de alone."
    assert both in card(both_directions=True, vocab_size=12345)
    assert both not in card()
    assert "12345" not in card(vocab_size=12345)


EVIL = "</p><script>alert(1)</script> [x](javascript:1) `` | # *a* \n---\n# b"


@pytest.mark.medium
def test_text_of_others_cannot_become_markup_of_the_card(run, tmp_path):
    shutil.copytree(run.directory, tmp_path / "run")
    metrics = {"test": {"bleu": EVIL, "chrf": 5.0, "signature": {"chrf": EVIL}, "contrastive": {EVIL: {EVIL: EVIL}}}}
    metrics |= {"hardware": {"processor": EVIL}, "versions": {"headcount": EVIL}, EVIL: {"bleu": 1.0}, "train": EVIL}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    rewrite(tmp_path / "run" / "config.yaml", lambda text: f"{text}{yaml.safe_dump({'segmentation': {'evil': EVIL}})}")
    run = open_run(tmp_path / "run", device="cpu")
    front, body = card_of(exported(run, tmp_path))
    assert front["model-index"][0]["results"][0]["metrics"][0]["value"] == 5.0
    text = [line for line in body.splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"(?<!\\)[<`*\[]", line) for line in text if "return_attention" not in line), text
    assert "evil: " in body


def test_one_head_for_all_shapes(run):
    """A head of zeros, and numbers of zeros, change nothing: compared with the attention itself."""
    model = random_model(run.tokenizer.vocab_size, num_heads=[1, 2], head_size=3)
    part = model.encoder[1].self_attention
    x = torch.randn(1, 4, 16)
    with torch.no_grad():
        query, key, value, output = in_shape(part, Shape(5, 4), first=1)
        q, k, v = (F.linear(x, *each).unflatten(2, (5, 4)).transpose(1, 2) for each in (query, key, value))
        weights = (q @ k.mT / 2).softmax(-1)
        found = F.linear((weights @ v).transpose(1, 2).flatten(2), *output)
        positions = TokenPositions(torch.arange(4), torch.arange(4), None)
        expected = part(x, part.project(x), None, positions, need_weights=True)
    torch.testing.assert_close(found, expected.output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weights[0, :2], expected.weights[0].flip(0), atol=1e-6, rtol=1e-5)
