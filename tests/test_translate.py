"""Translation on the command line: one run or an ensemble, n-best lists and searches."""

import contextlib
import os
import re
import shutil
from functools import partial

import conftest
import pytest
from built import sentence_piece, settings
from conftest import command, completed, rewrite, snapshot
from omegaconf import OmegaConf

from headcount.run.directory import read_config
from headcount.run.opened import open_run

SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


@pytest.fixture
def folder(home, tmp_path):
    """A folder with the run first, a second of the same corpus and one with another vocabulary."""
    shutil.copytree(home / "runs", tmp_path, dirs_exist_ok=True)
    return tmp_path


def translate(folder, *arguments, source=SOURCE):
    return command("translate", *arguments, stdin=source.encode(), cwd=folder)


def refused(folder, *arguments):
    (line,) = conftest.refused("translate", *arguments, stdin=SOURCE.encode(), cwd=folder)
    return line


def nbest(folder, *arguments):
    """Texts and scores of every line of an n-best list."""
    result = translate(folder, *arguments)
    assert (result.code, result.err) == (0, "")
    found: dict[int, list[tuple[str, float]]] = {}
    for line in result.out.splitlines():
        number, text, score = line.split(" ||| ")
        found.setdefault(int(number), []).append((text, float(score)))
    assert list(found) == [0, 1, 2]
    return found


@pytest.mark.medium
def test_an_nbest_list_is_in_the_format_of_moses(folder):
    found = nbest(folder, "run=first", "nbest=3")
    assert found[1] == [("", 0.0)]
    best = translate(folder, "run=first").out.splitlines()
    assert [translations[0][0] for translations in found.values()] == best
    for number in (0, 2):
        texts, scores = zip(*found[number], strict=True)
        assert 1 < len(set(texts)) == len(texts) <= 3
        assert list(scores) == sorted(scores, reverse=True)


@pytest.mark.medium
def test_line_numbers_go_on_where_the_input_is_long(folder, monkeypatch):
    monkeypatch.setattr("headcount.run.translate.LINES_AT_ONCE", 2)
    assert nbest(folder, "run=first", "nbest=2", "search.beam=2")[2]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["search=mbr", "search.samples=8"], 2),
        (["search=diverse", "search.diversity=1"], 3),
        (["search=sample", "search.samples=4", "search.temperature=0.7"], 4),
        (["search=beam", "search.beam=2"], 2),
        (["search=greedy"], 1),
    ],
)
def test_another_way_to_search(arguments, count, folder):
    found = nbest(folder, "run=first", *arguments, f"nbest={count}")
    assert all(1 <= len(translations) <= count for translations in found.values())
    if "search=sample" in arguments:
        assert [len(translations) for translations in found.values()] == [4, 1, 4]
    assert nbest(folder, "run=first", *arguments, f"nbest={count}") == found


WRONG = {
    "run=first nbest=6": "nbest=6: must be 1 up to search.beam=5; more needs search.beam=6",
    "run=first nbest=0": "nbest=0: must be 1 up to",
    "run=first nbest=x": "nbest=x: must be a whole number or null",
    "run=first search=sample nbest=2": "nbest=2: must be 1 up to search.samples=1",
    "run=first search=beam +search.temperature=1": "search.temperature: no such setting; there are max_ratio",
    "run=first +search.temperature=1": "search.temperature: no such setting; there are max_ratio",
    "run=first search.temperature=1": "Could not override 'search.temperature'",
    "run=first search=sample search.beam=3": "Could not override 'search.beam'",
    "run=first search=sample search.temperature=0": "search.temperature=0: must be 1e-30 to 1e30",
    "run=first search=sample search.temperature=nan": "search.temperature=nan: must be 1e-30 to 1e30",
    "run=first search=diverse search.diversity=nan": "search.diversity=nan: must be 0 (none) or more",
    "run=first search.alpha=inf": "search.alpha=inf: must be 0 (no length penalty) or more",
    "run=first search=sample search.top_p=x": "search.top_p=x: must be a number or null",
    "run=first search=diverse search.groups=3": "search.groups=3: must divide search.beam=5",
    "run=first search=viterbi": "In 'translate': Could not find 'search/viterbi'",
    "run=[]": "run=[]: give a run directory",
    "run=[first,second] checkpoint=x": "checkpoint= goes with one run",
    "run=[first,other]": "run=[first,other]: first and other have different vocabularies",
    "run=[first,backwards]": "run=[first,backwards]: first and backwards translate between other languages",
}


