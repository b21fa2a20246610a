"""The built-in corpus: English and German from a lexicon and a grammar, made to measure attention."""

from .copy import Copy
from .corpus import Grammar, words

__all__ = ["Copy", "Grammar", "words"]
