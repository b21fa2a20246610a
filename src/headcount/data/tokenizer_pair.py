"""A sentencepiece model for each language, where one for both is not wanted: other scripts, other vocabulary sizes."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from headcount.data.tokenizer import SentencePiece, Tokenizer


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of source and target; used like one, it reads sources and writes targets."""

    source: Tokenizer
    target: Tokenizer

    @property
    def vocab_size(self) -> int:
        return self.target.vocab_size

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self.source.encode(texts)

    def decode(self, ids: list[list[int]]) -> list[str]:
        return self.target.decode(ids)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.source.fingerprint()} {self.target.fingerprint()}".encode()).hexdigest()


@dataclass(frozen=True)
class SentencePiecePair:
    """How to train a sentencepiece model for each language; the settings are those of `SentencePiece`, for both alike.

    Args:
        vocab_size: pieces of the source language.
        target_vocab_size: pieces of the target language; None for as many.
    """

    vocab_size: int
    target_vocab_size: int | None = None
    model_type: str = "bpe"
    character_coverage: float = 1.0
    sample_bytes: int = SentencePiece.sample_bytes

    def __post_init__(self) -> None:
        self._sides()

    def _sides(self) -> list[SentencePiece]:
        sizes = self.vocab_size, self.target_vocab_size or self.vocab_size
        return [SentencePiece(size, self.model_type, self.character_coverage, self.sample_bytes) for size in sizes]

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(["pair", asdict(self)]).encode()).hexdigest()

    def train(self, source: Iterable[str], target: Iterable[str]) -> TokenizerPair:
        """Raises InputError, see `SentencePiece.train`."""
        return TokenizerPair(*(how.train(texts) for how, texts in zip(self._sides(), (source, target), strict=True)))


AnyTokenizer = Tokenizer | TokenizerPair
Trainable = SentencePiece | SentencePiecePair


def save_tokenizer(tokenizer: AnyTokenizer, directory: Path) -> None:
    """Into tokenizer.model, or source.model and target.model, of a directory."""
    if isinstance(tokenizer, TokenizerPair):
        tokenizer.source.save(directory / "source.model")
        tokenizer.target.save(directory / "target.model")
    else:
        tokenizer.save(directory / "tokenizer.model")


def load_tokenizer(directory: Path) -> AnyTokenizer:
    """What `save_tokenizer` saved. Raises InputError where there is none that can be used."""
    if (directory / "source.model").exists():
        return TokenizerPair(*(Tokenizer.load(directory / f"{side}.model") for side in ("source", "target")))
    return Tokenizer.load(directory / "tokenizer.model")