@pytest.mark.medium
@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_wishes_get_one_line(arguments, folder, request):
    if "other" in arguments:
        shutil.copytree(folder / "second", folder / "other")
        shutil.copy(request.getfixturevalue("other_vocabulary"), folder / "other" / "tokenizer.model")
    if "backwards" in arguments:
        shutil.copytree(folder / "second", folder / "backwards")
        swapped = {"source: en": "source: de", "target: de": "target: en"}
        swap = partial(re.sub, "|".join(swapped), lambda match: swapped[match[0]])
        rewrite(folder / "backwards" / "config.yaml", swap)
    assert refused(folder, *arguments.split()).startswith(WRONG[arguments])


@pytest.mark.medium
def test_null_is_a_value_and_not_the_runs_own(folder):
    config, whole = read_config(folder / "first"), nbest(folder, "run=first", "nbest=3")
    config.search.max_source = 3
    (folder / "first" / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
    assert translate(folder, "run=first").code == 2  # lines are too long
    assert nbest(folder, "run=first", "nbest=3", "search.max_source=null") == whole


@pytest.mark.medium
def test_a_byte_order_mark_is_no_text(folder):
    line = b"the dog sees the cat\n"
    marked, plain = (
        command("translate", "run=first", cwd=folder, stdin=text) for text in (b"\xef\xbb\xbf" + line, line)
    )
    assert marked.code == 0
    assert marked.out == plain.out


@pytest.fixture(scope="session")
def other_vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
    sentence_piece(320).train(["quite another text about other things"] * 50 + ["zu viele Wörter"] * 50).save(path)
    return path


@pytest.mark.medium
def test_an_ensemble_of_one_run_is_that_run(folder):
    alone, twice = (nbest(folder, f"run={run}", "nbest=3") for run in ("first", "[first,first]"))
    for number, translations in alone.items():
        assert [text for text, _ in twice[number]] == [text for text, _ in translations]
        assert [score for _, score in twice[number]] == pytest.approx([score for _, score in translations], abs=1e-5)
    both = nbest(folder, "run=[first,second]", "nbest=3")
    assert both != alone


@pytest.mark.medium
def test_a_run_that_was_trained_to_sample_samples(folder):
    config = read_config(folder / "first")
    config.search = {**settings("search/sample"), "samples": 3}
    (folder / "first" / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
    assert open_run(folder / "first").translator.search.samples == 3
    assert open_run(folder / "first", search={"top_k": 5}).translator.search.settings["top_k"] == 5
    assert refused(folder, "run=first", "search.beam=8").startswith("search.beam: no such setting")
    assert nbest(folder, "run=first", "nbest=3")


@pytest.mark.medium
def test_an_evaluation_with_another_search_or_an_ensemble_leaves_the_runs_as_they_are(folder):
    before = snapshot(folder)
    sampled = completed("evaluate", "run=first", "search=mbr", "search.samples=4", cwd=folder)
    assert "its metrics.json is left as it is" in sampled.out
    both = completed("evaluate", "run=[first,second]", "ensemble=true", "output=both.de", cwd=folder)
    assert "first + second" in both.out
    assert "nothing was written" in both.out
    assert "translations: both.de" in both.out
    after = snapshot(folder)
    assert {name: after[name] for name in before} == before
    assert {name for name in set(after) - set(before) if after[name]} == {"both.de"}
    # The same as the filter gives.
    data = open_run(folder / "first").data().data["test"]
    source = "".join(line + "\n" for line in data["source"])
    filtered = translate(folder, "run=[first,second]", source=source).out
    assert (folder / "both.de").read_text(encoding="utf-8") == filtered


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run=[first,second]", "output=x.de"], "output=x.de: goes with one run, or with ensemble=true"),
        (["run=first", "output=nowhere/x.de"], "output=nowhere/x.de: must be a file in a folder that exists"),
        (["run=first", "output=pipe"], "output=pipe: must be a file in a folder that exists"),
        (["run=first", "ensemble=maybe"], "ensemble=maybe: must be true or false"),
    ],
)
def test_wrong_evaluations(arguments, message, folder):
    with contextlib.suppress(FileExistsError):
        os.mkfifo(folder / "pipe")
    assert conftest.refused("evaluate", *arguments, cwd=folder) == [message]
