"""A phenomenon of translation: its name, and the builder of the sentences that test it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.grammar.draw import Draw
from headcount.grammar.sentence import Part

Twins = Callable[[bool], Sequence[Part]]


@dataclass(frozen=True, slots=True)
class Phenomenon:
    """Something that can go wrong in a translation, with the sentences that test it.

    draw: draws a sentence with one binary choice open (hard: the grade), and returns its twins: the sentence for either
    choice. The twins are equally likely, and their translations differ only in what the choice decides: the translation
    of one is the contrast of the other, and without the source nobody can tell which is right. weight: the share of
    train and valid, beside the other phenomena.
    """

    name: str
    draw: Callable[[Draw, bool], Twins]
    weight: int = 1
