"""Punctuation: the German comma that shows what belongs to an infinitive clause.

"versprach der Frau, zu helfen" and "versprach, der Frau zu helfen" differ in the comma alone. In English, what precedes
"to" belongs to the verb above, and an adverb of manner to the verb right behind it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headcount.grammar import lexicon
from headcount.grammar.draw import AND, COMMA, Draw
from headcount.grammar.lexicon import PEOPLE
from headcount.grammar.lexicon.entries import Verb
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Infinitive, Joint, NounPhrase, Pronoun


def punctuation(draw: Draw, hard: bool) -> Twins:
    """Hard: with other clauses, longer phrases and more adverbs."""
    draw.start(("past", "past", "present"))
    lead: list[Part] = []
    if hard and draw.chance(0.35):
        lead = [draw.subordinate(time=0.2, place=0.2), Joint(*COMMA)]
    tail = _other_infinitive(draw) if hard and (not lead or draw.chance(0.5)) else []
    main = (_recipient if draw.chance(0.4) else _adverbial)(draw, hard)
    return lambda flag: [*lead, replace(main(flag), inverted=bool(lead)), *tail]


def _other_infinitive(draw: Draw) -> Sequence[Part]:
    """A further clause with an infinitive, and an adverb of manner before either verb."""
    verb = draw.verb("to")
    main = Clause(draw.subject_of(verb), verb, draw.tense, time=draw.time(0.4, without="infinitive"))
    below = draw.clause(main.subject, frame="intransitive", time=0.0, place=0.4)
    if draw.chance(0.4):
        manner = draw.pick(lexicon.manners)
        if draw.chance(0.5):
            main = replace(main, manner=manner)
        else:
            below = replace(below, manner=manner)
    return [Joint(*AND), replace(main, infinitive=Infinitive(below))]


def _subject(draw: Draw, verb: Verb, inner: Verb, hard: bool) -> NounPhrase | Pronoun:
    """A subject for both verbs."""
    if draw.chance(0.05):
        return Pronoun(draw.pick(("he", "she", "they")))
    fitting = [noun for noun in draw.fitting("subject", verb, PEOPLE) if draw.keeps("subject", noun.pool, inner.pool)]
    return draw.phrase(draw.pick(fitting), attribute=0.4 * hard, genitive=0.2 * hard)


def _recipient(draw: Draw, hard: bool) -> Callable[[bool], Clause]:
    """A person in the dative belongs to the verb above, or to the infinitive."""
    promise = next(verb for verb in lexicon.verbs["to"] if verb.english == "promise")
    help_, *others = (verb for verb in lexicon.verbs["dative"] if "objectless" in verb.flags)
    verb, inner = draw.pick(((promise, help_), *((verb, other) for verb in (promise, help_) for other in others)))
    fitting = [noun for noun in draw.fitting("object", verb, "person") if draw.keeps("object", noun.pool, inner.pool)]
    recipient = draw.phrase(draw.pick(fitting), attribute=0.4 * hard, genitive=0.3 * hard)
    subject, tense = _subject(draw, verb, inner, hard), draw.tense
    time = draw.time(0.6, without="infinitive") if hard and recipient.attribute is None else None

    def main(flag: bool) -> Clause:
        below = Clause(subject, inner, tense, object=None if flag else recipient)
        above = recipient if flag else None
        return Clause(subject, verb, tense, recipient=above, time=time, infinitive=Infinitive(below))

    return main


def _adverbial(draw: Draw, hard: bool) -> Callable[[bool], Clause]:
    """An adverb of manner, or a place, belongs to the verb above, or to the infinitive."""
    moves_place = draw.chance(0.4)
    verb = draw.pick([verb for verb in lexicon.verbs["to"] if "intending" in verb.flags or not moves_place])
    inner = draw.verb(draw.pick(("intransitive", "intransitive", "transitive", "social")))
    subject, tense = _subject(draw, verb, inner, hard), draw.tense
    thing = draw.object_of(inner) if inner.objects else None
    # A time before "to" makes sure that a place after the infinitive belongs to the infinitive.
    time = draw.time(1.0 if moves_place else 0.4 * hard, without="infinitive")
    place = draw.place(1.0 if moves_place else 0.5 * hard)
    manner = draw.pick(lexicon.manners) if not moves_place or (hard and draw.chance(0.4)) else None

    def main(flag: bool) -> Clause:
        # In German, manner precedes place: where the place belongs to the verb above, the manner does too.
        manners = (manner, None) if flag or moves_place else (None, manner)
        places = (place, None) if flag and moves_place else (None, place)
        below = Clause(subject, inner, tense, thing, manner=manners[1], place=places[1])
        above = Clause(subject, verb, tense, manner=manners[0], place=places[0], time=time)
        return replace(above, infinitive=Infinitive(below))

    return main
