"""The built-in corpus: right German, splits without overlap, contrasts that only the source can tell apart."""

import operator
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

import headcount.grammar
from headcount.errors import InputError
from headcount.grammar import Copy, Grammar, english, german, lexicon, words
from headcount.grammar.corpus import CELLS, Pair
from headcount.grammar.draw import CONJUNCTIONS
from headcount.grammar.fingerprint import fingerprint
from headcount.grammar.lexicon import FOLDER, Adverb
from headcount.grammar.lexicon.table import read_table
from headcount.grammar.phenomena import PHENOMENA
from headcount.grammar.phenomena.order import CONNECTORS
from headcount.grammar.sentence import Part, render
from headcount.grammar.syntax import (
    Clause,
    Demonstrative,
    Infinitive,
    Joint,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Subordinate,
)

SIZES = {"train_size": 4_000, "valid_size": 100, "test_size": 20 * len(CELLS), "seed": 1}

NOUNS = {noun.english: noun for nouns in lexicon.nouns.values() for noun in nouns}
VERBS = {verb.english: verb for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs}
VERBS.update({verb.english: verb for pair in lexicon.separable for verb in pair})
ADJECTIVES = {word.english: word for table in lexicon.adjectives.values() for word in table}
PREPOSITIONS = {word.english: word for table in lexicon.prepositions.values() for word in table}
HOMOGRAPHS = {found.senses[0].english: found for found in lexicon.homographs}
TODAY, QUIETLY = Adverb("today", "heute"), Adverb("quietly", "leise")


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Pair]]:
    return Grammar(**SIZES).generate()


@pytest.fixture(scope="module")
def everything(splits: dict[str, list[Pair]]) -> list[Pair]:
    return [pair for pairs in splits.values() for pair in pairs]


def test_copy_is_the_english_twice(splits):
    copied = Copy(**SIZES)
    assert (copied.source_language, copied.target_language) == ("en", "en")
    assert copied.fingerprint() != Grammar(**SIZES).fingerprint()
    loaded = copied.load()
    for split, pairs in splits.items():
        assert loaded[split]["source"] == loaded[split]["target"] == [pair.sentence.source for pair in pairs]


# The German, checked by hand


def the(noun: str, *adjectives: str, plural: bool = False, article: str = "the") -> NounPhrase:
    return NounPhrase(NOUNS[noun], plural, article, [ADJECTIVES[word] for word in adjectives])


def a(noun: str, *adjectives: str) -> NounPhrase:
    return the(noun, *adjectives, article="a")


def some(noun: str, *adjectives: str) -> NounPhrase:
    return the(noun, *adjectives, plural=True, article="a")


def name(word: str) -> NounPhrase:
    return NounPhrase(NOUNS[word], article="")


def owned(owner: str, noun: str, *adjectives: str, plural: bool = False) -> NounPhrase:
    return replace(the(noun, *adjectives, plural=plural, article=""), owner=NOUNS[owner])


