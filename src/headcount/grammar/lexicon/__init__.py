"""Lexicon: English and German words with all that inflection needs, read from the tables of this folder.

Every English word has one German translation, except the homographs, which another word of the sentence decides. The
order of a table's lines is part of the corpus: another order draws other sentences.
"""

from collections.abc import Callable
from pathlib import Path

from headcount.grammar.lexicon.entries import Adjective, Adverb, Homograph, Noun, Preposition, Verb
from headcount.grammar.lexicon.table import Item, Row, read_table

FOLDER = Path(__file__).parent
PEOPLE = "person name"
ANYTHING = "person animal thing text food clothes device opening vehicle cue"
FRAMES = {  # what a verb takes: the kinds of nouns that are its subject, and its object
    "intransitive": ("person name animal", ""),
    "stative": ("thing vehicle clothes cue", ""),
    "motion": (PEOPLE, ""),
    "transitive": (PEOPLE, ANYTHING),
    "social": (PEOPLE, "person"),
    "dative": (PEOPLE, "person"),
    "handle": (PEOPLE, "thing text clothes device"),
    "eat": (PEOPLE, "food"),
    "feed": (PEOPLE, "animal"),
    "write": (PEOPLE, "text"),
    "give": (PEOPLE, "thing text"),
    "that": (PEOPLE, ""),
    "to": (PEOPLE, ""),
    "be": ("person thing vehicle animal in on cue", ""),
}
NOUNS = (*ANYTHING.split(), "in", "on", "at", "name")
GENDERS = ("m", "f", "n", "w")
VERB_FLAGS = ("inward", "intending", "objectless")
ADVERB_FLAGS = ("scope", "once", "infinitive")


def _noun(row: Row, kind: str, pool: str) -> Noun:
    names = row["english"], row["german"]
    gender, weak = row["gender"].replace("w", "m"), row["gender"] == "w"
    return Noun(kind, *names, gender, row["plural"], row["genitive"], row.get("english_plural", ""), weak, pool)


def homograph(first: Row, second: Row) -> Homograph:
    """The noun of two lines. Raises ValueError where they do not belong together, or a cue is unknown."""
    cues = {noun.english: noun for noun in nouns["cue"]}
    if first["english"] != second["english"]:
        raise ValueError(f"{first['english']!r} and {second['english']!r} are two nouns; give two lines for each")
    if unknown := [cue for row in (first, second) for cue in row["cues"].split() if cue not in cues]:
        raise ValueError(f"cues: {', '.join(unknown)} not in nouns.tsv; add a line of the kind cue there")
    names = first["cues"].split(), second["cues"].split()
    if len(names[0]) != len(names[1]):
        raise ValueError(f"cues: {len(names[0])} and {len(names[1])}; give as many in both lines")
    pairs = [(cues[one], cues[other]) for one, other in zip(*names, strict=True)]
    for one, other in pairs:
        if one.german != other.german:
            raise ValueError(f"cues: {one.english} is {one.german}, {other.english} is {other.german}; give one German")
    pool = first["english"]
    return Homograph((_noun(first, "homograph", pool), _noun(second, "homograph", pool)), tuple(pairs))


def _verb(row: Row, frame: str, subjects: str, objects: str, particle: str) -> Verb:
    """A verb. particle: the one in its pool, which the two verbs of a separable pair share."""
    german = row["particle"], row["infinitive"], row["present"], row["preterite"]
    flags, pool = tuple(row.get("flags", "").split()), particle + row["infinitive"]
    return Verb(frame, row["english"], row["past"], *german, subjects, objects, flags, pool)


def _pair(first: Row, second: Row) -> tuple[Verb, Verb]:
    """The verbs of two lines. Raises ValueError where they do not belong together."""
    for column in ("infinitive", "objects"):
        if first[column] != second[column]:
            raise ValueError(f"{column}: {first[column]!r} and {second[column]!r}; give both lines the same")
    particles = f"{first['particle']}|{second['particle']}"
    one, other = (_verb(row, "separable", PEOPLE, row["objects"], particles) for row in (first, second))
    return one, other


def _adjective(row: Row) -> Adjective:
    return Adjective(row["english"], row["german"], row["stem"] or row["german"])


def _adverb(row: Row) -> Adverb:
    return Adverb(row["english"], row["german"], tuple(row["flags"].split()))


def _preposition(row: Row) -> Preposition:
    return Preposition(row["english"], row["german"], row["case"], row["nouns"])


def _by_kind(
    name: str, build: Callable[[Row], Item], column: str, kinds: tuple[str, ...], **allowed: tuple[str, ...]
) -> dict[str, tuple[Item, ...]]:
    """The items of a table by their kind, one of `kinds`, which `column` holds."""
    items = read_table(FOLDER / name, lambda row: (row[column], build(row)), {column: kinds, **allowed})
    return {kind: tuple(item for other, item in items if other == kind) for kind in kinds}


nouns = _by_kind("nouns.tsv", lambda row: _noun(row, row["kind"], row["german"]), "kind", NOUNS, gender=GENDERS)
homographs = tuple(read_table(FOLDER / "senses.tsv", homograph, {"gender": GENDERS}, rows_each=2))
verbs = _by_kind(
    "verbs.tsv",
    lambda row: _verb(row, row["frame"], *FRAMES[row["frame"]], row["particle"]),
    "frame",
    tuple(FRAMES),
    flags=VERB_FLAGS,
)
separable = tuple(read_table(FOLDER / "separable.tsv", _pair, {"objects": NOUNS}, rows_each=2))
adjectives = _by_kind("adjectives.tsv", _adjective, "kind", ("any", "living", "thing", "place", "food"))
adverbs = _by_kind("adverbs.tsv", _adverb, "kind", ("any", "past", "present", "future", "manner"), flags=ADVERB_FLAGS)
times = {kind: words for kind, words in adverbs.items() if kind != "manner"}
manners = adverbs["manner"]
prepositions = _by_kind(
    "prepositions.tsv",
    _preposition,
    "kind",
    ("place", "goal", "noun", "company", "way"),
    case=("dative", "accusative"),
    nouns=NOUNS,
)
