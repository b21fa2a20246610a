"""Syntax and inflection of the built-in corpus: sentences and forms that were checked by hand."""

from dataclasses import replace

import pytest

from headcount.grammar import english, german, lexicon, words
from headcount.grammar.lexicon.entries import Adverb
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
VERBS = {verb.english: verb for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs}
ADJECTIVES = {word.english: word for table in lexicon.adjectives.values() for word in table}
PREPOSITIONS = {word.english: word for table in lexicon.prepositions.values() for word in table}
HOMOGRAPHS = {homograph.senses[0].english: homograph for homograph in lexicon.homographs}
TODAY, QUIETLY = Adverb("today", "heute"), Adverb("quietly", "leise")


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
    return replace(the(cue.noun.english, *adjectives, article=article), noun=HOMOGRAPHS[noun].senses[which], sense=cue)


def with_attribute(phrase: NounPhrase, attribute: PrepositionalPhrase) -> NounPhrase:
    return replace(phrase, attribute=attribute)


def of(phrase: NounPhrase, genitive: NounPhrase) -> NounPhrase:
    return replace(phrase, genitive=genitive)


LAMP, COAT, WOMAN, DOG = the("lamp"), the("coat", "wet"), the("woman"), a("dog", "big")
SNAKE, QUEUE = the("snake"), the("queue")

SENTENCES: list[tuple[list[Part], str, str]] = [
    ([does(the("man"), "see", object=a("dog", "old"))], "The man saw an old dog.", "Der Mann sah einen alten Hund."),
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
    ([does(owned("Peter", "car", "new"), "shine", "present")], "Peter's new car shines.", "Peters neues Auto glänzt."),
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
