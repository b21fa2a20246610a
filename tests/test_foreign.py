"""Heads of models of transformers: equal to our measurement of our own export, and to slices set to zero by hand."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import composed, random_model
from clauses import CLAUSES
from conftest import completed, failed

import headcount
from headcount.commands.export import export
from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.decoding.search import search_loop
from headcount.errors import InputError
from headcount.heads.ablation import ablation
from headcount.heads.analysis import Analysis, Settings
from headcount.heads.interface import Heads
from headcount.run.opened import make_translator

transformers = pytest.importorskip("transformers")
foreign = pytest.importorskip("headcount.heads.foreign")
foreign_run = pytest.importorskip("headcount.heads.foreign_run")

SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 40}
SMALL |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32}
T5 = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 40, "pad_token_id": 0}
T5 |= {"decoder_start_token_id": 0}
MARIAN = SMALL | {"pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0}
# Name of the class, settings, start, end, and the tokens with which every target begins.
FAMILIES = {
    "marian": ("MarianMTModel", MARIAN, 39, 0, []),
    "bart": ("BartForConditionalGeneration", SMALL, 2, 2, [0]),
    "mbart": ("MBartForConditionalGeneration", SMALL, 2, 2, [20]),
    "m2m100": ("M2M100ForConditionalGeneration", SMALL, 2, 2, [20]),
    "pegasus": ("PegasusForConditionalGeneration", SMALL, 0, 1, []),
    "t5": ("T5ForConditionalGeneration", T5, 0, 1, []),
    "t5 1.1": ("T5ForConditionalGeneration", T5 | {"tie_word_embeddings": False}, 0, 1, []),
    "mt5": ("MT5ForConditionalGeneration", T5, 0, 1, []),
}
KINDS = {
    "encoder": ("encoder", "self_attn", 0, "SelfAttention"),
    "decoder": ("decoder", "self_attn", 0, "SelfAttention"),
}
KINDS |= {"cross": ("decoder", "encoder_attn", 1, "EncDecAttention")}


def random_of(name, settings):
    cls = getattr(transformers, name)
    torch.manual_seed(1)
    model = cls(cls.config_class(**settings)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def projection(model, head):
    """The output projection of a head's attention, found by its names."""
    side, part, place, t5 = KINDS[head.kind]
    stack = getattr(model, "model", model).get_submodule(side)
    if hasattr(stack, "layers"):
        return getattr(stack.layers[head.layer - 1], part).out_proj
    return getattr(stack.block[head.layer - 1].layer[place], t5).o


@pytest.fixture(params=FAMILIES)
def family(request):
    """A small random model, the same for headcount, ids of two pairs of sentences for both."""
    name, settings, start, end, forced = FAMILIES[request.param]
    theirs, model = random_of(name, settings), random_of(name, settings)
    pad = theirs.config.pad_token_id
    adapted = foreign.ForeignModel(model, start, end, end, forced)
    source = torch.tensor([[7, 8, 9, 10, end], [11, 12, end, pad, pad]])
    target = torch.tensor([[start, *forced, 5, 6, 7, 8], [start, *forced, 9, 10, 11, 12]])
    given = {"input_ids": source, "attention_mask": (source != pad).long(), "decoder_input_ids": target}
    ours = (torch.tensor([[11, 12, 13, 14, EOS], [15, 16, EOS, PAD, PAD]]), target + foreign.SHIFT)
    ours[1][:, 0] = BOS
    return theirs, adapted, given, ours, end, len(forced)


def log_probs(adapted, source, target):
    return adapted.output(adapted(source, source != PAD, target)).log_softmax(dim=-1)


@torch.no_grad()
def test_a_head_off_is_its_columns_of_the_projection_at_zero(family):
    theirs, adapted, given, ours, end, first = family
    heads = Heads(adapted)
    whole = log_probs(adapted, *ours)
    places = [foreign.SHIFT + token if token != end else EOS for token in range(whole.shape[-1] - foreign.SHIFT)]
    for head in [None, *heads.names]:
        if head is None:
            found = whole
        else:
            size = heads.layers[head.place].heads.size
            weight = projection(theirs, head).weight
            kept = weight[:, (head.head - 1) * size : head.head * size].clone()
            weight[:, (head.head - 1) * size : head.head * size] = 0
            with heads.off(head):
                found = log_probs(adapted, *ours)
            assert not found.allclose(whole, atol=1e-3)
        expected = theirs(**given).logits.log_softmax(dim=-1)[:, first:]
        torch.testing.assert_close(found[:, first:, places], expected, rtol=0, atol=1e-4)
        if head is not None:
            weight[:, (head.head - 1) * size : head.head * size] = kept
    assert found.exp().sum(dim=-1).allclose(torch.ones(()), atol=1e-5)
    for place in range(first):  # tokens that the target always begins with
        assert (found[range(2), place, ours[1][:, place + 1]] == 0).all()


