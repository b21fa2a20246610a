"""Contrastive pairs of a file: read, scored by runs, and beside models that never see the source."""

import contextlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from conftest import completed, refused
from hypothesis import given
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.evaluation.contrastive import COLUMNS, read_contrasts
from headcount.run.contrasts import accuracy, contrast_rows, contrast_table

HEADER = "source\tright\twrong\tphenomenon\tid\ttwin"
ROW = "the dog sees the cat\tder Hund sieht den Kater\tden Hund sieht der Kater\tcase\t1\t"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["source\tright\tphenomenon"], "line 1: no column wrong, or several"),
        ([HEADER + "\tright", ROW + "\tr"], "line 1: no column right, or several"),
        ([HEADER], "holds no row below its header"),
        ([HEADER, ROW, "the dog"], "line 3: 1 columns where the header has 6"),
        ([HEADER, ROW, ROW.replace("case", " ")], "line 3: its phenomenon is empty"),
        ([HEADER, "a\tb\tb\tc\t1\t"], "line 2: right and wrong are the same"),
        ([], "line 1: no column source, or several"),
        ([HEADER, ROW.replace("case", "loss")], "line 2: the phenomenon 'loss' is not allowed"),
        ([HEADER, ROW.replace("case", "a.b")], "line 2: the phenomenon 'a.b' is not allowed"),
    ],
)
def test_a_wrong_row_is_one_line_with_its_number(lines, message, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(InputError, match=message):
        read_contrasts(path)


@given(st.lists(st.text("ab\t\n\r \x00ü\ud800\"'", max_size=24), max_size=4), st.booleans())
def test_any_rows_are_pairs_or_one_line(tmp_path_factory, rows, header):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_bytes("\n".join([HEADER] * header + rows).encode(errors="surrogatepass"))
    with contextlib.suppress(InputError):
        found = read_contrasts(path)
        assert all(row[name].strip() for row in found for name in ("source", "target", "contrast", "phenomenon"))


def test_columns_are_named_as_in_a_corpus_and_text_is_not_unquoted(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(f'{HEADER}\n"a\t"b"\tc\tcase\t7\tother\n')
    assert list(read_contrasts(path)) == [
        {"source": '"a', "target": '"b"', "contrast": "c", "phenomenon": "case", "twin": "other", "grade": ""}
    ]
    assert set(COLUMNS) < set(HEADER.split("\t"))


def test_accuracies_by_hand():
    scores = {"right": np.array([-4.0, -6, -3]), "wrong": np.array([-3.0, -5, -3])}
    scores |= {"right_tokens": np.array([4, 4, 1]), "wrong_tokens": np.array([2, 4, 2])}
    chosen = np.array([True, True, False])
    assert accuracy(scores, chosen) == 0
    assert accuracy(scores, chosen, by_token=True) == 50  # -1 against -1.5, -1.5 against -1.25
    assert accuracy(scores, ~chosen) == 0  # a tie
    whole = scores | {f"{model}.{side}": scores[side] for model in ("trigram", "hidden") for side in ("right", "wrong")}
    whole["trigram.right"] = np.array([-1.0, -1, -9])
    table = contrast_table(contrast_rows({"phenomenon": ["a", "a", "b"]}, {"run": whole}))
    lines = {line.split()[0]: line for line in table.splitlines() if line[:2] in ("a ", "b ")}
    assert "the target alone decides" in lines["a"]  # by trigrams both pairs are right
    assert "the target alone decides" not in lines["b"]


@pytest.mark.medium
def test_pairs_are_scored_by_every_run_and_kept(home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "mine.tsv").write_text(f"{HEADER}\n{ROW}\n{ROW.replace('case', 'order')}\n")
    both = "run=[runs/first,runs/second]"
    shown = completed("evaluate", both, "contrasts=mine.tsv", "output=table.csv", cwd=tmp_path).out
    table = pd.read_csv(tmp_path / "table.csv")
    assert table[["file", "phenomenon", "run"]].values.tolist()[1] == ["mine", "case", "runs/second"]
    assert [line.split()[0] for line in shown.splitlines() if "runs/" in line] == ["case", "case", "order", "order"]
    kept = np.load(tmp_path / "runs/first/contrasts/mine.npz")
    assert kept["right"][0] == kept["right"][1]
    assert len({float(kept[f"{model}right"][0]) for model in ("", "hidden.", "trigram.")}) == 3
    figures = json.loads((tmp_path / "runs/first/metrics.json").read_text())["test"]["contrastive"]["case"]["mine"]
    row = table[(table["run"] == "runs/first") & (table["phenomenon"] == "case")].iloc[0]
    assert figures["floor"] == max(row["floor: trigram"], row["floor: hidden"])
    assert (figures["accuracy"], figures["pairs"]) == (row["accuracy"], 1)
    (line,) = refused("evaluate", both, "contrasts=mine.tsv", "split=valid", cwd=tmp_path)
    assert line.startswith("split=: has no effect with contrasts=")
