"""The built-in corpus's lexicon, syntax and inflection: one translation a word, sentences and forms checked by hand."""

import re
from collections import defaultdict
from dataclasses import replace

import pytest

from headcount.errors import InputError
from headcount.grammar import english, german, lexicon, words
from headcount.grammar.draw import CONJUNCTIONS
from headcount.grammar.lexicon.entries import Adverb
from headcount.grammar.lexicon.table import read_table
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
from headcount.settings import KINDS, build

NOUNS = {noun.english: noun for nouns in lexicon.nouns.values() for noun in nouns}
VERB_ENTRIES = [verb for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs]
VERBS = {verb.english: verb for verb in VERB_ENTRIES}
ADJECTIVES = {word.english: word for table in lexicon.adjectives.values() for word in table}
PREPOSITIONS = {word.english: word for table in lexicon.prepositions.values() for word in table}
HOMOGRAPHS = {homograph.senses[0].english: homograph for homograph in lexicon.homographs}
TODAY, QUIETLY = Adverb("today", "heute"), Adverb("quietly", "leise")


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
    for verb in VERB_ENTRIES:
        translations[f"to {verb.english}"].add(verb.particle + verb.infinitive)
    for word in ADJECTIVES.values():
        translations[word.english].add(word.german)
    assert all(len(german) == 1 for german in translations.values())
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
    senses = [noun for homograph in lexicon.homographs for noun in homograph.senses]
    for noun in (*NOUNS.values(), *senses):
        forms[noun.german].add((noun.gender, noun.plural, noun.genitive))
        assert noun.gender in {"m", "f", "n"}
        assert noun.german[0].isupper()
        if noun.german.endswith("chen") and noun.german not in {"Kuchen", "Abzeichen", "Drachen"}:
            assert noun.gender == "n"
        if re.search(r"(ung|heit|keit|schaft|erin)$", noun.german):
            assert noun.gender == "f"
    assert [(german, several) for german, several in forms.items() if len(several) > 1] == []


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


