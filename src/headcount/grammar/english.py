"""English inflection: nouns, articles, verbs."""

import re

from headcount.grammar.lexicon import Noun, Verb

_PLURALS = {
    "man": "men",
    "woman": "women",
    "fisherman": "fishermen",
    "policeman": "policemen",
    "child": "children",
    "mouse": "mice",
    "goose": "geese",
    "wolf": "wolves",
    "thief": "thieves",
    "knife": "knives",
    "leaf": "leaves",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "radio": "radios",
}


def noun(word: Noun, plural: bool) -> str:
    """The noun in the singular or plural."""
    english = word.english
    if not plural:
        return english
    if english in _PLURALS:
        return _PLURALS[english]
    if re.search(r"[^aeiou]y$", english):
        return english[:-1] + "ies"
    return english + ("es" if re.search(r"(s|x|z|ch|sh)$", english) else "s")


def article(following: str) -> str:
    """ "a" or "an", by the word that follows."""
    return "an" if following[0] in "aeiou" and not following.startswith(("uni", "use")) else "a"


def third(word: str) -> str:
    """The third person singular of the present; of a phrasal verb the first word inflects."""
    verb, *rest = word.split()
    if re.search(r"[^aeiou]y$", verb):
        verb = verb[:-1] + "ies"
    else:
        verb += "es" if re.search(r"(s|x|z|ch|sh|o)$", verb) else "s"
    return " ".join([verb, *rest])


def finite(verb: Verb, tense: str, plural: bool) -> str:
    """The form in the simple present or past."""
    if verb.english == "be":
        return {"present": ("is", "are"), "past": ("was", "were")}[tense][plural]
    if tense == "past":
        return verb.past
    return verb.english if plural else third(verb.english)
