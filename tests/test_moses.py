"""BLEU of lowercased Moses tokens, as papers on Multi30k report it."""

import unicodedata

import pytest
from sacrebleu import corpus_bleu

from headcount.evaluation.moses import moses_bleu, moses_tokens


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", "Ein Mann (45) schläft.", "ein mann ( 45 ) schläft ."),
        ("de", "Das T-Shirt „rot“, z.B. hier!", "das t-shirt &quot; rot &quot; , z.b. hier !"),
        ("fr", "L'homme s'assied.", "l&apos; homme s&apos; assied ."),
        ("en", "The man's dog", "the man &apos;s dog"),
        ("de", "", ""),
    ],
)
def test_tokens(language, line, tokens):
    assert moses_tokens([line], language) == [tokens]


# What lowercase.perl, normalize-punctuation.perl and tokenizer.perl make of the lines, typed by hand.
HYPOTHESES = {
    "Ein Mann geht, im Park.": "ein mann geht , im park .",
    "Zwei Hunde spielen im roten Gras.": "zwei hunde spielen im roten gras .",
    "Er sagt „nein“.": "er sagt &quot; nein &quot; .",
}
REFERENCES = {
    "Ein Mann geht im Park.": "ein mann geht im park .",
    "Zwei Hunde Spielen im Gras herum.": "zwei hunde spielen im gras herum .",
    "Er sagt: „Schön!“": "er sagt : &quot; schön ! &quot;",
}


def test_the_score_is_that_of_tokens_typed_by_hand():
    score = moses_bleu(list(HYPOTHESES), list(REFERENCES), "de")
    by_hand = corpus_bleu(list(HYPOTHESES.values()), [list(REFERENCES.values())], tokenize="none", force=True)
    assert score.value == pytest.approx(by_hand.score)
    assert score.length_ratio == pytest.approx(20 / 20)
    assert score.value < moses_bleu(list(REFERENCES), list(REFERENCES), "de").value == pytest.approx(100)
    assert "case:lc" in score.signature
    assert "tok:moses-de.sacremoses-" in score.signature


def test_accents_apart_are_letters_all_the_same():
    apart = [unicodedata.normalize("NFD", line) for line in REFERENCES]
    assert moses_bleu(list(REFERENCES), apart, "de").value == pytest.approx(100)
