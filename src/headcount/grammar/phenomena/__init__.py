"""Phenomena of translation that the corpus tests: a file each, and this list.

A phenomenon is a function that draws a sentence with one binary choice open (hard: the grade), and returns its twins:
the sentence for either choice. The twins are equally likely, and their translations differ only in what the choice
decides: the translation of one is the contrast of the other, and without the source nobody can tell which is right.
"""

from headcount.grammar.phenomena.agreement import agreement
from headcount.grammar.phenomena.ambiguity import ambiguity
from headcount.grammar.phenomena.case import case
from headcount.grammar.phenomena.negation import negation
from headcount.grammar.phenomena.order import order
from headcount.grammar.phenomena.particle import particle
from headcount.grammar.phenomena.pronoun import pronoun
from headcount.grammar.phenomena.punctuation import punctuation

DRAWN = (agreement, pronoun, ambiguity, order, particle, case, negation, punctuation)
PHENOMENA = {draw.__name__: draw for draw in DRAWN}
# The share of train and valid, beside the other phenomena: what is learned by heart needs more examples, the gender of
# each noun and each pair of cue and sense.
WEIGHTS = dict.fromkeys(PHENOMENA, 1) | {"pronoun": 2, "ambiguity": 2}
