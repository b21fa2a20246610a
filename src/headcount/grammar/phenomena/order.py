"""Word order: German words that begin a clause with the verb at its end or in the second place.

"seitdem", "damit", "da" and "solange" are conjunctions (verb last) and adverbs (verb second); "der", "die", "das" are
relative pronouns (verb last) and demonstratives (verb second). English has two words or phrases for each.
"""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar.draw import SEMICOLON, Draw, UnfitError
from headcount.grammar.german import MODALS
from headcount.grammar.lexicon.entries import Adverb
from headcount.grammar.sentence import Part, Twins
from headcount.grammar.syntax import Clause, Demonstrative, Joint, NounPhrase, Subordinate

# German connector: the English conjunction, the English adverb.
CONNECTORS = {
    "seitdem": ("ever since", "since then"),
    "damit": ("so that", "with it"),
    "da": ("given that", "there"),
    "solange": ("as long as", "meanwhile"),
}
# Tenses. With a past, "so that" is a result ("sodass") and not a purpose ("damit"); "since then" takes the past.
CONNECTED = {"damit": ("present", "present", "can", "must"), "seitdem": ("past",)}


def order(draw: Draw, hard: bool) -> Twins:
    """Hard: with more words between the connector and the verb, and a further clause."""
    connector = draw.pick((*CONNECTORS, "der"))
    draw.start(CONNECTED.get(connector, ("past", "past", "past", "present", "can", "must")))
    first = _first(draw, connector, busy=hard and not draw.chance(0.5))
    if connector == "der":
        return _demonstrative(draw, first, hard)
    second = _second(draw, hard, connector)
    other = _other(draw) if hard else []
    return lambda flag: [first, *_connected(connector, second, flag), *other]


def _time(draw: Draw, chance: float) -> Adverb | None:
    """An adverb of time, or None; in the past one that fits "ever since" and "since then"."""
    return draw.time(chance, without="once" if draw.tense == "past" else "")


def _first(draw: Draw, connector: str, busy: bool) -> Clause:
    """The clause before the connector, with what an adverb refers to: a thing for "with it", a place for "there"."""
    if connector == "damit":
        clause = draw.clause(frame="handle", time=0.0, place=0.0)
        clause = replace(clause, object=draw.object_of(clause.verb, plural=False))
    elif connector == "da":
        clause = draw.clause(frame=draw.pick(("intransitive", "transitive")), time=0.0)
        clause = replace(clause, place=draw.place(1.0))
    elif connector == "der":
        clause = draw.clause(frame="social", time=0.0, place=0.0)
    else:
        clause = draw.clause(time=0.0, place=0.3)
        clause = replace(clause, time=_time(draw, 0.1))
    return replace(clause, time=_time(draw, 1.0), front="time") if busy else clause


def _second(draw: Draw, hard: bool, connector: str) -> Clause:
    """The clause after the connector."""
    clause = draw.clause(pronoun=0.0, time=0.0, place=0.6 if hard else 0.4, attribute=0.3 * hard)
    clause = replace(clause, time=_time(draw, 0.7 if hard else 0.3))
    if connector == "da":
        if clause.goals:
            raise UnfitError
        clause = replace(clause, place=None)  # "there" is the place
    subject = clause.subject
    if not hard or not isinstance(subject, NounPhrase) or subject.noun.kind != "person" or subject.attribute:
        return clause
    return replace(clause, subject=draw.with_relative(subject)) if draw.chance(0.5) else clause


def _connected(connector: str, clause: Clause, main: bool) -> list[Part]:
    """The clause as a main clause that begins with the adverb, or below the conjunction."""
    conjunction, adverb = CONNECTORS[connector]
    if main:
        return [Joint(*SEMICOLON), replace(clause, front=Adverb(adverb, connector))]
    return [Subordinate(Adverb(conjunction, connector), clause)]


def _other(draw: Draw) -> list[Part]:
    """A further clause with a connector, in either order."""
    connector = draw.pick(("seitdem", "solange")) if draw.tense == "past" else "solange"
    clause = draw.clause(time=0.0, pronoun=0.0)
    clause = replace(clause, time=_time(draw, 0.2))
    return _connected(connector, clause, main=draw.chance(0.5))


def _demonstrative(draw: Draw, first: Clause, hard: bool) -> Twins:
    """The object of the first clause is the subject of the second, as a relative pronoun or a demonstrative."""
    head = first.object
    # The object must end its clause, or a relative clause would be elsewhere than a main clause.
    if head is None or head.plural or head.owner or first.verb.particle or first.tense in MODALS:
        raise UnfitError
    second = _second(draw, hard, "der")
    if second.verb.frame not in {"intransitive", "motion", "transitive", "social", "handle", "dative"}:
        raise UnfitError
    if not draw.keeps("subject", head.noun.pool, second.verb.pool):
        raise UnfitError
    other = _other(draw) if hard else []

    def twin(flag: bool) -> Sequence[Part]:
        if flag:
            return [first, Joint(*SEMICOLON), replace(second, subject=Demonstrative(head)), *other]
        relative = replace(second, subject=head, gap="subject")
        return [replace(first, object=replace(head, relative=relative)), *other]

    return twin
