"""Particles: the end of a German clause that depends on the English verb ("machte die Tür auf" or "zu")."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar import lexicon
from headcount.grammar.draw import AND, BUT, Draw
from headcount.grammar.lexicon.entries import Verb
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Joint

# Objects that do not move. With others, "in" and "on" can be a goal ("brought back in the hall") or belong to the verb
# ("gave up on the hill").
UNMOVED = {"opening", "device", "clothes", "text"}


def separable_clause(draw: Draw, verb: Verb, attribute: float = 0.0) -> Clause:
    """A clause with a separable verb. attribute: its probability, with the subject."""
    subject, time, thing, place = draw.subject_of(verb, attribute=attribute), draw.time(), None, None
    if verb.objects:
        thing = draw.object_of(verb)
    if not verb.objects or draw.chance(0.2):
        place = draw.place(0.5, anywhere=verb.objects in UNMOVED)
    return Clause(subject, verb, draw.tense, thing, time=time, place=place)


def particle(draw: Draw, hard: bool) -> Twins:
    """Hard: with more words between verb and particle, and two other clauses with verbs of the same stem."""
    draw.start(("past", "past", "present"))
    pair = draw.pick(lexicon.separable)
    clause = separable_clause(draw, pair[0], attribute=0.3 * hard)
    lead: list[Part] = []
    tail: list[Part] = []
    if hard:
        clause = _longer(draw, clause)
        same = [verbs for verbs in lexicon.separable if verbs[0].infinitive == pair[0].infinitive]
        others = [separable_clause(draw, draw.pick(same)[draw.chance(0.5)]) for _ in range(2)]
        lead, tail = [others[0], Joint(*AND)], [Joint(*BUT), others[1]]

    def twin(flag: bool) -> Sequence[Part]:
        return [*lead, replace(clause, verb=pair[flag]), *tail]

    return twin


def _longer(draw: Draw, clause: Clause) -> Clause:
    """The clause with other words between the verb and its particle."""
    time = draw.time(0.7)
    place = draw.place(0.6, anywhere=clause.verb.objects in UNMOVED)
    thing = clause.object
    if thing and draw.chance(0.5):
        return replace(clause, time=time, place=None, object=replace(thing, attribute=draw.attribute()))
    if thing and thing.noun.kind != "name" and draw.chance(0.5):
        return replace(clause, time=None, place=None, object=draw.with_relative(thing))
    return replace(clause, time=time, place=place)
