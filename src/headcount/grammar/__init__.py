"""The built-in corpus: English and German from a lexicon and a grammar, made to measure attention."""

from headcount.grammar.copy import Copy
from headcount.grammar.corpus import Grammar, words

__all__ = ["Copy", "Grammar", "words"]
