"""Translate standard input, or interactively at a prompt."""

import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal, TextIO

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headcount.data.corpora.text import MARK, NOT_UTF_8, decoded
from headcount.data.tokenizer import BOS, EOS, PAD, SPACE_MARK, Tokenizer
from headcount.decoding.search import Translation
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.export.engine import chosen_engine
from headcount.files import STANDARD_OUTPUT, naming, show
from headcount.run.opened import Run, ensemble, open_runs, weights_digest
from headcount.settings import Opening

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Settings(Opening):
    """conf/translate.yaml explains them."""

    device: str
    nbest: int | None
    alignments: bool
    precision: Literal["float32", "bfloat16", "int8"]
    engine: Literal["headcount", "ctranslate2"]


LINES_AT_ONCE = 2000  # at once: an endless input is translated as it comes, in full batches
SENTENCES = 64  # that are aligned at once, of similar length,
MOST_WEIGHTS = 2**26  # or fewer, so that their attention weights in all layers and heads are no more

Links = list[tuple[int, int]]
"""Words of source and target, from 0, that are translations of each other."""

Aligner = Callable[[Sequence[str], Sequence[str]], list[Links]]
"""Links between the words of sources and their translations, one for each target word, in its order; none where either
is empty."""


def run(config: DictConfig) -> None:
    """Translate standard input as conf/translate.yaml says: interactively at a terminal, otherwise as a filter. Raises
    InputError."""
    with_engine = chosen_engine(config)
    runs = open_runs(config)
    opened = with_engine(ensemble(list(runs.values())))
    if config.nbest is not None:
        opened.translator.search.rows(config.nbest)  # raises InputError
    if sys.stdin.isatty():
        if config.alignments:
            raise InputError("alignments=true: not at a prompt; give the lines with < FILE")
        return converse(opened, ", ".join(runs), config.nbest or 1)
    aligned = aligner(opened) if config.alignments else None  # raises InputError before anything is read or written
    translate_stream(opened, sys.stdin.buffer, sys.stdout, config.nbest, aligned)


def translate_stream(
    run: Run, source: BinaryIO, sink: TextIO, nbest: int | None = None, aligned: Aligner | None = None
) -> None:
    """Translate line by line: n lines in, n lines out, an empty line stays empty.

    nbest: translations per line, each with the number of its line (from 0) and its score, in the format of Moses:
    `number ||| text ||| score`. aligned: gives the links of words of each translation, for the last column. Raises
    InputError for a line that is not UTF-8 or is too long, by number; the lines before it are translated.
    """
    # By "\n" alone, in bytes: other characters that Unicode calls line ends belong to the text.
    lines = enumerate(source, start=1)
    written = 0
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        texts, wrong, why = [], None, NOT_UTF_8
        for number, line in chunk:
            try:
                texts.append(decoded(line).lstrip(MARK).rstrip("\r\n"))
            except UnicodeDecodeError:
                wrong = number
                break
        try:
            translations = run.translator.nbest(texts, nbest or 1)
        except LineError as error:
            translations = run.translator.nbest(texts[: error.line], nbest or 1)
            wrong, why = written + error.line + 1, error.why
        write(sink, shown_lines(texts, translations, written, nbest, aligned))
        written += len(translations)
        if wrong is not None:
            raise InputError(f"standard input, line {wrong}: {why}")


