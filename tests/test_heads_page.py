"""The page of the heads: rows of heads.csv, findings and sections of planted runs; parts that are missing leave their
section out, text is escaped."""

import csv
import re
import shutil
from dataclasses import replace
from html import unescape
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest
from built import BOUNDS
from conftest import completed, snapshot
from planted_parts import (
    HEADS,
    HOSTILE,
    ablated,
    attended,
    cut,
    dealt,
    imported,
    paired,
    results,
    sent,
    trained,
    translated,
    translated_without,
    twinned,
)

from headcount.heads import table as tables
from headcount.heads.bleu import bleu_table, linear_bleu
from headcount.heads.command import following
from headcount.heads.measure import PARTS
from headcount.heads.page import HeadsPage, marked, run_page, study_page, write
from headcount.heads.results import Results, Row, Study
from headcount.heads.statistics import Bounds
from headcount.heads.table import framed, heads_csv, of_effects
from headcount.report.page import html, markdown
from headcount.report.runs import Unfinished
from headcount.statistics.bootstrap import bleu_of

DOCS = Path(__file__).parents[1] / "docs" / "heads.md"
CURVES = {"twins": twinned(), "paths": sent(), "training": trained(), "cutting": cut()}
PLANTED = {
    "ablation": ablated(), "examples": translated(), "attention": attended(), "bleu": translated_without(),
    "importance": imported(), "pairs": paired(), "shapley": dealt(), **CURVES,
}  # fmt: skip


@pytest.fixture(scope="module")
def full() -> Results:
    return results(**PLANTED)


@pytest.fixture(scope="module")
def made(full) -> HeadsPage:
    return run_page(full, debug=True)


def titles(page: HeadsPage) -> list[str]:
    return [section.title for section in page.page.sections]


@pytest.mark.medium
def test_files_are_the_page_markdown_a_table_and_drawings(made, tmp_path):
    path = write(made, tmp_path / "heads")
    page, text = path.read_text(encoding="utf-8"), (tmp_path / "heads" / "heads.md").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!#|data:|plots/)|@import|fetch\(', page.partition("<script")[0])
    assert HOSTILE not in page.partition("<script")[0]
    pictures = re.findall(r"\]\(([^)]+)\)", text)
    assert "plots/01_map_0.svg" in pictures
    assert all((tmp_path / "heads" / picture).read_text(encoding="utf-8").startswith("<svg") for picture in pictures)
    with (tmp_path / "heads" / "heads.csv").open(encoding="utf-8") as file:
        rows = {(row["head"], row["endpoint"], row["column"]): row for row in csv.DictReader(file)}
    assert len(rows) == len(made.table)
    assert all(row["unit"] for row in rows.values())
    row = rows["cross1.1", "zero.loss", "loss"]
    assert list(row) == ["head", "endpoint", "column", "estimate", "low", "high", "p", "verdict", "runs", "unit"]
    assert float(row["low"]) < float(row["estimate"]) < float(row["high"])
    assert (row["verdict"], row["unit"]) == ("differs", "nats per sentence")
    units = {(endpoint, column): row["unit"] for (_, endpoint, column), row in rows.items()}
    assert (units["cutting.greedy", "loss"], units["zero.accuracy", "order"]) == ("nats per token", "points")
    endpoints = {endpoint for _, endpoint, _ in rows}
    assert endpoints >= {
        "twins.share",
        "proxy.loss_importance",
        "resample.margin",
        "only.loss",
        "paths.share",
        "zero.bleu",
    }


@pytest.mark.parametrize("endpoint", ["accuracy", "sensitivity", "margin"])
def test_an_interval_of_accuracy_ends_at_what_is_possible(endpoint, full):
    table = full.effects("zero", endpoint)
    wide = replace(table, low=np.full_like(table.low, -500), high=np.full_like(table.high, 500))
    whole = dict(zip(table.columns, table.whole.tolist(), strict=True))
    rows = [row for row in of_effects(wide, "zero", endpoint) if row.column in whole]
    assert len(rows) == table.estimate.size - len(table.rows)  # without the column of the loss
    for row in rows:
        possible = (-500, 500) if endpoint == "margin" else (-whole[row.column], 100 - whole[row.column])
        assert (row.low, row.high) == possible


def test_a_figure_that_is_not_there_is_an_empty_cell():
    row = Row("cross1.1", "twins.share", "order", float("nan"), float("nan"), 2.5)
    assert heads_csv(framed([row])).splitlines()[1] == "cross1.1,twins.share,order,,,2.5,,,,"


