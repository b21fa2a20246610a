"""The lexicon of a run, for searches with a shortlist: learned from its training text, and kept as lexicon.npz."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from headcount.data.tokenizer import AnyTokenizer
from headcount.decoding.search import SearchMethod
from headcount.decoding.shortlist import MOST_PER_PIECE, NONE, Lexicon, Pieces, learn_lexicon, sample
from headcount.errors import InputError
from headcount.files import show
from headcount.run.arrays import read_arrays, write_arrays

if TYPE_CHECKING:
    from headcount.data.module import TranslationData

FILE = "lexicon.npz"
ARRAYS = ("translations", "frequent")  # see `Lexicon`

logger = logging.getLogger(__name__)


def lexicon_of(
    directory: Path, tokenizer: AnyTokenizer, search: SearchMethod, data: Callable[[], "TranslationData"]
) -> Lexicon | None:
    """The lexicon of the run in a directory: the one that is kept there, or else learned from `data`, the run's corpus,
    and kept; None for a search without a shortlist. Raises InputError for a damaged one, and where there is neither."""
    if search.shortlist is None:
        return None
    path = directory / FILE
    sizes = tokenizer.source.vocab_size, tokenizer.target.vocab_size
    shared = tokenizer.source is tokenizer.target
    arrays = read_arrays(path)
    if arrays is None:
        try:
            train = data().data["train"]
        except InputError as error:
            raise InputError(
                f"search.shortlist: {show(directory)} has no {FILE}, which is learned from its training text: {error}"
            ) from error
        logger.info("learning the lexicon of %s from %s pairs (IBM model 1)", show(directory), f"{len(train):,}")
        learned = learn_lexicon(*_pieces(train), sizes, shared)
        try:
            write_arrays(path, {name: getattr(learned, name) for name in ARRAYS})
        except OSError as error:
            logger.warning("%s: cannot be written (%s), so it is learned anew each time", path, error)
        return learned
    if not _fits(arrays, sizes):
        raise InputError(f"{path}: not the lexicon of this run; remove it, and it is learned again")
    return Lexicon(arrays["translations"], arrays["frequent"], shared)


def _pieces(pairs: Dataset) -> tuple[Pieces, Pieces]:
    """Source and target of a sample of the pairs, which alone is read into memory."""
    names = ["source_ids", "target_ids"]
    text = pa.table(pairs.select_columns(names).with_format("arrow")[:])
    chosen = sample(*(pc.list_value_length(text[name]).to_numpy() for name in names))
    source, target = (text[name].filter(pa.array(chosen)) for name in names)
    return _of_lists(source), _of_lists(target)


def _of_lists(ids: pa.ChunkedArray) -> Pieces:
    return Pieces(pc.list_flatten(ids).to_numpy(), pc.list_value_length(ids).to_numpy().astype(np.int64))


def _fits(arrays: dict[str, np.ndarray], sizes: tuple[int, int]) -> bool:
    """Whether the arrays of a file, which anybody may have written, are a lexicon of these vocabularies."""
    if arrays.keys() != set(ARRAYS) or any(array.dtype != np.int32 for array in arrays.values()):
        return False
    translations, frequent = (arrays[name] for name in ARRAYS)
    return (
        translations.shape == (sizes[0], min(MOST_PER_PIECE, sizes[1]))
        and frequent.shape == (sizes[1],)
        and bool(((translations >= NONE) & (translations < sizes[1])).all())
        and bool(((frequent >= 0) & (frequent < sizes[1])).all())
    )
