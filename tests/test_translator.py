"""The translator: lines in, lines out."""

import dataclasses

import pytest
import torch
from built import ONE_LAYER, built, random_model

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.sampling import Sampling
from headcount.decoding.search import SearchMethod, Translation
from headcount.decoding.translator import LineError, Translator
from headcount.errors import InputError
from headcount.model.transformer import Transformer


class Letters:
    """A codec of one token a letter."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[4 + ord(letter) - ord("a") for letter in text if letter != " "] for text in texts]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return ["".join(chr(ord("a") + i - 4) if i >= 4 else "?" for i in row) for row in ids]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(30, encoder_layers=1, decoder_layers=1)


def translator(model: Transformer, search: SearchMethod) -> Translator:
    return Translator(model, Letters(), search, (PAD, BOS, EOS))


def test_a_source_takes_a_third_of_its_longest_translation_or_its_own_length(model):
    """Of each beam, with the end: of 4 pieces 9 x 4 + 2 tokens and the end are 39, a third 13; with a ratio of 2, 5."""
    pieces = [[5], *[[5] * 4] * 20]
    for ratio, share in ((9, 13), (2, 5)):
        search = built("search/beam", beam=2, max_ratio=ratio, max_extra=2, batch_tokens=4 * 2 * share)
        batches = translator(model, search)._batches(pieces, [search.limit(len(each)) for each in pieces], 2)
        assert [len(rows) for rows in batches[:4]] == [4, 4, 3, 2]  # in the end a quarter of what is left
        assert sorted(row for rows in batches for row in rows) == list(range(21))
        assert batches[-1][-1] == 0  # longest first


SEARCHES = [
    built("search/beam", beam=3, max_ratio=1, max_extra=3),
    built("search/diverse", beam=4, groups=2, max_ratio=1, max_extra=3),
    built("search/sample", samples=3, max_ratio=1, max_extra=3),
    built("search/sample", samples=3, top_k=5, top_p=0.9, temperature=0.8, max_ratio=1, max_extra=3),
    built("search/mbr", samples=6, max_ratio=1, max_extra=3),
]


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    """Models of any size go together."""
    return Ensemble([random_model(30), random_model(30, head_size=4), random_model(30, norm="post")])


@pytest.mark.medium
@pytest.mark.parametrize("translates", ["model", "ensemble"])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_every_search_gives_each_line_what_it_gets_alone(search, translates, request):
    model = request.getfixturevalue(translates)
    lines = ["abc", "", "zyxwvutsrq", "b", "hello", "q" * 12, "abc", "  "]
    small, done = dataclasses.replace(search, batch_tokens=60), []
    together = translator(model, small).nbest(lines, 3, done.append)
    assert (len(done) > 2, sum(done)) == (True, len(lines))
    for line, translations in zip(lines, together, strict=True):
        (alone,) = translator(model, search).nbest([line], 3)
        assert [text for text, _ in translations] == [text for text, _ in alone]
        assert [score for _, score in translations] == pytest.approx([score for _, score in alone], abs=1e-4)
        assert 1 <= len(translations) <= 3
        if not line.strip():
            assert translations == [Translation("", 0.0)]
        if type(search) is not Sampling:
            assert len({text for text, _ in translations}) == len(translations)
            scores = [score for _, score in translations]
            assert scores == sorted(scores, reverse=True)
    assert translator(model, search).translate(lines) == [best.text for best, *_ in together]


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_more_than_the_width_is_refused(search, model):
    width = getattr(search, search.width_setting)
    with pytest.raises(InputError, match=rf"nbest={width + 1}: .* search\.{search.width_setting}="):
        translator(model, search).nbest([], width + 1)
    assert translator(model, search).nbest([], width) == []


@pytest.mark.medium
@pytest.mark.parametrize("search", [built("search/beam", beam=2), built("search/sample", samples=2)], ids=str)
def test_no_translation_passes_the_positions_that_were_learned(search):
    torch.manual_seed(4)
    model = built("model/nano", vocab_size=30, positions="learned", max_positions=8, **ONE_LAYER).eval()
    for each in (model, Ensemble([built("model/nano", vocab_size=30, **ONE_LAYER).eval(), model])):
        assert each.max_length == 8
        lines = ["abcdefg", "z", "", "gfedcba"]
        assert all(len(translation) <= 7 for translation in translator(each, search).translate(lines))
        line = r"^line 3: 8 subwords, and the model has positions for 7 and the end; cut it"
        with pytest.raises(LineError, match=line):
            translator(each, search).translate(["abc", "", "abcdefgh", "z"])
    assert built("model/nano", vocab_size=30, **ONE_LAYER).max_length is None


def test_a_line_that_is_too_long_is_refused_before_anything_is_translated(model, monkeypatch):
    short = translator(model, built("search/beam", beam=1, max_source=5))
    line = r"^line 2: 6 subwords, more than search\.max_source=5; cut it into sentences, or"
    with pytest.raises(LineError, match=line):
        short.translate(["abcde", "abcdef"], progress=pytest.fail)
    unlimited = translator(model, built("search/beam", beam=1, max_source=None, max_ratio=0))
    assert len(unlimited.translate(["abcde" * 210])) == 1
