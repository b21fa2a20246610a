"""Examples: sentences translated with each head switched off, and the attention of every head over a few of them."""

import numpy as np

from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet, stratified
from headcount.heads.likelihood import Progress
from headcount.report.attention_arrays import attention_arrays

SENTENCES = 40  # translated without each head
SHOWN = 8  # whose attention is kept


def chosen(test: EvaluationSet, most: int) -> np.ndarray:
    """Rows of at most `most` test sentences, see `stratified`; of those with a phenomenon, where there are any."""
    if not len(test.tested):
        return stratified([("", "")] * len(test), most)
    return np.asarray(test.tested[stratified(test.cells, most)])


def examples(analysis: Analysis, progress: Progress) -> Arrays:
    """Translations by the run's own search: whole [sentence], and without [head, sentence], a head's outputs 0. Beside
    them source, reference, phenomenon and grade [sentence], and the names in head."""
    heads, translator, test = analysis.heads, analysis.run.translator, analysis.test
    rows = test.rows.select(chosen(test, SENTENCES))
    sources = list(rows["source"])
    whole = translator.translate(sources, progress)
    without = []
    for head in heads.names:
        with heads.gated({head: 0}):
            without.append(translator.translate(sources, progress))
    labels = {name: list(rows[name]) if len(test.tested) else [""] * len(rows) for name in ("phenomenon", "grade")}
    texts = {"source": sources, "reference": list(rows["target"]), "whole": whole, "without": without, **labels}
    return {"head": heads.labels, **{name: np.array(text, dtype=np.str_) for name, text in texts.items()}}


def attention(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention weights while the run translates a few sentences, see `attention_arrays`; also head, the names."""
    sources = list(analysis.test.rows.select(chosen(analysis.test, SHOWN))["source"])
    arrays = attention_arrays(analysis.run, sources, analysis.run.translator.translate(sources), progress)
    small = {name: each.astype(np.float16) if each.ndim == 4 else each for name, each in arrays.items()}
    return {**small, "head": analysis.heads.labels}


EXAMPLES = Part(
    "examples",
    "translations without each head",
    examples,
    steps=lambda analysis: len(chosen(analysis.test, SENTENCES)) * (1 + len(analysis.heads)),
)
ATTENTION = Part("attention", "attention of every head", attention, steps=lambda analysis: SHOWN, version=2)
