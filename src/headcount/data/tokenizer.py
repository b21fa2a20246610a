"""Sentencepiece tokenizers: one model for both languages, or one for each.

Sentencepiece itself changes nothing in the text (its rule is "identity"); what is changed is changed here, in
`normalise`, and byte fallback spells every character that the vocabulary lacks, so nothing is ever lost.
"""

import hashlib
import io
import itertools
import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from headcount.errors import InputError
from headcount.files import write_bytes

PAD, UNK, BOS, EOS = 0, 1, 2, 3
MAX_BYTES = 4192  # sentencepiece leaves longer lines out of training

_SPACE_MARK = "\u2581"  # sentencepiece's own sign for a space; it cannot be told from one in decoded text


def normalise(text: str) -> str:
    """NFC, every run of white space one space, none at either end; a lone surrogate (no UTF-8) becomes U+FFFD.

    >>> normalise(" a\\u0308\\t b ")
    'ä b'
    """
    if text.isascii():  # the most of most text, and of the steps below only one can change it
        return " ".join(text.split())
    text = unicodedata.normalize("NFC", text).replace(_SPACE_MARK, " ")
    text = " ".join(text.split())
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text


_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A trained sentencepiece model: text to piece numbers and back.

    The numbers 0 to 3 are padding, unknown, begin and end of sentence; `encode` never gives them.
    """

    def __init__(self, model: bytes) -> None:
        """`model` is what a sentencepiece model file holds."""
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return Tokenizer, (self._model,)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Raises InputError where the file is missing, no sentencepiece model, or has other special numbers."""
        try:
            tokenizer = cls(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give a sentencepiece model file") from None
        except (RuntimeError, ValueError):
            raise InputError(f"{path}: not a sentencepiece model; give the tokenizer.model of a run") from None
        processor = tokenizer._processor
        special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if special != (PAD, UNK, BOS, EOS):
            raise InputError(
                f"{path}: numbers pad, unk, bos, eos as {special}; only {(PAD, UNK, BOS, EOS)} is allowed: "
                "train it with headcount"
            )
        return tokenizer

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model to `path`, whole or not at all. Raises OSError."""
        write_bytes(Path(path), self._model)

    @property
    def source(self) -> "Tokenizer":
        """The one to read sources with, as of a pair of tokenizers."""
        return self

    @property
    def target(self) -> "Tokenizer":
        return self

    @property
    def vocab_size(self) -> int:
        return int(self._processor.vocab_size())

    def encode(self, texts: list[str], threads: int = -1, sampling: Mapping[str, Any] | None = None) -> list[list[int]]:
        """Piece numbers of every normalised text, without begin and end of sentence; -1 for a thread a core.

        sampling: sentencepiece's settings for drawing one of many segmentations; None for the best one.
        """
        normal = [normalise(text) for text in texts]
        drawn = {} if sampling is None else {"enable_sampling": True, **sampling}
        ids: list[list[int]] = self._processor.encode(normal, out_type=int, num_threads=threads, **drawn)
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Text of every sequence, one line each: read up to its first EOS, other special numbers ignored."""
        texts: list[str] = self._processor.decode([_real(sequence) for sequence in ids])
        return [" ".join(text.split()) for text in texts]  # among the bytes that a model can say are line ends

    def pieces(self, text: str) -> list[str]:
        """The pieces as strings, to show beside attention weights; "▁" stands for a space."""
        pieces: list[str] = self._processor.encode(normalise(text), out_type=str)
        return pieces

    def fingerprint(self) -> str:
        return hashlib.sha256(self._model).hexdigest()


def _trainable(text: str) -> list[str]:
    """A normalised text in parts that sentencepiece does not leave out for their length, cut at spaces if it can be."""
    normal = normalise(text)
    if len(normal.encode()) <= MAX_BYTES:
        return [normal]
    return textwrap.wrap(normal, MAX_BYTES // 4, break_on_hyphens=False)  # a character has 4 bytes at most


def _real(sequence: list[int]) -> list[int]:
    end = sequence.index(EOS) if EOS in sequence else len(sequence)
    return [piece for piece in sequence[:end] if piece not in (PAD, UNK, BOS)]


@dataclass(frozen=True)
class SentencePiece:
    """How to train a sentencepiece model (Kudo and Richardson 2018).

    Args:
        vocab_size: pieces in all, among them 4 special ones and 256 bytes.
        model_type: "bpe" (Sennrich et al. 2016) or "unigram" (Kudo 2018).
        character_coverage: share of the text's characters that get a piece of their own; the rest is spelled in bytes.
        sample_bytes: of a corpus with more text than this, both sides together, a random sample of about this size is
            learned from; sentencepiece needs up to 25 times as many bytes of memory.
    """

    vocab_size: int
    model_type: str = "bpe"
    character_coverage: float = 1.0
    sample_bytes: int = 2**25

    def __post_init__(self) -> None:
        if self.vocab_size <= 260:
            raise ValueError(
                f"tokenizer.vocab_size={self.vocab_size} is too small: 4 special pieces and 256 bytes come first; "
                "give more than 260, such as 8000"
            )
        if self.model_type not in ("bpe", "unigram"):
            raise ValueError(f"tokenizer.model_type={self.model_type} is not known; give bpe or unigram")
        if not 0.9 <= self.character_coverage <= 1.0:
            raise ValueError(
                f"tokenizer.character_coverage={self.character_coverage} is out of range; give 0.9 to 1.0, "
                "1.0 for small alphabets and 0.9995 for Chinese or Japanese"
            )
        if self.sample_bytes < 1:
            raise ValueError(
                f"tokenizer.sample_bytes={self.sample_bytes} leaves no text to learn from; give more, such as {2**25}"
            )

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()

    def train(self, *texts: Iterable[str]) -> Tokenizer:
        """One model for all `texts`. The same texts in the same order give the same bytes, on any machine.

        Raises:
            InputError: the texts hold nothing, or too little for so large a vocabulary, or too many characters for so
                small a one.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.chain.from_iterable(map(_trainable, itertools.chain(*texts))),
                model_writer=model,
                vocab_size=self.vocab_size,
                model_type=self.model_type,
                character_coverage=self.character_coverage,
                byte_fallback=True,
                normalization_rule_name="identity",
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                num_threads=1,  # a unigram model differs in its last bits with the number of threads
                minloglevel=2,
            )
        except RuntimeError as error:
            raise self._explained(str(error)) from error
        return Tokenizer(model.getvalue())

    def _explained(self, message: str) -> InputError:
        if found := re.search(r"value <= (\d+)", message):
            return InputError(
                f"tokenizer.vocab_size={self.vocab_size} is more than the training text can fill; "
                f"the largest that works is {found[1]}: set tokenizer.vocab_size={found[1]} or less, or give more text"
            )
        if found := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
            return InputError(
                f"tokenizer.vocab_size={self.vocab_size} is too small for the characters of the training text; "
                f"give more than {found[1]}, or a lower tokenizer.character_coverage"
            )
        if "sentences_.empty()" in message:
            return InputError("the tokenizer has no text to learn from; give training pairs that hold text")
        return InputError(f"sentencepiece cannot train with tokenizer.vocab_size={self.vocab_size}: {message.strip()}")


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
