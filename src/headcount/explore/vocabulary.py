"""Vocabulary of a sentencepiece model for a page: pieces, their scores, and how a text is segmented into them."""

from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2

from headcount.data.tokenizer import Tokenizer

UNIGRAM, BPE = 1, 2  # of TrainerSpec.model_type
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # of SentencePiece.type


def unsupported(tokenizer: Tokenizer) -> list[str]:
    """Reasons why a page cannot segment text as a tokenizer does; none if it can."""
    model = _read(tokenizer)
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    kinds = {piece.type for piece in model.pieces}
    found = {
        "its tokenizer is neither BPE nor unigram": trainer.model_type not in (UNIGRAM, BPE),
        "its vocabulary has pieces of a user": not kinds <= {NORMAL, UNKNOWN, CONTROL, BYTE},
        "its vocabulary does not spell unknown characters in bytes": not trainer.byte_fallback,
        "its tokenizer treats spaces in another way": trainer.treat_whitespace_as_suffix
        or not (normalizer.add_dummy_prefix and normalizer.escape_whitespaces),
    }
    return [reason for reason, true in found.items() if true]


def vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """type: "bpe" or "unigram". pieces, scores: in the order of their numbers. kinds: a digit for each, see above."""
    model = _read(tokenizer)
    return {
        "type": "bpe" if model.trainer_spec.model_type == BPE else "unigram",
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [_short(piece.score) for piece in model.pieces],
        "kinds": "".join(str(piece.type) for piece in model.pieces),
    }


def _read(tokenizer: Tokenizer) -> Any:
    return sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)


def _short(score: float) -> float | int:
    """A float32 in as few digits as identify it."""
    return int(score) if score == int(score) else float(str(np.float32(score)))
