"""The built-in corpus's lexicon, syntax and inflection: one translation a word, sentences and forms checked by hand."""

import re
from collections import defaultdict
from dataclasses import replace

import pytest

from headcount.errors import InputError
from headcount.grammar import english, german, lexicon, words
from headcount.grammar.lexicon.entries import Adverb
from headcount.grammar.lexicon.table import read_table
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

NOUNS = {noun.english: noun for nouns in lexicon.nouns.values() for noun in nouns}
VERB_ENTRIES = [verb for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs]
VERBS = {verb.english: verb for verb in VERB_ENTRIES}
ADJECTIVES = {word.english: word for table in lexicon.adjectives.values() for word in table}
PREPOSITIONS = {word.english: word for table in lexicon.prepositions.values() for word in table}
HOMOGRAPHS = {homograph.senses[0].english: homograph for homograph in lexicon.homographs}


def test_each_lemma_has_one_translation_and_each_german_noun_one_gender_and_plural() -> None:
    translations, forms = defaultdict(set), defaultdict(set)
    for noun in NOUNS.values():
        translations[noun.english].add(noun.german)
    for verb in VERB_ENTRIES:
        translations[f"to {verb.english}"].add(verb.particle + verb.infinitive)
    for word in ADJECTIVES.values():
        translations[word.english].add(word.german)
    assert all(len(german) == 1 for german in translations.values())
    assert len(translations) > 450
    assert len(NOUNS) == sum(len(nouns) for nouns in lexicon.nouns.values())
    assert len(VERBS) == len(VERB_ENTRIES)
    for noun in (*NOUNS.values(), *(noun for homograph in lexicon.homographs for noun in homograph.senses)):
        forms[noun.german].add((noun.gender, noun.plural, noun.genitive))
        if re.search(r"(ung|heit|keit|schaft|erin)$", noun.german):
            assert noun.gender == "f"
    assert [german for german, several in forms.items() if len(several) > 1] == []


def test_a_homograph_is_nowhere_else_and_a_pair_of_its_cues_is_one_german_noun() -> None:
    assert not set(HOMOGRAPHS) & set(NOUNS)
    assert len(HOMOGRAPHS) >= 12
    for homograph in lexicon.homographs:
        assert len(homograph.cues) >= 3
        for first, second in homograph.cues:
            assert first.english != second.english
            assert (first.german, first.gender, first.plural) == (second.german, second.gender, second.plural)


