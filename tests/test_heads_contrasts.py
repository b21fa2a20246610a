"""Heads on contrastive pairs of files: columns of the map on any corpus, measured as a direct computation does."""

import numpy as np
import pandas as pd
import pytest
from clauses import CLAUSES, VERBS
from conftest import completed, refused

import headcount
from headcount.heads.effects import read_parts
from headcount.heads.floor import MARK, decided

FEW = ("test=30", "valid=20", "parts=[ablation,floor,importance,twins,bleu]", "bleu_sentences=3")


def swapped(text: str) -> str:
    """The clause with its nouns exchanged: who does what to whom is all that changes."""
    words = text.split()
    words[1], words[4] = words[4], words[1]
    return " ".join(words)


CHOSEN = {"the", "dog", "cat", "horse", *VERBS}
ROWS = [row for row in CLAUSES if set(row[0].split()) <= CHOSEN and swapped(row[0]) != row[0]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two files: pairs with a twin, and pairs without one."""
    folder = tmp_path_factory.mktemp("pairs")
    with_twin = [f"{s}\t{r}\t{swapped(r)}\torder\t{swapped(s)}" for s, r in ROWS]
    without = [f"{s}\t{r}\t{r} {r}\tlength\t" for s, r in ROWS]
    for name, lines in {"twins": with_twin, "plain": without}.items():
        text = "\n".join(["source\tright\twrong\tphenomenon\ttwin", *lines])
        (folder / f"{name}.tsv").write_text(text + "\n")
    return f"contrasts=[{folder}/twins.tsv,{folder}/plain.tsv]"


@pytest.fixture(scope="module")
def measured(home, pairs, tmp_path_factory):
    """A run of two files of text, measured with contrasts."""
    run = tmp_path_factory.mktemp("run") / "run"
    run.mkdir()
    for path in (home / "runs" / "first").iterdir():
        if path.name != "heads":
            (run / path.name).symlink_to(path)
    completed("heads", f"run={run}", pairs, *FEW, cwd=home)
    return run


@pytest.mark.medium
def test_each_phenomenon_is_a_column_and_the_loss_is_of_the_corpus(measured, text):
    table = pd.read_csv(measured / "heads" / "heads.csv")
    columns = table.groupby("endpoint")["column"].unique().map(set)
    assert columns["zero.margin"] == columns["zero.accuracy"] == columns["floor.trigram"] == {"length", "order"}
    assert columns["zero.sensitivity"] == columns["twins.share"] == {"order"}  # whose pairs have twins
    assert columns["zero.loss"] == {"loss"}
    run, arrays = headcount.open_run(measured), read_parts(measured / "heads" / "effects.nc")["ablation"]
    off = [[], *([head] for head in arrays["head"].tolist())]

    def found(sources, targets):
        return -run.loss(sources, targets, off).to_numpy()  # [setting, sentence]

    corpus = [(text / f"test.{language}").read_text().splitlines() for language in ("en", "de")]
    of_corpus = -found(*corpus)
    assert arrays["zero.loss"].shape == (len(off), 10)  # of 30: as many of each phenomenon, and of the corpus
    assert all(np.isclose(of_corpus, loss[:, None], atol=1e-3).all(axis=0).any() for loss in arrays["zero.loss"].T)
    sources, targets = map(list, zip(*ROWS, strict=True))
    wrong, twins = ([swapped(each) for each in side] for side in (targets, sources))
    expected = {"right": found(sources, targets), "wrong": found(sources, wrong)}
    expected |= {"twin_right": found(twins, targets), "twin_wrong": found(twins, wrong)}
    order = arrays["phenomenon"] == "order"
    for name, values in expected.items():
        own = arrays[f"zero.{name}"][:, order]
        assert own.shape == (len(off), 10)
        assert all(np.isclose(values, pair[:, None], atol=1e-3).all(axis=0).any() for pair in own.T)
        assert not name.startswith("twin") or np.isnan(arrays[f"zero.{name}"][:, ~order]).all()


@pytest.mark.medium
def test_a_phenomenon_that_the_target_alone_decides_is_marked_and_leads_no_page(measured):
    table = pd.read_csv(measured / "heads" / "heads.csv")
    assert list(decided(table)) == ["length"]  # a target twice as long is less probable without any source
    drawing = (measured / "heads" / "plots" / "01_map_0.svg").read_text()
    assert f">length{MARK}<" in drawing
    assert ">order<" in drawing


@pytest.mark.medium
def test_other_pairs_are_measured_anew_and_wrong_files_are_one_line(measured, home, pairs, tmp_path):
    key = read_parts(measured / "heads" / "effects.nc")["ablation"]["key"]
    completed("heads", f"run={measured}", "parts=[ablation]", "test=30", "valid=20", cwd=home)
    assert read_parts(measured / "heads" / "effects.nc")["ablation"]["key"] != key
    (tmp_path / "twins.tsv").write_text("source\tright\n")
    both = f"{pairs[:-1]},{tmp_path}/twins.tsv]"
    for option, message in {
        both: "twins.tsv: another file is called twins, too; rename one",
        f"contrasts={tmp_path}/twins.tsv": "twins.tsv, line 1: no column wrong, or several",
        "contrasts=nowhere.tsv": "nowhere.tsv",
        "contrasts=easy.tsv": "the file's name 'easy' is not allowed",
        "contrasts=.tsv": "the file's name '' is not allowed",
    }.items():
        (line,) = refused("heads", f"run={measured}", option, cwd=home)
        assert message in line