def at(preposition: str, phrase: NounPhrase, *more: NounPhrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(PREPOSITIONS[preposition], phrase, more)


def does(subject: NounPhrase | Pronoun | Demonstrative, verb: str, tense: str = "past", **more: object) -> Clause:
    return Clause(subject, VERBS[verb], tense, **more)  # type: ignore[arg-type]


def sub(english_word: str, german_word: str, clause: Clause) -> Subordinate:
    return Subordinate(Adverb(english_word, german_word), clause)


def who(head: NounPhrase, verb: str, gap: str, **more: object) -> NounPhrase:
    subject = more.pop("subject", head)
    if gap == "object":
        more["object"] = head
    return replace(head, relative=does(subject, verb, gap=gap, **more))  # type: ignore[arg-type]


OLD = ADJECTIVES["old"]
SINCE_THEN = Adverb("since then", "seitdem")


def sense(noun: str, which: int, cue: NounPhrase, *adjectives: str, article: str = "the") -> NounPhrase:
    found = [ADJECTIVES[word] for word in adjectives]
    return NounPhrase(HOMOGRAPHS[noun].senses[which], article=article, adjectives=found, sense=cue)


def with_attribute(phrase: NounPhrase, attribute: PrepositionalPhrase) -> NounPhrase:
    return replace(phrase, attribute=attribute)


def of(phrase: NounPhrase, genitive: NounPhrase) -> NounPhrase:
    return replace(phrase, genitive=genitive)


LAMP, COAT, WOMAN, DOG = the("lamp"), the("coat", "wet"), the("woman"), a("dog", "big")
SNAKE, QUEUE = the("snake"), the("queue")

SENTENCES: list[tuple[list[Part], str, str]] = [
    (
        [does(the("man"), "see", object=a("dog", "old"))],
        "The man saw an old dog.",
        "Der Mann sah einen alten Hund.",
    ),
    (
        [does(owned("Anna", "teacher", plural=True), "sleep", place=at("in", the("garden")))],
        "Anna's teachers slept in the garden.",
        "Annas Lehrer schliefen im Garten.",
    ),
    (
        [does(with_attribute(owned("Anna", "teacher"), at("near", the("house", plural=True))), "sleep")],
        "Anna's teacher near the houses slept.",
        "Annas Lehrer bei den Häusern schlief.",
    ),
    (
        [does(owned("Peter", "car", "new"), "shine", "present")],
        "Peter's new car shines.",
        "Peters neues Auto glänzt.",
    ),
    (
        [
            does(the("woman"), "buy", object=LAMP),
            sub("because", "weil", does(Pronoun("it", LAMP), "be", predicate=OLD)),
        ],
        "The woman bought the lamp because it was old.",
        "Die Frau kaufte die Lampe, weil sie alt war.",
    ),
    (
        [
            does(the("woman"), "buy", object=COAT),
            sub("because", "weil", does(Pronoun("it", COAT), "be", predicate=OLD)),
        ],
        "The woman bought the wet coat because it was old.",
        "Die Frau kaufte den nassen Mantel, weil er alt war.",
    ),
    (
        [does(name("Paul"), "see", object=with_attribute(sense("bank", 0, SNAKE), at("behind", SNAKE)))],
        "Paul saw the bank behind the snake.",
        "Paul sah das Ufer hinter der Schlange.",
    ),
    (
        [
            does(
                name("Paul"),
                "see",
                object=with_attribute(sense("bank", 1, QUEUE, "old", article="a"), at("behind", QUEUE)),
            )
        ],
        "Paul saw an old bank behind the queue.",
        "Paul sah eine alte Bank hinter der Schlange.",
    ),
    (
        [does(the("man"), "wait"), sub("ever since", "seitdem", does(WOMAN, "sleep", place=at("in", the("house"))))],
        "The man waited ever since the woman slept in the house.",
        "Der Mann wartete, seitdem die Frau im Haus schlief.",
    ),
    (
        [
            does(the("man"), "wait"),
            Joint(";", ","),
            does(WOMAN, "sleep", place=at("in", the("house")), front=SINCE_THEN),
        ],
        "The man waited; since then the woman slept in the house.",
        "Der Mann wartete, seitdem schlief die Frau im Haus.",
    ),
    (
        [
            does(the("boy"), "carry", "can", object=the("box")),
            sub("so that", "damit", does(WOMAN, "open", "can", object=the("door"))),
        ],
        "The boy can carry the box so that the woman can open the door.",
        "Der Junge kann die Kiste tragen, damit die Frau die Tür aufmachen kann.",
    ),
    (
        [does(name("Eva"), "greet", object=WOMAN), Joint(";", ","), does(Demonstrative(WOMAN), "laugh")],
        "Eva greeted the woman; that one laughed.",
        "Eva grüßte die Frau, die lachte.",
    ),
    (
        [does(the("woman"), "close", object=the("window"), time=TODAY)],
        "The woman closed the window today.",
        "Die Frau machte heute das Fenster zu.",
    ),
    (
        [
            does(the("woman"), "wait"),
            sub("until", "bis", does(the("boy", plural=True), "switch off", object=the("radio"))),
        ],
        "The woman waited until the boys switched off the radio.",
        "Die Frau wartete, bis die Jungen das Radio ausschalteten.",
    ),
    (
        [does(the("girl"), "try", infinitive=Infinitive(does(the("girl"), "switch on", object=the("heater"))))],
        "The girl tried to switch on the heater.",
        "Das Mädchen versuchte, die Heizung einzuschalten.",
    ),
    (
        [
            does(
                name("Leon"),
                "dance",
                goals=[at("into", the("garden")), at("with", the("friend", "young", plural=True))],
            )
        ],
        "Leon danced into the garden with the young friends.",
        "Leon tanzte in den Garten mit den jungen Freunden.",
    ),
    (
        [does(name("Leon"), "run", goals=[at("into", owned("Anna", "garden"), the("house", "small"))])],
        "Leon ran into Anna's garden and the small house.",
        "Leon rannte in Annas Garten und das kleine Haus.",
    ),
    (
        [does(name("Leon"), "run", goals=[at("in", owned("Anna", "garden"), the("house", "small"))])],
        "Leon ran in Anna's garden and the small house.",
        "Leon rannte in Annas Garten und dem kleinen Haus.",
    ),
    (
        [
            does(
                name("Eva"),
                "walk",
                "will",
                goals=[at("to", the("church"))],
                time=Adverb("tomorrow", "morgen"),
                front="time",
            )
        ],
        "Tomorrow Eva will walk to the church.",
        "Morgen wird Eva zur Kirche gehen.",
    ),
    (
        [does(the("king"), "see", "present", object=a("dog", "big"), negated=True)],
        "The king does not see a big dog.",
        "Der König sieht keinen großen Hund.",
    ),
    (
        [does(the("king"), "help", object=the("aunt"), place=at("at", the("station")), time=TODAY)],
        "The king helped the aunt at the station today.",
        "Der König half heute der Tante am Bahnhof.",
    ),
    (
        [does(the("king"), "see", object=the("dog"), place=at("at", the("station")), time=TODAY)],
        "The king saw the dog at the station today.",
        "Der König sah heute am Bahnhof den Hund.",
    ),
    (
        [does(the("king"), "see", object=the("dog"), negated=True)],
        "The king did not see the dog.",
        "Der König sah den Hund nicht.",
    ),
    (
        [does(the("cat", plural=True), "sleep", "can", place=at("on", the("roof")), negated=True)],
        "The cats cannot sleep on the roof.",
        "Die Katzen können nicht auf dem Dach schlafen.",
    ),
    (
        [does(name("Eva"), "promise", recipient=the("neighbour"), infinitive=Infinitive(does(name("Eva"), "help")))],
        "Eva promised the neighbour to help.",
        "Eva versprach dem Nachbarn, zu helfen.",
    ),
    (
        [does(name("Eva"), "promise", infinitive=Infinitive(does(name("Eva"), "help", object=the("neighbour"))))],
        "Eva promised to help the neighbour.",
        "Eva versprach, dem Nachbarn zu helfen.",
    ),
    (
        [
            does(
                name("Eva"),
                "promise",
                manner=QUIETLY,
                time=TODAY,
                infinitive=Infinitive(does(name("Eva"), "pray", place=at("in", the("hall")))),
            )
        ],
        "Eva quietly promised today to pray in the hall.",
        "Eva versprach heute leise, in der Halle zu beten.",
    ),
    (
        [
            does(
                the("nun"),
                "promise",
                "present",
                infinitive=Infinitive(does(the("nun"), "wake", object=a("king"), manner=QUIETLY)),
            )
        ],
        "The nun promises to quietly wake a king.",
        "Die Nonne verspricht, leise einen König zu wecken.",
    ),
    (
        [
            does(
                who(the("man"), "see", "object", subject=the("child")),
                "give",
                recipient=the("lion"),
                object=some("apple", "red"),
            ),
            Joint("and", "und"),
            does(the("nun"), "sing"),
        ],
        "The man whom the child saw gave the lion red apples and the nun sang.",
        "Der Mann, den das Kind sah, gab dem Löwen rote Äpfel und die Nonne sang.",
    ),
    (
        [
            sub("although", "obwohl", does(of(the("dog", plural=True), the("boy", "young")), "sleep")),
            Joint(",", ","),
            does(who(the("woman", plural=True), "help", "subject", object=a("child")), "laugh", inverted=True),
        ],
        "Although the dogs of the young boy slept, the women who helped a child laughed.",
        "Obwohl die Hunde des jungen Jungen schliefen, lachten die Frauen, die einem Kind halfen.",
    ),
    (
        [does(name("Nora"), "invite", object=who(the("prince", "expensive"), "thank", "object", subject=name("Paul")))],
        "Nora invited the expensive prince whom Paul thanked.",
        "Nora lud den teuren Prinzen, dem Paul dankte, ein.",
    ),
]


@pytest.mark.parametrize(("parts", "source", "target"), SENTENCES, ids=[line[1] for line in SENTENCES])
def test_sentences_checked_by_hand(parts: list[Part], source: str, target: str) -> None:
    rendered = render(parts)
    assert (rendered.source, rendered.target) == (source, target)


@pytest.mark.parametrize(
    ("declension", "forms"),
    [
        ("weak", "alte alten alten alten | alte alte alten alten | alte alte alten alten | alten alten alten alten"),
        (
            "mixed",
            "alter alten alten alten | alte alte alten alten | altes altes alten alten | alten alten alten alten",
        ),
        ("strong", "alter alten altem alten | alte alte alter alter | altes altes altem alten | alte alte alten alter"),
    ],
)
def test_adjective_endings(declension: str, forms: str) -> None:
    old = ADJECTIVES["old"]
    for gender, row in zip("mfnp", forms.split(" | "), strict=True):
        made = [german.adjective(old, declension, gender, gender == "p", case) for case in german.CASES]
        assert made == row.split()


@pytest.mark.parametrize(
    ("noun", "singular", "plural"),
    [
        ("man", "Mann Mann Mann Mannes", "Männer Männer Männern Männer"),
        ("boy", "Junge Jungen Jungen Jungen", "Jungen Jungen Jungen Jungen"),
        ("woman", "Frau Frau Frau Frau", "Frauen Frauen Frauen Frauen"),
        ("teacher", "Lehrer Lehrer Lehrer Lehrers", "Lehrer Lehrer Lehrern Lehrer"),
        ("car", "Auto Auto Auto Autos", "Autos Autos Autos Autos"),
        ("castle", "Schloss Schloss Schloss Schlosses", "Schlösser Schlösser Schlössern Schlösser"),
        ("bus", "Bus Bus Bus Busses", "Busse Busse Bussen Busse"),
        ("girl", "Mädchen Mädchen Mädchen Mädchens", "Mädchen Mädchen Mädchen Mädchen"),
    ],
)
def test_noun_forms(noun: str, singular: str, plural: str) -> None:
    for number, row in ((False, singular), (True, plural)):
        assert [german.noun(NOUNS[noun], number, case) for case in german.CASES] == row.split()


@pytest.mark.parametrize(
    ("verb", "forms"),
    [
        ("open", "macht machen machte machten aufmachen aufzumachen"),
        ("return", "kommt kommen kam kamen zurückkommen zurückzukommen"),
        ("whisper", "flüstert flüstern flüsterte flüsterten flüstern zu flüstern"),
        ("eat", "isst essen aß aßen essen zu essen"),
    ],
)
def test_verb_forms(verb: str, forms: str) -> None:
    word = VERBS[verb]
    finite = [german.finite(word, tense, plural) for tense in ("present", "past") for plural in (False, True)]
    assert " ".join([*finite, german.infinitive(word), german.infinitive(word, zu=True)]) == forms


def test_english_forms() -> None:
    assert [english.noun(NOUNS[word], True) for word in ("wolf", "nun", "potato", "bus", "aunt")] == [
        "wolves", "nuns", "potatoes", "buses", "aunts",
    ]  # fmt: skip
    assert [english.third(word) for word in ("carry in", "try", "miss", "go out", "obey")] == [
        "carries in", "tries", "misses", "goes out", "obeys",
    ]  # fmt: skip
    assert [english.article(word) for word in ("apple", "uniform", "useful", "unusual", "dog")] == [
        "an", "a", "a", "an", "a",
    ]  # fmt: skip


def test_structure_checked_by_hand() -> None:
    neighbour = the("neighbour")
    lamp = the("lamp")
    parts = [
        does(who(neighbour, "laugh", "subject"), "see", "present", object=lamp, negated=True),
        sub("because", "weil", does(Pronoun("it", lamp), "shine", "can")),
    ]
    rendered = render(parts)
    source, target = words(rendered.source), words(rendered.target)
    assert " ".join(source) == "The neighbour who laughed does not see the lamp because it can shine ."
    assert " ".join(target) == "Der Nachbar , der lachte , sieht die Lampe nicht , weil sie glänzen kann ."
    aligned = {(source[i], target[j]) for i, j in rendered.alignment}
    assert aligned == {
        ("The", "Der"), ("neighbour", "Nachbar"), ("who", "der"), ("laughed", "lachte"), ("does", "sieht"),
        ("see", "sieht"), ("not", "nicht"), ("the", "die"), ("lamp", "Lampe"), ("because", "weil"), ("it", "sie"),
        ("can", "kann"), ("shine", "glänzen"), (".", "."),
    }  # fmt: skip
    assert {(relation, source[i], source[j]) for relation, i, j in rendered.links} == {
        ("antecedent", "who", "neighbour"),
        ("conjunction", "laughed", "who"),
        ("subject", "laughed", "who"),
        ("subject", "see", "neighbour"),
        ("conjunction", "can", "because"),
        ("antecedent", "it", "lamp"),
        ("subject", "shine", "it"),
    }


def test_a_contraction_and_kein_carry_both_meanings() -> None:
    rendered = render([does(name("Eva"), "see", object=a("dog"), negated=True, place=at("in", the("house")))])
    source, target = words(rendered.source), words(rendered.target)
    assert rendered.target == "Eva sah im Haus keinen Hund."
    aligned = {(source[i], target[j]) for i, j in rendered.alignment}
    assert {("in", "im"), ("the", "im"), ("not", "keinen"), ("a", "keinen")} <= aligned


def test_a_noun_takes_at_most_four_adjectives() -> None:
    # Alignment would mix the keys of more with those of the next phrase.
    many = the("dog", "old", "big", "wet", "cold")
    assert render([does(many, "sleep")]).source == "The old big wet cold dog slept."
    with pytest.raises(ValueError, match="at most 4"):
        render([does(the("dog", "old", "big", "wet", "cold", "small"), "sleep")])


# The lexicon


def test_no_word_has_a_likelier_translation_than_the_one_given() -> None:
    # "exchange" is "austauschen", "student" is "Student", "sign" is "Schild", "stop" is "anhalten", and "swear" takes
    # nobody whom one swears to; "a bread" is no English.
    assert not {"exchange", "stop", "note down", "swear"} & set(VERBS)
    assert not {"student", "sign", "pier", "bread"} & set(NOUNS)
    # "since" and "as" give a time or a reason, "when" may be "wenn" or "als".
    connectors = {english for english, _ in CONNECTORS.values()}
    assert not {"since", "as", "when"} & {*connectors, *CONJUNCTIONS}


def test_lexicon_is_large_and_each_lemma_has_one_translation() -> None:
    translations = defaultdict(set)
    for noun in NOUNS.values():
        translations[noun.english].add(noun.german)
    for verbs in (*lexicon.verbs.values(), *lexicon.separable):
        for verb in verbs:
            translations[f"to {verb.english}"].add(verb.particle + verb.infinitive)
    for word in ADJECTIVES.values():
        translations[word.english].add(word.german)
    assert all(len(found) == 1 for found in translations.values())
    assert len(translations) > 450
    # A homograph is nowhere else in the lexicon, and no cue is one.
    assert not set(HOMOGRAPHS) & set(NOUNS)
    assert len(HOMOGRAPHS) >= 12


def test_every_pair_of_cues_is_one_german_noun() -> None:
    for homograph in lexicon.homographs:
        assert len(homograph.cues) >= 3
        for first, second in homograph.cues:
            assert first.english != second.english
            assert (first.german, first.gender, first.plural) == (second.german, second.gender, second.plural)


def test_german_nouns_have_one_gender_and_plural() -> None:
    forms = defaultdict(set)
    senses = [noun for found in lexicon.homographs for noun in found.senses]
    for noun in (*NOUNS.values(), *senses):
        forms[noun.german].add((noun.gender, noun.plural, noun.genitive))
        assert noun.gender in {"m", "f", "n"}
        assert noun.german[0].isupper()
        if noun.german.endswith("chen") and noun.german not in {"Kuchen", "Abzeichen", "Drachen"}:
            assert noun.gender == "n"
        if re.search(r"(ung|heit|keit|schaft|erin)$", noun.german):
            assert noun.gender == "f"
    assert all(len(found) == 1 for found in forms.values()), {k: v for k, v in forms.items() if len(v) > 1}


WRONG = [
    ("person\tking\tKönig\tm\tKönige\t\t\tmore", "8 columns; give 7, separated by tabs: kind, english, german,"),
    ("person\tking\tKönig", "gender is empty; the columns, separated by tabs, are kind, english, german,"),
    ("person king König m Könige", "kind: 'person king König m Könige' is not allowed; give one of person, animal"),
    ("person\tking\tKönig\tx\tKönige", "gender: 'x' is not allowed; give one of m, f, n, w"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_a_wrong_row_is_named_with_its_file_and_line(tmp_path, line, message) -> None:
    table = tmp_path / "nouns.tsv"
    header = "kind\tenglish\tgerman\tgender\tplural\tgenitive?\tenglish_plural?"
    table.write_text(f"# Nouns.\n{header}\n\nperson\tman\tMann\tm\tMänner\t\tmen\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(f"nouns.tsv, line 5: {message}")):
        read_table(table, dict, {"kind": ["person", "animal"], "gender": lexicon.GENDERS})


def test_two_rows_that_do_not_belong_together_are_named(tmp_path) -> None:
    table = tmp_path / "senses.tsv"
    rows = (FOLDER / "senses.tsv").read_text(encoding="utf-8").splitlines()
    for number, message in ((5, "line 4 and 5: 'bank' and 'bat' are two nouns"), (len(rows), "give 2 lines for each")):
        table.write_text("\n".join([*rows[: number - 1], *rows[number:]]), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_table(table, lexicon.homograph, {}, rows_each=2)


# The corpus


def made(**changes: int) -> Grammar:
    return Grammar(**{"train_size": 3_000, "valid_size": 1, "test_size": 16, "seed": 1} | changes)


def test_same_seed_same_corpus_other_seed_another() -> None:
    one, same, other = (made(seed=seed).generate() for seed in (3, 3, 4))
    assert one == same
    assert one["test"] != other["test"]


def test_the_corpus_does_not_depend_on_the_process() -> None:
    program = (
        "from headcount.grammar import Grammar;"
        "grammar = Grammar(train_size=3000, valid_size=1, test_size=16, seed=1);"
        "print([pair.sentence.source for pair in grammar.generate()['test']])"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([pair.sentence.source for pair in made().generate()["test"]])


def test_fingerprint_changes_with_sizes_and_seed() -> None:
    assert made().fingerprint() == made().fingerprint()
    others = [made(), made(seed=2), made(train_size=29_999), made(valid_size=999), made(test_size=999)]
    assert len({grammar.fingerprint() for grammar in others}) == len(others)


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("lexicon/nouns.tsv", "\tLehrer\tm", "\tLehrkraft\tf", False),
        ("lexicon/nouns.tsv", "person\tpainter", "person\tnew\tNeu\tm\tNeu\nperson\tpainter", False),
        ("lexicon/nouns.tsv", "# ", "# Another comment.\n\n# ", True),
        ("lexicon/nouns.tsv", "\tLehrer\n", "\tLehrer\t\t\n", True),
        ("phenomena/case.py", "AFTER_NAMES = 0.95", "AFTER_NAMES = 0.9", False),
        ("phenomena/case.py", "AFTER_NAMES = 0.95", "AFTER_NAMES = 0.95  # another comment", True),
        ("phenomena/case.py", '    """Hard', '    """Another docstring. Hard', True),
    ],
)
def test_fingerprint_changes_with_words_and_rules_but_not_with_comments(tmp_path, file, old, new, same) -> None:
    folder = Path(headcount.grammar.__file__).parent
    copied = shutil.copytree(folder, tmp_path / "copied", ignore=shutil.ignore_patterns("__pycache__"))
    text = (copied / file).read_text(encoding="utf-8")
    assert old in text
    (copied / file).write_text(text.replace(old, new), encoding="utf-8")
    assert (fingerprint(copied) == fingerprint(folder)) == same


@pytest.mark.parametrize("bad", [{"train_size": 0}, {"valid_size": -1}, {"test_size": 2.5}, {"seed": "one"}])
def test_wrong_values_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        made(**bad)  # type: ignore[arg-type]


def test_a_train_split_too_small_for_its_test_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train_size: .*larger"):
        made(train_size=20).generate()


def test_load_gives_the_columns() -> None:
    data = made(valid_size=20, test_size=32).load()
    assert {split: len(rows) for split, rows in data.items()} == {"train": 3_000, "valid": 20, "test": 32}
    columns = ["source", "target", "phenomenon", "grade", "contrast", "alignment", "links"]
    assert all(rows.column_names == columns for rows in data.values())
    row = data["test"][0]
    assert set(row["alignment"][0]) == {"source", "target"}
    assert set(row["links"][0]) == {"relation", "dependent", "head"}


def test_test_split_is_filled_evenly(splits: dict[str, list[Pair]]) -> None:
    counts = Counter((pair.phenomenon, pair.grade) for pair in splits["test"])
    assert counts == dict.fromkeys(CELLS, SIZES["test_size"] // len(CELLS))
    assert {pair.phenomenon for pair in splits["train"]} == {"plain", *PHENOMENA}


def test_no_pair_of_lemmas_of_train_is_in_valid_or_test(splits: dict[str, list[Pair]]) -> None:
    pairs = {split: {pair for found in made for pair in found.sentence.pairs} for split, made in splits.items()}
    assert len(pairs["train"]) > 1_000
    assert len(pairs["test"]) > 100
    assert not pairs["train"] & (pairs["valid"] | pairs["test"])


def test_every_word_of_valid_and_test_is_in_train(splits: dict[str, list[Pair]]) -> None:
    known = {
        word
        for pair in splits["train"]
        for text in (pair.sentence.source, pair.sentence.target)
        for word in words(text)
    }
    for pair in (*splits["valid"], *splits["test"]):
        assert known.issuperset(words(pair.sentence.source + " " + pair.sentence.target + " " + pair.contrast))


def test_a_source_has_one_target_and_nothing_occurs_twice(everything: list[Pair]) -> None:
    sources = [pair.sentence.source for pair in everything]
    targets = [pair.sentence.target for pair in everything]
    assert len(set(sources)) == len(sources)
    assert len(set(targets)) == len(targets)


def test_indices_are_in_range_and_of_the_right_words(everything: list[Pair]) -> None:
    for pair in everything:
        source, target = words(pair.sentence.source), words(pair.sentence.target)
        assert all(i < len(source) and j < len(target) for i, j in pair.sentence.alignment)
        # All but commas and the articles and the "did" that German lacks are aligned.
        loose = {target[j] for j in range(len(target))} - {target[j] for _, j in pair.sentence.alignment}
        assert loose <= {","}, (pair.sentence.source, pair.sentence.target, loose)
        for relation, dependent, head in pair.sentence.links:
            assert dependent < len(source)
            assert head < len(source)
            if relation == "sense":
                assert source[dependent] in HOMOGRAPHS
            if relation == "antecedent":
                assert source[dependent] in {"who", "whom", "that", "it", "he", "she"}
                assert head < dependent
            if relation == "conjunction":
                assert head < dependent


def test_each_phenomenon_carries_its_link(splits: dict[str, list[Pair]]) -> None:
    needed = {"agreement": "subject", "pronoun": "antecedent", "ambiguity": "sense"}
    for pair in splits["test"]:
        if pair.phenomenon in needed:
            assert needed[pair.phenomenon] in {relation for relation, _, _ in pair.sentence.links}


def test_every_ambiguous_noun_has_just_one_word_that_decides_it(everything: list[Pair]) -> None:
    seen = 0
    for pair in everything:
        source, target = words(pair.sentence.source), words(pair.sentence.target)
        for noun in set(source) & set(HOMOGRAPHS):
            homograph = HOMOGRAPHS[noun]
            cues = [[cue.english for cue in column] for column in zip(*homograph.cues, strict=True)]
            found = [(word, which) for which in (0, 1) for word in cues[which] if word in source]
            assert len(found) == 1, (noun, pair.sentence.source)
            links = [link for link in pair.sentence.links if link[0] == "sense" and source[link[1]] == noun]
            assert [source[head] for _, _, head in links] == [found[0][0]]
            forms = [{german.noun(sense, False, case) for case in german.CASES} for sense in homograph.senses]
            which = found[0][1]
            assert forms[which] & set(target), pair.sentence.target
            seen += 1
    assert seen > 300


# The English, which must leave no doubt

TIMES = sorted({time.english for times in lexicon.times.values() for time in times})
SCOPE = ("often", "sometimes", "every day", "every year", "again", "at last", "recently", "soon", "later")
PASTS = {english.past(verb).split()[0] for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs}
CLAUSE_ENDS = re.compile(
    r"[.,;]| and | because | although | while | before | until | if | when | so that | as soon as | as long as"
    r"| given that | ever since | since | who | whom | that "
)


def holds(text: str, *phrases: str) -> bool:
    """Whether one of the phrases stands in the text."""
    return any(f" {phrase.lower()} " in f" {text.lower()} " for phrase in phrases)


@pytest.fixture(scope="module")
def clauses(everything: list[Pair]) -> list[str]:
    return [clause for pair in everything for clause in CLAUSE_ENDS.split(pair.sentence.source) if clause]


def test_no_adverb_of_time_follows_an_infinitive(clauses: list[str]) -> None:
    # "promised to pray at night": who prays, or who promises at night?
    infinitives = "|".join(verb.english for verbs in lexicon.verbs.values() for verb in verbs)
    behind = [re.search(rf" to (?:\w+ly )?(?:{infinitives})\b(.*)", clause) for clause in clauses]
    assert len([found for found in behind if found]) > 400
    assert [found[0] for found in behind if found and holds(found[1], *TIMES)] == []


def test_a_place_moves_only_where_a_time_precedes_to(splits: dict[str, list[Pair]]) -> None:
    # Without the time, "planned to wait in the yard" may say where the plan was made.
    places = 0
    for pair in splits["test"]:
        moved = [word for word in difference(pair)[0] if word != ","]
        if pair.phenomenon == "punctuation" and moved[0] in {"in", "im", "auf", "an", "am"}:
            assert re.search(rf" (?:{'|'.join(TIMES)}) to ", pair.sentence.source), pair.sentence.source
            places += 1
    assert places > 4


def test_what_precedes_to_belongs_to_the_verb_above(clauses: list[str]) -> None:
    # "promised often to pray" means that the praying is often.
    assert [clause for clause in clauses if re.search(rf" (?:{'|'.join(SCOPE)}|now) to \w+", clause)] == []


def test_verbs_that_need_an_object_have_one(clauses: list[str]) -> None:
    # "promised the woman to thank" is no English.
    assert [clause for clause in clauses if re.search(r" to (thank|trust|congratulate)$", clause)] == []


def test_no_adverb_of_frequency_stands_in_a_clause_that_may_be_negated(everything: list[Pair]) -> None:
    # "did not sing every day" is "sang nicht jeden Tag", and "sang jeden Tag nicht" something else.
    for pair in everything:
        for clause in CLAUSE_ENDS.split(pair.sentence.source):
            if pair.phenomenon == "negation" or holds(clause, "not", "cannot"):
                assert not holds(clause, *SCOPE), pair.sentence.source


def test_so_that_says_what_for(everything: list[Pair]) -> None:
    # "so that a lion cheered" says what came of it, in German "sodass".
    found = [pair.sentence.source for pair in everything if " so that " in pair.sentence.source]
    assert len(found) > 20
    assert [source for source in found if PASTS & set(words(source.split(" so that ")[1]))] == []


def test_nothing_that_happens_once_happens_ever_since(everything: list[Pair]) -> None:
    once = ("today", "yesterday", "last year", "recently", "back then", "now", "nowadays", "at last")
    found = [pair.sentence.source for pair in everything if re.search(r"\bsince\b", pair.sentence.source)]
    assert len(found) > 20
    assert [source for source in found if holds(re.sub("[.,;]", "", source), *once)] == []


def test_in_and_on_never_mean_into_and_onto(clauses: list[str]) -> None:
    # "jumped in the lake", "threw the ball in the river".
    moving = r"(?:jump|climb|hopp?|crawl|sneak|push|pull)(?:s|es|ed)?|hurry|hurrie[sd]|throws?|threw"
    place = r"(?:in|on) (?!front|the morning|the evening|Mondays|Sundays)"
    assert len([clause for clause in clauses if re.search(rf" (?:{moving}) ", clause)]) > 100
    assert [clause for clause in clauses if re.search(rf" (?:{moving}) (?:.* )?{place}", clause)] == []


def test_nothing_belongs_to_two_persons(everything: list[Pair]) -> None:
    # "Anna's teacher of the king".
    owned = re.compile(r"'s (?:\w+ ){1,2}of ")
    assert [pair.sentence.source for pair in everything if owned.search(pair.sentence.source)] == []


def test_a_thing_is_given_no_leave(everything: list[Pair]) -> None:
    # "the badge may shine" means "vielleicht", not "darf".
    things = "|".join(verb.english for verb in lexicon.verbs["stative"])
    assert [pair for pair in everything if re.search(rf" may (?:{things})\b", pair.sentence.source)] == []


# The contrasts


def difference(pair: Pair) -> tuple[list[str], list[str]]:
    """The words between the first and the last that differ."""
    right, wrong = words(pair.sentence.target), words(pair.contrast)
    while right and wrong and right[0] == wrong[0]:
        right, wrong = right[1:], wrong[1:]
    while right and wrong and right[-1] == wrong[-1]:
        right, wrong = right[:-1], wrong[:-1]
    return right, wrong


NEGATION = re.compile(r" nicht\b|\bk(?=ein)")


def affirmed(text: str) -> str:
    """The German without its negations."""
    return NEGATION.sub("", text)


def test_contrasts_differ_in_just_what_is_tested(splits: dict[str, list[Pair]]) -> None:
    for pair in splits["test"]:
        right, wrong = difference(pair)
        where = (pair.sentence.target, pair.contrast)
        bare = [affirmed(text) for text in where]
        assert right != wrong, where
        if pair.phenomenon in {"agreement", "particle"}:
            assert (len(right), len(wrong)) == (1, 1), where
        elif pair.phenomenon == "pronoun":
            assert {*right, *wrong} < {"er", "sie", "es"}, where
        elif pair.phenomenon == "order":
            # By letters: a separable verb is one word at the end of the clause and two in the second place.
            assert Counter("".join(right)) == Counter("".join(wrong)), where
        elif pair.phenomenon == "punctuation":
            assert Counter(right) == Counter(wrong), where
            without = [[word for word in words(text) if word != ","] for text in where]
            assert without[0] == without[1], where
        elif pair.phenomenon in {"case", "ambiguity"}:
            assert len(right) <= 3, where
            assert len(wrong) <= 3, where
        elif pair.phenomenon == "negation":
            assert bare[0] == bare[1], where
            denied = [len(NEGATION.findall(text)) for text in where]
            assert abs(denied[0] - denied[1]) == (pair.grade == "easy"), where


def test_plain_sentences_have_no_contrast(everything: list[Pair]) -> None:
    for pair in everything:
        assert (pair.contrast == "") == (pair.phenomenon == "plain")


LABELS = {  # which twin it is, where not the order of the alphabet
    "agreement": lambda right, wrong: len(right[0]) > len(wrong[0]),
    "punctuation": lambda right, wrong: right[0] == ",",
}


def test_neither_twin_is_more_frequent(splits: dict[str, list[Pair]]) -> None:
    found = defaultdict(list)
    for pair in splits["train"]:
        if pair.contrast:
            label = LABELS.get(pair.phenomenon, operator.lt)
            found[pair.phenomenon, pair.grade].append(label(*difference(pair)))
    for cell, labels in found.items():
        assert abs(sum(labels) / len(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5, cell


def test_counts_of_target_trigrams_cannot_tell_the_contrast(splits: dict[str, list[Pair]]) -> None:
    def trigrams(text: str) -> list[tuple[str, ...]]:
        padded = ["<", "<", *words(text), ">"]
        return [tuple(padded[i : i + 3]) for i in range(len(padded) - 2)]

    counts = Counter(gram for pair in splits["train"] for gram in trigrams(pair.sentence.target))
    hits = []
    for pair in splits["test"]:
        right, wrong = (
            sum(counts[gram] > 0 for gram in trigrams(text)) for text in (pair.sentence.target, pair.contrast)
        )
        hits.append(0.5 if right == wrong else float(right > wrong))
    assert 0.4 < sum(hits) / len(hits) < 0.6
