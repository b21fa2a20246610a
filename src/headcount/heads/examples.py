"""Examples: sentences translated with each head switched off, and the attention of every head over a few of them."""

import numpy as np

from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.likelihood import Progress
from headcount.report.attention_arrays import attention_arrays

SENTENCES = 40  # translated without each head
SHOWN = 8  # whose attention is kept


@part(
    "examples",
    "translations without each head",
    steps=lambda analysis: len(analysis.test.chosen(SENTENCES)) * (1 + len(analysis.heads)),
)
def examples(analysis: Analysis, progress: Progress) -> Arrays:
    """Translations by the run's own search: whole [sentence], and without [head, sentence], a head's outputs 0. Beside
    them source, reference, phenomenon and grade [sentence], and the names in head."""
    heads, translator, test = analysis.heads, analysis.run.translator, analysis.test
    rows = test.rows.select(test.chosen(SENTENCES))
    sources = list(rows["source"])
    texts = {"source": sources, "reference": list(rows["target"]), "whole": translator.translate(sources, progress)}
    for name in ("phenomenon", "grade"):
        texts[name] = list(rows[name]) if len(test.tested) else [""] * len(rows)
    without = []
    for head in heads.names:
        with heads.gated({head: 0}):
            without.append(translator.translate(sources, progress))
    found = {name: np.array(text, dtype=np.str_) for name, text in texts.items()}
    return {"head": heads.labels, **found, "without": np.array(without, dtype=np.str_)}


@part("attention", "attention of every head", steps=lambda analysis: SHOWN, version=2)
def attention(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention weights while the run translates a few sentences, see `attention_arrays`; also head, the names."""
    sources = list(analysis.test.rows.select(analysis.test.chosen(SHOWN))["source"])
    arrays = attention_arrays(analysis.run, sources, analysis.run.translator.translate(sources), progress)
    small = {name: each.astype(np.float16) if each.ndim == 4 else each for name, each in arrays.items()}
    return {**small, "head": analysis.heads.labels}
