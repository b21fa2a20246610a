"""The built-in corpus: English and German from a lexicon and a grammar, each test sentence for one phenomenon."""

from headcount.grammar.copy import Copy
from headcount.grammar.corpus import Grammar, words

__all__ = ["Copy", "Grammar", "words"]
