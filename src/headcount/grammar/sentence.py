"""Sentences in both languages, with word alignment and links."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Writer:
    """Collects the words of a sentence in one language, in the order in which they are written.

    keys: of the meanings of each word; words of both languages that share a key are aligned. links, pairs: as of
    `Sentence`, collected in English only.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        self.keys: list[tuple[int, ...]] = []
        self.links: list[tuple[str, int, int]] = []
        self.pairs: list[tuple[str, str, str]] = []

    def add(self, text: str, *keys: int) -> None:
        """Append the words of `text`, all with `keys`; a comma or a full stop replaces a comma before it."""
        if text in {",", "."} and self.words and self.words[-1] == ",":
            self.words.pop()
            self.keys.pop()
        for word in text.split(" "):
            self.words.append(word)
            self.keys.append(keys)

    def text(self) -> str:
        """The sentence: a capital first letter, no blank before a punctuation mark."""
        joined = " ".join(self.words)
        for mark in ",;.":
            joined = joined.replace(" " + mark, mark)
        return joined[0].upper() + joined[1:]


class Part(Protocol):
    """A part of a sentence that writes itself: a clause, a subordinate clause, or what joins two."""

    def english(self, out: Writer) -> None: ...
    def german(self, out: Writer) -> None: ...


Twins = Callable[[bool], Sequence[Part]]
FULL_STOP = 0  # its key, which no phrase has


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence in both languages.

    alignment: pairs of a source index and a target index. links: a relation and two source indices, from the dependent
    to the head. pairs: a role, a noun and a verb, the lemmas that are subject or object of each other. Indices count
    words and punctuation marks.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    links: tuple[tuple[str, int, int], ...]
    pairs: tuple[tuple[str, str, str], ...]


def write(parts: Sequence[Part]) -> tuple[Writer, Writer]:
    """The clauses and a full stop in English and in German."""
    source, target = Writer(), Writer()
    for part in parts:
        part.english(source)
        part.german(target)
    source.add(".", FULL_STOP)
    target.add(".", FULL_STOP)
    return source, target


def render(parts: Sequence[Part]) -> Sentence:
    """The clauses as a sentence: words that share a key are aligned."""
    source, target = write(parts)
    at: dict[int, list[int]] = {}
    for i, keys in enumerate(source.keys):
        for key in keys:
            at.setdefault(key, []).append(i)
    alignment = {(i, j) for j, keys in enumerate(target.keys) for key in keys for i in at.get(key, ())}
    return Sentence(
        source.text(),
        target.text(),
        tuple(sorted(alignment)),
        tuple((relation, at[dependent][0], at[head][0]) for relation, dependent, head in source.links),
        tuple(source.pairs),
    )
