"""Subword sampling: other pieces each time, the same text, a function of the seed."""

from collections import Counter

import pytest
from built import sentence_piece

from headcount.data.subword_regularization import BpeDropout, SampledSegmentation, sample_pieces

TEXT = [f"the {c} {a} sees {n} trees" for c in ("red", "blue") for a in ("dog", "horse", "bear") for n in range(9)]
SEGMENTATIONS = {
    "bpe": BpeDropout(probability=0.3, start_epoch=0),
    "unigram": SampledSegmentation(alpha=0.2, candidates=16, start_epoch=0),
}


@pytest.fixture(scope="module", params=SEGMENTATIONS)
def tokenizer(request):
    return sentence_piece(285, request.param).train(TEXT), SEGMENTATIONS[request.param]


def test_the_text_stays_and_the_pieces_change(tokenizer):
    tokenizer, segmentation = tokenizer
    cuts = [sample_pieces(tokenizer, TEXT, segmentation, (1, epoch)) for epoch in range(5)]
    for cut in cuts:
        assert tokenizer.decode(cut) == TEXT
    assert len({str(cut) for cut in cuts}) == len(cuts)


def test_a_function_of_the_seed_whatever_was_drawn_before(tokenizer):
    tokenizer, segmentation = tokenizer
    first = sample_pieces(tokenizer, TEXT, segmentation, (1, 2, 3))
    sample_pieces(tokenizer, TEXT, segmentation, (9,))
    assert sample_pieces(tokenizer, TEXT, segmentation, (1, 2, 3)) == first
    assert sample_pieces(tokenizer, TEXT, segmentation, (1, 2, 4)) != first


def test_bpe_dropout_leaves_merges_out_as_often_as_asked():
    # Three letters and one merge, of two of them.
    tokenizer = sentence_piece(264, "bpe").train(["ab ab ab ab"])
    (whole,) = tokenizer.encode(["ab"])
    cuts = Counter(
        len(cut) for cut in sample_pieces(tokenizer, ["ab"] * 4000, BpeDropout(probability=0.3, start_epoch=0), (1,))
    )
    assert cuts[len(whole)] / 4000 == pytest.approx(1 - 0.3, abs=0.03)