WRONG = [
    ("person\tking\tKönig\tm\tKönige\t\t\tmore", "8 columns; give 7, separated by tabs: kind, english, german,"),
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
    rows = (lexicon.FOLDER / "senses.tsv").read_text(encoding="utf-8").splitlines()
    table.write_text("\n".join([*rows[:4], *rows[5:]]), encoding="utf-8")
    with pytest.raises(InputError, match="line 4 and 5: 'bank' and 'bat' are two nouns"):
        read_table(table, lexicon.homograph, {}, rows_each=2)


# Syntax and inflection


def the(noun: str, *adjectives: str, plural: bool = False, article: str = "the") -> NounPhrase:
    return NounPhrase(NOUNS[noun], plural, article, [ADJECTIVES[word] for word in adjectives])


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


OLD = ADJECTIVES["old"]
TODAY, QUIETLY, TOMORROW = (Adverb(*each.split()) for each in ("today heute", "quietly leise", "tomorrow morgen"))
LAMP, COAT, WOMAN = the("lamp"), the("coat", "wet"), the("woman")
MAN, NEIGHBOUR, EVA = the("man"), the("neighbour"), the("Eva", article="")

# fmt: off
SENTENCES: dict[str, list[Part]] = {  # English / German
    "Anna's teachers slept in the garden. / Annas Lehrer schliefen im Garten.":
        [does(owned("Anna", "teacher", plural=True), "sleep", place=at("in", the("garden")))],
    "The woman bought the wet coat because it was old. / Die Frau kaufte den nassen Mantel, weil er alt war.":
        [does(WOMAN, "buy", object=COAT), sub("because", "weil", does(Pronoun("it", COAT), "be", predicate=OLD))],
    "The boy can carry the box so that the woman can open the door. / "
    "Der Junge kann die Kiste tragen, damit die Frau die Tür aufmachen kann.":
        [does(the("boy"), "carry", "can", object=the("box")),
         sub("so that", "damit", does(WOMAN, "open", "can", object=the("door")))],
    "Eva greeted the woman; that one laughed. / Eva grüßte die Frau, die lachte.":
        [does(EVA, "greet", object=WOMAN), Joint(";", ","), does(Demonstrative(WOMAN), "laugh")],
    "Eva ran in Anna's garden and the small house. / Eva rannte in Annas Garten und dem kleinen Haus.":
        [does(EVA, "run", goals=[at("in", owned("Anna", "garden"), the("house", "small"))])],
    "Tomorrow Eva will walk to the church. / Morgen wird Eva zur Kirche gehen.":
        [does(EVA, "walk", "will", goals=[at("to", the("church"))], time=TOMORROW, front="time")],
    "The man does not see a big dog. / Der Mann sieht keinen großen Hund.":
        [does(MAN, "see", "present", object=the("dog", "big", article="a"), negated=True)],
    "The cats cannot sleep on the roof. / Die Katzen können nicht auf dem Dach schlafen.":
        [does(the("cat", plural=True), "sleep", "can", place=at("on", the("roof")), negated=True)],
    "Eva quietly promised today to switch on the radio. / Eva versprach heute leise, das Radio einzuschalten.":
        [does(EVA, "promise", manner=QUIETLY, time=TODAY, infinitive=to(EVA, "switch on", object=the("radio")))],
    "The man whom the child saw gave the lion red apples and the nun sang. / "
    "Der Mann, den das Kind sah, gab dem Löwen rote Äpfel und die Nonne sang.":
        [does(who(MAN, "see", "object", subject=the("child")), "give", recipient=the("lion"),
              object=the("apple", "red", plural=True, article="a")),
         Joint("and", "und"), does(the("nun"), "sing")],
    "Although the dogs of the young boy slept, the women who helped a child laughed. / "
    "Obwohl die Hunde des jungen Jungen schliefen, lachten die Frauen, die einem Kind halfen.":
        [sub("although", "obwohl", does(replace(the("dog", plural=True), genitive=the("boy", "young")), "sleep")),
         Joint(",", ","),
         does(who(the("woman", plural=True), "help", "subject", object=the("child", article="a")), "laugh",
              inverted=True)],
}
# fmt: on


@pytest.mark.parametrize(("texts", "parts"), SENTENCES.items(), ids=SENTENCES)
def test_sentences_checked_by_hand(texts: str, parts: list[Part]) -> None:
    rendered = render(parts)
    assert f"{rendered.source} / {rendered.target}" == texts


NOUN_FORMS = {
    "man": "Mann Mann Mann Mannes Männer Männer Männern Männer",
    "boy": "Junge Jungen Jungen Jungen Jungen Jungen Jungen Jungen",
    "teacher": "Lehrer Lehrer Lehrer Lehrers Lehrer Lehrer Lehrern Lehrer",
    "castle": "Schloss Schloss Schloss Schlosses Schlösser Schlösser Schlössern Schlösser",
    "bus": "Bus Bus Bus Busses Busse Busse Bussen Busse",
}
VERB_FORMS = {"open": "macht machen machte machten aufmachen aufzumachen", "eat": "isst essen aß aßen essen zu essen"}


def test_noun_and_verb_forms() -> None:
    for noun, forms in NOUN_FORMS.items():
        made = [german.noun(NOUNS[noun], plural, case) for plural in (False, True) for case in german.CASES]
        assert made == forms.split()
    for verb, forms in VERB_FORMS.items():
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
