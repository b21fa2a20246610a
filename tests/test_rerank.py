"""N-best reranking: the features, the weights by BLEU of validation, and what the command writes and refuses."""

import shutil

import numpy as np
import pytest
from conftest import completed, failed, refused, snapshot

from headcount.data.corpora.text import read_lines
from headcount.errors import InputError
from headcount.evaluation.metrics import METRICS
from headcount.evaluation.reranking import GRID, BleuCounts, Features, at_the_edge, choose_weights
from headcount.run.opened import open_run
from headcount.run.rerank import Reranker

REFERENCES = ["the old doctor sleeps in the green garden", "a tired dog eats the small apple", "she reads"]
TEXTS = [
    ["the old doctor sleeps", "the old doctor sleeps in a garden", "the doctor sleeps in the green garden now"],
    ["a dog eats the apple", "a tired dog eats the small apple"],
    ["she reads"],
]


def test_bleu_of_a_choice_is_that_of_sacrebleu():
    counts = BleuCounts(TEXTS, REFERENCES, "13a")
    for choice in ([0, 0, 0], [1, 0, 0], [2, 1, 0]):
        lines = [texts[index] for texts, index in zip(TEXTS, choice, strict=True)]
        assert counts.score(choice) == pytest.approx(METRICS["bleu"].score(lines, REFERENCES, "13a").value, abs=1e-9)
    assert counts.oracle() == [2, 1, 0]


def features(backward: bool = True) -> Features:
    forward = [np.array([-1.0, -2.0, -3.0]), np.array([-1.0, -1.5]), np.array([-1.0])]
    back = [np.array([-9.0, -4.0, -1.0]), np.array([-2.0, -1.0]), np.array([-1.0])]
    return Features(forward, back if backward else None, [np.array([5, 8, 9]), np.array([6, 8]), np.array([3])])


def test_the_best_has_the_greatest_weighted_sum():
    assert features().best({"backward": 0.0, "length": 0.0}) == [0, 0, 0]
    assert features().best({"backward": 0.3, "length": 0.0}) == [1, 0, 0]
    assert features().best({"backward": 0.5, "length": 0.0}) == [2, 0, 0]  # of equals the first
    assert features().best({"backward": 0.6, "length": 0.0}) == [2, 1, 0]
    assert features(backward=False).best({"length": 0.3}) == [0, 1, 0]


def test_the_weights_are_the_smallest_with_the_highest_bleu():
    counts = BleuCounts(TEXTS, REFERENCES, "13a")
    chosen = choose_weights(features(), counts, {})
    given, scores = features(), {}
    for backward in GRID["backward"]:  # a plain grid, by sacrebleu
        for length in GRID["length"]:
            lines = []
            for number, texts in enumerate(TEXTS):
                sums = [
                    given.forward[number][each]
                    + backward * given.backward[number][each]
                    + length * given.length[number][each]
                    for each in range(len(texts))
                ]
                lines.append(texts[sums.index(max(sums))])
            scores[backward, length] = round(METRICS["bleu"].score(lines, REFERENCES, "13a").value, 9)
    best = [pair for pair, score in scores.items() if score == max(scores.values())]
    assert (chosen["backward"], chosen["length"]) == (0.3, 0.2) == min(best, key=lambda pair: sum(map(abs, pair)))
    assert choose_weights(features(), counts, {"length": 0.0}) == {"backward": 0.6, "length": 0.0}
    assert choose_weights(features(backward=False), counts, {}).keys() == {"length"}
    assert at_the_edge({"backward": 0.0, "length": GRID["length"][-1]}) == ["length"]


@pytest.fixture(scope="module")
def back(home, tiny, tmp_path_factory):
    """A run of the other direction."""
    turned = (*tiny, "data.source=de", "data.target=en", "steps=100", "validation.every=100")
    folder = tmp_path_factory.mktemp("back")
    completed("train", *turned, "model.d_model=32", f"hydra.run.dir={folder / 'run'}", cwd=home)
    return folder / "run"