@pytest.mark.medium
def test_the_planted_head_is_the_first_finding(made):
    first, cue, pair = made.findings
    assert first.startswith("Without cross1.1, order falls from 100.0 to ")
    assert re.match(r"Largest shares of .*: cross1\.1, order: \d+\.\d \[[\d.]+, [\d.]+\]", cue)
    assert "sum of both alone: encoder1.1 + encoder1.2, loss: " in pair
    assert made.page.verdict == " ".join(made.findings)
    sure = {(row.head, row.column) for row in made.table.query('endpoint == "zero.margin" and sure').itertuples()}
    assert sure == {("cross1.1", "order")}


@pytest.mark.medium
def test_each_part_has_its_section(made):
    assert not made.page.flags
    assert titles(made) == [
        "Ablation map: what is lost without each head",
        "Heads that carry the cue",
        "Circuits",
        "Is importance by gradient a good guide?",
        "Heads together",
        "How many heads can go?",
        "Through training",
        "Sentences",
    ]
    changed, attention = made.page.sections[-1].blocks
    assert "**der** Hund" in changed.blocks[0]
    assert '"encoder1.2"' in attention.blocks[0].spec
    views = {view.name: view.spec for view in made.page.views}
    assert {"03_circuit_0_order", "09_pruning_0", "10_training_0", "08_together_0"} <= set(views)
    assert "03_circuit_0_case" not in views
    assert all(head in views["03_circuit_0_order"] for head in ("encoder1.1", "cross1.1", "output"))
    chosen = re.findall(r'"options":\[(.*?)\]', views["01_map_0"])[0]
    assert all(f'"{kind}.margin"' in chosen for kind in ("zero", "mean", "resample", "only"))


@pytest.mark.parametrize("file", [*files("headcount.heads").joinpath("sections").glob("*/*.md")], ids=lambda f: f.name)
def test_a_section_is_a_short_text_file(file):
    head, _, note = file.read_text(encoding="utf-8").partition("\n\n")
    keys = [line.partition(": ")[0] for line in head.splitlines()]
    assert keys[:3] == ["title", "query", "view"]
    assert set(keys) == {"title", "query", "view"}
    assert len(keys) + len(note.splitlines()) <= 25
    assert note.format(**vars(BOUNDS)).strip()


@pytest.mark.parametrize("parts", [{}, {"examples": translated()}, {"attention": attended()}])
def test_what_was_not_measured_is_left_out(parts):
    page = run_page(results(**parts), debug=True)
    assert len(page.page.sections) == len(parts)
    assert not page.findings
    assert page.page.verdict.startswith("No part of these results")


@pytest.mark.medium
def test_the_largest_effect_may_be_a_gain_and_a_corpus_may_have_no_contrasts():
    page = run_page(results(ablation=ablated(gold=False)), debug=True)
    assert set(page.table["column"]) == {"loss"}
    assert page.findings[0].startswith("1 of 3 heads change the loss beyond chance, most cross1.1: ")
    arrays = ablated()
    arrays["zero.wrong"][2] -= 20 * (arrays["phenomenon"] == "order")
    gain = run_page(results(ablation=arrays)).table.query('head == "encoder1.2" and endpoint == "zero.margin" and sure')
    assert (gain["column"].tolist(), (gain["harm"] < 0).all()) == (["order"], True)


def test_a_changed_sentence_links_to_the_page_that_runs_the_model(tmp_path):
    found = replace(results(examples=translated()), directory=tmp_path)
    assert "page.html" not in markdown(run_page(found).page)
    (tmp_path / "page.html").touch()
    text = html(run_page(found).page)
    (address,) = re.findall(r'href="\.\./page\.html#([^"]*)"', text)
    given = parse_qs(unescape(address))
    assert given == {"text": [translated()["source"][0]], "off": [str(HEADS[2])]}
    assert 'href="page.html"' in html(run_page(found, output=tmp_path).page)


def test_a_shift_towards_one_answer_is_no_lost_function():
    arrays = ablated()
    order = arrays["phenomenon"] == "order"
    # Ten nats for the answer that is right in every other pair, and a little less of all margins.
    shift = np.where(np.arange(len(order)) % 4 < 2, 10, -10) * order
    for name in ("right", "wrong", "twin_right", "twin_wrong"):
        arrays[f"zero.{name}"][3] = arrays[f"zero.{name}"][0]
    arrays["zero.right"][3] += shift - 0.5 * order
    arrays["zero.twin_right"][3] += shift
    accuracy, told = (results(ablation=arrays).effects("zero", name) for name in ("accuracy", "sensitivity"))
    column = accuracy.columns.index("order")
    assert (accuracy.estimate[2, column], told.estimate[2, column]) == (-50, 0)
    assert not any("order falls" in line for line in run_page(results(ablation=arrays)).findings)


