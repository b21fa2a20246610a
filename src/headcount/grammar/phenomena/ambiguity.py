"""Ambiguity: nouns with two translations, one of which another word, the cue, calls for.

German has one word for the two cues of a pair, so that the German sentence does not show which translation is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headcount.grammar import lexicon
from headcount.grammar.draw import AND, COMMA, Draw, UnfitError
from headcount.grammar.lexicon.entries import Homograph, Noun, Verb
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Joint, NounPhrase, PrepositionalPhrase, Subordinate

TWO_NOUNS = 0.5  # the share of hard sentences with a second ambiguous noun, which has a cue of its own


def ambiguity(draw: Draw, hard: bool) -> Twins:
    """Hard: with the cue in another clause, often beside the cue of another noun."""
    draw.start()
    homograph = draw.pick(lexicon.homographs)
    cues = draw.pick(homograph.cues)
    verb = _verb(draw, homograph.senses[0])
    subject = draw.subject_of(verb, pronoun=0.1)
    adjectives = [draw.pick(lexicon.adjectives["any"])] if draw.chance(0.25) else []
    noun = NounPhrase(homograph.senses[0], False, "a" if draw.chance(0.2) else "the", adjectives)
    cue = draw.phrase(cues[0], adjective=0.15)
    clause = Clause(subject, verb, draw.tense, time=draw.time(0.2))

    def tested(flag: bool, cue: NounPhrase, attribute: PrepositionalPhrase | None) -> Clause:
        return replace(clause, object=replace(noun, noun=homograph.senses[flag], sense=cue, attribute=attribute))

    if hard:
        return _hard(draw, homograph, cues, cue, tested)
    preposition = draw.pick(lexicon.prepositions["noun"])

    def twin(flag: bool) -> Sequence[Part]:
        decisive = replace(cue, noun=cues[flag])
        return [tested(flag, decisive, PrepositionalPhrase(preposition, decisive))]

    return twin


def _hard(
    draw: Draw,
    homograph: Homograph,
    cues: tuple[Noun, Noun],
    cue: NounPhrase,
    tested: Callable[[bool, NounPhrase, PrepositionalPhrase | None], Clause],
) -> Twins:
    second = _second_noun(draw, homograph, cues) if draw.chance(TWO_NOUNS) else None
    # The clause with the cue: a second cue is its object, with the first behind a preposition, or the other way round.
    outer = second is None or draw.chance(0.5)
    cue_verb = _verb(draw, cues[0] if second is None or outer else second[1])
    cue_subject = draw.subject_of(cue_verb)
    beside = draw.pick(lexicon.prepositions["noun"])
    if second is None:
        between = draw.clause(time=0.1, place=0.2, pronoun=0.0)
        if between.object and between.object.noun.pool in _pools(homograph):
            raise UnfitError  # another cue for the same noun
    else:
        verb = _verb(draw, second[0])
        between = Clause(draw.subject_of(verb), verb, draw.tense)
    conjunction = draw.conjunction()
    cue_first, extra = draw.chance(0.5), draw.attribute() if draw.chance(0.3) else None
    tense = draw.tense

    def twin(flag: bool) -> Sequence[Part]:
        first = cue_object = replace(cue, noun=cues[flag])
        middle = between
        if second:
            other = NounPhrase(second[1])
            if outer:
                first = cue_object = replace(first, attribute=PrepositionalPhrase(beside, other))
            else:
                other = cue_object = replace(other, attribute=PrepositionalPhrase(beside, first))
            middle = replace(between, object=NounPhrase(second[0], sense=other))
        clause = replace(tested(flag, first, extra), inverted=cue_first)
        sub = Subordinate(conjunction, Clause(cue_subject, cue_verb, tense, cue_object))
        if cue_first:
            return [sub, Joint(*COMMA), clause, Joint(*AND), middle]
        return [clause, Joint(*AND), middle, sub]

    return twin


def _verb(draw: Draw, noun: Noun) -> Verb:
    """A verb that may have the noun as its object."""
    return draw.pick([verb for verb in lexicon.verbs["transitive"] if draw.keeps("object", noun.pool, verb.pool)])


def _second_noun(draw: Draw, homograph: Homograph, cues: tuple[Noun, Noun]) -> tuple[Noun, Noun]:
    """One sense of another ambiguous noun, and its cue. No cue of one of the two nouns is a cue of the other."""
    fitting = [other for other in lexicon.homographs if other is not homograph and cues[0].pool not in _pools(other)]
    other = draw.pick(fitting)
    pair = draw.pick([pair for pair in other.cues if pair[0].pool not in _pools(homograph)])
    sense = draw.chance(0.5)
    return other.senses[sense], pair[sense]


def _pools(homograph: Homograph) -> set[str]:
    return {pair[0].pool for pair in homograph.cues}
