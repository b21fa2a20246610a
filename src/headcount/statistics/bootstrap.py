"""Bootstrap of corpus BLEU (Koehn 2004): BLEU from sums over sentences, so that a resample costs a matrix product."""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from headcount.evaluation.metrics import bleu, composed

Floats = NDArray[np.float64]

ORDERS = 4
COUNTS = 2 * ORDERS + 2  # matching n-grams and all n-grams by order, the lengths of hypothesis and reference
BLOCK = 4_000_000  # weights in memory at once


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str) -> Floats:
    """The sufficient statistics of corpus BLEU, [sentence, 10]: matches and totals of the orders 1 to 4, both lengths.

    tokenizer: sacrebleu's name of BLEU's tokenizer. Both sides in NFC, as for every BLEU here.
    """
    lines = zip(composed(hypotheses), composed(references), strict=True)
    rows = [_counts(tokenizer, hypothesis, reference) for hypothesis, reference in lines]
    return np.array(rows, dtype=np.float64).reshape(-1, COUNTS)


@functools.lru_cache(maxsize=100_000)  # different runs, and a model without one head, translate many sentences alike
def _counts(tokenizer: str, hypothesis: str, reference: str) -> tuple[float, ...]:
    score = _metric(tokenizer).sentence_score(hypothesis, [reference])
    return *score.counts, *score.totals, score.sys_len, score.ref_len


@functools.cache
def _metric(tokenizer: str) -> BLEU:
    return bleu(tokenizer, effective_order=True)  # avoids a warning for each sentence; counts are the same


def bleu_of(counts: Floats) -> Floats:
    """Corpus BLEU, 0 to 100, of summed counts [..., 10], as sacrebleu computes it with exponential smoothing.

    Papineni et al. 2002; smoothing: Chen and Cherry 2014, method 3: the k-th order without a match counts as 1 / 2^k
    of a match. BLEU is 0 without any match, or if an order has no n-grams.
    """
    matches, totals = counts[..., :ORDERS], counts[..., ORDERS : 2 * ORDERS]
    length, reference = counts[..., -2], counts[..., -1]
    none = matches == 0
    smoothed = np.where(none, 0.5 ** np.cumsum(none, axis=-1), matches)
    scored = matches.any(axis=-1) & totals.all(axis=-1)
    precisions = smoothed / np.where(totals == 0, 1, totals)
    brevity = np.minimum(0, 1 - reference / np.where(length == 0, 1, length))
    return np.where(scored, 100 * np.exp(np.log(precisions).mean(axis=-1) + brevity), 0)


def resamples(sentences: int, number: int, seed: int) -> Floats:
    """The count of each sentence in `number` resamples with replacement, [resample, sentence]."""
    drawn = np.random.default_rng(seed).multinomial(sentences, np.full(sentences, 1 / sentences), size=number)
    return drawn.astype(np.float64)


def resampled_bleu(counts: Floats, weights: Floats) -> Floats:
    """BLEU of every run on every resample (Koehn 2004), [resample, run].

    counts: [run, sentence, 10]. weights: [resample, sentence].
    """
    runs, sentences, width = counts.shape
    summed = weights @ counts.transpose(1, 0, 2).reshape(sentences, runs * width)
    return bleu_of(summed.reshape(-1, runs, width))


def bootstrapped_bleu(counts: Floats, number: int, seed: int = 0) -> Floats:
    """`resampled_bleu` over `number` resamples, the same for the same seed, [resample, run]."""
    sentences = counts.shape[1]
    at_once = max(1, BLOCK // max(sentences, 1))
    blocks = [
        resampled_bleu(counts, resamples(sentences, min(at_once, number - start), seed + start))
        for start in range(0, number, at_once)
    ]
    return np.concatenate(blocks)
