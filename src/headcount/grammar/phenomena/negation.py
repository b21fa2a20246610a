"""Negation: whether a clause is negated, and which one ("nicht", "kein")."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar.draw import BUT, CONJUNCTIONS, Draw
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Joint, NounPhrase, Subject, Subordinate


def negation(draw: Draw, hard: bool) -> Twins:
    """Easy: one twin is negated. Hard: of two or three clauses each twin negates another."""
    draw.start(("past", "past", "present", "present", "can", "will"))
    first = _clause(draw)
    if not hard:
        return lambda flag: [replace(first, negated=flag)]
    head = None
    if draw.chance(0.4) and isinstance(first.subject, NounPhrase) and first.subject.noun.kind == "person":
        head = first.subject
    second, third = _clause(draw, head), _clause(draw)
    count = 3 if draw.chance(0.6) else 2
    swap = (0, 1) if count == 2 else draw.pick(((0, 1), (1, 2), (0, 2)))
    rest = count == 3 and draw.chance(0.5)
    conjunctions = [CONJUNCTIONS[word] for word in draw.pick((("because", "although"), ("although", "because")))]
    but = draw.chance(0.4)

    def twin(flag: bool) -> Sequence[Part]:
        negated = [rest] * 3
        negated[swap[0]], negated[swap[1]] = flag, not flag
        one, two, three = (
            replace(clause, negated=no) for clause, no in zip((first, second, third), negated, strict=True)
        )
        parts: list[Part] = [one, Joint(*BUT), two] if but else [one, Subordinate(conjunctions[0], two)]
        if head:
            parts = [replace(one, subject=replace(head, relative=replace(two, gap="subject")))]
        return [*parts, Subordinate(conjunctions[1], three)] if count == 3 else parts

    return twin


def _clause(draw: Draw, subject: Subject | None = None) -> Clause:
    """A clause in which nothing but the negation can change."""
    frame = draw.pick(("transitive", "transitive", "social", "handle", "dative", "eat", "intransitive"))
    clause = draw.clause(subject, frame=frame, time=0.0, place=0.0)
    clause = replace(clause, time=draw.time(0.15, without="scope"))
    thing = clause.object
    if thing and draw.chance(0.5) and frame != "dative":
        return replace(clause, object=draw.object_of(clause.verb, plural=False, article="a"))
    if thing and thing.article == "a" and thing.plural:
        return replace(clause, object=replace(thing, article="the"))
    return clause
