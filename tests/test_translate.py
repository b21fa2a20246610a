"""Translation on the command line: one run or an ensemble, n-best lists and searches."""

import re
import shutil
from functools import partial

import conftest
import pytest
from built import sentence_piece
from conftest import command, rewrite
from omegaconf import OmegaConf

from headcount.run.directory import read_config

SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


@pytest.fixture
def folder(home, tmp_path):
    """A folder with the run first, and a second of the same corpus."""
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
def test_an_nbest_list_is_in_the_format_of_moses_and_line_numbers_go_on(folder, monkeypatch):
    found = nbest(folder, "run=first", "nbest=3")
    assert found[1] == [("", 0.0)]
    best = translate(folder, "run=first", source="\ufeff" + SOURCE).out.splitlines()  # a byte order mark is no text
    assert [translations[0][0] for translations in found.values()] == best
    for number in (0, 2):
        texts, scores = zip(*found[number], strict=True)
        assert 1 < len(set(texts)) == len(texts) <= 3
        assert list(scores) == sorted(scores, reverse=True)
    monkeypatch.setattr("headcount.commands.translate.LINES_AT_ONCE", 2)
    assert list(nbest(folder, "run=first", "nbest=3")) == list(found)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["search=mbr", "search.samples=8"], 2),
        (["search=diverse", "search.diversity=1"], 3),
        (["search=sample", "search.samples=4", "search.temperature=0.7"], 4),
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
    "run=first nbest=6": "nbest=6: must be 1 up to search.beam=5, or raise that",
    "run=first search=viterbi": "search=viterbi: is no option; there are beam",
    "run=[first,second] checkpoint=x": "checkpoint= goes with one run",
    "run=[first,other]": "run=[first,other]: first and other have different vocabularies",
    "run=[first,backwards]": "run=[first,backwards]: first and backwards translate between other languages",
}


@pytest.mark.medium
@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_wishes_get_one_line(arguments, folder):
    if "other" in arguments:
        shutil.copytree(folder / "second", folder / "other")
        text = ["quite another text about other things", "zu viele Wörter"] * 50
        sentence_piece(320).train(text).save(folder / "other" / "tokenizer.model")
    if "backwards" in arguments:
        shutil.copytree(folder / "second", folder / "backwards")
        swapped = {"source: en": "source: de", "target: de": "target: en"}
        swap = partial(re.sub, "|".join(swapped), lambda match: swapped[match[0]])
        rewrite(folder / "backwards" / "config.yaml", swap)
    assert refused(folder, *arguments.split()).startswith(WRONG[arguments])


def with_search(folder, **search):
    config = read_config(folder / "first")
    config.search = search
    (folder / "first" / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")


@pytest.mark.medium
def test_null_is_a_value_and_not_the_runs_own(folder):
    whole = nbest(folder, "run=first", "nbest=3")
    with_search(folder, **{**read_config(folder / "first").search, "max_source": 3})
    assert translate(folder, "run=first").code == 2  # lines are too long
    assert nbest(folder, "run=first", "nbest=3", "search.max_source=null") == whole


@pytest.mark.medium
def test_an_ensemble_of_one_run_is_that_run(folder):
    alone, twice = (nbest(folder, f"run={run}", "nbest=3") for run in ("first", "[first,first]"))
    for number, translations in alone.items():
        assert [text for text, _ in twice[number]] == [text for text, _ in translations]
        assert [score for _, score in twice[number]] == pytest.approx([score for _, score in translations], abs=1e-5)
    assert nbest(folder, "run=[first,second]", "nbest=3") != alone
