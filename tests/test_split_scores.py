"""Scores of a split: the tokens that BLEU counts, and the figures kept of each sentence."""

import csv
import json
import shutil

import numpy as np
import pytest
import yaml
from conftest import TINY, command, completed, failed, refused
from datasets import Dataset
from sacrebleu.metrics.bleu import BLEU

from headcount.evaluation.likelihood import TargetScorer
from headcount.run.directory import locked
from headcount.run.opened import Run, open_run
from headcount.run.split_scores import evaluate_split
from headcount.run.tables import contrastive_table


@pytest.fixture
def run(home) -> Run:
    return open_run(home / "runs" / "first")


def rows(*contrasts: str) -> Dataset:
    columns = {
        "source": ["the dog sees the cat", "the bear likes the wolf", "the wolf hears the dog"],
        "target": ["der Hund sieht den Kater", "der Bär mag den Wolf", "der Wolf hört den Hund"],
        "contrast": list(contrasts),
        "phenomenon": ["plain" if not contrast else "order" for contrast in contrasts],
        "grade": ["easy"] * 3,
    }
    return Dataset.from_dict(columns)


@pytest.mark.medium
def test_figures_are_kept_of_the_weights_that_are_there_and_while_nobody_trains(home, tmp_path, monkeypatch):
    run = shutil.copytree(home / "runs" / "first", tmp_path / "run")
    with locked(run):
        (line,) = refused("evaluate", "run=run", cwd=tmp_path)
    assert line == "run: another process is training into it; wait until it has ended"

    def score(*given):
        shutil.copy(home / "runs" / "second" / "model.safetensors", run / "model.safetensors")
        return evaluate_split(*given)

    with monkeypatch.context() as patch:
        patch.setattr("headcount.run.evaluate.os.access", lambda path, way: False)
        (line,) = refused("evaluate", "run=run", cwd=tmp_path)
    assert line == "run: can't be written to, and figures of a run are kept there; other_text=true keeps none"
    before = (run / "metrics.json").read_bytes()
    monkeypatch.setattr("headcount.run.evaluate.evaluate_split", score)
    (line,) = failed("evaluate", "run=run", cwd=tmp_path)
    assert line == "run: has been trained on since it was opened; evaluate it again"
    assert (run / "metrics.json").read_bytes() == before


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
    assert f"{own.ratio:.3f}" in printed


@pytest.mark.medium
def test_a_dictionary_that_is_not_installed_is_missed_before_any_data_is_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    monkeypatch.setattr("headcount.data.module.TranslationData.prepare_data", None)  # it would not come to that
    (line,) = refused("train", *tiny, "data.target=ja", cwd=tmp_path)
    assert 'pip install "sacrebleu[ja]"' in line


@pytest.mark.medium
def test_runs_that_count_bleu_in_other_tokens_are_not_put_in_one_table(home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs", symlinks=True)
    config = tmp_path / "runs" / "second" / "config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"bleu_tokenizer": "char"}))
    before = (tmp_path / "runs" / "second" / "metrics.json").read_bytes()
    both = ("evaluate", "run=[runs/first,runs/second]")
    for more in ((), ("ensemble=true",)):
        (line,) = refused(*both, *more, cwd=tmp_path)
        assert "runs/first counts BLEU in the tokens of 13a, runs/second in those of char" in line
    alike = completed(*both, "bleu_tokenizer=intl", cwd=tmp_path)
    assert alike.out.count("tok:") == alike.out.count("tok:intl") == 2
    assert "its metrics.json is left as it is" in alike.out
    assert (tmp_path / "runs" / "second" / "metrics.json").read_bytes() == before


@pytest.mark.medium
def test_the_counts_kept_of_each_sentence_add_up_to_the_figures(run, tmp_path):
    found = evaluate_split(run, rows("", "der Wolf mag den Bär", "den Hund hört der Wolf"), "13a")
    arrays = found.arrays
    assert arrays["row"].tolist() == [1, 2]
    assert found.figures["loss"] == pytest.approx(-arrays["log_prob"].sum() / arrays["tokens"].sum())
    scorer = TargetScorer(run.model, run.tokenizer.encode, run.tokenizer.encode)
    for name, target in {"right": "der Bär mag den Wolf", "wrong": "der Wolf mag den Bär"}.items():
        ((log_prob,), _) = scorer.score(["the bear likes the wolf"], [target])
        assert arrays[name][0] == pytest.approx(log_prob, abs=1e-4)
    accuracy = 100 * (arrays["right"] > arrays["wrong"]).mean()
    assert found.figures["contrastive"] == {"order": {"easy": {"accuracy": accuracy, "pairs": 2}}}


def test_the_likelihoods_of_a_run_are_beside_its_translations(home):
    directory = home / "runs" / "first"
    figures = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    for split in ("valid", "test"):
        with np.load(directory / f"{split}.pairs.npz") as arrays:
            assert set(arrays) == {"log_prob", "tokens", "row", "phenomenon", "right", "wrong"}
            assert figures[split]["loss"] == pytest.approx(-arrays["log_prob"].sum() / arrays["tokens"].sum())
            assert len(arrays["log_prob"]) == len((directory / f"{split}.ref.de").read_text("utf-8").splitlines())
            assert len(arrays["row"]) == len(arrays["right"]) == len(arrays["wrong"]) == 0


def test_a_corpus_with_contrasts_of_which_a_split_has_none_is_scored_without(run):
    found = evaluate_split(run, rows("", "", ""), "13a")
    assert "contrastive" not in found.figures
    assert found.figures["loss"] > 0


def test_only_runs_with_contrasts_are_in_their_table():
    wins = {"order": {"easy": {"accuracy": 75.0, "pairs": 4}}}
    table = contrastive_table({"one": {}, "other": {"contrastive": wins}})
    assert "one" not in table.splitlines()[2].split()
    assert "75.0" in table
