"""The built-in corpus: English and German from a lexicon and a grammar, made to measure attention."""

from .corpus import Grammar, words

__all__ = ["Grammar", "words"]
