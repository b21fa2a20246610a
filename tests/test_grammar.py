"""The built-in corpus: splits without overlap, and contrasts that only the source can tell apart."""

import hashlib
import operator
import re
from collections import Counter, defaultdict

import pytest

from headcount.errors import InputError
from headcount.grammar import Copy, Grammar, corpus, german, lexicon, words
from headcount.grammar.corpus import CELLS, Pair
from headcount.grammar.phenomena import PHENOMENA

SIZES = {"train_size": 4_000, "valid_size": 100, "test_size": 20 * len(CELLS), "seed": 1}
HOMOGRAPHS = {homograph.senses[0].english: homograph for homograph in lexicon.homographs}


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Pair]]:
    return Grammar(**SIZES).generate()


@pytest.fixture(scope="module")
def everything(splits: dict[str, list[Pair]]) -> list[Pair]:
    return [pair for pairs in splits.values() for pair in pairs]


def made(**changes: int) -> Grammar:
    return Grammar(**{"train_size": 3_000, "valid_size": 1, "test_size": 16, "seed": 1} | changes)


def test_fingerprint_is_that_of_kept_runs_and_changes_with_whatever_makes_another_text(monkeypatch) -> None:
    assert made(train_size=30_000, valid_size=1_000, test_size=4_000).fingerprint() == "3a468adbc344"
    others = [made(), made(seed=2), made(train_size=29_999), made(valid_size=999), made(test_size=999)]
    found = [grammar.fingerprint() for grammar in (*others, Copy(**SIZES), Grammar(**SIZES))]
    for name, value in {"VERSION": 0, "content": lambda table: [(1, "another word")]}.items():
        with monkeypatch.context() as patch:
            patch.setattr(corpus, name, value)
            found.append(made().fingerprint())
    assert len(set(found)) == len(found)


@pytest.mark.medium
def test_other_sentences_need_another_version(everything) -> None:
    digest = hashlib.sha256()
    for pair in everything:
        sentence = pair.sentence
        digest.update(repr((pair.phenomenon, pair.grade, pair.contrast, pair.twin)).encode())
        digest.update(repr((sentence.source, sentence.target, sentence.alignment, sentence.links)).encode())
    found = digest.hexdigest()[:16]
    assert (corpus.VERSION, found) == (1, "8bedc3647547620b"), (
        "raise VERSION in grammar/corpus.py if the rules make other sentences now, and write it and this digest here"
    )


@pytest.mark.medium
def test_a_train_split_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match=r"^data\.train_size: too small for sentences about .*; 3000 is enough$"):
        made(train_size=20).generate()


@pytest.mark.medium
def test_load_gives_the_columns_and_copy_the_english_twice() -> None:
    data = made(valid_size=20, test_size=32).load()
    assert {split: len(rows) for split, rows in data.items()} == {"train": 3_000, "valid": 20, "test": 32}
    columns = ["source", "target", "phenomenon", "grade", "contrast", "twin", "alignment", "links"]
    assert all(rows.column_names == columns for rows in data.values())
    row = data["test"][0]
    assert (set(row["alignment"][0]), set(row["links"][0])) == ({"source", "target"}, {"relation", "dependent", "head"})
    copied = Copy(train_size=3_000, valid_size=20, test_size=32, seed=1)
    assert copied.target_language == "en"
    for split, rows in copied.load().items():
        assert rows["source"] == rows["target"] == data[split]["source"]


