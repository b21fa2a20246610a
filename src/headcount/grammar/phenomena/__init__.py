"""Phenomena of translation that the corpus tests: a file each, and this list."""

from headcount.grammar.phenomena.agreement import AGREEMENT
from headcount.grammar.phenomena.ambiguity import AMBIGUITY
from headcount.grammar.phenomena.case import CASE
from headcount.grammar.phenomena.negation import NEGATION
from headcount.grammar.phenomena.order import ORDER
from headcount.grammar.phenomena.particle import PARTICLE
from headcount.grammar.phenomena.pronoun import PRONOUN
from headcount.grammar.phenomena.punctuation import PUNCTUATION

PHENOMENA = {
    phenomenon.name: phenomenon
    for phenomenon in (AGREEMENT, PRONOUN, AMBIGUITY, ORDER, PARTICLE, CASE, NEGATION, PUNCTUATION)
}
