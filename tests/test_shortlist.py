"""The lexical shortlist: IBM model 1 against its definition, and searches among candidates."""

import shutil
from collections import defaultdict

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from clauses import CLAUSES, NOUNS, VERBS
from conftest import completed, refused, rewrite
from datasets import Dataset

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.decoding import shortlist
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.shortlist import NONE, Lexicon, Pieces, learn_lexicon, sample, translation_probabilities
from headcount.decoding.translator import Translator
from headcount.errors import InputError
from headcount.run import lexicon as kept
from headcount.run.opened import open_run

VOCABULARY = 30
MODELS = ["nano", "rnn", "rnn_luong"]
EVERYTHING = {"frequent": VOCABULARY, "per_piece": 0}


def pieces(sentences: list[list[int]]) -> Pieces:
    return Pieces(np.array([piece for sentence in sentences for piece in sentence]), np.array([*map(len, sentences)]))


def by_definition(pairs, rounds):
    """Brown et al. 1993, section 4.1, one word after the other; None is the empty word."""
    table = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for taker in target:
                whole = sum(table[giver, taker] for giver in (None, *source))
                for giver in (None, *source):
                    share = table[giver, taker] / whole
                    counts[giver, taker] += share
                    totals[giver] += share
        table = {pair: count / totals[pair[0]] for pair, count in counts.items()}
    return table


def test_probabilities_are_those_of_the_definition():
    random = np.random.default_rng(1)
    pairs = [
        (random.integers(0, 6, random.integers(0, 5)).tolist(), random.integers(0, 7, random.integers(0, 6)).tolist())
        for _ in range(40)
    ]
    assert any(not source for source, _ in pairs)
    assert any(not target for _, target in pairs)
    sources, targets = (pieces(list(side)) for side in zip(*pairs, strict=True))
    for rounds in (1, 4):
        expected = by_definition(pairs, rounds)
        found = translation_probabilities(sources, targets, (6, 7), rounds)
        table = {(None if giver == 6 else giver, taker): p for giver, taker, p in zip(*map(list, found), strict=True)}
        assert table == pytest.approx(expected)


def test_a_lexicon_knows_the_words_of_a_small_language():
    words = [sorted({word for pair in CLAUSES for word in pair[side].split()}) for side in (0, 1)]
    ids = [pieces([[words[side].index(word) for word in pair[side].split()] for pair in CLAUSES]) for side in (0, 1)]
    sizes = (len(words[0]) + 1, len(words[1]) + 2)  # and pieces that never occur
    lexicon = learn_lexicon(*ids, sizes, shared=False)
    for english, german in (NOUNS | VERBS).items():
        assert words[1][lexicon.translations[words[0].index(english), 0]] == german
    assert (lexicon.translations[-1] == NONE).all()
    assert sorted(lexicon.frequent.tolist()) == list(range(sizes[1]))
    assert {words[1][piece] for piece in lexicon.frequent[:2]} == {"der", "den"}


def test_of_a_large_text_a_sample_is_read(monkeypatch):
    lengths = np.full(400, 2)
    assert sample(lengths, lengths).all()
    monkeypatch.setattr(shortlist, "MOST_CELLS", 600)
    assert 70 < sample(lengths, lengths).sum() < 130  # of 400 pairs with 6 cells each


def test_a_lexicon_reads_the_sample_alone(monkeypatch):
    ids = {"source_ids": [[1], [2, 3], [4], []], "target_ids": [[5, 6], [7], [8], [9]]}
    monkeypatch.setattr(kept, "sample", lambda *_: np.array([True, False, True, True]))
    source, target = kept._pieces(Dataset.from_dict(ids))
    assert (source.tokens.tolist(), source.lengths.tolist()) == ([1, 4], [1, 1, 0])
    assert (target.tokens.tolist(), target.lengths.tolist()) == ([5, 6, 8, 9], [2, 1, 1])