def write(sink: TextIO, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    with naming(STANDARD_OUTPUT, len(text.encode())):
        sink.write(text)
        sink.flush()


def shown_lines(
    texts: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    first: int,
    nbest: int | None,
    aligned: Aligner | None,
) -> list[str]:
    """The lines to show of the translations of some texts, of which `first` is the number of the first one; the rest as
    for `translate_stream`."""
    rows = [
        (number, source, *each)
        for number, (source, best) in enumerate(zip(texts, translations, strict=False), start=first)
        for each in best[: nbest or 1]
    ]
    lines = [
        text if nbest is None else f"{number} ||| {text.replace('|||', '&#124;' * 3)} ||| {score:.6f}"
        for number, _, text, score in rows
    ]
    if aligned is None:
        return lines
    # In the format of Pharaoh and Moses: 0-0 1-2, source first.
    each_links = aligned([row[1] for row in rows], [row[2] for row in rows])
    found = [" ".join(f"{source}-{target}" for source, target in each) for each in each_links]
    return [f"{line} ||| {each}" for line, each in zip(lines, found, strict=True)]


def converse(run: Run, name: str, nbest: int = 1) -> None:
    """Ask for sentences and answer with translations until end of input."""
    source, target = run.languages
    sys.stderr.write(f"{name}: {source} to {target}. A sentence and Enter; Ctrl-D ends.\n")
    while True:
        try:
            line = input(f"{source}> ")
        except EOFError:
            sys.stderr.write("\n")
            return
        try:
            for text, _ in run.translator.nbest([line], nbest)[0]:
                sys.stdout.write(f"{target}> {text}\n")
        except LineError as error:
            sys.stderr.write(f"{error.why}\n")


def aligner(run: Run) -> Aligner:
    """Word alignment by cross-attention, of an ensemble by that of its first run.

    The source word is the one with the largest share of the attention at the positions that predict the word: of the
    head that aligns best, or the mean of all cross heads of the last layer that has some. Words are those between
    spaces. Raises InputError for a model without cross-attention.
    """
    counts = run.model.head_counts.get("cross_heads", [])
    if not any(counts):
        raise InputError(f"alignments: {run.directory} has no attention to the source, so its words cannot be aligned")
    last = max(layer for layer, count in enumerate(counts) if count)
    return partial(_aligned, run, *(aligning_head(run) or (last, slice(None))))


def aligning_head(run: Run) -> tuple[int, slice] | None:
    """The cross head with the most right links by weight, at the position that predicts the word: its layer, and its
    place there. None for a run whose heads were not measured with these weights, or whose corpus has no gold alignment.

    Raises InputError for a damaged file of results.
    """
    from headcount.heads.effects import FILE, read_parts  # here: xarray is slow to import

    path = run.directory / "heads" / FILE
    arrays = read_parts(path).get("gold")
    if arrays is None or "valid.right" not in arrays or not arrays["valid.right"].any():
        return None
    if str(arrays.get("weights")) != weights_digest(run.model, torch.bfloat16):
        logger.warning("%s is of other weights; heads parts=[gold] measures which head aligns best", show(path))
        return None
    counts = run.model.head_counts["cross_heads"]
    heads = [(layer, slice(head, head + 1)) for layer, count in enumerate(counts) for head in range(count)]
    view, when = (arrays[name].tolist().index(wanted) for name, wanted in (("view", "weight"), ("when", "before")))
    return heads[int(arrays["valid.right"][:, view, :, when].sum(axis=0).argmax())]


@torch.inference_mode()
def _aligned(run: Run, layer: int, heads: slice, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
    source, target = run.tokenizer.source, run.tokenizer.target
    pairs = list(zip(source.encode(list(sources)), target.encode(list(targets)), strict=True))
    found: list[Links] = [[] for _ in pairs]
    in_all = sum(map(sum, run.model.head_counts.values()))
    sizes = {row: (1 + max(map(len, pair))) ** 2 * in_all for row, pair in enumerate(pairs) if all(pair)}
    rows = sorted(sizes, key=sizes.__getitem__, reverse=True)
    while rows:
        count = max(1, min(SENTENCES, MOST_WEIGHTS // sizes[rows[0]]))
        batch, rows = rows[:count], rows[count:]
        rows_of = [[*pairs[row][0], EOS] for row in batch], [[BOS, *pairs[row][1]] for row in batch]
        padded = (pad_sequence([torch.tensor(ids) for ids in each], True, PAD) for each in rows_of)
        ids, before = (each.to(run.model.device) for each in padded)
        cross = run.model.attention_weights(ids, ids != PAD, before).cross[layer][:, heads].mean(dim=1).float().cpu()
        for row, weights in zip(batch, cross, strict=True):
            words = word_of(source, pairs[row][0]), word_of(target, pairs[row][1])
            table = torch.zeros(int(words[1].max()) + 1, int(words[0].max()) + 1)
            weights = weights[: len(words[1]), : len(words[0])]
            table.index_put_((words[1][:, None], words[0][None, :]), weights, accumulate=True)
            found[row] = [(int(word), number) for number, word in enumerate(table.argmax(dim=1))]
    return found


def word_of(tokenizer: Tokenizer, ids: Sequence[int]) -> Tensor:
    """The word that each piece belongs to, from 0."""
    starts = [tokenizer.vocabulary[number].startswith(SPACE_MARK) for number in ids]
    return (torch.tensor(starts, dtype=torch.int64).cumsum(0) - 1).clamp_min(0)
