"""Plain sentences: all constructions of the grammar, without a test."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.grammar import lexicon
from headcount.grammar.draw import AND, BUT, COMMA, CONJUNCTIONS, Draw
from headcount.grammar.phenomena.particle import separable_clause
from headcount.grammar.sentence import Part
from headcount.grammar.syntax import Clause, Infinitive, Joint, NounPhrase, Subordinate


def plain(draw: Draw) -> Sequence[Part]:
    """A sentence without a twin."""
    draw.start()
    return draw.pick(_CONSTRUCTIONS)(draw)


def _simple(draw: Draw) -> Sequence[Part]:
    clause = draw.clause(attribute=0.1, genitive=0.1)
    front, negated = None, False
    if clause.time and draw.chance(0.4):
        front = "time"
    elif clause.place and draw.chance(0.3):
        front = "place"
    if draw.chance(0.1) and draw.tense not in {"must", "may"}:
        negated = not clause.time or "scope" not in clause.time.flags
    return [replace(clause, front=front, negated=negated)]


def _thing(draw: Draw) -> Sequence[Part]:
    if draw.chance(0.5):
        return [draw.clause(frame="stative", pronoun=0.0, attribute=0.1)]
    draw.start(("past", "present"))
    clause = draw.clause(frame="be", pronoun=0.1, time=0.0, place=0.0, attribute=0.15, genitive=0.2)
    noun = clause.subject.noun if isinstance(clause.subject, NounPhrase) else lexicon.nouns["person"][0]
    return [replace(clause, predicate=draw.adjective(noun))]


def _giving(draw: Draw) -> Sequence[Part]:
    return [draw.clause(frame="give")]


def _conjoined(draw: Draw) -> Sequence[Part]:
    return [draw.clause(time=0.2), Joint(*(AND if draw.chance(0.6) else BUT)), draw.clause(time=0.2)]


def _complex(draw: Draw) -> Sequence[Part]:
    sub, main = draw.subordinate(place=0.2, time=0.2), draw.clause(place=0.2, time=0.2)
    if draw.chance(0.4):
        return [sub, Joint(*COMMA), replace(main, inverted=True)]
    return [main, sub]


def _reported(draw: Draw) -> Sequence[Part]:
    draw.start(("past", "present"))
    verb, conjunction = draw.verb("that"), "that"
    subject = draw.subject_of(verb, pronoun=0.1)
    if draw.chance(0.25):
        verb, conjunction = next(verb for verb in lexicon.verbs["social"] if verb.english == "ask"), "whether"
        subject = draw.subject_of(verb)
    that = Subordinate(CONJUNCTIONS[conjunction], draw.clause(time=0.2))
    return [Clause(subject, verb, draw.tense, that=that)]


def _relative(draw: Draw) -> Sequence[Part]:
    clause = draw.clause(pronoun=0.0, time=0.0, place=0.0)
    phrases = [phrase for phrase in (clause.subject, clause.object) if isinstance(phrase, NounPhrase)]
    head = draw.pick([phrase for phrase in phrases if phrase.noun.kind not in {"name", "in", "on", "at"}])
    longer = draw.with_relative(head)
    return [replace(clause, subject=longer) if head is clause.subject else replace(clause, object=longer)]


def _infinitive(draw: Draw) -> Sequence[Part]:
    draw.start(("past", "present"))
    verb = draw.verb("to")
    subject, time = draw.subject_of(verb, pronoun=0.1), draw.time(0.2, without="infinitive")
    # After the infinitive, an adverb of time could belong to either verb.
    infinitive = Infinitive(draw.clause(subject, time=0.0))
    return [Clause(subject, verb, draw.tense, time=time, infinitive=infinitive)]


def _particle(draw: Draw) -> Sequence[Part]:
    clause = separable_clause(draw, draw.pick(lexicon.separable)[draw.chance(0.5)])
    if draw.chance(0.5):
        return [draw.clause(time=0.2), Subordinate(draw.conjunction(), clause)]
    return [clause]


def _cue(draw: Draw) -> Sequence[Part]:
    noun = draw.pick(lexicon.nouns["cue"])
    verb = draw.pick([verb for verb in lexicon.verbs["transitive"] if draw.keeps("object", noun.pool, verb.pool)])
    subject, time = draw.subject_of(verb), draw.time(0.2)
    return [Clause(subject, verb, draw.tense, draw.phrase(noun, attribute=0.2), time=time)]


_CONSTRUCTIONS = (
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
    _infinitive,
    _particle,
    _cue,
)