@pytest.mark.parametrize(
    ("frequent", "per_piece", "shared", "expected"),
    [
        (1, 0, False, [9]),
        (2, 1, False, [4, 5, 9]),
        (2, 2, False, [4, 5, 6, 9]),
        (1, 1, True, [1, 2, 4, 5, 9]),
        (99, 0, False, list(range(10))),
    ],
)
def test_a_shortlist_is_the_frequent_and_the_best_of_each_source_piece(frequent, per_piece, shared, expected):
    translations = np.array([[7, 8], [4, 6], [5, NONE], [NONE, NONE]] + [[NONE, NONE]] * 6, dtype=np.int32)
    frequencies = np.array([9, 5, 0, 1, 2, 3, 4, 6, 7, 8], dtype=np.int32)
    lexicon = Lexicon(translations, frequencies, shared)
    found = lexicon.shortlist([[1, 2], [2], []], frequent, per_piece)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_the_number_of_many_candidates_is_rounded_up_with_frequent_pieces():
    frequencies = np.random.default_rng(1).permutation(1000).astype(np.int32)
    lexicon = Lexicon(np.full((1, 1), NONE, dtype=np.int32), frequencies, shared=False)
    few, many, all_ = (
        lexicon.shortlist([[0]], number, 1).tolist() for number in (shortlist.CANDIDATES_MULTIPLE, 300, 1000)
    )
    assert few == sorted(frequencies[: shortlist.CANDIDATES_MULTIPLE].tolist())
    assert many == sorted(frequencies[: 2 * shortlist.CANDIDATES_MULTIPLE].tolist())
    assert all_ == list(range(1000))


