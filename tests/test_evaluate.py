"""Evaluation: figures kept of each sentence, given translations, reranking, an ensemble, and what is refused."""

import csv
import json
import math
import shutil

import numpy as np
import pytest
import yaml
from conftest import TINY, command, completed, refused, snapshot
from datasets import Dataset
from sacrebleu.metrics.bleu import BLEU

from headcount.data.corpora.text import read_lines
from headcount.evaluation.likelihood import TargetScorer
from headcount.evaluation.metrics import METRICS
from headcount.evaluation.reranking import Features, at_the_edge, choose_weights
from headcount.run.directory import locked
from headcount.run.opened import Run, open_run
from headcount.run.scores import contrastive_table, evaluate_split


@pytest.fixture
def run(home) -> Run:
    return open_run(home / "runs" / "first")


@pytest.fixture
def folder(home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs", symlinks=True)
    return tmp_path


@pytest.mark.medium
def test_figures_are_not_kept_while_another_process_trains(folder):
    with locked(folder / "runs/first"):
        (line,) = refused("evaluate", "run=runs/first", cwd=folder)
    assert line == "runs/first: another process is training into it; wait until it has ended"


@pytest.mark.medium
def test_a_language_without_spaces_is_scored_by_characters_from_validation_to_evaluation(chinese, tmp_path):
    text = (f"data.root={chinese}", "data.target=zh", "data.directory=prepared")
    learn = ("steps=30", "validation.every=30", "model.d_model=32", "hydra.run.dir=run")
    completed("train", *TINY, *text, *learn, cwd=tmp_path)
    run = tmp_path / "run"
    figures = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    hypotheses, references = ((run / f"test.{kind}.zh").read_text("utf-8").splitlines() for kind in ("hyp", "ref"))
    own = BLEU(trg_lang="zh").corpus_score(hypotheses, [references])
    assert figures["test"]["bleu"] == pytest.approx(own.score)
    assert figures["test"]["length_ratio"] == pytest.approx(own.sys_len / own.ref_len)
    assert all("tok:zh" in figures[split]["signature"]["bleu"] for split in ("valid", "test"))
    (curve,) = [row for row in csv.DictReader((run / "logs" / "metrics.csv").open()) if row["valid/bleu"]]
    assert float(curve["valid/bleu"]) > 1  # in words there is no match of order 4
    printed = command("evaluate", "run=run", "lowercase=true", cwd=tmp_path).out
    assert (printed.count("tok:zh"), printed.count("tok:")) == (2, 2)
    assert f"{own.score:.2f}  " in printed


@pytest.mark.medium
def test_a_dictionary_that_is_not_installed_is_missed_before_any_data_is_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    monkeypatch.setattr("headcount.data.module.TranslationData.prepare_data", None)  # it would not come to that
    (line,) = refused("train", *tiny, "data.target=ja", cwd=tmp_path)
    assert 'pip install "sacrebleu[ja]"' in line


@pytest.mark.medium
def test_runs_that_count_bleu_in_other_tokens_are_not_put_in_one_table(folder):
    config = folder / "runs" / "second" / "config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"bleu_tokenizer": "char"}))
    before = (folder / "runs" / "second" / "metrics.json").read_bytes()
    both = ("evaluate", "run=[runs/first,runs/second]")
    (line,) = refused(*both, cwd=folder)
    assert "runs/first in those of 13a, runs/second in those of char" in line
    alike = completed(*both, "bleu_tokenizer=intl", cwd=folder)
    assert alike.out.count("tok:") == alike.out.count("tok:intl") == 2
    assert "no metrics.json was changed" in alike.out
    assert (folder / "runs" / "second" / "metrics.json").read_bytes() == before


CONTRASTS = ["", "der Wolf mag den Bär", "den Hund hört der Wolf"]


@pytest.mark.medium
@pytest.mark.parametrize("contrasts", [CONTRASTS, ["", "", ""]])
def test_the_counts_kept_of_each_sentence_add_up_to_the_figures(contrasts, run):
    sources = ["the dog sees the cat", "the bear likes the wolf", "the wolf hears the dog"]
    targets = ["der Hund sieht den Kater", "der Bär mag den Wolf", "der Wolf hört den Hund"]
    phenomena = ["order" if contrast else "plain" for contrast in contrasts]
    columns = {"source": sources, "target": targets, "contrast": contrasts, "phenomenon": phenomena, "grade": ["a"] * 3}
    found = evaluate_split(run, Dataset.from_dict(columns), "13a")
    arrays = found.arrays
    assert found.figures["loss"] == pytest.approx(-arrays["log_prob"].sum() / arrays["tokens"].sum())
    assert arrays["row"].tolist() == ([1, 2] if any(contrasts) else [])
    assert ("contrastive" in found.figures) == any(contrasts)
    if any(contrasts):
        scorer = TargetScorer(run.model, run.tokenizer.encode, run.tokenizer.encode)
        for name, target in {"right": targets[1], "wrong": contrasts[1]}.items():
            ((log_prob,), _) = scorer.score(sources[1:2], [target])
            assert arrays[name][0] == pytest.approx(log_prob, abs=1e-4)
        accuracy = 100 * (arrays["right"] > arrays["wrong"]).mean()
        assert found.figures["contrastive"] == {"order": {"a": {"accuracy": accuracy, "pairs": 2}}}


def test_only_runs_with_contrasts_are_in_their_table():
    wins = {"order": {"easy": {"accuracy": 75.0, "pairs": 4}}}
    table = contrastive_table({"one": {}, "other": {"contrastive": wins}})
    assert "one" not in table.splitlines()[2].split()
    assert "75.0" in table


@pytest.mark.medium
def test_another_search_or_an_ensemble_leaves_the_runs_as_they_are(folder):
    before = snapshot(folder)
    sampled = completed("evaluate", "run=runs/first", "search=mbr", "search.samples=4", cwd=folder)
    assert "no metrics.json was changed" in sampled.out
    both = ("run=[runs/first,runs/second]",)
    (folder / "link.de").symlink_to(folder / "both.de")
    shown = completed("evaluate", *both, "ensemble=true", "moses=true", "output=link.de", cwd=folder).out
    assert all(words in shown for words in ("runs/first + runs/second", "Moses tokens", "translations: link.de"))
    after = snapshot(folder)
    assert {name: after.pop(name) for name in before} == before
    assert {name for name in after if after[name]} == {"both.de"}
    sources = "".join(f"{line}\n" for line in open_run(folder / "runs/first").data().data["test"]["source"])
    filtered = command("translate", *both, stdin=sources.encode(), cwd=folder).out  # the same as the filter gives
    assert (folder / "both.de").read_text(encoding="utf-8") == filtered


@pytest.mark.medium
def test_given_translations_have_a_line_each_and_a_summary_and_the_score_that_search_gave(folder):
    searched = ("run=runs/first", "search=beam", "search.alpha=0", "nbest=1")
    _, text, value = command("translate", *searched, stdin=b"the dog", cwd=folder).out.rstrip("\n").split(" ||| ")
    targets = [text, "der Hund", "der Bär", ""]
    for name, lines in {"a.en": ["the dog", "the bear likes the wolf", "", "the dog"], "a.de": targets}.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    result = completed("evaluate", "run=runs/first", "input=a.en", "hypotheses=a.de", cwd=folder)
    rows = [list(map(float, line.split("\t"))) for line in result.out.splitlines()]
    tokens = [len(ids) + 1 for ids in open_run(folder / "runs" / "first").tokenizer.encode(targets)]
    assert [row[1] for row in rows] == tokens
    assert rows[0][0] == pytest.approx(float(value), abs=1e-3)
    for log_prob, count, perplexity in rows:
        assert perplexity == pytest.approx(math.exp(-log_prob / count), rel=1e-3)
    (summary,) = result.errors
    whole = sum(row[0] for row in rows)
    assert summary.startswith(f"4 pairs, {sum(tokens)} tokens: log-probability ")
    assert float(summary.split()[5]) == pytest.approx(whole, abs=1e-3)
    assert float(summary.split()[-1]) == pytest.approx(math.exp(-whole / sum(tokens)), rel=1e-3)


REFERENCES = ["the old doctor sleeps in the green garden", "a tired dog eats the small apple", "she reads"]
LISTS = [
    ["the old doctor sleeps", "the old doctor sleeps in a garden", "the doctor sleeps in the green garden now"],
    ["a dog eats the apple", "a tired dog eats the small apple"],
    ["she reads"],
]


def test_the_weights_are_the_smallest_with_the_highest_bleu():
    forward = [np.array([-1.0, -2.0, -3.0]), np.array([-1.0, -1.5]), np.array([-1.0])]
    back = [np.array([-9.0, -4.0, -1.0]), np.array([-2.0, -1.0]), np.array([-1.0])]
    lengths = [np.array([5, 8, 9]), np.array([6, 8]), np.array([3])]
    features, alone = Features(forward, back, lengths), Features(forward, None, lengths)
    assert features.best({"backward": 0.3, "length": 0.0}) == [1, 0, 0]
    assert features.best({"backward": 0.5, "length": 0.0}) == [2, 0, 0]  # of equals the first
    assert alone.best({"length": 0.3}) == [0, 1, 0]

    def score(choice):
        lines = [texts[index] for texts, index in zip(LISTS, choice, strict=True)]
        return METRICS["bleu"].score(lines, REFERENCES, "13a").value

    assert choose_weights(features, score, {}) == {"backward": 0.3, "length": 0.2}
    assert choose_weights(features, score, {"length": 0.0}) == {"backward": 0.6, "length": 0.0}
    assert choose_weights(alone, score, {}).keys() == {"length"}
    assert at_the_edge({"backward": 0.0, "length": 2.0}) == ["length"]


@pytest.mark.medium
def test_translations_are_chosen_by_the_scores_of_both_directions(home, text, tiny, tmp_path):
    turned = (*tiny, "data.source=de", "data.target=en", "steps=100", "validation.every=100")
    completed("train", *turned, "model.d_model=32", f"hydra.run.dir={tmp_path / 'back'}", cwd=home)
    before, back = snapshot(home / "runs"), f"rerank={tmp_path / 'back'}"
    given = ("weights.backward=0.7", "weights.length=0.4", "nbest=4")
    shown = completed("evaluate", "run=runs/first", back, *given, f"output={tmp_path / 'out.de'}", cwd=home).out
    forward, backward = open_run(home / "runs/first", search={"beam": 4}), open_run(tmp_path / "back")
    sources, expected = read_lines(text / "test.en"), []
    for source, found in zip(sources, forward.translator.nbest(sources, 4), strict=True):
        texts = [translation.text for translation in found]
        there, tokens = forward.scorer.score([source] * len(texts), texts)
        again, _ = backward.scorer.score(texts, [source] * len(texts))
        expected.append(texts[int((np.array(there) + 0.7 * np.array(again) + 0.4 * np.array(tokens)).argmax())])
    assert read_lines(tmp_path / "out.de") == expected
    bleu = METRICS["bleu"].score(expected, read_lines(text / "test.de"), "13a").value
    (row,) = (line for line in shown.splitlines() if line.startswith("reranked ") and "±" not in line)
    assert float(row.split()[1]) == pytest.approx(bleu, abs=0.006)
    assert shown.startswith("weights: forward 1, backward 0.70 (given), length 0.40 (given)\n")
    # A text of one's own, by an ensemble, with weights chosen on validation.
    own = ("run=[runs/first,runs/second]", f"input={text / 'test.en'}", "nbest=3", f"output={tmp_path / 'my.de'}")
    chosen = completed("evaluate", *own, back, cwd=home).out
    assert "by BLEU of valid, from 0.0 to 1.5" in chosen
    assert len(read_lines(tmp_path / "my.de")) == len(sources)
    assert snapshot(home / "runs") == before


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run=[runs/first,runs/second]", "output=x.de"], "output=x.de: goes with one split, and with one run or"),
        (["output=nowhere/x.de"], "output=nowhere/x.de: must be a file in a folder that exists"),
        (["rerank=[]", "nbest=1"], "nbest=1: must be greater than or equal to 2"),
        (["rerank=[]", "weights.backward=0.5"], "weights.backward: no run of rerank= translates backwards"),
        (["rerank=[]", "search.beam=2", "nbest=3"], "nbest=3"),
        (["rerank=[]", "input=x"], "input= and reference= go together"),
        (["hypotheses=x"], "hypotheses=: goes with input="),
        (["input=runs/first/test.hyp.de", "hypotheses=runs/first/config.yaml"], "runs/first/test.hyp.de has "),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, line, folder):
    run = [] if arguments[0].startswith("run=") else ["run=runs/first"]
    (found,) = refused("evaluate", *run, *arguments, cwd=folder)
    assert found.startswith(line)
