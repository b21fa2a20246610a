"""A run as a filter, and as a partner at the prompt."""

import itertools
import sys
from typing import BinaryIO, TextIO

from headcount.errors import InputError
from headcount.run.directory import Run

LINES_AT_ONCE = 2000  # so that an endless input is translated as it comes, and batches are still full


def translate_stream(run: Run, source: BinaryIO, sink: TextIO) -> None:
    """Translate line by line: n lines in, n lines out, an empty line stays empty.

    Raises InputError for a line that is not UTF-8, by number; the lines before it are translated.
    """
    # By "\n" alone, in bytes: other characters that Unicode calls line ends belong to the text.
    lines = enumerate(source, start=1)
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        texts, wrong = [], None
        for number, line in chunk:
            try:
                texts.append(line.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError:
                wrong = number
                break
        sink.writelines(text + "\n" for text in run.translator.translate(texts))
        sink.flush()
        if wrong is not None:
            raise InputError(f"standard input, line {wrong}: not UTF-8; convert the text with iconv -t UTF-8")


def converse(run: Run) -> None:
    """Ask for sentences and answer with translations until end of input."""
    source, target = run.languages
    sys.stderr.write(f"{run.directory}: {source} to {target}. A sentence and Enter; Ctrl-D ends.\n")
    while True:
        try:
            line = input(f"{source}> ")
        except EOFError:
            sys.stderr.write("\n")
            return
        sys.stdout.write(f"{target}> {run.translator.translate([line])[0]}\n")
