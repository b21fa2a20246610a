"""Entries of the lexicon: nouns, verbs, adjectives, prepositions and adverbs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun or a name.

    genitive, english_plural: empty where the rule gives them. weak: its oblique cases are like its plural. pool: its
    name where pairs of lemmas are held out of train (see `headcount.grammar.corpus`).
    """

    kind: str
    english: str
    german: str
    gender: str
    plural: str
    genitive: str
    english_plural: str
    weak: bool
    pool: str

    @property
    def same_plural(self) -> bool:
        """Whether the German plural is like the singular."""
        return self.plural == self.german and not self.weak


@dataclass(frozen=True, slots=True)
class Homograph:
    """An English noun with two translations.

    cues: pairs of nouns with one translation; the first of a pair calls for the first sense, the second for the other.
    """

    senses: tuple[Noun, Noun]
    cues: tuple[tuple[Noun, Noun], ...]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb.

    frame: the phrases that it takes. subjects, objects: kinds of nouns, separated by blanks. past: the English past,
    empty where the rule gives it. present, preterite: the German third person singular. pool: as of `Noun`.
    """

    frame: str
    english: str
    past: str
    particle: str
    infinitive: str
    present: str
    preterite: str
    subjects: str
    objects: str
    flags: tuple[str, ...]
    pool: str


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective. stem: takes the endings; `german` is the form in a predicate."""

    english: str
    german: str
    stem: str


@dataclass(frozen=True, slots=True)
class Preposition:
    """A preposition. case: governed by the German one. nouns: the kinds that it goes with, separated by blanks."""

    english: str
    german: str
    case: str
    nouns: str


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverb, or a conjunction."""

    english: str
    german: str
    flags: tuple[str, ...] = ()
