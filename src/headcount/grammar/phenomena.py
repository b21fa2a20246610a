"""The constructions: plain sentences, and for each phenomenon pairs of twins.

A twin is a sentence with one binary choice left open. Both choices give a sentence that is equally likely, and their
translations differ only in what the choice decides; so the translation of the one is the contrast of the other, and
whoever does not see the source cannot tell them apart.

How hard the grades are is set by the constants at the head of each section.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar
from zlib import crc32

from headcount.grammar import lexicon
from headcount.grammar.lexicon import Adjective, Adverb, Homograph, Noun, Preposition, Verb
from headcount.grammar.syntax import (
    Clause,
    Demonstrative,
    Infinitive,
    Joint,
    NounPhrase,
    Part,
    PrepositionalPhrase,
    Pronoun,
    Subject,
    Subordinate,
)

Item = TypeVar("Item")
Twins = Callable[[bool], Sequence[Part]]

# One pair of lemmas in so many is kept for valid and test.
HELD_OUT = 5

PEOPLE = "person name"
TENSES = ("past", "past", "past", "past", "present", "present", "can", "must", "will", "may")
# Tenses in which the English verb does not show its number.
NUMBERLESS = ("past", "past", "past", "can", "must", "will", "may")
SUBJECTS = {
    "intransitive": "person name animal",
    "stative": "thing vehicle clothes cue",
    "motion": "person name",
    "be": "person thing vehicle animal in on cue",
}
GOALS = ("place", "goal", "way", "company")
TRANSITIVE = ("transitive", "transitive", "transitive", "social", "dative", "handle", "eat", "feed", "write")
AND, BUT, SEMICOLON, COMMA = ("and", "und"), (", but", ", aber"), (";", ","), (",", ",")
CONJUNCTIONS = {english: Adverb(english, german) for english, german in lexicon.CONJUNCTIONS.items()}
# Those that clauses of each tense may follow; English has no "will" after the ones of time.
MODAL = ("because", "although", "while")
SIMPLE = {"past": (*MODAL, "before", "until", "as soon as"), "present": (*MODAL, "before", "until", "if")}


class UnfitError(Exception):
    """A choice led to where no lemma is left; draw the sentence again."""


class Draw:
    """Draws words and phrases; where `held_out`, all pairs of lemmas come from those kept back, else none."""

    def __init__(self, rng: Random, held_out: bool, seed: int) -> None:
        self.rng = rng
        self.held_out = held_out
        self.seed = seed
        self.tense = "past"
        self._classes: dict[str, tuple[Noun, ...]] = {}
        self._fitting: dict[tuple[str, str, str], list[Noun]] = {}

    # Words

    def pick(self, items: Sequence[Item]) -> Item:
        """One of them, by `random()` alone, whose values Python promises to keep."""
        if not items:
            raise UnfitError
        return items[int(self.rng.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def keeps(self, role: str, noun: str, verb: str) -> bool:
        """Whether the pair may stand in a sentence drawn here."""
        return (crc32(f"{self.seed} {role} {noun} {verb}".encode()) % HELD_OUT == 0) == self.held_out

    def nouns(self, kinds: str) -> tuple[Noun, ...]:
        """All nouns of the kinds, separated by blanks."""
        if kinds not in self._classes:
            self._classes[kinds] = tuple(noun for kind in kinds.split() for noun in lexicon.nouns[kind])
        return self._classes[kinds]

    def fitting(self, role: str, verb: Verb, kinds: str) -> list[Noun]:
        """The nouns of these kinds that may be `role` ("subject", "object") of the verb."""
        key = (role, verb.pool, kinds)
        if key not in self._fitting:
            self._fitting[key] = [noun for noun in self.nouns(kinds) if self.keeps(role, noun.pool, verb.pool)]
        return self._fitting[key]

    def adjective(self, noun: Noun) -> Adjective:
        """An adjective that can say something about the noun."""
        kind = "any"
        if self.chance(0.5):
            living = noun.kind in {"person", "animal"}
            place = noun.kind in {"in", "on", "at"}
            kind = "living" if living else "place" if place else "food" if noun.kind == "food" else "thing"
        return self.pick(lexicon.adjectives[kind])

    def time(self, chance: float = 0.35, without: Sequence[str] = ()) -> Adverb | None:
        """An adverb of time, or none; none of the English ones `without`."""
        if not self.chance(chance):
            return None
        kind = "any"
        if self.chance(0.3):
            kind = {"past": "past", "present": "present", "will": "future"}.get(self.tense, "any")
        times = lexicon.times[kind]
        return self.pick([time for time in times if time.english not in without] if without else times)

    def conjunction(self) -> Adverb:
        """A subordinating conjunction that suits the tense."""
        suited = MODAL[:2] if self.tense == "will" else SIMPLE.get(self.tense, MODAL)
        return CONJUNCTIONS[self.pick(suited)]

    def verb(self, frame: str) -> Verb:
        """A verb of the frame; "separable" ones are drawn by `separable`."""
        return self.pick(lexicon.verbs[frame])

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
        """A noun phrase; what is not given is drawn with these chances."""
        if noun.kind == "name":
            return NounPhrase(noun, article="")
        if plural is None:
            plural = self.chance(0.25)
        if noun.kind == "cue":
            plural, article = False, "the"
        found = NounPhrase(noun, plural)
        if article is None and self.chance(owner):
            found.article = ""
            found.owner = self.pick(lexicon.nouns["name"])
        else:
            found.article = article or ("a" if self.chance(0.2) else "the")
        if self.chance(adjective):
            found.adjectives = [self.adjective(noun)]
        if not found.owner and self.chance(genitive):
            found.genitive = self.phrase(self.pick(self.nouns("person")), article="the", adjective=adjective / 2)
        elif self.chance(attribute):
            found.attribute = self.attribute()
        return found

    def attribute(
        self, plural: bool | None = None, kinds: str = "person animal in on opening vehicle"
    ) -> PrepositionalPhrase:
        """A prepositional phrase that belongs to the noun before it."""
        preposition = self.pick(lexicon.prepositions["noun"])
        return PrepositionalPhrase(preposition, self.phrase(self.pick(self.nouns(kinds)), plural, article="the"))

    def place(self, chance: float = 0.3, owner: float = 0.05, anywhere: bool = True) -> PrepositionalPhrase | None:
        """Where a clause happens, or nothing; if not `anywhere`, only a place that takes "at"."""
        if not self.chance(chance):
            return None
        places = lexicon.prepositions["place"]
        preposition = self.pick(places if anywhere else [place for place in places if place.english == "at"])
        noun = self.pick(lexicon.nouns[preposition.english])
        return PrepositionalPhrase(preposition, self.phrase(noun, plural=self.chance(0.1), adjective=0.2, owner=owner))

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
        """A subject for the verb."""
        if self.chance(pronoun):
            return Pronoun(self.pick(("he", "she", "they")))
        noun = self.pick(self.fitting("subject", verb, kinds))
        return self.phrase(noun, plural, None, adjective, attribute, genitive, owner)

    def object_of(
        self, verb: Verb, plural: bool | None = None, article: str | None = None, adjective: float = 0.25
    ) -> NounPhrase:
        """An object for the verb."""
        return self.phrase(self.pick(self.fitting("object", verb, verb.objects)), plural, article, adjective)

    def relative(self, head: NounPhrase, gap: str | None = None) -> None:
        """Hang a relative clause on the phrase."""
        if gap is None:
            gap = "subject" if head.noun.kind == "person" and self.chance(0.5) else "object"
        if gap == "subject":
            verb = self.verb(self.pick(("transitive", "social", "intransitive")))
            if not self.keeps("subject", head.noun.pool, verb.pool):
                raise UnfitError
            thing = self.object_of(verb, adjective=0.1) if verb.objects else None
            head.relative = Clause(head, verb, self.tense, object=thing, gap=gap)
            if not thing:
                head.relative.place = self.place(0.7)
        else:
            verb = self.verb("transitive")
            if not self.keeps("object", head.noun.pool, verb.pool):
                raise UnfitError
            head.relative = Clause(self.subject_of(verb, adjective=0.1), verb, self.tense, object=head, gap=gap)

    # Clauses

    def clause(
        self,
        subject: Subject | None = None,
        frame: str | None = None,
        tense: str | None = None,
        pronoun: float = 0.1,
        time: float = 0.3,
        place: float = 0.3,
        attribute: float = 0.0,
        genitive: float = 0.0,
    ) -> Clause:
        """A clause of any kind, or of the frame; a `subject` that is a noun phrase must be a person."""
        if frame is None:
            frame = self.pick(("intransitive", "intransitive", "motion", *TRANSITIVE))
        tense = tense or self.tense
        if frame == "stative" and tense == "may":
            raise UnfitError  # "may" gives leave, and a thing takes none
        verb = self.verb(frame)
        kinds = SUBJECTS.get(frame, PEOPLE)
        if subject is None:
            subject = self.subject_of(verb, kinds, pronoun=pronoun, attribute=attribute, genitive=genitive)
        elif isinstance(subject, NounPhrase) and not self.keeps("subject", subject.noun.pool, verb.pool):
            raise UnfitError
        clause = Clause(subject, verb, tense, time=self.time(time))
        if verb.objects and frame != "give":
            clause.object = self.object_of(verb)
        if frame == "give":
            clause.object = self.object_of(verb)
            clause.recipient = self.phrase(self.pick(self.fitting("object", verb, PEOPLE)), owner=0.0)
        elif frame == "motion":
            clause.goals = self.goals(verb)
        elif verb.english in lexicon.INWARD:
            clause.place = None
        elif frame in {"intransitive", "stative"} or not self.chance(0.5):
            clause.place = self.place(place * (2 if frame in {"intransitive", "stative"} else 1))
        return clause

    def goals(self, verb: Verb) -> list[PrepositionalPhrase]:
        """Where, where to or which way somebody moves."""
        kind = self.pick(("goal", "way", "company") if verb.english in lexicon.INWARD else GOALS)
        preposition = self.pick(lexicon.prepositions[kind])
        return [self.goal(preposition)]

    def goal(self, preposition: Preposition, owner: float = 0.0, adjective: float = 0.3) -> PrepositionalPhrase:
        """A prepositional phrase for a verb of motion."""
        kinds = {"in": "in", "into": "in", "on": "on", "onto": "on", "at": "at", "with": "person", "without": "person"}
        kinds.update({"through": "in", "around": "in on", "out of": "in", "to": "in on at person"})
        noun = self.pick(self.nouns(kinds[preposition.english]))
        article = None if owner else "the" if self.chance(0.85) else "a"
        plural = self.chance(0.35 if preposition.english in {"with", "without", "around"} else 0.0)
        return PrepositionalPhrase(preposition, self.phrase(noun, plural, article, adjective=adjective, owner=owner))

    def subordinate(self, time: float = 0.3, place: float = 0.3) -> Subordinate:
        """A subordinate clause with any conjunction."""
        return Subordinate(self.conjunction(), self.clause(time=time, place=place))

    def start(self, tenses: Sequence[str] = TENSES) -> None:
        """Choose the tense of a new sentence."""
        self.tense = self.pick(tenses)


def joint(words: tuple[str, str]) -> Joint:
    """A mark or a coordinating conjunction between clauses."""
    return Joint(*words)


# Plain sentences: everything the others are made of, testing nothing.


def plain(draw: Draw) -> Sequence[Part]:
    """A sentence without a twin."""
    draw.start()
    return draw.pick(_PLAIN)(draw)


def _simple(draw: Draw) -> Sequence[Part]:
    clause = draw.clause(attribute=0.1, genitive=0.1)
    if clause.time and draw.chance(0.4):
        clause.front = "time"
    elif clause.place and draw.chance(0.3):
        clause.front = "place"
    if draw.chance(0.1) and draw.tense not in {"must", "may"}:
        clause.negated = not clause.time or clause.time.english not in lexicon.SCOPE
    return [clause]


def _thing(draw: Draw) -> Sequence[Part]:
    if draw.chance(0.5):
        return [draw.clause(frame="stative", pronoun=0.0, attribute=0.1)]
    draw.start(("past", "present"))
    clause = draw.clause(frame="be", pronoun=0.1, time=0.0, place=0.0, attribute=0.15, genitive=0.2)
    clause.place = None
    noun = clause.subject.noun if isinstance(clause.subject, NounPhrase) else lexicon.nouns["person"][0]
    clause.predicate = draw.adjective(noun)
    return [clause]


def _giving(draw: Draw) -> Sequence[Part]:
    return [draw.clause(frame="give")]


def _conjoined(draw: Draw) -> Sequence[Part]:
    return [draw.clause(time=0.2), joint(AND if draw.chance(0.6) else BUT), draw.clause(time=0.2)]


def _complex(draw: Draw) -> Sequence[Part]:
    sub, main = draw.subordinate(place=0.2, time=0.2), draw.clause(place=0.2, time=0.2)
    if draw.chance(0.4):
        main.inverted = True
        return [sub, joint(COMMA), main]
    return [main, sub]


def _reported(draw: Draw) -> Sequence[Part]:
    draw.start(("past", "present"))
    verb = draw.verb("that")
    main = Clause(draw.subject_of(verb, pronoun=0.1), verb, draw.tense)
    conjunction = "that"
    if draw.chance(0.25):
        main.verb = next(verb for verb in lexicon.verbs["social"] if verb.english == "ask")
        main.subject = draw.subject_of(main.verb)
        conjunction = "whether"
    main.that = Subordinate(CONJUNCTIONS[conjunction], draw.clause(time=0.2))
    return [main]


def _relative(draw: Draw) -> Sequence[Part]:
    clause = draw.clause(pronoun=0.0, time=0.0, place=0.0)
    phrases = [phrase for phrase in (clause.subject, clause.object) if isinstance(phrase, NounPhrase)]
    head = draw.pick([phrase for phrase in phrases if phrase.noun.kind not in {"name", "in", "on", "at"}])
    draw.relative(head)
    return [clause]


def _to(draw: Draw) -> Sequence[Part]:
    draw.start(("past", "present"))
    verb = draw.verb("to")
    main = Clause(draw.subject_of(verb, pronoun=0.1), verb, draw.tense, time=draw.time(0.2, lexicon.BEFORE_TO))
    # After the infinitive, an adverb of time might belong to either verb.
    main.infinitive = Infinitive(draw.clause(subject=main.subject, time=0.0))
    return [main]


def _particle(draw: Draw) -> Sequence[Part]:
    clause = _separable(draw, draw.pick(lexicon.separable)[draw.chance(0.5)])
    if draw.chance(0.5):
        return [draw.clause(time=0.2), Subordinate(draw.conjunction(), clause)]
    return [clause]


def _cue(draw: Draw) -> Sequence[Part]:
    noun = draw.pick(lexicon.nouns["cue"])
    verb = draw.pick([verb for verb in lexicon.verbs["transitive"] if draw.keeps("object", noun.pool, verb.pool)])
    clause = Clause(draw.subject_of(verb), verb, draw.tense, time=draw.time(0.2))
    clause.object = draw.phrase(noun, attribute=0.2)
    return [clause]


_PLAIN = (
    _simple,
    _simple,
    _thing,
    _thing,
    _giving,
    _conjoined,
    _complex,
    _complex,
    _reported,
    _relative,
    _to,
    _particle,
    _cue,
)


# Agreement. "Annas Lehrer schlief/schliefen": after a name the noun shows its number in neither form nor article.


def _same_plural(noun: Noun) -> bool:
    return noun.plural == noun.german and not noun.weak


def agreement(draw: Draw, hard: bool) -> Twins:
    """The number of the subject, which in German only the verb shows."""
    draw.start(NUMBERLESS)
    person = draw.chance(0.8)
    frame = draw.pick(("intransitive", "motion", *TRANSITIVE)) if person else "stative"
    kinds = "person" if person else "thing vehicle clothes"
    clause = draw.clause(frame=frame, pronoun=0.0, time=0.3 if hard else 0.2, place=0.2)
    noun = draw.pick([noun for noun in draw.fitting("subject", clause.verb, kinds) if _same_plural(noun)])
    owner = draw.pick(lexicon.nouns["name"])
    if not hard and person and draw.chance(0.15):
        singular, plural = Pronoun("she"), Pronoun("they")
        return lambda flag: [_with_subject(clause, plural if flag else singular)]
    phrases = [NounPhrase(noun, number, "", owner=owner) for number in (False, True)]
    sub = None
    if hard:
        attribute = _chain(draw)
        if draw.chance(0.3):
            draw.relative(_last(attribute))
        for phrase in phrases:
            phrase.attribute = attribute
        if draw.chance(0.3):
            sub = draw.clause(pronoun=0.0, time=0.0, place=0.1)
    if hard and draw.chance(0.3):
        clause.time = clause.time or draw.time(1.0)
        clause.front = "time"
    conjunction = draw.conjunction()
    first = draw.chance(0.5)

    def build(flag: bool) -> Sequence[Part]:
        main = _with_subject(clause, phrases[flag])
        if sub is None:
            return [main]
        if first:
            main.front = None
            return [sub, Subordinate(conjunction, main)]
        return [main, Subordinate(conjunction, sub)]

    return build


def _with_subject(clause: Clause, subject: Subject) -> Clause:
    clause.subject = subject
    return clause


def _chain(draw: Draw) -> PrepositionalPhrase:
    """A prepositional phrase with three nouns of mixed number, each belonging to the one before."""
    attribute = draw.attribute(plural=draw.chance(0.5), kinds="person person in vehicle")
    if draw.chance(0.4):
        noun = draw.pick([noun for noun in draw.nouns("person") if _same_plural(noun)])
        attribute.phrase = NounPhrase(noun, draw.chance(0.5), "", owner=draw.pick(lexicon.nouns["name"]))
    second = draw.phrase(draw.pick(draw.nouns("person")), draw.chance(0.5), "the", adjective=0.1)
    second.attribute = draw.attribute(plural=draw.chance(0.5))
    if attribute.phrase.owner:
        attribute.phrase.attribute = PrepositionalPhrase(draw.pick(lexicon.prepositions["noun"]), second)
    else:
        attribute.phrase.genitive = second
    return attribute


def _last(attribute: PrepositionalPhrase) -> NounPhrase:
    phrase = attribute.phrase
    while phrase.genitive or phrase.attribute:
        phrase = phrase.genitive or phrase.attribute.phrase  # type: ignore[union-attr]
    if phrase.noun.kind == "name":
        raise UnfitError
    return phrase


# Pronouns. "it" is the one thing in the singular; "he" and "she" are the one person of that sex in the singular.

PRONOUN_BY_NUMBER = 0.7  # of the hard ones: both twins say "it", and the number of two nouns decides


def pronoun(draw: Draw, hard: bool) -> Twins:
    """The gender of a pronoun."""
    draw.start(("past", "present"))
    if draw.chance(PRONOUN_BY_NUMBER if hard else 0.25):
        return _pronoun_by_number(draw, hard)
    verb = draw.verb("transitive")
    thing = draw.pick(draw.fitting("object", verb, "thing text food clothes device opening vehicle"))
    person = draw.pick([noun for noun in draw.nouns("person") if noun.gender not in {thing.gender, "n"}])
    thing_phrase = draw.phrase(thing, plural=False, article="the")
    person_phrase = draw.phrase(person, plural=False, article="the")
    predicate = draw.pick(lexicon.adjectives["any"])
    copula = lexicon.verbs["be"][0]
    gives = draw.chance(0.4)
    if gives:
        verb = draw.verb("give")
        if not (draw.keeps("object", thing.pool, verb.pool) and draw.keeps("object", person.pool, verb.pool)):
            raise UnfitError
        subject = draw.subject_of(verb, "person", plural=True, owner=0.0)
        main = Clause(subject, verb, draw.tense, object=thing_phrase, recipient=person_phrase)
    else:
        if not draw.keeps("subject", person.pool, verb.pool):
            raise UnfitError
        main = Clause(person_phrase, verb, draw.tense, object=thing_phrase)
    conjunction = CONJUNCTIONS[draw.pick(MODAL)]
    tense = draw.tense
    middle = _plural_clause(draw) if hard else None
    if hard:
        thing_phrase.attribute = draw.attribute(plural=True)
    personal = "he" if person.gender == "m" else "she"

    def build(flag: bool) -> Sequence[Part]:
        it = Pronoun("it", thing_phrase) if flag else Pronoun(personal, person_phrase)
        return _says(main, middle, conjunction, Clause(it, copula, tense, predicate=predicate))

    return build


def _plural_clause(draw: Draw) -> Clause | None:
    """A clause that reports the next one, with a subject in the plural; or none."""
    if draw.chance(0.3):
        return None
    verb = draw.verb("that")
    return Clause(draw.subject_of(verb, "person", plural=True, owner=0.0), verb, draw.tense, time=draw.time(0.4))


def _says(main: Clause, middle: Clause | None, conjunction: Adverb, last: Clause) -> Sequence[Part]:
    if middle is None:
        return [main, Subordinate(conjunction, last)]
    middle.that = Subordinate(CONJUNCTIONS["that"], last)
    return [main, Subordinate(conjunction, middle)]


def _pronoun_by_number(draw: Draw, hard: bool) -> Twins:
    first_verb, second_verb = draw.verb("transitive"), draw.verb("handle")
    kinds = "thing clothes vehicle"
    first = draw.pick([noun for noun in draw.fitting("object", first_verb, kinds) if _same_plural(noun)])
    second = draw.pick(
        [
            noun
            for noun in draw.fitting("object", second_verb, kinds)
            if _same_plural(noun) and noun.gender != first.gender
        ]
    )
    owners = [draw.pick(lexicon.nouns["name"]) for _ in range(2)]
    swap = draw.chance(0.5)
    subjects = [
        draw.subject_of(verb, "person", plural=True, attribute=0.3 if hard else 0.0)
        for verb in (first_verb, second_verb)
    ]
    for subject in subjects:
        if isinstance(subject, NounPhrase) and subject.attribute:
            subject.attribute.phrase.plural = True
    middle = _plural_clause(draw) if hard else None
    conjunction = CONJUNCTIONS[draw.pick(MODAL)]
    predicate = draw.pick(lexicon.adjectives["any"])
    tense = draw.tense
    times = [draw.time(0.3) for _ in range(2)] if hard else [None, None]

    def build(flag: bool) -> Sequence[Part]:
        one = NounPhrase(first, flag, "", owner=owners[0])
        other = NounPhrase(second, not flag, "", owner=owners[1])
        clauses = [
            Clause(subjects[0], first_verb, tense, object=one, time=times[0]),
            Clause(subjects[1], second_verb, tense, object=other, time=times[1]),
        ]
        it = Pronoun("it", other if flag else one)
        if swap:
            clauses.reverse()
        last = _says(clauses[1], middle, conjunction, Clause(it, lexicon.verbs["be"][0], tense, predicate=predicate))
        return [clauses[0], joint(AND), *last]

    return build


# Ambiguity. A word elsewhere in the sentence, one of a pair for which German has one word, decides what the noun is.

AMBIGUITY_TWO_NOUNS = 0.5  # of the hard ones: a second ambiguous noun with its own cue stands in the sentence


def ambiguity(draw: Draw, hard: bool) -> Twins:
    """The translation of a noun that has two."""
    draw.start()
    homograph = draw.pick(lexicon.homographs)
    cues = draw.pick(homograph.cues)
    verb = draw.pick([v for v in lexicon.verbs["transitive"] if draw.keeps("object", homograph.senses[0].pool, v.pool)])
    subject = draw.subject_of(verb, pronoun=0.1)
    adjectives = [draw.pick(lexicon.adjectives["any"])] if draw.chance(0.25) else []
    article = "a" if draw.chance(0.2) else "the"
    cue_phrase = draw.phrase(cues[0], adjective=0.15)
    time = draw.time(0.2)
    tense = draw.tense

    def pair(flag: bool) -> tuple[NounPhrase, NounPhrase]:
        cue = NounPhrase(cues[flag], cue_phrase.plural, "the", cue_phrase.adjectives)
        return NounPhrase(homograph.senses[flag], article=article, adjectives=adjectives, sense=cue), cue

    if not hard:
        preposition = draw.pick(lexicon.prepositions["noun"])

        def easy(flag: bool) -> Sequence[Part]:
            noun, cue = pair(flag)
            noun.attribute = PrepositionalPhrase(preposition, cue)
            return [Clause(subject, verb, tense, object=noun, time=time)]

        return easy
    second = _second_cue(draw, homograph, cues) if draw.chance(AMBIGUITY_TWO_NOUNS) else None
    # The clause with the cue; a second cue is its object, with the first behind a preposition, or the other way round.
    outer = second is None or draw.chance(0.5)
    object_pool = cues[0].pool if second is None or outer else second[1].noun.pool
    cue_verb = draw.pick([v for v in lexicon.verbs["transitive"] if draw.keeps("object", object_pool, v.pool)])
    cue_subject = draw.subject_of(cue_verb)
    beside = draw.pick(lexicon.prepositions["noun"])
    if second is None:
        between = draw.clause(time=0.1, place=0.2, pronoun=0.0)
        if between.object and between.object.noun.pool in _pools(homograph):
            raise UnfitError  # another cue for the same noun
    else:
        pool = second[0].noun.pool
        other_verb = draw.pick([v for v in lexicon.verbs["transitive"] if draw.keeps("object", pool, v.pool)])
        between = Clause(draw.subject_of(other_verb), other_verb, tense, object=second[0])
    conjunction = draw.conjunction()
    cue_first, extra = draw.chance(0.5), draw.attribute() if draw.chance(0.3) else None

    def build(flag: bool) -> Sequence[Part]:
        noun, cue = pair(flag)
        noun.attribute = extra
        told = Clause(cue_subject, cue_verb, tense, object=cue if outer or second is None else second[1])
        if second:
            first, last = (cue, second[1]) if outer else (second[1], cue)
            first.attribute, last.attribute = PrepositionalPhrase(beside, last), None
        own = Clause(subject, verb, tense, object=noun, time=time, inverted=cue_first)
        sub = Subordinate(conjunction, told)
        return [sub, joint(COMMA), own, joint(AND), between] if cue_first else [own, joint(AND), between, sub]

    return build


def _second_cue(draw: Draw, homograph: Homograph, cues: tuple[Noun, Noun]) -> tuple[NounPhrase, NounPhrase]:
    """Another ambiguous noun with its cue, neither of which says anything about the first, nor its cues about it."""
    known = _pools(homograph)
    other = draw.pick(
        [found for found in lexicon.homographs if found is not homograph and cues[0].pool not in _pools(found)]
    )
    pair = draw.pick([pair for pair in other.cues if pair[0].pool not in known])
    sense = draw.chance(0.5)
    cue = NounPhrase(pair[sense], article="the")
    return NounPhrase(other.senses[sense], article="the", sense=cue), cue


def _pools(homograph: Homograph) -> set[str]:
    return {pair[0].pool for pair in homograph.cues}


# Verb-final order. "seitdem", "damit", "da", "solange" and "der, die, das" begin clauses of either order in German.


# "so that" with a past tense says what came of it ("sodass"), not what for ("damit"); "since then" wants the past.
CONNECTED = {"damit": ("present", "present", "can", "must"), "seitdem": ("past",)}


def order(draw: Draw, hard: bool) -> Twins:
    """Whether the verb of a clause comes last or second."""
    connector = draw.pick((*lexicon.CONNECTORS, "der"))
    draw.start(CONNECTED.get(connector, ("past", "past", "past", "present", "can", "must")))
    first = (
        _place_clause(draw, connector) if not hard or draw.chance(0.5) else _place_clause(draw, connector, busy=True)
    )
    if connector == "der":
        return _demonstrative(draw, first, hard)
    second = _tail(draw, hard, connector)
    other = _other_connector(draw) if hard else None

    def build(flag: bool) -> Sequence[Part]:
        parts = _connect(first, connector, second, flag)
        return [*parts, *other] if other else parts

    return build


def _when(draw: Draw, chance: float) -> Adverb | None:
    """An adverb of time, or none; in the past one that goes with "ever since" and "since then"."""
    return draw.time(chance, lexicon.ONCE if draw.tense == "past" else ())


def _tail(draw: Draw, hard: bool, connector: str) -> Clause:
    clause = draw.clause(pronoun=0.0, time=0.0, place=0.6 if hard else 0.4, attribute=0.3 * hard)
    clause.time = _when(draw, 0.7 if hard else 0.3)
    if connector == "da":
        if clause.goals:
            raise UnfitError
        clause.place = None  # "there" says it
    subject = clause.subject
    if (
        hard
        and isinstance(subject, NounPhrase)
        and subject.noun.kind == "person"
        and not subject.attribute
        and draw.chance(0.5)
    ):
        draw.relative(subject)
    return clause


def _place_clause(draw: Draw, connector: str, busy: bool = False) -> Clause:
    """A main clause before the connector, with what an adverb refers to: a thing for "with it", a place for "there"."""
    if connector == "damit":
        clause = draw.clause(frame="handle", time=0.0, place=0.0)
        clause.object = draw.object_of(clause.verb, plural=False)
    elif connector == "da":
        clause = draw.clause(frame=draw.pick(("intransitive", "transitive")), time=0.0)
        clause.place = draw.place(1.0)
    elif connector == "der":
        clause = draw.clause(frame="social", time=0.0, place=0.0)
    else:
        clause = draw.clause(time=0.0, place=0.3)
        clause.time = _when(draw, 0.1)
    if busy:
        clause.time = _when(draw, 1.0)
        clause.front = "time"
    return clause


def _connect(first: Clause, connector: str, second: Clause, main: bool) -> list[Part]:
    conjunction, adverb = lexicon.CONNECTORS[connector]
    if main:
        second.front = Adverb(adverb, connector)
        return [first, joint(SEMICOLON), second]
    second.front = None
    return [first, Subordinate(Adverb(conjunction, connector), second)]


def _other_connector(draw: Draw) -> list[Part]:
    """A further clause with a connector of either order."""
    connector = draw.pick(("seitdem", "solange")) if draw.tense == "past" else "solange"
    clause = draw.clause(time=0.0, pronoun=0.0)
    clause.time = _when(draw, 0.2)
    conjunction, adverb = lexicon.CONNECTORS[connector]
    if draw.chance(0.5):
        clause.front = Adverb(adverb, connector)
        return [joint(SEMICOLON), clause]
    return [Subordinate(Adverb(conjunction, connector), clause)]


def _demonstrative(draw: Draw, first: Clause, hard: bool) -> Twins:
    head = first.object
    # The object must end its clause, or a relative clause would stand elsewhere than a main clause.
    if head is None or head.plural or head.owner or first.verb.particle or first.tense in lexicon.MODALS:
        raise UnfitError
    tail = _tail(draw, hard, "der")
    if tail.verb.frame not in {"intransitive", "motion", "transitive", "social", "handle", "dative"}:
        raise UnfitError
    if not draw.keeps("subject", head.noun.pool, tail.verb.pool):
        raise UnfitError
    first.time = None if first.front != "time" else first.time
    other = _other_connector(draw) if hard else None

    def build(flag: bool) -> Sequence[Part]:
        antecedent = NounPhrase(head.noun, False, head.article, head.adjectives)
        first.object = antecedent
        if flag:
            tail.subject, tail.gap = Demonstrative(antecedent), ""
            parts: list[Part] = [first, joint(SEMICOLON), tail]
        else:
            tail.subject, tail.gap = antecedent, "subject"
            antecedent.relative = tail
            parts = [first]
        return [*parts, *other] if other else parts

    return build


# Particles. "machte ... auf/zu": the English verb decides the particle at the end of the clause.

# What does not move while something is done to it. With the others, "in" and "on" may say where to ("brought back in
# the hall") or belong to the verb ("gave up on the hill").
UNMOVED = {"opening", "device", "clothes", "text"}


def _separable(draw: Draw, verb: Verb, attribute: float = 0.0) -> Clause:
    clause = Clause(draw.subject_of(verb, attribute=attribute), verb, draw.tense, time=draw.time())
    if verb.objects:
        clause.object = draw.object_of(verb)
    if not verb.objects or draw.chance(0.2):
        clause.place = draw.place(0.5, anywhere=verb.objects in UNMOVED)
    return clause


def particle(draw: Draw, hard: bool) -> Twins:
    """The particle of a separable verb."""
    draw.start(("past", "past", "present"))
    pair = draw.pick(lexicon.separable)
    clause = _separable(draw, pair[0], attribute=0.3 * hard)
    lead: list[Part] = []
    tail: list[Part] = []
    if hard:
        clause.time = draw.time(0.7)
        clause.place = draw.place(0.6, anywhere=pair[0].objects in UNMOVED)
        if clause.object and draw.chance(0.5):
            clause.object.attribute = draw.attribute()
            clause.place = None
        elif clause.object and clause.object.noun.kind != "name" and draw.chance(0.5):
            clause.place = clause.time = None
            draw.relative(clause.object)
        # The other clauses have verbs of the same stem, with either particle.
        same = [found for found in lexicon.separable if found[0].infinitive == pair[0].infinitive]
        others = [_separable(draw, draw.pick(same)[draw.chance(0.5)]) for _ in range(2)]
        lead = [others[0], joint(AND)]
        tail = [joint(BUT), others[1]]

    def build(flag: bool) -> Sequence[Part]:
        clause.verb = pair[flag]
        return [*lead, clause, *tail]

    return build


# Case. "in" and "on" say where, "into" and "onto" where to; German uses the same prepositions with another case.


CASE_AFTER_NAMES = 0.95  # of the hard ones


def case(draw: Draw, hard: bool) -> Twins:
    """The case after a preposition that takes two."""
    draw.start(("past", "past", "past", "present", "can", "must", "will"))
    verb = draw.pick([verb for verb in lexicon.verbs["motion"] if verb.english not in lexicon.INWARD])
    subject = draw.subject_of(verb, pronoun=0.1, attribute=0.2 * hard)
    kind = draw.chance(0.5)
    where, whither = lexicon.prepositions["place"][kind], lexicon.prepositions["goal"][kind]
    kinds = "on" if kind else "in"
    time = draw.time(0.3)
    before: list[PrepositionalPhrase] = []
    after: list[PrepositionalPhrase] = []
    names = lexicon.nouns["name"]
    phrase = draw.goal(where).phrase
    more: list[NounPhrase] = []
    if hard:
        if draw.chance(CASE_AFTER_NAMES):
            # Behind a name no case shows in the first of the list, so the last one has to look back to the preposition.
            nouns = [noun for noun in draw.nouns(kinds) if noun.gender != "f" and not noun.weak]
            phrase = NounPhrase(draw.pick(nouns), article="", owner=draw.pick(names))
            for _ in range(draw.pick((1, 1, 2))):
                more.append(NounPhrase(draw.pick(nouns), article="", owner=draw.pick(names)))
            more.append(draw.phrase(draw.pick(draw.nouns(kinds)), plural=False, article="the", adjective=0.4))
        else:
            phrase = draw.phrase(draw.pick(draw.nouns(kinds)), plural=False, article="the", adjective=0.9)
        before.append(draw.goal(draw.pick(_DISTRACTING[0])))
        if draw.chance(0.8):
            before.insert(draw.chance(0.5), draw.goal(draw.pick(_DISTRACTING[1])))
        if draw.chance(0.6):
            after.append(draw.goal(draw.pick(_DISTRACTING[0])))
    tense = draw.tense
    sub = draw.clause(frame="motion", time=0.1) if hard and draw.chance(0.4) else None
    conjunction = draw.conjunction()

    def build(flag: bool) -> Sequence[Part]:
        tested = PrepositionalPhrase(whither if flag else where, phrase, more)
        clause = Clause(subject, verb, tense, time=time, goals=[*before, tested, *after])
        return [clause, Subordinate(conjunction, sub)] if sub else [clause]

    return build


_DISTRACTING = (
    (*lexicon.prepositions["company"], *lexicon.prepositions["way"]),
    (*lexicon.prepositions["place"], *lexicon.prepositions["goal"]),
)


# Negation. Easy: the sentence is negated or not. Hard: one of its clauses is, and the twin negates another.


def negation(draw: Draw, hard: bool) -> Twins:
    """Whether, and where, a sentence is negated: "nicht" or "kein"."""
    draw.start(("past", "past", "present", "present", "can", "will"))
    first = _deniable(draw)
    if not hard:

        def easy(flag: bool) -> Sequence[Part]:
            first.negated = flag
            return [first]

        return easy
    if draw.chance(0.4) and isinstance(first.subject, NounPhrase) and first.subject.noun.kind == "person":
        second = _deniable(draw, first.subject)
        second.gap = "subject"
        first.subject.relative = second
        third = _deniable(draw)
    else:
        second, third = _deniable(draw), _deniable(draw)
    clauses = [first, second, third]
    count = 3 if draw.chance(0.6) else 2
    swap = (0, 1) if count == 2 else draw.pick(((0, 1), (1, 2), (0, 2)))
    if count == 3:
        clauses[({0, 1, 2} - set(swap)).pop()].negated = draw.chance(0.5)
    conjunctions = [CONJUNCTIONS[word] for word in draw.pick((("because", "although"), ("although", "because")))]
    but = draw.chance(0.4)

    def build(flag: bool) -> Sequence[Part]:
        clauses[swap[0]].negated, clauses[swap[1]].negated = flag, not flag
        parts: list[Part] = [first]
        if not second.gap:
            parts += [joint(BUT), second] if but else [Subordinate(conjunctions[0], second)]
        if count == 3:
            parts.append(Subordinate(conjunctions[1], third))
        return parts

    return build


def _deniable(draw: Draw, subject: Subject | None = None) -> Clause:
    """A clause in which only the negation may change."""
    frame = draw.pick(("transitive", "transitive", "social", "handle", "dative", "eat", "intransitive"))
    clause = draw.clause(subject, frame=frame, time=0.0, place=0.0)
    clause.time = draw.time(0.15, without=lexicon.SCOPE)
    if clause.object and draw.chance(0.5) and frame != "dative":
        clause.object = draw.object_of(clause.verb, plural=False, article="a")
    elif clause.object and clause.object.article == "a" and clause.object.plural:
        clause.object.article = "the"
    return clause


# Punctuation. "versprach der Frau, zu helfen" and "versprach, der Frau zu helfen" differ in nothing but the comma. In
# English what precedes "to" belongs to the verb above, and an adverb of manner to the verb right behind it.

# What is said of the infinitive of these holds another time than that of the verb itself, so that each has a place.
INTENDING = {"promise", "decide", "plan", "threaten", "intend"}
# Verbs with a dative that need none, in English either.
OBJECTLESS = {"help", "follow", "answer", "obey", "serve"}


def comma(draw: Draw, hard: bool) -> Twins:
    """What belongs to an infinitive clause, which in German the comma says."""
    draw.start(("past", "past", "present"))
    lead: list[Part] = []
    if hard and draw.chance(0.35):
        lead = [draw.subordinate(time=0.2, place=0.2), joint(COMMA)]
    tail = _other_infinitive(draw) if hard and (not lead or draw.chance(0.5)) else []
    inner = _recipient(draw, hard) if draw.chance(0.4) else _adverbial(draw, hard)

    def build(flag: bool) -> Sequence[Part]:
        main = inner(flag)
        main.inverted = bool(lead)
        return [*lead, main, *tail]

    return build


def _other_infinitive(draw: Draw) -> list[Part]:
    """A further clause with an infinitive, and an adverb of manner before either verb."""
    verb = draw.verb("to")
    main = Clause(draw.subject_of(verb), verb, draw.tense, time=draw.time(0.4, lexicon.BEFORE_TO))
    below = draw.clause(main.subject, frame="intransitive", time=0.0, place=0.4)
    main.infinitive = Infinitive(below)
    if draw.chance(0.4):
        (main if draw.chance(0.5) else below).manner = draw.pick(lexicon.manners)
    return [joint(AND), main]


def _controller(draw: Draw, verb: Verb, inner: Verb, hard: bool) -> NounPhrase | Pronoun:
    """A subject for both verbs."""
    if draw.chance(0.05):
        return Pronoun(draw.pick(("he", "she", "they")))
    fitting = [noun for noun in draw.fitting("subject", verb, PEOPLE) if draw.keeps("subject", noun.pool, inner.pool)]
    return draw.phrase(draw.pick(fitting), attribute=0.4 * hard, genitive=0.2 * hard)


def _recipient(draw: Draw, hard: bool) -> Callable[[bool], Clause]:
    """Whether a person in the dative belongs to the verb or to its infinitive."""
    promise = next(verb for verb in lexicon.verbs["to"] if verb.english == "promise")
    help_, *others = (verb for verb in lexicon.verbs["dative"] if verb.english in OBJECTLESS)
    verb, inner = draw.pick(((promise, help_), *((verb, other) for verb in (promise, help_) for other in others)))
    fitting = [noun for noun in draw.fitting("object", verb, "person") if draw.keeps("object", noun.pool, inner.pool)]
    recipient = draw.phrase(draw.pick(fitting), attribute=0.4 * hard, genitive=0.3 * hard)
    subject, tense = _controller(draw, verb, inner, hard), draw.tense
    time = draw.time(0.6, lexicon.BEFORE_TO) if hard and recipient.attribute is None else None

    def build(flag: bool) -> Clause:
        main, below = Clause(subject, verb, tense, time=time), Clause(subject, inner, tense)
        if flag:
            main.recipient = recipient
        else:
            below.object = recipient
        main.infinitive = Infinitive(below)
        return main

    return build


def _adverbial(draw: Draw, hard: bool) -> Callable[[bool], Clause]:
    """Whether an adverb of manner, or a place, belongs to the verb or to its infinitive."""
    moves_place = draw.chance(0.4)
    verb = draw.pick([verb for verb in lexicon.verbs["to"] if verb.english in INTENDING or not moves_place])
    inner = draw.verb(draw.pick(("intransitive", "intransitive", "transitive", "social")))
    subject, tense = _controller(draw, verb, inner, hard), draw.tense
    thing = draw.object_of(inner) if inner.objects else None
    # A time before "to" leaves a place behind the infinitive nothing else to belong to.
    time = draw.time(1.0 if moves_place else 0.4 * hard, lexicon.BEFORE_TO)
    place = draw.place(1.0 if moves_place else 0.5 * hard)
    manner = draw.pick(lexicon.manners) if not moves_place or (hard and draw.chance(0.4)) else None

    def build(flag: bool) -> Clause:
        main, below = Clause(subject, verb, tense, time=time), Clause(subject, inner, tense, object=thing)
        # In German manner precedes place, so where the place is above, the manner is too.
        (main if flag and moves_place else below).place = place
        (main if flag or moves_place else below).manner = manner
        main.infinitive = Infinitive(below)
        return main

    return build


PHENOMENA: dict[str, Callable[[Draw, bool], Twins]] = {
    "agreement": agreement,
    "pronoun": pronoun,
    "ambiguity": ambiguity,
    "order": order,
    "particle": particle,
    "case": case,
    "negation": negation,
    "punctuation": comma,
}
