"""Subword regularisation: sample the segmentation again every epoch (BPE-dropout, unigram sampling)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import sentencepiece

from headcount.data.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class BpeDropout:
    """BPE-dropout: every merge is skipped with a probability (Provilkov et al. 2020).

    At 0.1 sentences have about two fifths more pieces. start_epoch: epochs of best segmentations before it. Raises
    ValueError for a probability outside (0, 1) or a start below 0.
    """

    probability: float
    start_epoch: int
    model_type: ClassVar[str] = "bpe"

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise ValueError(
                f"segmentation.probability={self.probability}: between 0 and 1, such as 0.1, or segmentation.kind=best"
            )
        _check_start(self.start_epoch)

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.probability, "nbest_size": -1}


@dataclass(frozen=True, kw_only=True)
class SampledSegmentation:
    """Unigram sampling: p(segmentation) is proportional to its unigram probability to the power of alpha (Kudo 2018,
    "Subword regularization", section 3.2).

    candidates: l in the paper. start_epoch: epochs of best segmentations before it. Raises ValueError for values out of
    range.
    """

    alpha: float
    candidates: int | None
    start_epoch: int
    model_type: ClassVar[str] = "unigram"

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise ValueError(
                f"segmentation.alpha={self.alpha}: must be more than 0, such as 0.2; for none, segmentation.kind=best"
            )
        if self.candidates is not None and self.candidates < 2:
            raise ValueError(f"segmentation.candidates={self.candidates}: must be 2 or more, or null for all")
        _check_start(self.start_epoch)

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "nbest_size": self.candidates or -1}


Segmentation = BpeDropout | SampledSegmentation


def _check_start(epoch: int) -> None:
    if epoch < 0:
        raise ValueError(f"segmentation.start_epoch={epoch}: must be 0 (at once) or a number of epochs")


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