@pytest.mark.medium
def test_translations_are_chosen_by_the_scores_of_both_directions(home, text, back, tmp_path):
    before = snapshot(home / "runs")
    given = ("weights.backward=0.7", "weights.length=0.4", "nbest=4", f"output={tmp_path / 'out.de'}")
    shown = completed("rerank", "run=runs/first", f"by={back}", *given, "moses=true", cwd=home).out
    forward, backward = open_run(home / "runs/first", search={"beam": 4}), open_run(back)
    sources = read_lines(text / "test.en")
    expected = []
    for source, found in zip(sources, forward.translator.nbest(sources, 4), strict=True):
        texts = [translation.text for translation in found]
        there, tokens = forward.scorer.score([source] * len(texts), texts)
        again, _ = backward.scorer.score(texts, [source] * len(texts))
        sums = np.array(there) + 0.7 * np.array(again) + 0.4 * np.array(tokens)
        expected.append(texts[int(sums.argmax())])
    assert read_lines(tmp_path / "out.de") == expected
    bleu = METRICS["bleu"].score(expected, read_lines(text / "test.de"), "13a").value
    (row,) = (line for line in shown.splitlines() if line.startswith("reranked ") and "±" not in line)
    assert float(row.split()[1]) == pytest.approx(bleu, abs=0.006)
    assert "given" in shown
    assert "Moses" in shown
    assert snapshot(home / "runs") == before


@pytest.mark.medium
def test_a_run_that_scores_has_its_own_weights_and_no_search(home, back, tmp_path):
    last = shutil.copy(home / "runs/second/model.safetensors", tmp_path / "second.safetensors")
    own = ("run=runs/second", f"by={back}", "nbest=3")
    plain, given = (completed("rerank", *own, *more, cwd=home).out for more in ((), (f"checkpoint={last}",)))
    assert plain == given


@pytest.mark.medium
def test_weights_of_a_run_of_both_directions_are_chosen_on_its_own(home, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "both"
    both = ("data.both_directions=true", "steps=2", "validation.every=2")
    completed("train", *tiny, *both, f"hydra.run.dir={folder}", cwd=home)
    sizes = []

    def candidates(reranker, sources, name):
        sizes.append((name, len(sources)))
        raise InputError("seen")

    monkeypatch.setattr(Reranker, "candidates", candidates)
    failed("rerank", f"run={folder}", cwd=home)
    data = open_run(folder).data()
    assert sizes == [("valid", len(data.data["valid"]) // 2)]
    assert [len(data.one_way[split]) for split in ("valid", "test")] == [sizes[0][1], len(data.data["test"])]


@pytest.mark.medium
def test_weights_are_chosen_on_validation_for_a_text_of_your_own(home, text, back, tmp_path):
    (tmp_path / "my.en").write_text((text / "test.en").read_text() + "\n")
    options = ("run=[runs/first,runs/second]", f"by=[{back}]", "nbest=3")
    out = completed("rerank", *options, f"input={tmp_path / 'my.en'}", f"output={tmp_path / 'my.de'}", cwd=home).out
    assert "by BLEU of valid, between 0.0 and 1.5" in out
    lines = read_lines(tmp_path / "my.de")
    assert lines[-1] == ""
    assert len(lines) == len(read_lines(text / "test.en")) + 1
    (tmp_path / "link.de").symlink_to(tmp_path / "test.de")
    completed("rerank", *options, f"output={tmp_path / 'link.de'}", cwd=home)
    assert (tmp_path / "link.de").is_symlink()
    assert read_lines(tmp_path / "test.de") == lines[:-1]


@pytest.mark.medium
def test_a_text_of_your_own_with_given_weights_needs_no_corpus(home, back, text, tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.run.rerank.splits_of", lambda *_, **__: pytest.fail("the corpus is read"))
    options = ("weights.length=0.4", "weights.backward=0.7", f"by={back}", f"output={tmp_path / 'my.de'}")
    completed("rerank", "run=runs/first", "nbest=3", f"input={text / 'test.en'}", *options, cwd=home)
    assert len(read_lines(tmp_path / "my.de")) == len(read_lines(text / "test.en"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nbest=1"], "nbest=1: must be a whole number above 1"),
        (["weights.backward=0.5"], "weights.backward=0.5: no run of by= translates de to en"),
        (["weights.length=much"], "weights.length=much: must be a number"),
        (["weights.length=nan"], "weights.length=nan: must be a number"),
        (["+weights.other=1"], "weights.other=1: there are backward, length"),
        (["input=my.en"], "input=my.en: must be a file of sentences, and goes with output=FILE"),
        (["split=train"], "split=train: must be test or valid"),
        (["split=[valid,test]", "output=x.de"], "output=x.de: goes with one split"),
        (["search.beam=2", "nbest=3"], "nbest=3"),
        (["by=runs/nothing"], "runs/nothing"),
    ],
)
def test_what_cannot_be_done_is_refused(home, options, words):
    (line,) = refused("rerank", "run=runs/first", *options, cwd=home)
    assert line.startswith(words)
