"""Pronouns: the gender of the German pronoun, which is that of the noun that it refers to.

"it" refers to the only thing in the singular, "he" and "she" to the only person of that sex in the singular.
"""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar import lexicon
from headcount.grammar.draw import AND, CONJUNCTIONS, MODAL, Draw, UnfitError
from headcount.grammar.lexicon.entries import Adverb, Verb
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Joint, NounPhrase, Pronoun, Subordinate

# The share of sentences in which both twins have "it", and the number of two nouns decides.
BY_NUMBER = {"easy": 0.25, "hard": 0.7}
COPULA = lexicon.verbs["be"][0]


def pronoun(draw: Draw, hard: bool) -> Twins:
    """Hard: with a clause between the noun and the pronoun, or other nouns."""
    draw.start(("past", "present"))
    return (_by_number if draw.chance(BY_NUMBER["hard" if hard else "easy"]) else _by_word)(draw, hard)


def _by_word(draw: Draw, hard: bool) -> Twins:
    """One twin has "it", the other "he" or "she"."""
    verb = draw.verb("transitive")
    thing = draw.pick(draw.fitting("object", verb, "thing text food clothes device opening vehicle"))
    person = draw.pick([noun for noun in draw.nouns("person") if noun.gender not in {thing.gender, "n"}])
    thing_phrase = draw.phrase(thing, plural=False, article="the")
    person_phrase = draw.phrase(person, plural=False, article="the")
    predicate = draw.pick(lexicon.adjectives["any"])
    if draw.chance(0.4):
        verb = draw.verb("give")
        if not (draw.keeps("object", thing.pool, verb.pool) and draw.keeps("object", person.pool, verb.pool)):
            raise UnfitError
        subject, recipient = draw.subject_of(verb, "person", plural=True, owner=0.0), person_phrase
    else:
        if not draw.keeps("subject", person.pool, verb.pool):
            raise UnfitError
        subject, recipient = person_phrase, None
    conjunction = CONJUNCTIONS[draw.pick(MODAL)]
    middle = _report(draw) if hard else None
    if hard:
        thing_phrase = replace(thing_phrase, attribute=draw.attribute(plural=True))
    main = Clause(subject, verb, draw.tense, thing_phrase, recipient)
    personal = "he" if person.gender == "m" else "she"
    tense = draw.tense

    def twin(flag: bool) -> Sequence[Part]:
        it = Pronoun("it", thing_phrase) if flag else Pronoun(personal, person_phrase)
        return [main, _below(middle, conjunction, Clause(it, COPULA, tense, predicate=predicate))]

    return twin


def _by_number(draw: Draw, hard: bool) -> Twins:
    """Both twins have "it", which refers to the one of two things that is in the singular."""
    verbs = draw.verb("transitive"), draw.verb("handle")
    kinds = "thing clothes vehicle"
    first = draw.pick([noun for noun in draw.fitting("object", verbs[0], kinds) if noun.same_plural])
    fitting = draw.fitting("object", verbs[1], kinds)
    second = draw.pick([noun for noun in fitting if noun.same_plural and noun.gender != first.gender])
    owners = [draw.name() for _ in range(2)]
    swap = draw.chance(0.5)
    subjects = [_people(draw, verb, 0.3 if hard else 0.0) for verb in verbs]
    middle = _report(draw) if hard else None
    conjunction = CONJUNCTIONS[draw.pick(MODAL)]
    predicate = draw.pick(lexicon.adjectives["any"])
    tense = draw.tense
    times = [draw.time(0.3) for _ in range(2)] if hard else [None, None]

    def twin(flag: bool) -> Sequence[Part]:
        things = [NounPhrase(first, flag, "", owner=owners[0]), NounPhrase(second, not flag, "", owner=owners[1])]
        clauses = [Clause(subjects[i], verbs[i], tense, things[i], time=times[i]) for i in range(2)]
        if swap:
            clauses.reverse()
        last = Clause(Pronoun("it", things[flag]), COPULA, tense, predicate=predicate)
        return [clauses[0], Joint(*AND), clauses[1], _below(middle, conjunction, last)]

    return twin


def _people(draw: Draw, verb: Verb, attribute: float) -> NounPhrase | Pronoun:
    """A subject in the plural, all of whose nouns are in the plural."""
    subject = draw.subject_of(verb, "person", plural=True, attribute=attribute)
    if isinstance(subject, NounPhrase) and subject.attribute:
        phrase = replace(subject.attribute.phrase, plural=True)
        return replace(subject, attribute=replace(subject.attribute, phrase=phrase))
    return subject


def _report(draw: Draw) -> Clause | None:
    """A clause that reports the next one, with a subject in the plural; or None."""
    if draw.chance(0.3):
        return None
    verb = draw.verb("that")
    return Clause(draw.subject_of(verb, "person", plural=True, owner=0.0), verb, draw.tense, time=draw.time(0.4))


def _below(middle: Clause | None, conjunction: Adverb, last: Clause) -> Subordinate:
    """The last clause as a subordinate one, within the reporting clause where there is one."""
    if middle is None:
        return Subordinate(conjunction, last)
    return Subordinate(conjunction, replace(middle, that=Subordinate(CONJUNCTIONS["that"], last)))
