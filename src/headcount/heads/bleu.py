"""BLEU of greedy translations without each head, paired over sentences; and examples of translations.

Loss and contrastive pairs score given translations; BLEU scores what the model writes itself without the head.
"""

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

from headcount.decoding.beam import greedy
from headcount.heads.ablation import without_each
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.attention import attention_arrays
from headcount.heads.likelihood import Progress
from headcount.run.opened import make_translator
from headcount.statistics.bootstrap import ORDERS, Floats, bleu_of, sentence_counts
from headcount.statistics.max_t import EffectTable, Sample, compared

COLUMN = "BLEU"
EXAMPLES = 40  # sentences translated without each head
SHOWN = 8  # whose attention is kept


def greedy_counts(analysis: Analysis, rows: Dataset, gates: torch.Tensor, progress: Progress) -> NDArray[np.int32]:
    """Counts of BLEU (see `sentence_counts`) of greedy translations of these rows under gates [setting, head],
    [setting, sentence, 10]; equal settings are translated once."""
    heads, run = analysis.heads, analysis.run
    sources, references = list(rows["source"]), list(rows["target"])
    search = greedy(run.translator.search)
    translator = make_translator(run.model, run.tokenizer, search)
    once, where = np.unique(gates.cpu().numpy(), axis=0, return_inverse=True)
    counts = []
    for setting in torch.from_numpy(once).to(gates):
        with heads.gated(setting):
            hypotheses = translator.translate(sources, progress)
        counts.append(sentence_counts(hypotheses, references, run.bleu_tokenizer))
    return np.array(counts)[where.reshape(-1)].astype(np.int32)


@part("bleu", "BLEU without each head", settings=("bleu_sentences",))
def without_heads(analysis: Analysis, progress: Progress) -> Arrays:
    """counts [1 + head, sentence, 10]: of BLEU, see `greedy_counts`; setting 0 is the whole model. test_row [sentence]:
    its row among the test sentences measured; head: the names."""
    test = analysis.own_test
    rows = test.chosen(analysis.settings.bleu_sentences)
    counts = greedy_counts(analysis, test.rows.select(rows), without_each(analysis.heads), progress)
    return {"counts": counts, "test_row": rows, "head": analysis.heads.labels}


@part("examples", "translations without each head")
def examples(analysis: Analysis, progress: Progress) -> Arrays:
    """Translations by the run's own search: whole [sentence], and without [head, sentence], a head's outputs 0. Beside
    them source, reference, phenomenon and grade [sentence], and the names in head."""
    heads, translator, test = analysis.heads, analysis.run.translator, analysis.own_test
    rows = test.rows.select(test.chosen(EXAMPLES))
    sources, without = list(rows["source"]), []
    for head in heads.names:
        with heads.gated({head: 0}):
            without.append(translator.translate(sources, progress))
    whole = translator.translate(sources, progress)
    texts = {"source": sources, "reference": list(rows["target"]), "whole": whole, "without": without}
    for name in ("phenomenon", "grade"):
        texts[name] = list(rows[name]) if len(test.tested) else [""] * len(rows)
    return {"head": heads.labels, **{name: np.array(text, dtype=np.str_) for name, text in texts.items()}}


@part("attention", "attention of every head", version=2)
def attention(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention weights while the run translates a few sentences, see `attention_arrays`; also head, the names."""
    sources = list(analysis.own_test.rows.select(analysis.own_test.chosen(SHOWN))["source"])
    arrays = attention_arrays(analysis.run, sources, analysis.run.translator.translate(sources), progress)
    small = {name: each.astype(np.float16) if each.ndim == 4 else each for name, each in arrays.items()}
    return {**small, "head": analysis.heads.labels}


def bleu_table(arrays: Arrays, harmless: float, seed: int = 0) -> EffectTable:
    """Change of BLEU without each head, one column, from the arrays of `without_heads`: the mean of what each sentence
    adds to it (the delta method), see `compared`. harmless: the most BLEU whose loss does not matter."""
    counts = arrays["counts"].astype(np.float64)
    added = linear_bleu(counts)
    # BLEU without a changed word is not known exactly; nor is one that rests on smoothing alone.
    least = 100 / counts[0, :, -1].sum() if counts[0, :, ORDERS - 1].any() else np.inf
    everywhere, whole = np.arange(counts.shape[1]), float(bleu_of(counts[0].sum(axis=0)))
    column = Sample(COLUMN, added[1:] - added[0], everywhere, whole, -1, harmless, least)
    return compared(arrays["head"].tolist(), [column], seed=seed)


def linear_bleu(counts: Floats) -> Floats:
    """Values [setting, sentence] whose mean is BLEU, from counts [setting, sentence, 10]: BLEU, and what it changes by
    with the weight of each sentence."""
    sums = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(sums, 1)
    slope = (shares[..., :ORDERS] - shares[..., ORDERS : 2 * ORDERS]).mean(axis=-1)  # of log BLEU
    ratio = sums[..., -1] / np.maximum(sums[..., -2], 1)  # of reference and hypothesis: above 1, brevity counts
    slope += np.where(ratio > 1, ratio * (shares[..., -2] - shares[..., -1]), 0)
    found: Floats = bleu_of(sums) * (1 + counts.shape[1] * slope)
    return found
