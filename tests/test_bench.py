"""Benchmark: its rounds, its table, and a small measurement by its driver."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "scripts" / "bench"
sys.path.insert(0, str(BENCH))
import run as bench  # noqa: E402

SMALL = "data.train_size=300 data.valid_size=8 data.test_size=16 tokenizer.vocab_size=500 schedule.warmup_steps=1"
SETTINGS = f"model=nano model.d_model=16 model.d_feed_forward=16 data.batch_tokens=256 optimizer=adamw {SMALL}"


def lines(work: str, **figures: list[float]) -> list[dict]:
    return [
        {"system": name, "precision": "float32", "work": work, "unit": "tokens/s", "figure": figure, "memory": 1234}
        for name, rounds in figures.items()
        for figure in rounds
    ]


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_a_table_has_medians_spreads_and_ratios():
    header, _, *rows = cells(bench.table(lines("train", headcount=[100, 120, 110], loop=[50, 40, 60])))
    assert header == ["", "precision", "tokens/s", "spread", "memory, MiB", "headcount is"]
    assert rows[0] == ["headcount", "float32", "110.0", "100.0 to 120.0", "1,234", ""]
    assert rows[1] == ["loop", "float32", "50.0", "40.0 to 60.0", "1,234", "2.20 x"]


def test_the_time_of_a_row_is_of_rounds_so_a_slow_machine_does_not_matter():
    first = [100.0, 20, 55, 80]
    other = [rate / time for rate, time in zip(first, (1.1, 1.2, 1.1, 1.2), strict=True)]
    *_, one, two = cells(bench.table(lines("rows", one=first, two=other)))
    assert (one[-1], two[-1].split()[0]) == ("1.000", "1.149")  # the geometric mean
    low, high = json.loads(two[-1].split(maxsplit=1)[1])
    assert 1.05 < low < 1.1 < 1.2 < high < 1.25


def driver(folder: Path, *options: str) -> subprocess.CompletedProcess:
    code = [sys.executable, str(BENCH / "run.py"), *options, "--precision", "float32", "--rounds", "1"]
    small = ["--threads", "1", "--steps", "3", "--seconds", "0", "--settings", SETTINGS]
    return subprocess.run([*code, *small], cwd=folder, capture_output=True, text=True)


@pytest.mark.medium
def test_headcount_and_a_plain_loop_are_measured_with_the_same_batches(tmp_path):
    ended = driver(tmp_path, "--work", "train", "--peers", "torch_loop")
    assert ended.returncode == 0, ended.stderr
    measured = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [(line["system"], line["unit"]) for line in measured] == [
        ("headcount", "tokens/s"),
        ("torch_loop", "tokens/s"),
    ]
    assert all(line["figure"] > 0 and line["memory"] > 100 for line in measured)  # torch alone takes more
    assert "| torch_loop |" in ended.stdout


@pytest.mark.medium
def test_a_run_is_translated_by_its_own_search_and_by_ctranslate2(tmp_path, home):
    pytest.importorskip("ctranslate2")
    run = home / "runs" / "first"
    ended = driver(tmp_path, "--work", "translate", "--peers", "ctranslate2", "--run", str(run), "--beam", "2")
    assert ended.returncode == 0, ended.stderr
    measured = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [line["precision"] for line in measured] == ["float32", "float32", "int8"]
    assert all(line["figure"] > 0 and 0 <= line["bleu"] <= 100 for line in measured)
    assert measured[0]["same"] == len((run / "test.hyp.de").read_text().splitlines())