@torch.no_grad()
def test_recorded_outputs_put_back_change_nothing_and_weights_give_them(family):
    _, adapted, _, ours, _, _ = family
    heads, source, target = Heads(adapted), *ours
    whole = log_probs(adapted, source, target)
    with heads.recorded() as records:
        assert log_probs(adapted, source, target).equal(whole)
    with heads.patched({head: records[head.place][0][:, head.head - 1] for head in heads.names}):
        assert log_probs(adapted, source, target).allclose(whole, atol=1e-6)
    with heads.patched({head: records[head.place][0][:, head.head - 1].flip(0) for head in heads.names}):
        assert not log_probs(adapted, source, target).allclose(whole, atol=1e-2)
    read = {}
    with heads.hooked(
        {layer: lambda given, found, layer=layer: read.update({layer: (given, found)}) for layer in heads.layers}
    ):
        weights = adapted.attention_weights(source, source != PAD, target)
    for layer, ((_, _, value), found) in read.items():
        own = getattr(weights, layer.kind)[layer.layer - 1]
        torch.testing.assert_close(own @ value, found.output)
        torch.testing.assert_close(own.sum(dim=-1), torch.ones(own.shape[:-1]))
        if layer.kind != "decoder":
            assert own[1, :, :, 3:].abs().max() < 1e-6  # padding


@torch.no_grad()
def test_search_writes_what_transformers_writes_and_scores_it_as_given(family):
    theirs, adapted, given, (sources, _), end, first = family
    start, pad = int(given["decoder_input_ids"][0, 0]), theirs.config.pad_token_id
    settings = {"max_new_tokens": 12, "num_beams": 1, "do_sample": False, "eos_token_id": end, "pad_token_id": pad}
    settings |= {"decoder_start_token_id": start, "forced_eos_token_id": None, "suppress_tokens": [pad]}
    settings["forced_bos_token_id"] = int(given["decoder_input_ids"][0, 1]) if first else None
    found = {}
    for beam in (1, 3):
        search = foreign_run.BeamSearch(beam=beam, alpha=0, **foreign_run.BOUNDS)
        most = torch.tensor([12, 12])
        hypotheses = search.begin([[1], [1]], most, beam, EOS)
        state = adapted.start(sources, sources != PAD)
        found[beam] = search_loop(adapted, state, most, hypotheses, BOS, EOS)
    expected = theirs.generate(given["input_ids"], attention_mask=given["attention_mask"], **settings)[:, 1:].tolist()
    for (best,), own in zip(found[1], expected, strict=True):
        assert [token - foreign.SHIFT for token in best.tokens] == [*own, end][: [*own, end].index(end)][:12]
    for row, several in enumerate(found[3]):
        for tokens, score in several:
            target = torch.tensor([[BOS, *tokens]])
            own = log_probs(adapted, sources[row : row + 1, : 5 - 2 * row], target)[0]
            assert float(own[range(len(tokens) + 1), [*tokens, EOS]].sum()) == pytest.approx(score, abs=1e-4)


def test_models_that_cannot_be_measured_are_refused():
    fsmt = {name: value for name, value in SMALL.items() if name != "vocab_size"}
    fsmt |= {"langs": ["en", "de"], "src_vocab_size": 40, "tgt_vocab_size": 40}
    for name, settings, reason in [
        ("FSMTForConditionalGeneration", fsmt, "not one that transformers can exchange"),
        ("LongT5ForConditionalGeneration", T5, "does not give its heads, side by side"),
        ("LEDForConditionalGeneration", {"d_model": 16, "vocab_size": 40, "attention_window": 4}, "0 attentions"),
    ]:
        with pytest.raises(InputError, match=reason):
            foreign.ForeignModel(random_of(name, settings), 0, 1, 1)


def exported(home, folder, norm=None):
    """A run, the folder of transformers that it is exported to, and two files of pairs; norm: of a random model."""
    run = headcount.open_run(home / "runs" / "first", device="cpu")
    if norm:
        model = random_model(run.tokenizer.vocab_size, num_heads=4, norm=norm)
        run = replace(run, model=model, translator=make_translator(model, run.tokenizer, run.translator.search))
    export(run, {"format": "huggingface", "quantization": None, "max_positions": 64, "output": str(folder / "opus")})
    files = [str(folder / f"pairs.{language}") for language in ("en", "de")]
    for name, lines in zip(files, zip(*CLAUSES[:12], strict=True), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return run, folder / "opus", files


@pytest.mark.medium
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_our_own_export_is_measured_as_the_run_is(home, tmp_path, norm):
    run, folder, files = exported(home, tmp_path, norm)
    other = foreign_run.open_foreign(folder, files, None, SimpleNamespace(device="cpu"))
    conf = composed("heads")
    settings = Settings(**{each.name: conf[each.name] for each in fields(Settings)})
    own, theirs = Analysis(run, settings), Analysis(other, settings)
    vars(own)["splits"] = theirs.splits
    assert list(theirs.splits["test"]["source"]) == [source for source, _ in CLAUSES[:12:2]]
    assert own.heads.names == theirs.heads.names
    found, expected = (ablation.measure(each, lambda done: None) for each in (theirs, own))
    assert found.keys() == expected.keys()
    for name in [name for name in found if name.endswith((".loss", ".reference"))]:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-4, err_msg=name)
    harm = expected["zero.loss"][1:] - expected["zero.loss"][0]
    assert (abs(harm).mean(axis=1) > 1e-2).all()


