"""English inflection: nouns, articles, verbs."""

import re

from headcount.grammar.lexicon.entries import Noun, Verb


def noun(word: Noun, plural: bool) -> str:
    """The singular or plural of a noun."""
    english = word.english
    if not plural:
        return english
    if word.english_plural:
        return word.english_plural
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


def past(word: Verb) -> str:
    """The simple past; of a phrasal verb the first word inflects."""
    if word.past:
        return word.past
    verb, *rest = word.english.split()
    if re.search(r"[^aeiou]y$", verb):
        verb = verb[:-1] + "ied"
    else:
        verb += "d" if verb.endswith("e") else "ed"
    return " ".join([verb, *rest])


def finite(verb: Verb, tense: str, plural: bool) -> str:
    """The finite form in the simple present or past."""
    if verb.english == "be":
        return {"present": ("is", "are"), "past": ("was", "were")}[tense][plural]
    if tense == "past":
        return past(verb)
    return verb.english if plural else third(verb.english)
