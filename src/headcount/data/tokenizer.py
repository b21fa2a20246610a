"""Sentencepiece tokenizers: one model for both languages, or one for each.

Text is normalised here, by `normalise`, and not by sentencepiece (its rule is "identity"). Byte fallback spells every
character that the vocabulary lacks, so no text is lost.
"""

import functools
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
from typing import Annotated, Any, Literal

import numpy as np
import regex
import sentencepiece
from annotated_types import Ge, Gt, Le

from headcount.errors import InputError, reason
from headcount.files import write_bytes
from headcount.settings import Positive

PAD, UNK, BOS, EOS = 0, 1, 2, 3
VocabularySize = Annotated[int, Gt(260)]  # 4 special pieces and 256 bytes come first
MAX_BYTES = 4192  # sentencepiece does not train on longer lines

SPACE_MARK = "\u2581"  # sentencepiece's sign for a space, which decoded text cannot distinguish from a space


def normalise(text: str) -> str:
    """NFC; white space becomes one space, and is removed at both ends; a lone surrogate (not UTF-8) becomes U+FFFD.
    Text without a character that can be seen, as of zero-width spaces alone, becomes empty.

    >>> normalise(" a\\u0308\\t b ")
    'ä b'
    """
    if text.isascii():  # most text; of the steps below only one can change it
        return " ".join(text.split())
    text = unicodedata.normalize("NFC", text).replace(SPACE_MARK, " ")
    text = " ".join(text.split())
    if not _VISIBLE.search(text):
        return ""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text


_SURROGATE = re.compile("[\ud800-\udfff]")
_VISIBLE = regex.compile(r"[^ \p{Cf}\p{Default_Ignorable_Code_Point}]")


class Tokenizer:
    """A trained sentencepiece model: text to piece numbers and back.

    The numbers 0 to 3 are padding, unknown, begin and end of sentence; `encode` never gives them.
    model: the content of a sentencepiece model file.
    """

    def __init__(self, model: bytes) -> None:
        self.content = model
        self.source = self.target = self  # as of a `TokenizerPair`
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self.vocab_size = int(self._processor.vocab_size())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Raises InputError for a file that is missing, or is not a sentencepiece model."""
        try:
            return cls(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason(error)}); give a sentencepiece model file") from None
        except (RuntimeError, UnicodeDecodeError):
            raise InputError(f"{path}: not a sentencepiece model; give the tokenizer.model of a run") from None

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model to `path`, whole or not at all. Raises OSError."""
        write_bytes(Path(path), self.content)

    def encode(self, texts: list[str], threads: int = -1, sampling: Mapping[str, Any] | None = None) -> list[list[int]]:
        """Piece numbers of every normalised text, without begin and end of sentence.

        threads: -1 for one a core. sampling: sentencepiece's settings to sample a segmentation; None for the best.
        """
        normal = [normalise(text) for text in texts]
        settings = {} if sampling is None else {"enable_sampling": True, **sampling}
        ids: list[list[int]] = self._processor.encode(normal, out_type=int, num_threads=threads, **settings)
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of every sequence up to its first EOS, without other special numbers; each is one line."""
        texts: list[str] = self._processor.decode([_real(sequence) for sequence in ids])
        return [" ".join(text.split()) for text in texts]  # a model can generate the bytes of line ends

    @functools.cached_property
    def vocabulary(self) -> list[str]:
        """All pieces by their numbers."""
        return [self._processor.id_to_piece(number) for number in range(self.vocab_size)]

    @functools.cached_property
    def piece_bytes(self) -> np.ndarray:
        """Bytes of UTF-8 that each piece spells, its space mark counted, [vocab]."""
        sizes = [1 if self._processor.is_byte(i) else len(piece.encode()) for i, piece in enumerate(self.vocabulary)]
        return np.array(sizes, dtype=np.int64)

    def pieces(self, text: str) -> list[str]:
        """The pieces as strings, for attention maps; "▁" is a space."""
        pieces: list[str] = self._processor.encode(normalise(text), out_type=str)
        return pieces

    def fingerprint(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def _trainable(text: str) -> list[str]:
    """A normalised text in parts that are short enough for sentencepiece, cut at spaces if possible."""
    normal = normalise(text)
    if len(normal.encode()) <= MAX_BYTES:
        return [normal]
    return textwrap.wrap(normal, MAX_BYTES // 4, break_on_hyphens=False)  # a character has 4 bytes at most


def _real(sequence: list[int]) -> list[int]:
    end = sequence.index(EOS) if EOS in sequence else len(sequence)
    return [piece for piece in sequence[:end] if piece not in (PAD, UNK, BOS)]


@dataclass(frozen=True, kw_only=True)
class SentencePiece:
    """Settings of the training of a sentencepiece model (Kudo and Richardson 2018).

    conf/train.yaml explains them. model_type: "bpe" (Sennrich et al. 2016) or "unigram" (Kudo 2018).
    """

    vocab_size: VocabularySize
    model_type: Literal["bpe", "unigram"]
    character_coverage: Annotated[float, Ge(0.9), Le(1.0)]
    sample_bytes: Positive

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()

    def train(self, *texts: Iterable[str]) -> Tokenizer:
        """One model for all `texts`. The same texts in the same order give the same bytes, on any machine.

        Raises InputError if the texts are empty, too small for the vocabulary, or have too many characters for it.
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
        if limit := re.search(r"value <= (\d+)", message):
            return InputError(
                f"tokenizer.vocab_size={self.vocab_size} is more than the training text can fill; "
                f"the largest that works is {limit[1]}: set tokenizer.vocab_size={limit[1]} or less, or give more text"
            )
        return InputError(f"sentencepiece cannot train with tokenizer.vocab_size={self.vocab_size}: {message.strip()}")


@dataclass(frozen=True)
class TokenizerPair:
    """A tokenizer for each language; as one tokenizer, it encodes sources and decodes targets."""

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


@dataclass(frozen=True, kw_only=True)
class SentencePiecePair(SentencePiece):
    """Settings of the training of a sentencepiece model for each language: vocab_size is that of the source language.
    target_vocab_size: None for as many."""

    target_vocab_size: VocabularySize | None

    def train(self, *texts: Iterable[str]) -> TokenizerPair:  # type: ignore[override]
        """A model for sources and one for targets. Raises InputError, see `SentencePiece.train`."""
        shared = asdict(self)
        sizes = self.vocab_size, shared.pop("target_vocab_size") or self.vocab_size
        settings = (SentencePiece(**shared | {"vocab_size": size}) for size in sizes)
        return TokenizerPair(*(each.train(text) for each, text in zip(settings, texts, strict=True)))


AnyTokenizer = Tokenizer | TokenizerPair


def save_tokenizer(tokenizer: AnyTokenizer, directory: Path) -> None:
    """Write tokenizer.model, or source.model and target.model, into a directory."""
    if isinstance(tokenizer, TokenizerPair):
        tokenizer.source.save(directory / "source.model")
        tokenizer.target.save(directory / "target.model")
    else:
        tokenizer.save(directory / "tokenizer.model")


def load_tokenizer(directory: Path) -> AnyTokenizer:
    """The tokenizer that `save_tokenizer` wrote. Raises InputError if there is none that can be used."""
    if (directory / "source.model").exists():
        return TokenizerPair(*(Tokenizer.load(directory / f"{side}.model") for side in ("source", "target")))
    return Tokenizer.load(directory / "tokenizer.model")
