"""BLEU without each head: greedy translations with each head switched off in turn, paired over sentences.

Loss and contrastive pairs score given translations; BLEU scores what the model writes itself without the head.
"""

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

from headcount.decoding.beam import greedy
from headcount.heads.ablation import without_each
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.examples import chosen
from headcount.heads.likelihood import Progress
from headcount.report.statistics.bootstrap import bleu_of, bootstrapped_bleu, sentence_counts
from headcount.report.statistics.max_t import DRAWS, ERROR, EffectTable, step_down
from headcount.run.opened import make_translator

COLUMN = "BLEU"


def greedy_counts(analysis: Analysis, rows: Dataset, gates: torch.Tensor, progress: Progress) -> NDArray[np.int32]:
    """Counts of BLEU (see `sentence_counts`) of greedy translations of these rows under gates [setting, head],
    [setting, sentence, 10]; equal settings are translated once."""
    heads, run = analysis.heads, analysis.run
    sources, references = list(rows["source"]), list(rows["target"])
    search = greedy(run.translator.search)
    translator = make_translator(run.model, run.tokenizer, search, run.translator.hide_source)
    once, where = np.unique(gates.cpu().numpy(), axis=0, return_inverse=True)
    counts = []
    for setting in torch.from_numpy(once).to(gates):
        with heads.gated(setting):
            hypotheses = translator.translate(sources, progress)
        counts.append(sentence_counts(hypotheses, references, run.bleu_tokenizer))
    return np.array(counts)[where.reshape(-1)].astype(np.int32)


def without_heads(analysis: Analysis, progress: Progress) -> Arrays:
    """counts [1 + head, sentence, 10]: of BLEU, see `greedy_counts`; setting 0 is the whole model. test_row [sentence]:
    its row among the test sentences measured; head: the names."""
    rows = chosen(analysis.test, analysis.settings.bleu_sentences)
    counts = greedy_counts(analysis, analysis.test.rows.select(rows), without_each(analysis.heads), progress)
    return {"counts": counts, "test_row": rows, "head": analysis.heads.labels}


WITHOUT_HEADS = Part(
    "bleu",
    "BLEU without each head",
    without_heads,
    steps=lambda analysis: (1 + len(analysis.heads)) * len(chosen(analysis.test, analysis.settings.bleu_sentences)),
    settings=("bleu_sentences",),
)


def bleu_table(arrays: Arrays, harmless: float, seed: int = 0) -> EffectTable:
    """Change of BLEU without each head, one column, from the arrays of `without_heads`: paired bootstrap over sentences
    (Koehn 2004), intervals and p-values for all heads at once. harmless: the most BLEU whose loss does not matter."""
    counts = arrays["counts"].astype(np.float64)
    exact, drawn = bleu_of(counts.sum(axis=1)), bootstrapped_bleu(counts, DRAWS, seed)
    estimate, change = exact[1:] - exact[0], drawn[:, 1:] - drawn[:, :1]
    # BLEU without a changed word is not known exactly: the smallest standard error is that of one word.
    errors = np.maximum(change.std(axis=0, ddof=1), 100 / max(counts[0, :, -1].sum(), 1))
    null = abs(change - change.mean(axis=0)) / errors
    p = step_down(abs(estimate) / errors, null)
    half = float(np.quantile(null.max(axis=1), 1 - ERROR)) * errors
    free = half - estimate < harmless
    verdict = np.where(p <= ERROR, "differs", np.where(free, "equivalent", "undecided"))
    return EffectTable(
        tuple(arrays["head"].tolist()),
        (COLUMN,),
        estimate=estimate[:, None],
        low=(estimate - half)[:, None],
        high=(estimate + half)[:, None],
        p=p[:, None],
        verdict=verdict[:, None],
        harmless=free[:, None],
        whole=exact[:1],
        units=np.array([counts.shape[1]]),
        worse=np.array([-1]),
    )