def test_valid_and_test_have_pairs_of_lemmas_of_their_own_and_no_new_word(splits: dict[str, list[Pair]]) -> None:
    counts = Counter((pair.phenomenon, pair.grade) for pair in splits["test"])
    assert counts == dict.fromkeys(CELLS, SIZES["test_size"] // len(CELLS))
    assert {pair.phenomenon for pair in splits["train"]} == {"plain", *PHENOMENA}
    pairs = {split: {pair for line in lines for pair in line.sentence.pairs} for split, lines in splits.items()}
    assert (len(pairs["train"]) > 1_000, len(pairs["test"]) > 100) == (True, True)
    assert not pairs["train"] & (pairs["valid"] | pairs["test"])
    train = [pair.sentence for pair in splits["train"]]
    known = {word for sentence in train for word in words(f"{sentence.source} {sentence.target}")}
    for pair in (*splits["valid"], *splits["test"]):
        assert known.issuperset(words(f"{pair.sentence.source} {pair.sentence.target} {pair.contrast}"))


def test_nothing_occurs_twice_and_all_but_plain_sentences_have_a_twin(everything: list[Pair]) -> None:
    assert len({pair.sentence.source for pair in everything}) == len(everything)
    assert len({pair.sentence.target for pair in everything}) == len(everything)
    for pair in everything:
        assert (pair.contrast == "") == (pair.twin == "") == (pair.phenomenon == "plain")


def test_indices_are_in_range_and_of_the_right_words(everything: list[Pair]) -> None:
    for pair in everything:
        source, target = words(pair.sentence.source), words(pair.sentence.target)
        assert all(i < len(source) and j < len(target) for i, j in pair.sentence.alignment)
        # All but commas and the articles and the "did" that German lacks are aligned.
        loose = set(target) - {target[j] for _, j in pair.sentence.alignment}
        assert loose <= {","}, (pair.sentence.source, pair.sentence.target, loose)
        for relation, dependent, head in pair.sentence.links:
            assert max(dependent, head) < len(source)
            if relation == "sense":
                assert source[dependent] in HOMOGRAPHS
            if relation == "antecedent":
                assert source[dependent] in {"who", "whom", "that", "it", "he", "she"}
            if relation in {"antecedent", "conjunction"}:
                assert head < dependent
        needed = {"agreement": "subject", "pronoun": "antecedent", "ambiguity": "sense"}.get(pair.phenomenon)
        assert needed is None or needed in {relation for relation, _, _ in pair.sentence.links}


def test_every_ambiguous_noun_has_just_one_word_that_decides_it(everything: list[Pair]) -> None:
    count = 0
    for pair in everything:
        source, target = words(pair.sentence.source), words(pair.sentence.target)
        for noun in set(source) & set(HOMOGRAPHS):
            homograph = HOMOGRAPHS[noun]
            cues = [[cue.english for cue in column] for column in zip(*homograph.cues, strict=True)]
            decisive = [(word, which) for which in (0, 1) for word in cues[which] if word in source]
            assert len(decisive) == 1, (noun, pair.sentence.source)
            ((cue, which),) = decisive
            links = [link for link in pair.sentence.links if link[0] == "sense" and source[link[1]] == noun]
            assert [source[head] for _, _, head in links] == [cue]
            forms = [{german.noun(sense, False, case) for case in german.CASES} for sense in homograph.senses]
            assert forms[which] & set(target), pair.sentence.target
            count += 1
    assert count > 300


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


def test_contrasts_differ_only_in_the_tested_words(splits: dict[str, list[Pair]]) -> None:
    for pair in splits["test"]:
        right, wrong = difference(pair)
        where = (pair.sentence.target, pair.contrast)
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
            assert max(len(right), len(wrong)) <= 3, where
        elif pair.phenomenon == "negation":
            affirmed = [NEGATION.sub("", text) for text in where]
            assert affirmed[0] == affirmed[1], where
            denied = [len(NEGATION.findall(text)) for text in where]
            assert abs(denied[0] - denied[1]) == (pair.grade == "easy"), where


LABELS = {  # which twin it is, where not the order of the alphabet
    "agreement": lambda right, wrong: len(right[0]) > len(wrong[0]),
    "punctuation": lambda right, wrong: right[0] == ",",
}


def test_neither_twin_is_more_frequent(splits: dict[str, list[Pair]]) -> None:
    labels = defaultdict(list)
    for pair in splits["train"]:
        if pair.contrast:
            label = LABELS.get(pair.phenomenon, operator.lt)
            labels[pair.phenomenon, pair.grade].append(label(*difference(pair)))
    for cell, values in labels.items():
        assert abs(sum(values) / len(values) - 0.5) < 4 * 0.5 / len(values) ** 0.5, cell


def test_counts_of_target_trigrams_cannot_tell_the_contrast(splits: dict[str, list[Pair]]) -> None:
    def trigrams(text: str) -> list[tuple[str, ...]]:
        padded = ["<", "<", *words(text), ">"]
        return [tuple(padded[i : i + 3]) for i in range(len(padded) - 2)]

    counts = Counter(gram for pair in splits["train"] for gram in trigrams(pair.sentence.target))
    hits = []
    for pair in splits["test"]:
        texts = (pair.sentence.target, pair.contrast)
        right, wrong = (sum(counts[gram] > 0 for gram in trigrams(text)) for text in texts)
        hits.append(0.5 if right == wrong else float(right > wrong))
    assert 0.4 < sum(hits) / len(hits) < 0.6
