"""Subword regularisation: sample the segmentation again every epoch (BPE-dropout, unigram sampling)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import sentencepiece
from annotated_types import Ge, Gt, Lt

from headcount.data.tokenizer import Tokenizer
from headcount.settings import Natural


@dataclass(frozen=True, kw_only=True)
class BpeDropout:
    """BPE-dropout: every merge is skipped with a probability (Provilkov et al. 2020).

    At 0.1 sentences have about two fifths more pieces. start_epoch: epochs of best segmentations before it.
    """

    probability: Annotated[float, Gt(0), Lt(1)]
    start_epoch: Natural
    model_type: ClassVar[str] = "bpe"

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.probability, "nbest_size": -1}


@dataclass(frozen=True, kw_only=True)
class SampledSegmentation:
    """Unigram sampling: p(segmentation) is proportional to its unigram probability to the power of alpha (Kudo 2018,
    "Subword regularization", section 3.2).

    candidates: l in the paper. start_epoch: epochs of best segmentations before it.
    """

    alpha: Annotated[float, Gt(0)]
    candidates: Annotated[int, Ge(2)] | None
    start_epoch: Natural
    model_type: ClassVar[str] = "unigram"

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "nbest_size": self.candidates or -1}


Segmentation = BpeDropout | SampledSegmentation


def sample_pieces(
    tokenizer: Tokenizer, texts: Sequence[str], segmentation: Segmentation, seed: Sequence[int]
) -> list[list[int]]:
    """Sampled piece numbers of every text, a function of the texts and of `seed` (numbers of 0 or more) alone."""
    samples: list[list[list[int]]] = []
    thread = threading.Thread(target=lambda: samples.append(tokenizer.encode(list(texts), 1, segmentation.settings())))
    # Sentencepiece has a generator for each thread, which is seeded once, when the thread first uses it.
    sentencepiece.set_random_generator_seed(int(np.random.SeedSequence(list(seed)).generate_state(1)[0]))
    thread.start()
    thread.join()
    return samples[0]