@pytest.mark.medium
def test_the_command_measures_a_folder_and_two_files(home, tmp_path, undrawn, caplog):
    *_, files = exported(home, tmp_path)
    given = ("heads", "model=opus", f"input=[{','.join(files)}]")
    few = ("valid=4", "permutations=2", "shapley_sentences=2", "pair_sentences=4", "cutting_sentences=6", "pairs=3")
    few += ("gate_steps=2", "random_orders=1", "bleu_sentences=4", "order_sentences=2")
    assert "page: opus-heads/heads/heads.html" in completed(*given, *few, cwd=tmp_path).out
    page = (tmp_path / "opus-heads" / "heads" / "heads.md").read_text(encoding="utf-8")
    assert "6 heads of opus, en to de" in page
    assert "export format=page" not in page
    completed(*given, "parts=[roles]", "valid=4", cwd=tmp_path)
    assert "kept from before" in caplog.text
    caplog.clear()
    Path(files[0]).write_text(Path(files[0]).read_text().replace("the", "a"))
    completed(*given, "parts=[roles]", "valid=4", cwd=tmp_path)
    assert "kept from before" not in caplog.text
    for words, reason in [
        (("heads", "model=opus"), "model= needs input=[SOURCE,TARGET]: two text files, such as"),
        (("heads", f"input=[{','.join(files)}]"), "input=: has no effect with run=, but with model="),
        ((*given, "checkpoint=a"), "checkpoint=: has no effect with model=, but with attention="),
        ((*given, "prune=2"), "model=: has no effect with prune=, but with model="),
        (("heads", "model=pairs.en", given[2]), "model=pairs.en: must be a folder in which transformers saved a model"),
    ]:
        (line,) = failed(*words, cwd=tmp_path)
        assert line.startswith(reason)
    Path(files[1]).write_text("der Hund " * 100 + "\n" + Path(files[1]).read_text().split("\n", 1)[1])
    (line,) = failed(*given, cwd=tmp_path)
    assert line == f"{files[1]}, line 1: 600 tokens, and the model has positions for 63"


PIECES = ("<s>", "<pad>", "</s>", "<unk>", "▁der", "▁die", "▁Hund", "▁sie", "ht", "▁K", "atze", ".", "▁")


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("T5Tokenizer", [], ["</s>"]),
        ("MBart50Tokenizer", ["de_DE"], ["</s>"]),
        ("MBartTokenizer", [], ["</s>", "de_DE"]),
    ],
)
def test_a_tokenizer_adds_what_it_adds_and_its_tokens_spell_words(kind, before, after):
    first = PIECES[1:4] if kind == "T5Tokenizer" else PIECES[:4]
    tokenizer = getattr(transformers, kind)(vocab=[(each, -float(at)) for at, each in enumerate(first + PIECES[4:])])
    foreign_run.set_languages(tokenizer, ("en", "de_DE"))
    names = tokenizer.convert_tokens_to_ids
    source, target = (foreign_run.Side(tokenizer, side, 200) for side in (False, True))
    assert (target.before, target.after) == (names(before), names(after))
    text = "der Hund sieht die Katze."
    (ids,) = target.encode([text])
    tokens = ["▁der", "▁Hund", "▁sie", "ht", "▁die", "▁K", "atze", "."]
    assert target.pieces(text) == [*before, *tokens]
    assert [token - foreign.SHIFT for token in ids] == names([*before, *tokens])
    assert target.decode([ids]) == [text]
    behind = ["</s>"] if len(after) > 1 else []  # the last token of a source is our end
    assert source.pieces(text)[-len(behind) - 1 :] == [".", *behind]
    spelled = target.spelling(text)
    assert spelled.argmax(axis=1)[len(before) :].tolist() == [0, 1, 2, 2, 3, 4, 4, 5]
    assert spelled.sum(axis=1).tolist() == [0.0] * len(before) + [1.0] * 8
    if kind != "T5Tokenizer":
        with pytest.raises(
            InputError, match=r"no language xx; name the files of input= by its codes \(af_ZA, |ar_AR, "
        ):
            foreign_run.set_languages(tokenizer, ("xx", "de"))
