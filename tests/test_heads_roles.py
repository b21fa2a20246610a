"""Roles by attention: words and their pieces, shares by weight and by norm, measures against loops, planted heads."""

import numpy as np
import planted
import pytest
import torch
from built import ONE_LAYER, built, sentence_piece

from headcount.data.batches import Sentences
from headcount.data.tokenizer import EOS, normalise
from headcount.grammar.corpus import words
from headcount.heads.interface import Heads
from headcount.heads.observed import between_words, observed
from headcount.heads.roles import OFFSETS, by_offset, measured, positional_heads, rare_words, role_figures, roles
from headcount.heads.spelling import spelling

ODD = [
    "Über die schönen Straßen fährt Müllers Bär.",
    "  „Was?!“ — fragte  sie… (leise)",
    "Lena's mother-in-law can't e-mail 3.5 % of U.S. farmers",
    "a\u0308 日本 🙂🙂 x_y",
    "...",
    "ra radios , . a",
    "",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    text = ["the radios of the farmers in the street can see a bear", "Bären fahren über die Straße, sie fahren ..."]
    return sentence_piece(290, request.param).train(text * 20)


@pytest.mark.parametrize("text", ODD)
def test_every_word_is_spelled_by_its_pieces(tokenizer, text):
    ids = tokenizer.encode([text])[0]
    shares = spelling(tokenizer.piece_bytes[ids], text)
    assert shares.shape == (len(ids), len(words(normalise(text))))
    assert shares.sum(axis=1) == pytest.approx(1)
    for number, word in enumerate(words(normalise(text))):
        own = np.flatnonzero(shares[:, number])
        assert list(own) == list(range(own[0], own[-1] + 1))
        spelled = tokenizer.decode([[ids[piece] for piece in own]])[0].replace(" ", "")
        assert word in spelled
        assert (spelled == word) == (shares[own, number] == 1).all()


def test_shares_of_pieces_in_words_worked_by_hand():
    # ▁T ür ▁ auf . with three bytes of a mark, two of ü; then the same with "auf." as one piece
    assert spelling(np.array([4, 3, 3, 3, 1]), "Tür  auf.").argmax(axis=1).tolist() == [0, 0, 1, 1, 2]
    assert spelling(np.array([4, 3, 3, 4]), "Tür auf.")[2:].tolist() == [[0, 1, 0], [0, 0.75, 0.25]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_heads": 1},
        {"cross_heads": 4, "local_heads": 1, "positions": "rotary"},
        {"qk_norm": "learned", "qk_scale": 3.0},
    ],
)
@torch.inference_mode()
def test_shares_are_the_attention_weights_and_the_lengths_of_what_they_add(changes):
    torch.manual_seed(2)
    heads = Heads(built("model/nano", **{**ONE_LAYER, **changes, "decoder_layers": 2}, vocab_size=20).eval())
    random = np.random.default_rng(0)
    sides = [Sentences.of([random.integers(4, 20, n).tolist() for n in lengths]) for lengths in ((3, 6, 1), (5, 2, 4))]
    for batch in observed(heads, *sides):
        for place, row in enumerate(batch.rows):
            source = torch.tensor([[*sides[0].row(row), EOS]])
            target = torch.tensor([[2, *sides[1].row(row)]])
            whole = heads.model.attention_weights(source, torch.ones_like(source, dtype=torch.bool), target)
            for kind, size in (("encoder", source.shape[1]), ("decoder", target.shape[1]), ("cross", target.shape[1])):
                weights = torch.cat(getattr(whole, kind), dim=1)[0]
                found = batch.shares[kind][:, place, :, :size, : weights.shape[2]]
                assert found[0].allclose(weights, atol=1e-5)
                assert found.sum(dim=-1).allclose(torch.ones(()))
                for when in ("before", "after"):
                    share, read = batch.pieces(kind, when)[:, place], when == "after" and kind != "encoder"
                    own = found[..., int(read) : size - 1 + read, :]
                    own = own[..., 1:] if kind == "decoder" else own[..., :-1]
                    torch.testing.assert_close(share[..., : own.shape[2], : own.shape[3]], own)
            own = heads.model.encoder[0].self_attention
            x = (
                heads.model.encoder[0]
                .residuals[0]
                .before(
                    heads.model.positions["source"](heads.model.source_embedding(source) * heads.model.d_model**0.5, 0)
                )
            )
            value = own.value(x)[0].unflatten(-1, (-1, 8))
            for head in range(2):
                part = value[:, head * own.heads.kv // 2] @ own.output.weight[:, head * 8 : head * 8 + 8].T
                added = whole.encoder[0][0, head, :, :, None] * part  # [query, key, d_model]
                expected = added.norm(dim=-1) / added.norm(dim=-1).sum(dim=-1, keepdim=True)
                size = source.shape[1]
                assert batch.shares["encoder"][1, place, head, :size, :size].allclose(expected, atol=1e-5)


def test_between_words_is_the_sum_over_keys_and_the_mean_over_queries():
    share = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.1, 0.0], [0.2, 0.2, 0.2]])[None, None, None]
    spelled = torch.tensor([[[1.0, 0], [1, 0], [0, 1]]])
    assert between_words(share, spelled, spelled).flatten().tolist() == pytest.approx([0.45, 0.15, 0.4, 0.2])


def test_measures_and_profiles_equal_loops():
    torch.manual_seed(0)
    whole = torch.rand(3, 2, 12, 14).softmax(dim=-1)
    asked = (torch.rand(3, 12) > 0.3).float()
    marks = (torch.rand(3, 13, 3) > 0.5).float()
    found, profile = measured(whole[..., :-1], asked, marks), by_offset(whole[..., :-1])
    expected, offsets = torch.zeros_like(found), torch.zeros_like(profile)
    for row, head, query in np.ndindex(3, 2, 12):
        share = whole[row, head, query, :-1]
        for key in range(13):
            offsets[row, head, OFFSETS.index(int(np.clip(key - query, OFFSETS[0], OFFSETS[-1])))] += share[key]
        if asked[row, query]:
            rest = whole[row, head, query, -1]
            expected[row, head] += torch.stack(
                [
                    sum(share[key] * abs(query - key) for key in range(13)),
                    -(whole[row, head, query] * whole[row, head, query].log()).sum(),
                    share.max(),
                    rest,
                    *((share @ marks[row])[:2]),
                    marks[row, share.argmax(), 2],
                ]
            )
    assert found.allclose(expected, atol=1e-5)
    assert profile.allclose(offsets, atol=1e-5)


def test_rare_words_are_at_most_a_tenth_of_the_text():
    assert rare_words({"the": 80, "a": 10, "cat": 5, "dog": 5}) == 5
    assert rare_words({"the": 80, "a": 10, "cat": 6, "dog": 5}) == 5
    assert rare_words({"the": 50, "a": 50}) == 0


@pytest.mark.medium
def test_a_head_on_the_word_before_is_positional_and_others_are_not():
    arrays = roles(planted.analysis(planted.planted_model()), lambda done: None)
    found = role_figures(arrays)
    assert positional_heads(arrays) == {"encoder1.1": -1, "cross1.2": 0}
    assert found["previous"].value[0] > 0.9
    assert found["same"].low[5] > 0.95 > found["same"].high[4]
    assert found["distance"].value[0] < 1.5
    assert not positional_heads(roles(planted.analysis(planted.random_model()), lambda done: None))
