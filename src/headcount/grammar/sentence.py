"""Sentences in both languages, with word alignment and links."""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.grammar.syntax import Clause, Joint, Subordinate
from headcount.grammar.writer import Writer

Part = Clause | Subordinate | Joint


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
    for part in (*parts, Joint(".", ".")):
        part.english(source)
        part.german(target)
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
