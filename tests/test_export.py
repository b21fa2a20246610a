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
import yaml
from built import built, random_model, sentence_piece
from clauses import CLAUSES
from conftest import command, failed, refused
from omegaconf import OmegaConf

from headcount.commands.export import export
from headcount.data.tokenizer import BOS, EOS, TokenizerPair, normalise
from headcount.decoding.beam import greedy
from headcount.errors import InputError
from headcount.export.card import model_card
from headcount.heads.interface import Heads
from headcount.run.opened import make_translator, open_run

ctranslate2 = pytest.importorskip("ctranslate2")

from headcount.export.engine import with_ctranslate2  # noqa: E402 - after the package that it needs

TEXTS = [source for source, _ in CLAUSES[::17]][:20]
ENOUGH = {"max_ratio": 10.0, "max_extra": 10}  # of tokens: no translation is cut
MODELS = {
    "post": {"num_heads": 4, "norm": "post", "feed_forward": "gelu", "embedding_scale": 1.0},
    "uneven": {"num_heads": [1, 3], "cross_heads": [0, 2], "head_size": 4},
    "sizes": {"encoder_heads": [1, 4], "num_heads": 2, "positions": "rotary", "feed_forward": "swiglu", "kv_heads": 1},
    "learned": {"num_heads": 4, "positions": "learned", "max_positions": 40, "tied_embeddings": False, "kv_heads": 2},
    "unscaled": {"num_heads": 2, "self_attention": "luong_dot", "cross_attention": "luong_dot", "embedding_scale": 2.0},
}


def with_model(run, model, tokenizer=None):
    tokenizer = tokenizer or run.tokenizer
    translator = make_translator(model, tokenizer, run.translator.search)
    return replace(run, model=model, tokenizer=tokenizer, translator=translator)


@pytest.fixture
def run(home):
    return open_run(home / "runs" / "first", device="cpu", search=ENOUGH)


def exported(run, folder: Path, format: str = "ctranslate2", quantization: str | None = None) -> Path:
    settings = {"format": format, "quantization": quantization, "max_positions": 64, "output": str(folder / format)}
    return export(run, settings)


