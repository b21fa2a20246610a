"""Random words, phrases and clauses, of which every sentence is made."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar
from zlib import crc32

from headcount.grammar import lexicon
from headcount.grammar.lexicon import PEOPLE
from headcount.grammar.lexicon.entries import Adjective, Adverb, Noun, Preposition, Verb
from headcount.grammar.syntax import Clause, NounPhrase, PrepositionalPhrase, Pronoun, Subject, Subordinate

Item = TypeVar("Item")

# One in this many pairs of lemmas is held out for valid and test.
HELD_OUT = 5

TENSES = ("past", "past", "past", "past", "present", "present", "can", "must", "will", "may")
GOALS = ("place", "goal", "way", "company")
TRANSITIVE = ("transitive", "transitive", "transitive", "social", "dative", "handle", "eat", "feed", "write")
# The words between two clauses, in English and in German.
AND, BUT, SEMICOLON, COMMA = ("and", "und"), (", but", ", aber"), (";", ","), (",", ",")
CONJUNCTIONS = {
    english: Adverb(english, german)
    for english, german in {
        "because": "weil",
        "although": "obwohl",
        "as soon as": "sobald",
        "if": "wenn",
        "while": "während",
        "before": "bevor",
        "until": "bis",
        "that": "dass",
        "whether": "ob",
    }.items()
}
# The conjunctions that fit each tense; English has no "will" after a conjunction of time.
MODAL = ("because", "although", "while")
SIMPLE = {"past": (*MODAL, "before", "until", "as soon as"), "present": (*MODAL, "before", "until", "if")}


class UnfitError(Exception):
    """No word is left for a choice that was made: draw the sentence again."""


class Draw:
    """Draws words and phrases.

    held_out: whether all pairs of lemmas are those held out of train, or none. seed: of the corpus; it decides which
    pairs these are.
    """

    def __init__(self, rng: Random, held_out: bool, seed: int) -> None:
        self.rng = rng
        self.held_out = held_out
        self.seed = seed
        self.tense = "past"
        self._classes: dict[str, tuple[Noun, ...]] = {}
        self._fitting: dict[tuple[str, str, str], list[Noun]] = {}

    def start(self, tenses: Sequence[str] = TENSES) -> None:
        """Choose the tense of a new sentence."""
        self.tense = self.pick(tenses)

    # Words

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, by `random()` alone, whose values are the same in every version of Python."""
        if not items:
            raise UnfitError
        return items[int(self.rng.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def keeps(self, role: str, noun: str, verb: str) -> bool:
        """Whether sentences drawn here may hold this pair of lemmas. role: of the noun ("subject" or "object")."""
        return (crc32(f"{self.seed} {role} {noun} {verb}".encode()) % HELD_OUT == 0) == self.held_out

    def nouns(self, kinds: str) -> tuple[Noun, ...]:
        """All nouns of these kinds, which are separated by blanks."""
        if kinds not in self._classes:
            self._classes[kinds] = tuple(noun for kind in kinds.split() for noun in lexicon.nouns[kind])
        return self._classes[kinds]

    def fitting(self, role: str, verb: Verb, kinds: str) -> list[Noun]:
        """The nouns of these kinds that may be the `role` ("subject", "object") of the verb."""
        key = (role, verb.pool, kinds)
        if key not in self._fitting:
            self._fitting[key] = [noun for noun in self.nouns(kinds) if self.keeps(role, noun.pool, verb.pool)]
        return self._fitting[key]

    def adjective(self, noun: Noun) -> Adjective:
        """An adjective that fits the noun."""
        kind = "any"
        if self.chance(0.5):
            living = noun.kind in {"person", "animal"}
            place = noun.kind in {"in", "on", "at"}
            kind = "living" if living else "place" if place else "food" if noun.kind == "food" else "thing"
        return self.pick(lexicon.adjectives[kind])

    def time(self, chance: float = 0.35, without: str = "") -> Adverb | None:
        """An adverb of time, or None. without: a flag that the adverb does not have."""
        if not self.chance(chance):
            return None
        kind = "any"
        if self.chance(0.3):
            kind = {"past": "past", "present": "present", "will": "future"}.get(self.tense, "any")
        return self.pick([time for time in lexicon.times[kind] if without not in time.flags])

    def conjunction(self) -> Adverb:
        """A subordinating conjunction that fits the tense."""
        fitting = MODAL[:2] if self.tense == "will" else SIMPLE.get(self.tense, MODAL)
        return CONJUNCTIONS[self.pick(fitting)]

    def verb(self, frame: str) -> Verb:
        """A verb of the frame."""
        return self.pick(lexicon.verbs[frame])

    def name(self) -> Noun:
        """A name."""
        return self.pick(lexicon.nouns["name"])

    # Phrases

    def phrase(
        self,
        noun: Noun,
        plural: bool | None = None,
        article: str | None = None,
        adjective: float = 0.25,
        attribute: float = 0.0,
        genitive: float = 0.0,
        owner: float = 0.08,
    ) -> NounPhrase:
        """A noun phrase. plural, article: drawn where None. adjective, attribute, genitive, owner: probabilities."""
        if noun.kind == "name":
            return NounPhrase(noun, article="")
        if plural is None:
            plural = self.chance(0.25)
        if noun.kind == "cue":
            plural, article = False, "the"
        name, of, beside = None, None, None
        if article is None and self.chance(owner):
            article, name = "", self.name()
        else:
            article = article or ("a" if self.chance(0.2) else "the")
        adjectives = [self.adjective(noun)] if self.chance(adjective) else []
        if not name and self.chance(genitive):
            of = self.phrase(self.pick(self.nouns("person")), article="the", adjective=adjective / 2)
        elif self.chance(attribute):
            beside = self.attribute()
        return NounPhrase(noun, plural, article, adjectives, name, of, beside)

    def attribute(self, plural: bool | None = None, kinds: str | None = None) -> PrepositionalPhrase:
        """A prepositional phrase that belongs to the noun before it. kinds: of its own noun."""
        preposition = self.pick(lexicon.prepositions["noun"])
        noun = self.pick(self.nouns(kinds or preposition.nouns))
        return PrepositionalPhrase(preposition, self.phrase(noun, plural, article="the"))

    def place(self, chance: float = 0.3, owner: float = 0.05, anywhere: bool = True) -> PrepositionalPhrase | None:
        """The place of a clause, or None; where not `anywhere`, only one with the preposition "at"."""
        if not self.chance(chance):
            return None
        places = lexicon.prepositions["place"]
        preposition = self.pick(places if anywhere else [place for place in places if place.english == "at"])
        noun = self.pick(self.nouns(preposition.nouns))
        return PrepositionalPhrase(preposition, self.phrase(noun, plural=self.chance(0.1), adjective=0.2, owner=owner))

    def goal(self, preposition: Preposition, owner: float = 0.0, adjective: float = 0.3) -> PrepositionalPhrase:
        """A prepositional phrase for a verb of motion."""
        noun = self.pick(self.nouns(preposition.nouns))
        article = None if owner else "the" if self.chance(0.85) else "a"
        plural = self.chance(0.35 if preposition.english in {"with", "without", "around"} else 0.0)
        return PrepositionalPhrase(preposition, self.phrase(noun, plural, article, adjective=adjective, owner=owner))

    def subject_of(
        self,
        verb: Verb,
        kinds: str = PEOPLE,
        plural: bool | None = None,
        pronoun: float = 0.0,
        adjective: float = 0.25,
        attribute: float = 0.0,
        genitive: float = 0.0,
        owner: float = 0.08,
    ) -> NounPhrase | Pronoun:
        """A subject for the verb; all other arguments as of `phrase`, and the probability of a pronoun."""
        if self.chance(pronoun):
            return Pronoun(self.pick(("he", "she", "they")))
        noun = self.pick(self.fitting("subject", verb, kinds))
        return self.phrase(noun, plural, None, adjective, attribute, genitive, owner)

    def object_of(
        self, verb: Verb, plural: bool | None = None, article: str | None = None, adjective: float = 0.25
    ) -> NounPhrase:
        """An object for the verb; all other arguments as of `phrase`."""
        return self.phrase(self.pick(self.fitting("object", verb, verb.objects)), plural, article, adjective)

    def with_relative(self, head: NounPhrase) -> NounPhrase:
        """The phrase with a relative clause, in which it is the subject or the object."""
        if head.noun.kind == "person" and self.chance(0.5):
            verb = self.verb(self.pick(("transitive", "social", "intransitive")))
            if not self.keeps("subject", head.noun.pool, verb.pool):
                raise UnfitError
            thing = self.object_of(verb, adjective=0.1) if verb.objects else None
            place = None if thing else self.place(0.7)
            relative = Clause(head, verb, self.tense, object=thing, place=place, gap="subject")
        else:
            verb = self.verb("transitive")
            if not self.keeps("object", head.noun.pool, verb.pool):
                raise UnfitError
            relative = Clause(self.subject_of(verb, adjective=0.1), verb, self.tense, object=head, gap="object")
        return replace(head, relative=relative)

    # Clauses

    def clause(
        self,
        subject: Subject | None = None,
        frame: str | None = None,
        pronoun: float = 0.1,
        time: float = 0.3,
        place: float = 0.3,
        attribute: float = 0.0,
        genitive: float = 0.0,
    ) -> Clause:
        """A clause. subject: a pronoun or a person. All numbers are probabilities."""
        if frame is None:
            frame = self.pick(("intransitive", "intransitive", "motion", *TRANSITIVE))
        if frame == "stative" and self.tense == "may":
            raise UnfitError  # "may" is a permission, which no thing has
        verb = self.verb(frame)
        if subject is None:
            subject = self.subject_of(verb, verb.subjects, pronoun=pronoun, attribute=attribute, genitive=genitive)
        elif isinstance(subject, NounPhrase) and not self.keeps("subject", subject.noun.pool, verb.pool):
            raise UnfitError
        when = self.time(time)
        thing = self.object_of(verb) if verb.objects else None
        recipient = where = None
        goals: Sequence[PrepositionalPhrase] = ()
        if frame == "give":
            recipient = self.phrase(self.pick(self.fitting("object", verb, PEOPLE)), owner=0.0)
        elif frame == "motion":
            kind = self.pick(("goal", "way", "company") if "inward" in verb.flags else GOALS)
            goals = (self.goal(self.pick(lexicon.prepositions[kind])),)
        elif "inward" in verb.flags:
            pass
        elif frame in {"intransitive", "stative"}:
            where = self.place(place * 2)
        elif not self.chance(0.5):
            where = self.place(place)
        return Clause(subject, verb, self.tense, thing, recipient, time=when, place=where, goals=goals)

    def subordinate(self, time: float = 0.3, place: float = 0.3) -> Subordinate:
        """A subordinate clause with any conjunction."""
        return Subordinate(self.conjunction(), self.clause(time=time, place=place))