def test_a_wrong_row_is_one_line_where_a_config_names_the_corpus(tmp_path, monkeypatch) -> None:
    lines = "from headcount.errors import InputError", "raise InputError('nouns.tsv, line 5: gender is empty')"
    (tmp_path / "wrong_words.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(KINDS["data"], "wrong", "wrong_words:Corpus")
    with pytest.raises(InputError, match=r"^nouns\.tsv, line 5: gender is empty$"):
        build("data", {"kind": "wrong"})


def test_no_noun_or_verb_is_there_twice() -> None:
    assert len(NOUNS) == sum(len(nouns) for nouns in lexicon.nouns.values())
    assert len(VERBS) == len(VERB_ENTRIES)


def test_two_rows_that_do_not_belong_together_are_named(tmp_path) -> None:
    table = tmp_path / "senses.tsv"
    rows = (lexicon.FOLDER / "senses.tsv").read_text(encoding="utf-8").splitlines()
    for number, message in ((5, "line 4 and 5: 'bank' and 'bat' are two nouns"), (len(rows), "give 2 lines for each")):
        table.write_text("\n".join([*rows[: number - 1], *rows[number:]]), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_table(table, lexicon.homograph, {}, rows_each=2)


# Syntax and inflection


def the(noun: str, *adjectives: str, plural: bool = False, article: str = "the") -> NounPhrase:
    return NounPhrase(NOUNS[noun], plural, article, [ADJECTIVES[word] for word in adjectives])


def a(noun: str, *adjectives: str) -> NounPhrase:
    return the(noun, *adjectives, article="a")


def name(word: str) -> NounPhrase:
    return NounPhrase(NOUNS[word], article="")


def owned(owner: str, noun: str, *adjectives: str, plural: bool = False) -> NounPhrase:
    return replace(the(noun, *adjectives, plural=plural, article=""), owner=NOUNS[owner])


def at(preposition: str, phrase: NounPhrase, *more: NounPhrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(PREPOSITIONS[preposition], phrase, more)


def does(subject: NounPhrase | Pronoun | Demonstrative, verb: str, tense: str = "past", **more: object) -> Clause:
    return Clause(subject, VERBS[verb], tense, **more)  # type: ignore[arg-type]


def to(subject: NounPhrase, verb: str, **more: object) -> Infinitive:
    return Infinitive(does(subject, verb, **more))


def sub(english_word: str, german_word: str, clause: Clause) -> Subordinate:
    return Subordinate(Adverb(english_word, german_word), clause)


def who(head: NounPhrase, verb: str, gap: str, **more: object) -> NounPhrase:
    subject = more.pop("subject", head)
    if gap == "object":
        more["object"] = head
    return replace(head, relative=does(subject, verb, gap=gap, **more))  # type: ignore[arg-type]


def sense(noun: str, which: int, cue: NounPhrase, *adjectives: str, article: str = "the") -> NounPhrase:
    return replace(the(cue.noun.english, *adjectives, article=article), noun=HOMOGRAPHS[noun].senses[which], sense=cue)


def behind(phrase: NounPhrase, cue: NounPhrase, preposition: str = "behind") -> NounPhrase:
    return replace(phrase, attribute=at(preposition, cue))


def of(phrase: NounPhrase, genitive: NounPhrase) -> NounPhrase:
    return replace(phrase, genitive=genitive)


OLD = ADJECTIVES["old"]
SINCE_THEN, TOMORROW = Adverb("since then", "seitdem"), Adverb("tomorrow", "morgen")
LAMP, COAT, WOMAN, DOG = the("lamp"), the("coat", "wet"), the("woman"), the("dog")
SNAKE, QUEUE, HOUSE, GARDEN, STATION = the("snake"), the("queue"), the("house"), the("garden"), the("station")
MAN, KING, NUN, NEIGHBOUR = the("man"), the("king"), the("nun"), the("neighbour")
EVA, LEON, PAUL = name("Eva"), name("Leon"), name("Paul")
ANNAS_GARDEN, SMALL_HOUSE = owned("Anna", "garden"), the("house", "small")
RED_APPLES = the("apple", "red", plural=True, article="a")

# fmt: off
SENTENCES: dict[str, list[Part]] = {  # English / German
    "The man saw an old dog. / Der Mann sah einen alten Hund.": [does(MAN, "see", object=a("dog", "old"))],
    "Anna's teachers slept in the garden. / Annas Lehrer schliefen im Garten.":
        [does(owned("Anna", "teacher", plural=True), "sleep", place=at("in", GARDEN))],
    "Anna's teacher near the houses slept. / Annas Lehrer bei den Häusern schlief.":
        [does(behind(owned("Anna", "teacher"), the("house", plural=True), "near"), "sleep")],
    "Peter's new car shines. / Peters neues Auto glänzt.": [does(owned("Peter", "car", "new"), "shine", "present")],
    "The woman bought the lamp because it was old. / Die Frau kaufte die Lampe, weil sie alt war.":
        [does(WOMAN, "buy", object=LAMP), sub("because", "weil", does(Pronoun("it", LAMP), "be", predicate=OLD))],
    "The woman bought the wet coat because it was old. / Die Frau kaufte den nassen Mantel, weil er alt war.":
        [does(WOMAN, "buy", object=COAT), sub("because", "weil", does(Pronoun("it", COAT), "be", predicate=OLD))],
    "Paul saw the bank behind the snake. / Paul sah das Ufer hinter der Schlange.":
        [does(PAUL, "see", object=behind(sense("bank", 0, SNAKE), SNAKE))],
    "Paul saw an old bank behind the queue. / Paul sah eine alte Bank hinter der Schlange.":
        [does(PAUL, "see", object=behind(sense("bank", 1, QUEUE, "old", article="a"), QUEUE))],
    "The man waited ever since the woman slept in the house. / Der Mann wartete, seitdem die Frau im Haus schlief.":
        [does(MAN, "wait"), sub("ever since", "seitdem", does(WOMAN, "sleep", place=at("in", HOUSE)))],
    "The man waited; since then the woman slept in the house. / Der Mann wartete, seitdem schlief die Frau im Haus.":
        [does(MAN, "wait"), Joint(";", ","), does(WOMAN, "sleep", place=at("in", HOUSE), front=SINCE_THEN)],
    "The boy can carry the box so that the woman can open the door. / "
    "Der Junge kann die Kiste tragen, damit die Frau die Tür aufmachen kann.":
        [does(the("boy"), "carry", "can", object=the("box")),
         sub("so that", "damit", does(WOMAN, "open", "can", object=the("door")))],
    "Eva greeted the woman; that one laughed. / Eva grüßte die Frau, die lachte.":
        [does(EVA, "greet", object=WOMAN), Joint(";", ","), does(Demonstrative(WOMAN), "laugh")],
    "The woman closed the window today. / Die Frau machte heute das Fenster zu.":
        [does(WOMAN, "close", object=the("window"), time=TODAY)],
    "The woman waited until the boys switched off the radio. / "
    "Die Frau wartete, bis die Jungen das Radio ausschalteten.":
        [does(WOMAN, "wait"), sub("until", "bis", does(the("boy", plural=True), "switch off", object=the("radio")))],
    "The girl tried to switch on the heater. / Das Mädchen versuchte, die Heizung einzuschalten.":
        [does(the("girl"), "try", infinitive=to(the("girl"), "switch on", object=the("heater")))],
    "Leon danced into the garden with the young friends. / Leon tanzte in den Garten mit den jungen Freunden.":
        [does(LEON, "dance", goals=[at("into", GARDEN), at("with", the("friend", "young", plural=True))])],
    "Leon ran into Anna's garden and the small house. / Leon rannte in Annas Garten und das kleine Haus.":
        [does(LEON, "run", goals=[at("into", ANNAS_GARDEN, SMALL_HOUSE)])],
    "Leon ran in Anna's garden and the small house. / Leon rannte in Annas Garten und dem kleinen Haus.":
        [does(LEON, "run", goals=[at("in", ANNAS_GARDEN, SMALL_HOUSE)])],
    "Tomorrow Eva will walk to the church. / Morgen wird Eva zur Kirche gehen.":
        [does(EVA, "walk", "will", goals=[at("to", the("church"))], time=TOMORROW, front="time")],
    "The king does not see a big dog. / Der König sieht keinen großen Hund.":
        [does(KING, "see", "present", object=a("dog", "big"), negated=True)],
    "The king helped the aunt at the station today. / Der König half heute der Tante am Bahnhof.":
        [does(KING, "help", object=the("aunt"), place=at("at", STATION), time=TODAY)],
    "The king saw the dog at the station today. / Der König sah heute am Bahnhof den Hund.":
        [does(KING, "see", object=DOG, place=at("at", STATION), time=TODAY)],
    "The king did not see the dog. / Der König sah den Hund nicht.": [does(KING, "see", object=DOG, negated=True)],
    "The cats cannot sleep on the roof. / Die Katzen können nicht auf dem Dach schlafen.":
        [does(the("cat", plural=True), "sleep", "can", place=at("on", the("roof")), negated=True)],
    "Eva promised the neighbour to help. / Eva versprach dem Nachbarn, zu helfen.":
        [does(EVA, "promise", recipient=NEIGHBOUR, infinitive=to(EVA, "help"))],
    "Eva promised to help the neighbour. / Eva versprach, dem Nachbarn zu helfen.":
        [does(EVA, "promise", infinitive=to(EVA, "help", object=NEIGHBOUR))],
    "Eva quietly promised today to pray in the hall. / Eva versprach heute leise, in der Halle zu beten.":
        [does(EVA, "promise", manner=QUIETLY, time=TODAY, infinitive=to(EVA, "pray", place=at("in", the("hall"))))],
    "The nun promises to quietly wake a king. / Die Nonne verspricht, leise einen König zu wecken.":
        [does(NUN, "promise", "present", infinitive=to(NUN, "wake", object=a("king"), manner=QUIETLY))],
    "The man whom the child saw gave the lion red apples and the nun sang. / "
    "Der Mann, den das Kind sah, gab dem Löwen rote Äpfel und die Nonne sang.":
        [does(who(MAN, "see", "object", subject=the("child")), "give", recipient=the("lion"), object=RED_APPLES),
         Joint("and", "und"), does(NUN, "sing")],
    "Although the dogs of the young boy slept, the women who helped a child laughed. / "
    "Obwohl die Hunde des jungen Jungen schliefen, lachten die Frauen, die einem Kind halfen.":
        [sub("although", "obwohl", does(of(the("dog", plural=True), the("boy", "young")), "sleep")), Joint(",", ","),
         does(who(the("woman", plural=True), "help", "subject", object=a("child")), "laugh", inverted=True)],
    "Nora invited the expensive prince whom Paul thanked. / Nora lud den teuren Prinzen, dem Paul dankte, ein.":
        [does(name("Nora"), "invite", object=who(the("prince", "expensive"), "thank", "object", subject=PAUL))],
}
# fmt: on


@pytest.mark.parametrize(("texts", "parts"), SENTENCES.items(), ids=SENTENCES)
def test_sentences_checked_by_hand(texts: str, parts: list[Part]) -> None:
    rendered = render(parts)
    assert f"{rendered.source} / {rendered.target}" == texts


ENDINGS = {
    "weak": "alte alten alten alten | alte alte alten alten | alte alte alten alten | alten alten alten alten",
    "mixed": "alter alten alten alten | alte alte alten alten | altes altes alten alten | alten alten alten alten",
    "strong": "alter alten altem alten | alte alte alter alter | altes altes altem alten | alte alte alten alter",
}


@pytest.mark.parametrize(("declension", "forms"), ENDINGS.items())
def test_adjective_endings(declension: str, forms: str) -> None:
    for gender, row in zip("mfnp", forms.split(" | "), strict=True):
        made = [german.adjective(OLD, declension, gender, gender == "p", case) for case in german.CASES]
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
    plurals = {"wolf": "wolves", "nun": "nuns", "potato": "potatoes", "bus": "buses", "aunt": "aunts"}
    assert {word: english.noun(NOUNS[word], True) for word in plurals} == plurals
    thirds = {"carry in": "carries in", "try": "tries", "miss": "misses", "go out": "goes out", "obey": "obeys"}
    assert {word: english.third(word) for word in thirds} == thirds
    articles = {"apple": "an", "uniform": "a", "useful": "a", "unusual": "an", "dog": "a"}
    assert {word: english.article(word) for word in articles} == articles


def test_structure_checked_by_hand() -> None:
    first = does(who(NEIGHBOUR, "laugh", "subject"), "see", "present", object=LAMP, negated=True)
    rendered = render([first, sub("because", "weil", does(Pronoun("it", LAMP), "shine", "can"))])
    source, target = words(rendered.source), words(rendered.target)
    assert " ".join(source) == "The neighbour who laughed does not see the lamp because it can shine ."
    assert " ".join(target) == "Der Nachbar , der lachte , sieht die Lampe nicht , weil sie glänzen kann ."
    assert {(source[i], target[j]) for i, j in rendered.alignment} == {
        ("The", "Der"), ("neighbour", "Nachbar"), ("who", "der"), ("laughed", "lachte"), ("does", "sieht"),
        ("see", "sieht"), ("not", "nicht"), ("the", "die"), ("lamp", "Lampe"), ("because", "weil"), ("it", "sie"),
        ("can", "kann"), ("shine", "glänzen"), (".", "."),
    }  # fmt: skip
    assert {(relation, source[i], source[j]) for relation, i, j in rendered.links} == {
        ("antecedent", "who", "neighbour"), ("conjunction", "laughed", "who"), ("subject", "laughed", "who"),
        ("subject", "see", "neighbour"), ("conjunction", "can", "because"), ("antecedent", "it", "lamp"),
        ("subject", "shine", "it"),
    }  # fmt: skip


def test_a_contraction_and_kein_carry_both_meanings() -> None:
    rendered = render([does(EVA, "see", object=a("dog"), negated=True, place=at("in", HOUSE))])
    source, target = words(rendered.source), words(rendered.target)
    assert rendered.target == "Eva sah im Haus keinen Hund."
    aligned = {(source[i], target[j]) for i, j in rendered.alignment}
    assert {("in", "im"), ("the", "im"), ("not", "keinen"), ("a", "keinen")} <= aligned


def test_a_noun_takes_at_most_four_adjectives() -> None:
    # Alignment would mix the keys of more with those of the next phrase.
    assert render([does(the("dog", "old", "big", "wet", "cold"), "sleep")]).source == "The old big wet cold dog slept."
    with pytest.raises(ValueError, match="at most 4"):
        render([does(the("dog", "old", "big", "wet", "cold", "small"), "sleep")])