class Letters:
    """A codec of one token a letter."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[4 + ord(letter) - ord("a") for letter in text] for text in texts]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return ["".join(chr(ord("a") + i - 4) if i >= 4 else "?" for i in row) for row in ids]


LINES = ["abc", "zyxwvuts", "b", "abc", "hello", "qqqqqqqqqqqq"]
# Each letter has the next two for translations; a, b and c are the most frequent.
LEXICON = Lexicon(
    np.array([[(piece + 1) % VOCABULARY, (piece + 2) % VOCABULARY] for piece in range(VOCABULARY)], dtype=np.int32),
    np.array([*range(4, VOCABULARY), 0, 1, 2, 3], dtype=np.int32),
    shared=False,
)


def model(kind: str = "nano"):
    torch.manual_seed(4)
    made = built(f"model/{kind}", vocab_size=VOCABULARY, **(ONE_LAYER if kind == "nano" else {"d_model": 8}))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)  # far from uniform, so that different sources get different translations
    return made.eval()


def nbest(model, search="beam", **settings):
    made = built(f"search/{search}", **settings)
    return Translator(model, Letters(), made, (PAD, BOS, EOS), lexicon=LEXICON).nbest(LINES, made.width)


@pytest.mark.medium
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("search", ["beam", "greedy", "diverse"])
def test_the_whole_vocabulary_as_a_shortlist_changes_nothing(kind, search):
    whole, listed = (nbest(model(kind), search, shortlist=each) for each in (None, EVERYTHING))
    assert [[text for text, _ in each] for each in listed] == [[text for text, _ in each] for each in whole]
    for ours, theirs in zip(listed, whole, strict=True):
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-5)
    both = Ensemble([model(kind), model(kind)])
    assert [each[0].text for each in nbest(both, search, shortlist=EVERYTHING)] == [each[0].text for each in whole]


@pytest.mark.parametrize("kind", MODELS)
def test_a_search_chooses_from_the_shortlist_alone(kind):
    lines, allowed = ["defg", "e"], set("abc" + "efgh")
    short, whole = (
        Translator(
            model(kind), Letters(), built("search/beam", shortlist=each), (PAD, BOS, EOS), lexicon=LEXICON
        ).nbest(lines, 5)
        for each in ({"frequent": 3, "per_piece": 1}, None)
    )
    assert all(set(text) <= allowed for each in short for text, _ in each)
    assert any(text for each in short for text, _ in each)
    assert not all(set(text) <= allowed for each in whole for text, _ in each)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_among_some_tokens_has_their_probabilities(kind):
    whole, tokens = model(kind), torch.tensor([3, 2, 9, 20, 7])
    part = whole.among(tokens)
    source = torch.randint(4, VOCABULARY, (3, 5))
    states = [each.start(source, None) for each in (whole, part)]
    for step in range(3):
        chosen = torch.tensor([step, 1, 4])
        expected, states[0] = whole.step(tokens[chosen], states[0])
        found, states[1] = part.step(chosen, states[1])
        assert torch.allclose(found, expected[:, tokens].log_softmax(dim=1), atol=1e-5)
    assert whole.output.weight.shape[0] == whole.output.out_features == VOCABULARY
    assert part.encoder is whole.encoder


@pytest.mark.parametrize(
    "wrong",
    [
        {"frequent": 0, "per_piece": 1},
        {"frequent": 10},
        {"frequent": 10, "per_piece": 101},
        {"frequent": 1.5, "per_piece": 1},
    ],
)
def test_wrong_shortlists_are_refused(wrong):
    with pytest.raises(ValueError, match=r"^search\.shortlist=\{frequent:.*\}: must be null, or whole numbers"):
        built("search/beam", shortlist=wrong)


@pytest.mark.parametrize("search", ["sample", "mbr"])
def test_sampling_has_no_shortlist(search):
    with pytest.raises(ValueError, match=r"^search\.shortlist: sampling draws from the whole vocabulary"):
        built(f"search/{search}", shortlist=EVERYTHING)


def test_without_a_lexicon_there_is_no_shortlist():
    made = built("search/beam", shortlist=EVERYTHING)
    with pytest.raises(InputError, match=r"^search\.shortlist: the model has no lexicon"):
        Translator(model(), Letters(), made, (PAD, BOS, EOS)).translate(LINES)


@pytest.fixture
def folder(home, tmp_path, monkeypatch):
    """A working directory with a run to be changed."""
    shutil.copytree(home / "runs" / "first", tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_text(run, text):
    """Let the text of a run be nowhere."""
    rewrite(run / "config.yaml", lambda config: config.replace(str(text), "/nowhere"))


@pytest.mark.medium
def test_a_run_learns_its_lexicon_from_its_text_once_and_keeps_it(folder, text):
    sources = ["the dog sees the cat", "the wolf likes the bear"]
    whole = open_run("first").translator.nbest(sources, 5)
    search = {"shortlist": {"frequent": 320, "per_piece": 10}}
    assert not (folder / "first" / "lexicon.npz").exists()
    learned = open_run("first", search=search).translator
    without_text(folder / "first", text)
    kept = open_run("first", search=search).translator
    for translator in (learned, kept):
        found = translator.nbest(sources, 5)
        assert [[text for text, _ in each] for each in found] == [[text for text, _ in each] for each in whole]
    assert (learned.lexicon.translations == kept.lexicon.translations).all()
    assert learned.lexicon.shared == kept.lexicon.shared


@pytest.mark.medium
def test_a_damaged_lexicon_is_one_line(folder):
    search = {"shortlist": {"frequent": 30, "per_piece": 10}}
    lexicon = open_run("first", search=search).translator.lexicon
    path = folder / "first" / "lexicon.npz"
    whole = {"translations": lexicon.translations, "frequent": lexicon.frequent}
    for name, change in {
        "translations": lambda array: array + 1000,
        "frequent": lambda array: array[1:],
        "other": lambda array: array,
    }.items():
        np.savez(path, **{**whole, name: change(whole.get(name, lexicon.frequent))})
        with pytest.raises(InputError, match=r"first/lexicon\.npz: not the lexicon of this run; remove it"):
            open_run("first", search=search)
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match=r"first/lexicon\.npz: not readable"):
        open_run("first", search=search)


def test_a_run_without_lexicon_and_text_says_so(folder, text):
    without_text(folder / "first", text)
    with pytest.raises(InputError, match=r"^search\.shortlist: first has no lexicon\.npz, which is learned from its"):
        open_run("first", search={"shortlist": {"frequent": 30, "per_piece": 10}})


@pytest.mark.medium
def test_a_training_with_a_shortlist_keeps_a_lexicon_and_scores_with_it(tiny, tmp_path):
    chosen = "search.shortlist={frequent:30,per_piece:10}"
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "lexicon.npz").write_bytes(b"of a run that was there before")
    completed("train", *tiny, "steps=4", chosen, "hydra.run.dir=listed", cwd=tmp_path)
    settings = open_run(tmp_path / "listed").translator.search.settings
    assert settings["shortlist"] == {"frequent": 30, "per_piece": 10}


@pytest.mark.medium
def test_an_evaluation_with_a_shortlist_leaves_the_figures_of_a_run(folder):
    before = (folder / "first" / "metrics.json").read_bytes()
    done = completed("evaluate", "run=first", "search.shortlist={frequent:30,per_piece:10}", cwd=folder)
    assert "its metrics.json is left as it is" in done.out
    assert (folder / "first" / "metrics.json").read_bytes() == before
    (line,) = refused("evaluate", "run=first", "search.shortlist=30", cwd=folder)
    assert line.endswith("search.shortlist=30: must be names with values, {name: value} or null")
