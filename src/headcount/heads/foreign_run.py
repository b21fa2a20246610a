"""A model of transformers in a folder, opened as a run: its tokenizer, its search, and sentences from two files."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from numpy.typing import NDArray

from headcount.data.corpora.corpus import language_codes
from headcount.data.corpora.text import read_parallel
from headcount.data.tokenizer import SPACE_MARK, Tokenizer, TokenizerPair, normalise
from headcount.decoding.beam import MOST_ALPHA, BeamSearch
from headcount.devices import choose_device
from headcount.errors import InputError, first_line
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.grammar.corpus import words
from headcount.heads.foreign import SHIFT, ForeignModel
from headcount.heads.spelling import Split
from headcount.run.opened import Run, make_translator

# Of the search, as in conf/search/beam.yaml.
BOUNDS: Any = {"max_ratio": 2.0, "max_extra": 10, "batch_tokens": 8192, "max_source": None}
EXAMPLE = "a"  # whose tokens show what the tokenizer adds
LEAST = 2  # pairs of a split


class Side(Tokenizer):
    """The tokenizer for sources, or for targets, of a model.

    before, after: what it adds to a sentence, ids of the model. `encode` gives all but the last token of `after` for a
    source, and all before `after` for a target.
    """

    def __init__(self, tokenizer: Any, target: bool, vocab_size: int) -> None:
        self.tokenizer, self.target, self.vocab_size = tokenizer, target, vocab_size + SHIFT  # type: ignore[assignment]
        (whole,), (plain,) = (self._found([EXAMPLE], add_special_tokens=added)["input_ids"] for added in (True, False))
        start = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), len(whole))
        self.before: list[int] = whole[:start]
        self.after: list[int] = whole[start + len(plain) :]
        if not self.after:
            raise InputError("its tokenizer puts no end after a sentence, which the model would need to stop")
        if max(whole) >= vocab_size:
            raise InputError(f"its tokenizer gives token {max(whole)}, and the model has {vocab_size}")
        self.end = len(self.after) if target else 1  # tokens that `encode` leaves out

    def _found(self, texts: Sequence[str], **settings: Any) -> Any:
        return self.tokenizer(**{"text_target" if self.target else "text": list(map(normalise, texts))}, **settings)

    def encode(self, texts: list[str], *_: Any) -> list[list[int]]:
        """Ids of headcount, see `headcount.heads.foreign`."""
        found = self._found(texts)["input_ids"] if texts else []
        return [[token + SHIFT for token in ids[: len(ids) - self.end]] for ids in found]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each sequence without special tokens, on one line."""
        real = [[token - SHIFT for token in sequence if token >= SHIFT] for sequence in ids]
        texts = [self.tokenizer.decode(each, skip_special_tokens=True) for each in real]
        return [" ".join(text.split()) for text in texts]

    def pieces(self, text: str) -> list[str]:
        """The tokens as text, of the ids that `encode` gives."""
        names = self.tokenizer.convert_ids_to_tokens
        if self.tokenizer.is_fast:
            return list(names([token - SHIFT for token in self.encode([text])[0]]))
        return [*names(self.before), *self._tokens(text), *names(self.after[: -self.end])]

    def _tokens(self, text: str) -> list[str]:
        """What a tokenizer in Python finds, without what it adds; unlike ids, it shows words that are not known."""
        getattr(self.tokenizer, "_switch_to_target_mode" if self.target else "_switch_to_input_mode")()
        tokens: list[str] = self.tokenizer.tokenize(normalise(text))
        self.tokenizer._switch_to_input_mode()
        return tokens

    def _letters(self, text: str) -> list[str]:
        """The letters of the text that each token stands for, as far as the tokenizer tells."""
        if not self.tokenizer.is_fast:
            inside = [token.replace(SPACE_MARK, "") for token in self._tokens(text)]
            return [*("" for _ in self.before), *inside, *("" for _ in self.after[: -self.end])]
        (spans,), normal = self._found([text], return_offsets_mapping=True)["offset_mapping"], normalise(text)
        return ["".join(normal[start:end].split()) for start, end in spans[: len(spans) - self.end]]

    def spelling(self, text: str, split: Split = words) -> NDArray[np.float32]:
        """Share of the letters of each token in each word of a text, [token, word]; zeros for a token without any."""
        tokens, found = self._letters(text), split(normalise(text))
        mine, letters = "".join(tokens), "".join(found)
        word_of = np.repeat(np.arange(len(found)), [len(word) for word in found])
        owners = np.full(len(mine), -1)
        # Equal for most texts; but a tokenizer may change letters, or write some as bytes.
        same = [(0, 0, len(mine))] if mine == letters else None
        blocks = same or SequenceMatcher(None, mine, letters, False).get_matching_blocks()
        for at, there, count in blocks:
            owners[at : at + count] = word_of[there : there + count]
        sizes = np.array([len(token) for token in tokens], dtype=np.int64)
        shares = np.zeros((len(tokens), len(found)), dtype=np.float32)
        if len(found):
            places = np.repeat(np.arange(len(tokens)), sizes), np.maximum.accumulate(owners).clip(min=0)
            np.add.at(shares, places, np.repeat(1 / np.maximum(sizes, 1), sizes))
        return shares


