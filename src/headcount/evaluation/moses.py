"""BLEU as papers on Multi30k report it: of lowercased text in Moses tokens. Comparable with theirs, and with no other.

The text is lowercased, its punctuation normalised and then cut into tokens, in that order, as the script
task1-tokenize.sh that comes with the corpus does it (Elliott et al. 2016); Wu et al. 2021, "Good for misconceived
reasons", score against such text.
"""

from collections.abc import Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu.metrics.bleu import BLEU

from headcount.evaluation.scoring import Score, composed


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """Corpus BLEU, 0 to 100, of one reference a line, both sides in NFC. language: code of what both are in; for one
    that Moses has no rules of, those of English hold."""
    metric = BLEU(tokenize="none", force=True)  # force: the text is tokenised on purpose
    figure = metric.corpus_score(moses_tokens(hypotheses, language), [moses_tokens(references, language)])
    # sacrebleu saw text that others had lowercased and tokenised; its signature must not hide that.
    signature = str(metric.get_signature()).replace("case:mixed", "case:lc")
    signature = signature.replace("tok:none", f"tok:moses-{language}.sacremoses-{sacremoses_version()}")
    return Score(figure.score, signature, figure.ratio)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Every line in lower case, its Moses tokens apart by spaces.

    >>> moses_tokens(["Ein Mann, der schläft."], "de")
    ['ein mann , der schläft .']
    """
    normaliser = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normaliser.normalize(line.lower()), return_str=True) for line in composed(lines)]


def sacremoses_version() -> str:
    return version("sacremoses")