def pair_of(run, text: Path):
    """The run with a vocabulary for each language, and a random model."""
    lines = {side: (text / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")}
    pair = TokenizerPair(*(sentence_piece(size).train(lines[side]) for side, size in (("en", 290), ("de", 300))))
    return with_model(run, random_model(300, num_heads=2, source_vocab_size=290, norm="post"), pair)


def pieces(tokenizer, texts):
    return [[tokenizer.vocabulary[number] for number in ids] for ids in tokenizer.encode(texts)]


def by_ctranslate2(run, folder: Path, sources, targets, **settings):
    """Log-probabilities by the engine alone, from an exported folder."""
    engine = ctranslate2.Translator(str(folder), intra_threads=1, **settings)
    found = engine.score_batch(pieces(run.tokenizer.source, sources), pieces(run.tokenizer.target, targets))
    return [sum(each.log_probs) for each in found]


@pytest.mark.medium
@pytest.mark.parametrize("name", [*MODELS, "separate vocabularies"])
def test_ctranslate2_gives_the_log_probabilities_of_the_run(name, run, text, tmp_path):
    own = MODELS.get(name)
    run = with_model(run, random_model(run.tokenizer.vocab_size, **own)) if own else pair_of(run, text)
    found = by_ctranslate2(run, exported(run, tmp_path), TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(found, run.scorer.score(TEXTS, TEXTS[::-1])[0], rtol=1e-4)


@pytest.mark.medium
def test_int8_is_near_the_run(run, tmp_path):
    folder = exported(run, tmp_path, quantization="int8")
    found = np.array(by_ctranslate2(run, folder, TEXTS, TEXTS, compute_type="int8"))
    expected = np.array(run.scorer.score(TEXTS, TEXTS)[0])
    assert 0 < np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    assert (folder / "model.bin").stat().st_size < 0.6 * (exported(run, tmp_path / "b") / "model.bin").stat().st_size


def agree(found, expected):
    assert [[one.text for one in each] for each in found] == [[one.text for one in each] for each in expected]
    for each, best in zip(found, expected, strict=True):
        np.testing.assert_allclose([one.score for one in each], [one.score for one in best], atol=1e-4)


@pytest.mark.medium
@pytest.mark.parametrize(("alpha", "beam", "count"), [(0.0, 1, 1), (0.0, 5, 1), (0.6, 2, 1), (1.0, 5, 1), (1.0, 5, 3)])
def test_the_engine_finds_the_translations_and_scores_of_the_search(alpha, beam, count, home):
    run = open_run(home / "runs" / "first", device="cpu", search=ENOUGH | {"beam": beam, "alpha": alpha})
    found, expected = (each.translator.nbest(["", *TEXTS], count) for each in (with_ctranslate2(run), run))
    agree(found, expected)


@pytest.mark.medium
@pytest.mark.parametrize("limits", [{"max_ratio": 0.6, "max_extra": 1}, ENOUGH])
def test_a_translation_depends_on_its_own_limit_and_on_no_other_line(limits, home):
    run = open_run(home / "runs" / "first", device="cpu", search=limits)
    texts = [*TEXTS[:6], *(" ".join(TEXTS[at : at + 4]) for at in range(0, 16, 2)), " ".join(TEXTS[:1] * 20)]
    translator = with_ctranslate2(run).translator
    together = translator.nbest(texts, 1)
    agree(together, [translator.nbest([text], 1)[0] for text in texts])
    agree(together, run.translator.nbest(texts, 1))


@pytest.mark.medium
def test_greedy_translations_end_where_headcount_lets_them_end(run):
    """Random weights never end a sentence. The engine leaves torch its threads: batches are searched at once."""
    run = with_model(run, random_model(run.tokenizer.vocab_size, num_heads=2))
    run = replace(run, translator=make_translator(run.model, run.tokenizer, greedy(run.translator.search)))
    torch.set_num_threads(2)
    assert with_ctranslate2(run).translator.translate(TEXTS) == run.translator.translate(TEXTS)
    assert torch.get_num_threads() == 2


@pytest.mark.medium
def test_what_the_engine_cannot_do_is_one_line_and_never_silence(run, monkeypatch):
    translator, heads = with_ctranslate2(run).translator, Heads(run.model)
    for context in (heads.gated({"cross1.1": 0}), heads.recorded()):
        with context, pytest.raises(InputError, match="gates and hooks do not act in it"):
            translator.translate(TEXTS)
    model = random_model(run.tokenizer.vocab_size, num_heads=2)  # positions=sinusoidal
    search = replace(run.translator.search, max_source=None)
    monkeypatch.setattr("headcount.export.engine.LONGEST", 12)
    any_length = replace(run, model=model, translator=make_translator(model, run.tokenizer, search))
    with pytest.raises(InputError, match=r"subwords, more than search.max_source=12; cut it into sentences, or raise"):
        with_ctranslate2(any_length).translator.translate([" ".join(TEXTS * 3)])
    model.output.weight.data[:] = float("nan")
    with pytest.raises(InputError, match="its probabilities are not finite numbers"):
        with_ctranslate2(with_model(run, model)).translator.translate(TEXTS)
    with pytest.raises(InputError, match=r"precision=int3: Invalid compute type: int3"):
        with_ctranslate2(run, "int3")


def pipeline_of(folder: Path):
    """Translation with transformers alone."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)

    def translate(texts, **settings):
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        return tokenizer.batch_decode(model.generate(**inputs, **settings), skip_special_tokens=True)

    @torch.inference_mode()
    def log_prob(text, target):
        labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        logits = model(**tokenizer(text, return_tensors="pt"), labels=labels).logits[0]
        return float(logits.log_softmax(-1)[range(labels.shape[1]), labels[0]].sum())

    return translate, log_prob


@pytest.mark.slow
def test_transformers_translates_as_the_run_does(run, tmp_path):
    translate, _ = pipeline_of(exported(run, tmp_path, "huggingface"))
    once = make_translator(run.model, run.tokenizer, greedy(run.translator.search))
    pairs = list(zip(translate(TEXTS, num_beams=1), once.translate(TEXTS), strict=True))
    ended = [pair for pair in pairs if len(run.tokenizer.encode([pair[1]])[0]) < 60]  # others reach the 64 tokens
    assert len(ended) > 5
    assert all(theirs == ours for theirs, ours in ended)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["post", "uneven", "separate vocabularies"])
def test_transformers_gives_the_log_probabilities_of_the_run(name, run, text, tmp_path):
    own = MODELS.get(name)
    run = with_model(run, random_model(run.tokenizer.vocab_size, **own)) if own else pair_of(run, text)
    _, log_prob = pipeline_of(exported(run, tmp_path, "huggingface"))
    found = [log_prob(*pair) for pair in zip(TEXTS[:5], TEXTS[5:10], strict=True)]
    np.testing.assert_allclose(found, run.scorer.score(TEXTS[:5], TEXTS[5:10])[0], rtol=1e-4)


OF_NONE = ("local_heads", "qk_norm", "head_gate", "logit_cap")
EVERYTHING = {
    "num_heads": 4,
    "local_heads": 1,
    "qk_norm": "fixed",
    "head_gate": "head",
    "logit_cap": 4.0,
    "cross_attention": "additive",
    "positions": "rotary",
    "feed_forward": "swiglu",
    "tied_embeddings": False,
    "embedding_scale": 2.0,
    "encoder_heads": [4, 1],
}
LACKING = {"page": ["model.cross_attention is Additive", *(f"model.{name}" for name in OF_NONE)]}
LACKING["ctranslate2"] = LACKING["page"]
OF_TRANSFORMERS = ["model.positions=rotary", "feed_forward=swiglu", "norm=pre", "embedding_scale=2", "head_size"]
LACKING["huggingface"] = [*LACKING["ctranslate2"], *OF_TRANSFORMERS]


@pytest.mark.parametrize("format", LACKING)
def test_all_reasons_are_in_one_error(format, run, tmp_path):
    run = with_model(run, random_model(run.tokenizer.vocab_size, **EVERYTHING))
    with pytest.raises(InputError) as error:
        exported(run, tmp_path, format)
    lines = str(error.value).splitlines()
    assert all(any(reason in line for line in lines) for reason in LACKING[format]), lines
    assert len(lines) == len(LACKING[format])
    assert all("; train with " in line for line in lines)
    rnn = with_model(run, built("model/rnn", vocab_size=run.tokenizer.vocab_size))
    with pytest.raises(InputError, match=r"its model is Recurrent: .* train with model=nano"):
        exported(rnn, tmp_path, format)
    assert not list(tmp_path.iterdir())


@pytest.mark.medium
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["format=onnx"], "format=onnx: must be 'ctranslate2', 'huggingface' or 'page'"),
        (["quantization=int3"], "quantization=int3: must be one of float32, bfloat16"),
        (["format=page", "quantization=float16"], "quantization=float16: must be one of int8, float32 for page"),
        (["max_positions=1"], "max_positions=1: must be greater than or equal to 2"),
        (["format=page", "examples=-1"], "examples=-1: must be greater than or equal to 0"),
        (["run=[runs/first,runs/second]"], "run=[runs/first,runs/second]: must be a valid string"),
        (["output=5"], "output=5: must be a valid string or null"),
        (["format=page", "examples=0", "output=taken/x"], "output=taken/x: can't be written to"),
        (["format=huggingface", "output=taken"], "output=taken: is there already; move it away, or give another"),
    ],
)
def test_impossible_exports_are_one_line(settings, line, home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    (tmp_path / "taken").touch()
    (found,) = refused("export", "run=runs/first", *settings, cwd=tmp_path)
    assert found.startswith(line)


SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


def translated(folder, *settings):
    return command("translate", "run=runs/first", *settings, stdin=SOURCE.encode(), cwd=folder)


@pytest.mark.medium
@pytest.mark.parametrize("settings", [("search=greedy",), ("nbest=2",)])
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
        assert abs(float(score) - float(close)) < 1e-4 if text else score == close


@pytest.mark.medium
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["engine=ctranslate2", "search=sample"], "search: engine=ctranslate2 has beam search alone"),
        (["engine=ctranslate2", "precision=int3"], "precision=int3: must be 'float32', 'bfloat16' or 'int8'"),
        (["engine=ctranslate2", "run=[runs/first,runs/second]"], "engine=ctranslate2: translates with one run"),
        (["engine=fast"], "engine=fast: must be 'headcount' or 'ctranslate2'"),
        (["precision=int8"], "precision=int8: must be float32 or bfloat16, or add engine=ctranslate2"),
    ],
)
def test_the_engine_refuses_what_it_cannot_do(settings, line, home):
    (found,) = failed("translate", "run=runs/first", *settings, cwd=home)
    assert line in found


@pytest.mark.medium
@pytest.mark.parametrize("words", [("export",), ("translate", "engine=ctranslate2")])
def test_an_engine_that_is_not_installed_is_one_line(words, home, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == "ctranslate2" or name == "headcount.export.ctranslate2":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    (line,) = refused(words[0], "run=runs/first", *words[1:], cwd=home)
    assert line == 'ctranslate2 is not installed: pip install "headcount[export]"'


def card_of(folder: Path) -> tuple[dict, str]:
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


@pytest.mark.medium
def test_the_model_card_has_the_figures_of_the_run_and_none_of_other_weights(run, tmp_path):
    front, body = card_of(exported(run, tmp_path))
    metrics = json.loads((run.directory / "metrics.json").read_text())
    assert front["language"] == ["en", "de"]
    figures = [f"bleu: {metrics['test']['bleu']}", metrics["test"]["signature"]["bleu"]]
    figures += [f"steps: {metrics['train']['steps']}", "model.d_feed_forward: 16\n"]
    figures += [metrics["hardware"]["processor"], "may have 64 tokens at most"]
    assert all(figure in body for figure in figures)
    assert str(run.config.data.directory) not in body
    _, body = card_of(exported(replace(run, checkpoint=Path("x/other.safetensors")), tmp_path / "other"))
    assert "None: these weights are of another checkpoint" in body
    assert not any(word in body for word in ("bleu:", "seconds:"))


EVIL = "</p><script>alert(1)</script> [x](javascript:1) `` | # *a* \n---\n# b"


def test_text_of_others_cannot_become_markup_of_the_card_and_no_places_of_the_machine_are_in_it(run, tmp_path):
    shutil.copytree(run.directory, tmp_path / "run")
    metrics = {"test": {"bleu": EVIL, "signature": {"chrf": EVIL}}, "hardware": {"processor": EVIL}, "train": EVIL}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    config = OmegaConf.merge(run.config, {"segmentation": {"evil": EVIL}, "init_from": "/home/anna/a"})
    config.data.merge_with({"path": "/home/anna/corpus", "tests": {"x": "/home/anna/news.en"}})
    card = model_card(replace(run, directory=tmp_path / "run", config=config), "ctranslate2", "int8", 64)
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "ctranslate2"
    lines = [line for line in body.splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"[<`*\[]|^# b", line) for line in lines), lines
    assert all(words in body for words in ["evil: ", "init_from: a\n", "x: news.en", "path: corpus"])
    assert "/home" not in card


ODD = ["the\u00a0dog", "the\tdog", "the\u3000dog", "the\u2009dog", "the \u2581 dog", "the\u200bdog", "the \ud800 dog"]
ODD += ["the do\u0308g", "  the  dog ", "the dog\x85sees\u2028it", ">>the dog<< sees", "the <0x41> dog"]
ODD += ["the </s> dog", "the <unk> dog", "<pad> the dog", "the dog <s>", ">> the dog << sees >>x<<"]


def program_of(folder: Path) -> str:
    """The program of the card."""
    return textwrap.dedent(card_of(folder)[1].split("## Use")[1].split("## Scores")[0]).replace("DIR", str(folder))


def normal_of(folder: Path):
    """What the program of the card does to text before the model reads it."""
    program, names = program_of(folder), {}
    exec("import unicodedata\n" + program[program.index("def normal") :].split("\n\n")[0], names)
    return names["normal"]


@pytest.mark.medium
def test_the_program_of_the_card_translates(run, tmp_path, capsys):
    exec(program_of(exported(run, tmp_path)).replace("...", TEXTS[0]), {})
    assert capsys.readouterr().out.strip() == run.translator.translate(TEXTS[:1])[0]


@pytest.mark.medium
@pytest.mark.parametrize("format", ["ctranslate2", "huggingface"])
def test_the_card_makes_text_what_headcount_reads(format, run, tmp_path):
    folder = exported(run, tmp_path, format)
    normal = normal_of(folder)
    model = folder / ("tokenizer.model" if format == "ctranslate2" else "source.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    space = " " if format == "huggingface" else ""
    for each in ODD:
        assert normal(each) == normalise(each)
        assert processor.encode(space + normal(each)) == run.tokenizer.encode([each])[0], each
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


@pytest.mark.slow
def test_transformers_reads_text_as_the_run_does(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = exported(run, tmp_path, "huggingface")
    tokenizer, normal = transformers.AutoTokenizer.from_pretrained(folder), normal_of(folder)
    ours = run.tokenizer.encode(list(ODD))
    for each, ids in zip(ODD, ours, strict=True):
        assert tokenizer(" " + normal(each)).input_ids == [*ids, EOS], each
    decoded = tokenizer.batch_decode([[BOS, *ids, EOS] for ids in ours], skip_special_tokens=True)
    assert [" ".join(each.removeprefix("<s>").split()) for each in decoded] == run.tokenizer.decode(ours)