@dataclass
class ForeignRun(Run):
    """A model that others trained, as a run. codes: its languages. splits: the text of "valid" and "test"; what our own
    runs do with training text, this one does with that of "valid"."""

    codes: tuple[str, str] = ("", "")
    splits: Mapping[str, Dataset] = field(default_factory=dict)

    @property
    def languages(self) -> tuple[str, str]:
        return self.codes

    @property
    def bleu_tokenizer(self) -> str:
        return bleu_tokenizer(self.codes[1])

    @property
    def sentences(self) -> str:
        """Names the text and its languages."""
        text = json.dumps([self.codes, {name: rows.to_dict() for name, rows in self.splits.items()}])
        return hashlib.sha256(text.encode()).hexdigest()

    def data(self) -> Any:
        return SimpleNamespace(one_way={"train": self.splits["valid"], **self.splits})


def open_foreign(folder: Path, files: Sequence[str], directory: Path | None, config: Any) -> ForeignRun:
    """The model of transformers in a folder, and the sentences of two files, a source a line and its translation;
    their endings are the codes of their languages. directory: of the results; None: FOLDER-heads. config: of the
    command. Raises InputError."""
    if len(files) != 2:
        raise InputError("model= needs input=[SOURCE,TARGET]: two text files, such as input=[test.en,test.de]")
    source, target = (Path(name).suffix[1:] or name for name in files)
    codes = language_codes(source, target)
    model, tokenizer = loaded(folder)
    try:
        set_languages(tokenizer, codes)
        sizes = [
            len(part.weight) for part in (model.get_encoder().get_input_embeddings(), model.get_output_embeddings())
        ]
        sides = [Side(tokenizer, target, size) for target, size in zip((False, True), sizes, strict=True)]
        adapted = adapted_model(model, *sides).to(choose_device(config.device))
    except InputError as error:
        raise InputError(f"model={folder}: {error}") from error
    generation, both = model.generation_config, TokenizerPair(*sides)
    alpha = min(max(generation.length_penalty or 0.0, 0.0), MOST_ALPHA)
    search = BeamSearch(beam=generation.num_beams or 1, alpha=alpha, **BOUNDS)
    translator = make_translator(adapted, both, search, str(folder))
    splits = sentences(files, both, adapted.max_length)
    home = directory or folder.parent / f"{folder.resolve().name}-heads"
    home.mkdir(parents=True, exist_ok=True)
    return ForeignRun(home, config, adapted, both, translator, None, codes, splits)


def loaded(folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer in a folder, from no other place. Raises InputError."""
    if not (folder / "config.json").is_file():
        raise InputError(f"model={folder}: must be a folder in which transformers saved a model, with a config.json")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # translation forks
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        kind, here = transformers.AutoModelForSeq2SeqLM, {"local_files_only": True}
        model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **here)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **here)
    except Exception as error:  # of many classes
        raise InputError(f"model={folder}: transformers opens no encoder-decoder there: {first_line(error)}") from error
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"model={folder}: its file of weights has none for {missing[0]}, which would be random")
    return model, tokenizer


def set_languages(tokenizer: Any, codes: tuple[str, str]) -> None:
    """Set source and target language of a tokenizer that has several. Raises InputError for one that it does not."""
    if not hasattr(tokenizer, "src_lang"):
        return
    known = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.get_added_vocab()
    chosen = []
    for code in codes:
        found = [name for name in known if name == code] or [name for name in known if name.startswith(f"{code}_")]
        if len(found) != 1:
            some = ", ".join(sorted(known)[:3])
            raise InputError(
                f"its tokenizer has no language {code}; name the files of input= by its codes ({some}, ...)"
            )
        chosen += found
    tokenizer.src_lang, tokenizer.tgt_lang = chosen


def adapted_model(model: Any, source: Side, target: Side) -> ForeignModel:
    """The model with the special tokens that its tokenizer uses. Raises InputError, see `ForeignModel`."""
    begin = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    labels = torch.tensor([[*target.before, *target.after]])
    start = model.config.decoder_start_token_id if begin is None else int(begin(labels)[0, 0])
    return ForeignModel(model, start, source.after[-1], target.after[0], target.before)


def sentences(files: Sequence[str], tokenizer: TokenizerPair, longest: int | None) -> dict[str, Dataset]:
    """The pairs of two files: the first, third and so on are "test", the others "valid", but for sources that are also
    in "test". Pairs with an empty side are left out. Raises InputError."""
    pairs = list(enumerate(zip(*read_parallel(*files), strict=True), start=1))
    pairs = [(line, pair) for line, pair in pairs if all(map(normalise, pair))]
    for side, name, own in zip((0, 1), files, (tokenizer.source, tokenizer.target), strict=True):
        for (line, _), ids in zip(pairs, own.encode([pair[side] for _, pair in pairs]), strict=True):
            if longest is not None and len(ids) >= longest:
                raise InputError(
                    f"{name}, line {line}: {len(ids)} tokens, and the model has positions for {longest - 1}"
                )
    test, valid = ([pair for _, pair in pairs[start::2]] for start in (0, 1))
    seen = {source for source, _ in test}
    valid = [pair for pair in valid if pair[0] not in seen]
    if len(valid) < LEAST:
        raise InputError(
            f"{', '.join(files)}: {len(pairs)} pairs, of which half are measured; give {2 * LEAST} or more"
        )
    return {
        name: Dataset.from_dict({"source": [a for a, _ in rows], "target": [b for _, b in rows]})
        for name, rows in (("valid", valid), ("test", test))
    }
