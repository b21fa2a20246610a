"""Case: German prepositions with the dative for a place ("in", "on") and the accusative for a goal ("into", "onto")."""

from collections.abc import Sequence

from headcount.grammar.draw import Draw
from headcount.grammar.lexicon import prepositions, verbs
from headcount.grammar.lexicon.entries import Noun
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, NounPhrase, PrepositionalPhrase, Subordinate

AFTER_NAMES = 0.95  # the share of hard sentences in which only the last of a list of nouns shows the case
# What precedes and follows the phrase that is tested.
COMPANY = (*prepositions["company"], *prepositions["way"])
GOALS = (*prepositions["place"], *prepositions["goal"])


def case(draw: Draw, hard: bool) -> Twins:
    """Hard: with other prepositional phrases beside it, and nouns between the preposition and the case."""
    draw.start(("past", "past", "past", "present", "can", "must", "will"))
    verb = draw.pick([verb for verb in verbs["motion"] if "inward" not in verb.flags])
    subject = draw.subject_of(verb, pronoun=0.1, attribute=0.2 * hard)
    which = draw.chance(0.5)
    place, goal = prepositions["place"][which], prepositions["goal"][which]
    nouns = draw.nouns(place.nouns)
    time = draw.time(0.3)
    before: list[PrepositionalPhrase] = []
    after: list[PrepositionalPhrase] = []
    phrases = [draw.goal(place).phrase]
    if hard:
        phrases = _named(draw, nouns) if draw.chance(AFTER_NAMES) else []
        phrases.append(draw.phrase(draw.pick(nouns), plural=False, article="the", adjective=0.4 if phrases else 0.9))
        before.append(draw.goal(draw.pick(COMPANY)))
        if draw.chance(0.8):
            before.insert(draw.chance(0.5), draw.goal(draw.pick(GOALS)))
        if draw.chance(0.6):
            after.append(draw.goal(draw.pick(COMPANY)))
    sub = draw.clause(frame="motion", time=0.1) if hard and draw.chance(0.4) else None
    conjunction = draw.conjunction()
    tense = draw.tense

    def twin(flag: bool) -> Sequence[Part]:
        tested = PrepositionalPhrase(goal if flag else place, phrases[0], phrases[1:])
        clause = Clause(subject, verb, tense, time=time, goals=[*before, tested, *after])
        return [clause, Subordinate(conjunction, sub)] if sub else [clause]

    return twin


def _named(draw: Draw, nouns: Sequence[Noun]) -> list[NounPhrase]:
    """Two or three nouns after names, which do not show their case: the next one has to follow the preposition."""
    fitting = [noun for noun in nouns if noun.gender != "f" and not noun.weak]
    first = NounPhrase(draw.pick(fitting), article="", owner=draw.name())
    more = [NounPhrase(draw.pick(fitting), article="", owner=draw.name()) for _ in range(draw.pick((1, 1, 2)))]
    return [first, *more]
