"""Another way to cut the same text into pieces at every epoch, so that a model learns from more than one."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import sentencepiece

from headcount.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class BpeDropout:
    """Every merge is left out with this probability, anew each time: Provilkov et al. 2020, "BPE-dropout".

    At 0.1 sentences have about two fifths more pieces. Raises ValueError for a probability outside (0, 1).
    """

    probability: float = 0.1
    model_type: ClassVar[str] = "bpe"

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise ValueError(
                f"segmentation.probability={self.probability}: between 0 and 1, such as 0.1, or segmentation=best"
            )

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.probability, "nbest_size": -1}


@dataclass(frozen=True)
class SampledSegmentation:
    """A cut drawn in proportion to its probability under the unigram model to the power of alpha: Kudo 2018, "Subword
    regularization", section 3.2.

    Args:
        alpha: the smaller, the more all cuts are alike.
        candidates: how many of the most probable cuts to draw from (l in the paper); None for all there are.

    Raises ValueError for values out of range.
    """

    alpha: float = 0.2
    candidates: int | None = 64
    model_type: ClassVar[str] = "unigram"

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise ValueError(
                f"segmentation.alpha={self.alpha}: must be more than 0, such as 0.2; for none, segmentation=best"
            )
        if self.candidates is not None and self.candidates < 2:
            raise ValueError(f"segmentation.candidates={self.candidates}: must be 2 or more, or null for all")

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "nbest_size": self.candidates or -1}


Segmentation = BpeDropout | SampledSegmentation


def draw_pieces(
    tokenizer: Tokenizer, texts: Sequence[str], segmentation: Segmentation, seed: Sequence[int]
) -> list[list[int]]:
    """Piece numbers of every text, a function of the texts and of `seed` alone (each of it 0 or more)."""
    drawn: list[list[list[int]]] = []
    thread = threading.Thread(target=lambda: drawn.append(tokenizer.encode(list(texts), 1, segmentation.settings())))
    # Sentencepiece has a generator a thread, which takes its seed when the thread first needs it and never again.
    sentencepiece.set_random_generator_seed(int(np.random.SeedSequence(list(seed)).generate_state(1)[0]))
    thread.start()
    thread.join()
    return drawn[0]
