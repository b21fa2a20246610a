"""The lexicon of the built-in corpus: one translation a word, and clear messages for wrong rows."""

import re
from collections import defaultdict

import pytest
from omegaconf import OmegaConf

from headcount.errors import InputError
from headcount.grammar import lexicon
from headcount.grammar.draw import CONJUNCTIONS
from headcount.grammar.lexicon import FOLDER
from headcount.grammar.lexicon.table import read_table
from headcount.grammar.phenomena.order import CONNECTORS
from headcount.run.config import build

NOUNS = {noun.english: noun for nouns in lexicon.nouns.values() for noun in nouns}
VERBS = {verb.english: verb for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs}
ADJECTIVES = {word.english: word for table in lexicon.adjectives.values() for word in table}
HOMOGRAPHS = {homograph.senses[0].english: homograph for homograph in lexicon.homographs}


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
    with pytest.raises(InputError, match=r"^nouns\.tsv, line 5: gender is empty$"):
        build(OmegaConf.create({"_target_": "wrong_words.Corpus"}), "data")


def test_no_noun_or_verb_is_there_twice() -> None:
    nouns = [noun.english for nouns in lexicon.nouns.values() for noun in nouns]
    verbs = [verb.english for verbs in (*lexicon.verbs.values(), *lexicon.separable) for verb in verbs]
    assert len(set(nouns)) == len(nouns)
    assert len(set(verbs)) == len(verbs)


def test_two_rows_that_do_not_belong_together_are_named(tmp_path) -> None:
    table = tmp_path / "senses.tsv"
    rows = (FOLDER / "senses.tsv").read_text(encoding="utf-8").splitlines()
    for number, message in ((5, "line 4 and 5: 'bank' and 'bat' are two nouns"), (len(rows), "give 2 lines for each")):
        table.write_text("\n".join([*rows[: number - 1], *rows[number:]]), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_table(table, lexicon.homograph, {}, rows_each=2)
