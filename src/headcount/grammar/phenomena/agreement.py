"""Agreement: the number of a subject that only the verb shows in German ("Annas Lehrer schlief" or "schliefen").

After a name, the number shows neither in the noun nor in an article.
"""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar.draw import TRANSITIVE, Draw, UnfitError
from headcount.grammar.lexicon import prepositions
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import NounPhrase, PrepositionalPhrase, Pronoun, Subordinate

# Tenses in which the English verb does not show its number.
NUMBERLESS = ("past", "past", "past", "can", "must", "will", "may")


def agreement(draw: Draw, hard: bool) -> Twins:
    """Hard: with a chain of nouns of mixed number between the subject and the verb."""
    draw.start(NUMBERLESS)
    person = draw.chance(0.8)
    frame = draw.pick(("intransitive", "motion", *TRANSITIVE)) if person else "stative"
    kinds = "person" if person else "thing vehicle clothes"
    clause = draw.clause(frame=frame, pronoun=0.0, time=0.3 if hard else 0.2, place=0.2)
    noun = draw.pick([noun for noun in draw.fitting("subject", clause.verb, kinds) if noun.same_plural])
    owner = draw.name()
    if not hard and person and draw.chance(0.15):
        pronouns = Pronoun("she"), Pronoun("they")
        return lambda flag: [replace(clause, subject=pronouns[flag])]
    attribute = sub = None
    if hard:
        attribute = _chain(draw)
        if draw.chance(0.3):
            attribute = replace(attribute, phrase=_ending_in_relative(draw, attribute.phrase))
        if draw.chance(0.3):
            sub = draw.clause(pronoun=0.0, time=0.0, place=0.1)
    if hard and draw.chance(0.3):
        clause = replace(clause, time=clause.time or draw.time(1.0), front="time")
    conjunction = draw.conjunction()
    first = draw.chance(0.5)

    def twin(flag: bool) -> Sequence[Part]:
        main = replace(clause, subject=NounPhrase(noun, flag, "", owner=owner, attribute=attribute))
        if sub is None:
            return [main]
        if first:
            return [sub, Subordinate(conjunction, replace(main, front=None))]
        return [main, Subordinate(conjunction, sub)]

    return twin


def _chain(draw: Draw) -> PrepositionalPhrase:
    """A prepositional phrase with three nouns of mixed number, each of which belongs to the one before it."""
    attribute = draw.attribute(plural=draw.chance(0.5), kinds="person person in vehicle")
    first = attribute.phrase
    if draw.chance(0.4):
        noun = draw.pick([noun for noun in draw.nouns("person") if noun.same_plural])
        first = NounPhrase(noun, draw.chance(0.5), "", owner=draw.name())
    second = draw.phrase(draw.pick(draw.nouns("person")), draw.chance(0.5), "the", adjective=0.1)
    second = replace(second, attribute=draw.attribute(plural=draw.chance(0.5)))
    if first.owner:
        first = replace(first, attribute=PrepositionalPhrase(draw.pick(prepositions["noun"]), second))
    else:
        first = replace(first, genitive=second)
    return replace(attribute, phrase=first)


def _ending_in_relative(draw: Draw, phrase: NounPhrase) -> NounPhrase:
    """The phrase with a relative clause on its last noun."""
    if phrase.genitive:
        return replace(phrase, genitive=_ending_in_relative(draw, phrase.genitive))
    if phrase.attribute:
        last = _ending_in_relative(draw, phrase.attribute.phrase)
        return replace(phrase, attribute=replace(phrase.attribute, phrase=last))
    if phrase.noun.kind == "name":
        raise UnfitError
    return draw.with_relative(phrase)
