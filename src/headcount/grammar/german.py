"""German inflection: nouns, articles, adjectives, verbs."""

import re

from headcount.grammar.lexicon.entries import Adjective, Noun, Verb

CASES = ("nominative", "accusative", "dative", "genitive")

# Definite article by gender (p: plural), in the order of CASES.
_DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
_INDEFINITE = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
# Adjective endings after "der" (weak), after "ein" and "kein" (mixed), and without an article or after a name (strong).
ENDINGS = {
    "weak": {
        "m": ("e", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("e", "e", "en", "en"),
        "p": ("en", "en", "en", "en"),
    },
    "mixed": {
        "m": ("er", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("es", "es", "en", "en"),
        "p": ("en", "en", "en", "en"),
    },
    "strong": {
        "m": ("er", "en", "em", "en"),
        "f": ("e", "e", "er", "er"),
        "n": ("es", "es", "em", "en"),
        "p": ("e", "e", "en", "er"),
    },
}
# Relative pronoun; no sentence here needs its genitive.
_RELATIVE = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
    "p": ("die", "die", "denen"),
}
# A preposition and the definite article after it, as one word. Where both forms are usual, the short one is taken.
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
# Modal verbs by the English one: third person singular and plural.
MODALS = {"can": ("kann", "können"), "must": ("muss", "müssen"), "will": ("wird", "werden"), "may": ("darf", "dürfen")}


def article(kind: str, gender: str, plural: bool, case: str) -> str:
    """The article. kind: "the", "a" (none in the plural) or "no"."""
    column, row = "p" if plural else gender, CASES.index(case)
    if kind == "the":
        return _DEFINITE[column][row]
    if kind == "no":
        return "kein" + _INDEFINITE[column][row]
    return "" if plural else "ein" + _INDEFINITE[column][row]


def relative(gender: str, plural: bool, case: str) -> str:
    """The relative pronoun, which is also the demonstrative pronoun."""
    return _RELATIVE["p" if plural else gender][CASES.index(case)]


def adjective(word: Adjective, declension: str, gender: str, plural: bool, case: str) -> str:
    """The adjective before a noun. declension: "weak", "mixed" or "strong"."""
    ending = ENDINGS[declension]["p" if plural else gender][CASES.index(case)]
    return word.stem + ending


def noun(word: Noun, plural: bool, case: str) -> str:
    """The noun in a case: with -n in the dative plural, -s in the genitive, -en where it is weak."""
    if plural:
        return word.plural + "n" if case == "dative" and word.plural[-1] not in "ns" else word.plural
    if case == "genitive":
        return word.genitive or _genitive(word)
    return word.plural if word.weak and case != "nominative" else word.german


def _genitive(word: Noun) -> str:
    if word.gender == "f":
        return word.german
    if word.weak:
        return word.plural
    short = len(re.findall(r"[aeiouyäöü]+", word.german.lower())) == 1 and word.german[-1] not in "aeiouäöü"
    return word.german + ("es" if short or re.search(r"(s|ß|x|z|sch|st)$", word.german) else "s")


def finite(verb: Verb, tense: str, plural: bool) -> str:
    """The finite form without its particle. tense: "past", "present", or a modal verb, whose form is returned."""
    if tense in MODALS:
        return MODALS[tense][plural]
    if verb.infinitive == "sein":
        return {"present": ("ist", "sind"), "past": ("war", "waren")}[tense][plural]
    if tense == "present":
        return verb.infinitive if plural else verb.present
    return verb.preterite + ("" if not plural else "n" if verb.preterite.endswith("e") else "en")


def infinitive(verb: Verb, zu: bool = False) -> str:
    """The infinitive. zu: with "zu", which follows a particle in the same word ("aufzumachen")."""
    if not zu:
        return verb.particle + verb.infinitive
    return f"{verb.particle}zu{verb.infinitive}" if verb.particle else f"zu {verb.infinitive}"
