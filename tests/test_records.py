"""Records of time to quality."""

import json

import pytest
import records


def runs(scores):
    machine = {"processor": "two cores", "threads": 2, "gpu": None}
    own = {"seconds": 100.0, "tokens": 1_000_000, "machine": machine}
    return [{"bleu": each, "seed": seed, **own} for seed, each in enumerate(scores)]


def test_a_record_stands_if_its_mean_is_surely_above_the_mark():
    sure = records.judged(90, runs([90.5, 90.6, 90.4, 90.7, 90.5]), plain=5000)
    assert sure["stands"]
    assert sure["bleu"] == 90.54
    assert (sure["plain_seconds"], sure["ratio"]) == (200, 0.5)
    assert not records.judged(90, runs([90.5, 90.51]), plain=5000)["stands"]
    assert not records.judged(90, runs([91, 89, 92, 90.5, 90]), plain=5000)["stands"]
    assert not records.judged(90, runs([89.5, 89.6, 89.4, 89.7, 89.5]), plain=5000)["stands"]


@pytest.mark.medium
def test_a_run_is_timed_to_its_weights_and_its_record_is_a_row_of_the_page(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "RECORDS", tmp_path / "records")
    record = records.RECORDS / "mine"
    record.mkdir(parents=True)
    (run,) = (records.trained(seed, list(tiny), record) for seed in (7,))
    assert run["seconds"] > 0
    assert run["tokens"] > 0
    assert "step" in (record / "seed_7.log").read_text(encoding="utf-8")
    found = records.judged(39.5, [run, run | {"bleu": run["bleu"] + 1}], plain=1000)
    built_in = records.RECORDS / "built_in"
    built_in.mkdir()
    (built_in / "config.yaml").write_text("data: {kind: grammar}\n", encoding="utf-8")  # it names no languages
    for folder in (record, built_in):
        (folder / "record.json").write_text(json.dumps(found), encoding="utf-8")
    text = records.page()
    assert "multi30k, en to de, 39.5 BLEU | [mine](results/records/mine/record.json)" in text
    assert "built-in corpus, en to de, 39.5 BLEU" in text
