"""Data diversification: originals first, each pair once with its provenance, resumed by run, and trained on."""

import json

import pytest
from conftest import completed, refused, snapshot

from headcount.run.diversify import DistinctPairs
from headcount.run.opened import open_run


@pytest.fixture
def folder(home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    return tmp_path


def rows(path) -> list[tuple[str, str, str]]:
    return [tuple(json.loads(line).values()) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.medium
def test_originals_come_first_and_each_translation_names_its_run(folder, text, tiny):
    both = "run=[runs/first,runs/second]"
    out = completed("diversify", both, "search.beam=1", "out=new", cwd=folder).out
    sources, targets = ((text / f"train.{language}").read_text().splitlines() for language in ("en", "de"))
    found, names = rows(folder / "new/train.jsonl"), ("runs/first", "runs/second")
    assert [row[:2] for row in found if row[2] == "original"] == list(zip(sources, targets, strict=True))
    assert sorted(found, key=lambda row: ("original", *names).index(row[2])) == found
    assert len({row[:2] for row in found}) == len(found)
    expected = dict.fromkeys(zip(sources, targets, strict=True))
    for name in names:
        lines = open_run(folder / name, search={"beam": 1}).translator.translate(sources)
        expected |= dict.fromkeys(pair for pair in zip(sources, lines, strict=True) if all(pair))
    assert [row[:2] for row in found] == list(expected)
    for split in ("valid", "test"):
        references = (text / f"{split}.de").read_text().splitlines()
        assert [row[1] for row in rows(folder / f"new/{split}.jsonl")] == references
    assert f"{len(found):,} pairs in new/train.jsonl" in out
    command = out.splitlines()[-1].split("headcount train ")[1].split()
    given = [option for option in tiny if not option.startswith(("data=", "data.root"))]
    completed("train", *command, *given, "steps=1", "hydra.run.dir=trained", cwd=folder)
    assert len((folder / "trained/test.hyp.de").read_text().splitlines()) == len(rows(folder / "new/test.jsonl"))


@pytest.mark.medium
def test_finished_runs_are_not_translated_again(folder, monkeypatch):
    completed("diversify", "run=runs/second", "search.beam=1", "out=new", cwd=folder)
    (kept,) = (folder / "new/translations").iterdir()
    kept.write_text("".join(f"{number}\n" for number, _ in enumerate(kept.read_text().splitlines())))
    completed("diversify", "run=runs/second", "search.beam=1", "original=false", "out=new", cwd=folder)
    assert [row[1] for row in rows(folder / "new/train.jsonl")] == [str(number) for number in range(140)]
    completed("diversify", "run=runs/second", "search.beam=2", "out=new", cwd=folder)  # another search
    completed("diversify", "run=runs/second", "search.beam=2", "precision=bfloat16", "out=new", cwd=folder)
    assert len(list((folder / "new/translations").iterdir())) == 3


@pytest.mark.medium
def test_a_run_of_the_other_direction_translates_targets(folder, tiny):
    turned = ("data.source=de", "data.target=en", "steps=2")
    completed("train", *tiny, *turned, "hydra.run.dir=back", cwd=folder)
    completed("diversify", "run=[runs/second,back]", "search.beam=1", "original=false", "out=new", cwd=folder)
    made = [row for row in rows(folder / "new/train.jsonl") if row[2] == "back"]
    targets = [row[1] for row in made]
    lines = open_run(folder / "back", search={"beam": 1}).translator.translate(targets)
    assert [row[0] for row in made] == lines


def test_pairs_are_counted():
    pairs = DistinctPairs()
    pairs.add("original", [("a", "b"), ("c", "d"), ("a", "b")])
    pairs.add("run", [("a", "b"), ("a", "e"), ("f", "")])
    assert pairs.counts == {
        "original": {"pairs": 3, "empty": 0, "duplicates": 1, "kept": 2},
        "run": {"pairs": 3, "empty": 1, "duplicates": 1, "kept": 1},
    }
    assert pairs.rows() == [("a", "b", "original"), ("c", "d", "original"), ("a", "e", "run")]


@pytest.mark.medium
def test_without_a_folder_nothing_is_written(folder):
    before = snapshot(folder)
    (line,) = refused("diversify", "run=runs/first", cwd=folder)
    assert line.startswith("out=null: must be a folder to write")
    assert snapshot(folder) == before
