"""BLEU of lowercased Moses tokens, as papers on Multi30k report it."""

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


def test_the_score_is_that_of_the_tokens():
    hypotheses = ["Ein Mann geht, im Park.", "Zwei Hunde spielen im roten Gras."]
    references = ["Ein Mann geht im Park.", "Zwei Hunde Spielen im Gras herum."]
    tokens = [[line.split() for line in moses_tokens(side, "de")] for side in (hypotheses, references)]
    joined = [[" ".join(line) for line in side] for side in tokens]
    score = moses_bleu(hypotheses, references, "de")
    assert score.value == pytest.approx(corpus_bleu(joined[0], [joined[1]], tokenize="none", force=True).score)
    assert score.value < moses_bleu(references, references, "de").value == pytest.approx(100)
    assert "case:lc" in score.signature
    assert "tok:moses-de.sacremoses-" in score.signature
