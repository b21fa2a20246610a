"""Translate standard input, or interactively at a prompt."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TextIO

from omegaconf import DictConfig

from headcount.data.corpora.text import MARK, NOT_UTF_8, no_text
from headcount.decoding.search import Translation
from headcount.decoding.translator import LineError
from headcount.errors import InputError, reason
from headcount.files import naming
from headcount.run.alignment import Aligner, aligner, pharaoh
from headcount.run.console import STANDARD_OUTPUT
from headcount.run.opened import Run, ensemble, open_runs
from headcount.run.values import fits, typed

LINES_AT_ONCE = 2000  # at once: an endless input is translated as it comes, in full batches


def translate(config: DictConfig, with_engine: Callable[[Run], Run] = lambda run: run) -> None:
    """Translate standard input as conf/translate.yaml says: interactively at a terminal, otherwise as a filter.

    with_engine: gives the run another translator. Raises InputError.
    """
    if not fits(config.nbest, int | None):
        raise InputError(f"nbest={config.nbest}: must be a whole number or null")
    if not fits(config.alignments, bool | str):
        raise InputError(f"alignments={typed(config.alignments)}: must be true, false or a file")
    runs = open_runs(config)
    run = with_engine(ensemble(list(runs.values())))
    if config.nbest is not None:
        run.translator.search.check(config.nbest)
    prompt = sys.stdin.isatty()
    if config.alignments and prompt:
        raise InputError(f"alignments={typed(config.alignments)}: not at a prompt; give the lines with < FILE")
    aligned = aligner(run) if config.alignments else None  # raises InputError before anything is read or written
    if prompt:
        return converse(run, ", ".join(runs), config.nbest or 1)
    with alignment_file(config.alignments) as links:
        translate_stream(run, sys.stdin.buffer, sys.stdout, config.nbest, aligned, links)


@contextmanager
def alignment_file(alignments: bool | str) -> Iterator[TextIO | None]:
    """The file of `alignments`, open to be written; None for true or false. Raises InputError."""
    if isinstance(alignments, bool):
        yield None
        return
    try:
        file = open(alignments, "w", encoding="utf-8")  # noqa: SIM115 - closed below; only this may fail
    except OSError as error:
        raise InputError(f"alignments={alignments}: can't be written to ({reason(error)}); name another") from error
    with file:
        yield file


def translate_stream(
    run: Run,
    source: BinaryIO,
    sink: TextIO,
    nbest: int | None = None,
    aligned: Aligner | None = None,
    links: TextIO | None = None,
) -> None:
    """Translate line by line: n lines in, n lines out, an empty line stays empty.

    nbest: translations per line, each with the number of its line (from 0) and its score, in the format of Moses:
    `number ||| text ||| score`. aligned: gives the links of words of each translation, for the last column, or for a
    line each of the file `links`. Raises InputError for a line that is not UTF-8 or is too long, by number; the lines
    before it are translated.
    """
    # By "\n" alone, in bytes: other characters that Unicode calls line ends belong to the text.
    lines = enumerate(source, start=1)
    written = 0
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        if not written and (why := no_text(b"".join(line for _, line in chunk))):
            raise InputError(f"standard input, line 1: {why}")
        texts, wrong, why = [], None, NOT_UTF_8
        for number, line in chunk:
            try:
                texts.append(line.decode().lstrip(MARK).rstrip("\r\n"))
            except UnicodeDecodeError:
                wrong = number
                break
        try:
            translations = run.translator.nbest(texts, nbest or 1)
        except LineError as error:
            translations = run.translator.nbest(texts[: error.line], nbest or 1)
            wrong, why = written + error.line + 1, error.why
        shown = shown_lines(texts, translations, written, nbest, aligned, links)
        answer = "".join(f"{line}\n" for line in shown)
        with naming(STANDARD_OUTPUT, len(answer.encode())):
            sink.write(answer)
            sink.flush()
        written += len(translations)
        if wrong is not None:
            raise InputError(f"standard input, line {wrong}: {why}")


def shown_lines(
    texts: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    first: int,
    nbest: int | None,
    aligned: Aligner | None,
    links: TextIO | None,
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
    found = [pharaoh(each) for each in aligned([row[1] for row in rows], [row[2] for row in rows])]
    if links is None:
        return [f"{line} ||| {each}" for line, each in zip(lines, found, strict=True)]
    content = "".join(f"{each}\n" for each in found)
    with naming(links.name, len(content)):
        links.write(content)
        links.flush()
    return lines


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
            translations = run.translator.nbest([line], nbest)[0]
        except LineError as error:
            sys.stderr.write(f"{error.why}\n")
            continue
        for text, _ in translations:
            sys.stdout.write(f"{target}> {text}\n")