@pytest.mark.medium
def test_bounds_are_those_of_the_run(full):
    page = run_page(replace(full, bounds=Bounds(loss=100, margin=0.1, accuracy=2, bleu=99)))
    assert page.table.query("endpoint == 'cut.greedy'")["estimate"].tolist() == [3, 3]
    text = markdown(page.page)
    assert "for less than 99 BLEU" in text
    assert "bounds 100 nats per token" in text


@pytest.mark.medium
def test_text_of_a_run_is_escaped(made):
    text, page = markdown(made.page), html(made.page)
    assert "<script>alert" not in text.replace("\\<script\\>", "")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert marked("der Hund <b> schläft", "ein Hund <b> schläft tief") == (
        r"**der** Hund \<b\> schläft", r"**ein** Hund \<b\> schläft **tief**"
    )  # fmt: skip


@pytest.mark.medium
def test_rows_that_fail_are_a_flag(full, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a | b")

    monkeypatch.setattr(tables, "bleu_table", broken)
    page = run_page(replace(full))
    (flag,) = page.page.flags
    assert "'bleu' is missing, since it failed: ZeroDivisionError" in flag
    assert len(page.page.sections) == 8
    with pytest.raises(ZeroDivisionError):
        run_page(replace(full), debug=True)


def test_bleu_is_found_where_words_change_and_is_never_known_exactly():
    table = bleu_table(translated_without(), 0.5)
    exact = bleu_of(translated_without()["counts"].sum(axis=1))
    assert table.estimate[:, 0] == pytest.approx(exact[1:] - exact[0])
    # A single changed sentence tells little of the others.
    assert table.verdict[:, 0].tolist() == ["non-inferior", "inconclusive", "differs"]
    assert table.low[0, 0] < table.estimate[0, 0] == 0 < table.high[0, 0]
    assert table.low[2, 0] < table.estimate[2, 0] < table.high[2, 0] < 0
    counts = translated_without()["counts"][:, :8].copy()
    counts[:3, :, 1:4] = 0
    smoothed = bleu_table(translated_without() | {"counts": counts}, 0.5)  # above 0 by smoothing alone
    assert smoothed.whole[0] > 0
    assert set(smoothed.verdict.flat) == {"inconclusive"}


def test_the_mean_of_linear_bleu_is_bleu_and_its_values_are_derivatives():
    counts = np.random.default_rng(0).integers(1, 9, (2, 20, 10)).astype(float)
    counts[..., -1] += 5 * np.array([[0], [1]])
    values, exact = linear_bleu(counts), bleu_of(counts.sum(axis=1))
    assert values.mean(axis=1) == pytest.approx(exact)
    for sentence in (0, 7):
        slope = 20 * (bleu_of(counts.sum(axis=1) + 1e-6 * counts[:, sentence]) - exact) / 1e-6
        assert values[:, sentence] - exact == pytest.approx(slope, rel=1e-3)


def test_rows_of_an_alignment_name_weights_position_and_baseline():
    # Of ten target words with ten links: right before the word by weight, one in ten by head 1, nine by head 2.
    right = np.zeros((4, 2, 2, 2), dtype=np.int16)
    right[:, 0, :, 0] = 2, 18  # sure, and so possible, too
    fixed = {"fixed": np.full((4, 2), 10), "valid.fixed": np.tile([5, 4], (4, 1)), "rule": np.array(["diagonal", "+1"])}
    arrays = {"right": right, "valid.right": right, "targets": np.full(4, 10), "pairs": np.full(4, 10), **fixed}
    rows = list(tables.aligned(results(gold=arrays | {"head": np.array(["cross1.1", "cross1.2"])})))
    assert (rows[0].head, rows[0].estimate) == ("rule: same relative place", 0.5)
    found = {(row.endpoint, row.head, row.column): (row.estimate, row.verdict) for row in rows}
    by_weight = "weight, before the word"
    assert found["alignment.error", "cross1.2", by_weight] == (pytest.approx(0.1), "best")
    assert found["alignment.excess", "cross1.1", by_weight] == (pytest.approx(0.4), "first of the last layer")
    assert found["alignment.error", "cross1.2", "norm, after the word"] == (1, "")


@pytest.mark.medium
def test_the_docs_name_every_part_and_every_endpoint_of_the_table(made):
    text = DOCS.read_text(encoding="utf-8")
    (parts,) = re.findall(r"\n\| part \|.*?\n\n", text, re.DOTALL)
    assert re.findall(r"^\| `(\w+)` \|", parts, re.MULTILINE) == [part.name for part in PARTS]
    (endpoints,) = re.findall(r"\n\| endpoint \|.*?\n\n", text, re.DOTALL)
    named = "|".join(re.sub(r"[A-Z]+", r"\\w+", re.escape(name)) for name in re.findall(r"`([\w.]+)`", endpoints))
    assert [name for name in made.table["endpoint"].unique() if not re.fullmatch(named, name)] == []


@pytest.mark.medium
def test_the_page_of_a_sweep_names_its_runs_and_has_a_section_for_each_part(full, tmp_path):
    runs = [full, replace(full, name="b run")]
    other = Results("c run", Path("runs/c"), ("en", "de"), {"ablation": full.parts["ablation"]}, BOUNDS)
    rows = {"norm=pre, init_from=runs/a b": runs, "2": [other]}
    page = study_page(Study(Path("runs"), "heads", rows, (Unfinished("d", "stopped"),), ("a note",)), debug=True)
    assert page.page.flags[:2] == ("a note", "3 of 4 runs are finished. Not yet: d stopped")
    assert "Part cutting was measured in 2 of 3 runs." in page.page.flags
    assert titles(page) == [
        "How often is there a head for a phenomenon?",
        "Mean ablation effect of matched heads",
        "Where the cue goes",
        "Is importance by gradient a good guide, over seeds?",
        "How many heads can go, over seeds?",
        "Through training, over seeds",
    ]
    assert len(page.table) == len(page.table[["head", "endpoint", "column"]].drop_duplicates())
    cuts = page.table.query('endpoint == "cut.greedy"')
    assert (cuts["estimate"].tolist(), cuts["runs"].tolist()) == ([2.0], [2])
    # With two heads in one layer, chance has the same match; that is no finding.
    assert not any("matched" in line for line in page.findings)
    assert page.table.query('endpoint == "recurrence" and level == "" and column == "order"')["estimate"].tolist() == [
        1,
        1,
    ]
    write(page, tmp_path)
    pictures = re.findall(r"\]\(([^)]+)\)", (tmp_path / "heads.md").read_text(encoding="utf-8"))
    assert pictures
    assert all((tmp_path / picture).is_file() and " " not in picture for picture in pictures)


@pytest.mark.medium
def test_the_command_measures_a_run_once(home, tmp_path, caplog):
    shutil.copytree(home / "runs" / "first", tmp_path / "run")
    arguments = ("run=run", "parts=[ablation,examples]", "test=4", "valid=4")
    said = completed("heads", *arguments, cwd=tmp_path)
    assert re.search(r"page: run/heads/heads\.html .*\nnext:  \S*headcount export run=run format=page\n", said.out)
    measured = snapshot(tmp_path / "run")
    completed("heads", *arguments, cwd=tmp_path)
    assert snapshot(tmp_path / "run") == measured
    said = completed("heads", "sweep=.", *arguments[1:], "output=all", cwd=tmp_path)
    assert "page: all/heads.html" in said.out
    assert "run" in (tmp_path / "all" / "heads.md").read_text(encoding="utf-8")
    assert snapshot(tmp_path / "run") == measured
    completed("heads", "run=run", "parts=[ablation]", "test=5", "valid=4", cwd=tmp_path)
    assert re.search(r"examples is left out: .*run/heads/effects\.nc are of other .*parts=\[examples\]", caplog.text)


def test_the_next_command_keeps_as_many_heads_as_the_curve_supports(full):
    assert following(full).endswith("headcount heads run=runs/a prune=1 order=greedy")
    best = cut()  # by the test sentences, which is no reason to recommend it
    best |= {"order_name": np.array(["gradient", "greedy", "random"]), "bleu_setting": np.arange(8)}
    best["bleu_counts"] = np.concatenate([best["bleu_counts"], best["bleu_counts"][[0, 0, 3, 3]]])
    assert following(results(cutting=best)).endswith("headcount heads run=runs/a prune=2 order=greedy")
    nothing = cut() | {"bleu_counts": cut()["bleu_counts"][[0, 0, 0, 3]]}
    assert following(results(cutting=nothing)) == following(results())
    assert following(results()).endswith("headcount export run=runs/a format=page")


@pytest.mark.medium
def test_the_python_of_the_page_on_heads_runs(home, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(home)
    exec(compile(code.replace("runs/latest", "runs/first"), "heads.md", "exec"), {})
    shown = capsys.readouterr().out
    for part in ("'whole' 'cross1.1'", "pattern  (sentence, head, query, key)", "'logit' (head: "):
        assert part in shown
