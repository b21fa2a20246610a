"""The page of the heads: parts that are missing leave their section out, text is escaped, keys and names are there."""

import csv
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

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

from headcount.heads.bleu import bleu_table, linear_bleu
from headcount.heads.cards import marked
from headcount.heads.command import following
from headcount.heads.measure import PARTS
from headcount.heads.page import HeadsPage, heads_csv, html, run_page, study_page, write
from headcount.heads.results import Results, Row, Study
from headcount.heads.sections import bleu, knock_out
from headcount.heads.statistics import Bounds
from headcount.report.runs import Unfinished
from headcount.statistics.bootstrap import bleu_of


@pytest.fixture(scope="module")
def full() -> Results:
    parts = {"ablation": ablated(), "examples": translated(), "attention": attended()}
    return results(
        **parts,
        bleu=translated_without(),
        importance=imported(),
        twins=twinned(),
        paths=sent(),
        training=trained(),
        cutting=cut(),
        pairs=paired(),
        shapley=dealt(),
    )


@pytest.fixture(scope="module")
def made(full) -> HeadsPage:
    return run_page(full)


@pytest.fixture(scope="module")
def page(made) -> str:
    return html(made)


class Reader(HTMLParser):
    """Elements of a page, and text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def with_(self, name: str, **attributes) -> list[dict]:
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [given for tag, given in self.elements if tag == name and wanted.items() <= given.items()]


@pytest.mark.medium
def test_a_cell_of_a_map_has_its_words_and_leads_to_its_head(page):
    read = Reader(page)
    maps = [given for given in read.with_("table") if "aria-label" in given]
    assert len(maps) == 3
    links = [given["href"].removeprefix("#") for given in read.with_("a") if "href" in given]
    assert len(links) == len(HEADS) * (2 * (1 + 3) + (1 + 2))
    ids = [given["id"] for _, given in read.elements if "id" in given]
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    sure = [given["title"] for given in read.with_("td") if given.get("title", "").endswith("differs")]
    assert any(title.startswith("cross1.1 off, order: -") for title in sure)
    assert not any("case" in title or title.startswith("encoder") for title in sure)


@pytest.mark.medium
def test_the_page_needs_nothing_else(page):
    assert not re.search(r'(src|href)="(?!#|data:)|url\((?!#)|@import|fetch\(', page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


@pytest.mark.medium
def test_text_of_a_run_is_escaped(page):
    read = Reader(page)
    assert len(read.with_("script")) == 2
    assert any(HOSTILE in text for text in read.text)
    data = re.search(r'<script type="application/json" id="sentences">(.*?)</script>', page, re.DOTALL)
    (sentence,) = json.loads(data[1])
    assert sentence["source"] == HOSTILE
    assert sentence["weights"]["encoder1.2"] == ["z0", "ii"]


def test_words_that_differ_are_marked():
    before, after = marked("der Hund <b> schläft", "ein Hund <b> schläft tief")
    assert before == "<mark>der</mark> Hund &lt;b&gt; schläft"
    assert after == "<mark>ein</mark> Hund &lt;b&gt; schläft <mark>tief</mark>"


@pytest.mark.medium
def test_the_planted_head_is_the_first_finding(made):
    found = made
    assert found.findings[0].startswith("Without cross1.1, order falls from 100.0 to ")
    assert (
        "1 of 2 phenomena have a head without which the margin falls (tested) and 10 points of sensitivity or more are "
        "lost (estimated): order." in found.findings
    )
    assert any(
        line.startswith("cross1.1 carries the cue of order: its") and " 50 % [" in line for line in found.findings
    )
    assert found.page.verdict.startswith(found.findings[0])
    cross = next(card for card in found.cards if card.head == "cross1.1")
    assert (len(cross.changes), cross.same) == (1, 1)
    assert not made.page.flags


@pytest.mark.medium
def test_files_are_the_page_markdown_a_table_and_drawings(made, tmp_path):
    path = write(made, tmp_path / "heads")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    text = (tmp_path / "heads" / "heads.md").read_text(encoding="utf-8")
    for picture in re.findall(r"\]\(([^)]+)\)", text):
        assert (tmp_path / "heads" / picture).read_text(encoding="utf-8").startswith("<svg")
    assert "plots/knock_out_accuracy.svg" in text
    with (tmp_path / "heads" / "heads.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["head", "endpoint", "column", "estimate", "low", "high", "p", "verdict", "runs", "unit"]
    assert all(row["unit"] for row in rows)
    cells = [(row["head"], row["endpoint"], row["column"]) for row in rows]
    assert len(cells) == len(set(cells))
    assert {row["endpoint"] for row in rows} >= {
        "twins.share",
        "proxy.loss_importance",
        "resample.margin",
        "only.loss",
        "cutting.greedy",
    }
    (row,) = [row for row in rows if (row["head"], row["endpoint"], row["column"]) == ("cross1.1", "zero.loss", "loss")]
    assert float(row["low"]) < float(row["estimate"]) < float(row["high"])
    assert (row["verdict"], row["unit"]) == ("differs", "nats a sentence")
    units = {(row["endpoint"], row["column"]): row["unit"] for row in rows}
    assert units["cutting.greedy", "loss"] == "nats a token"
    assert units["zero.accuracy", "order"] == "points"
    assert not re.search(r"\bnats\b(?! a (sentence|token))", text)


@pytest.mark.parametrize("parts", [(), ("examples",), ("attention",), ("examples", "attention")])
def test_what_was_not_measured_is_left_out(parts, full):
    page = run_page(results(**{name: full.parts[name] for name in parts}))
    assert not page.page.sections
    assert not page.page.flags
    assert bool(page.cards) == bool(parts)


def test_bleu_stands_beside_the_loss(full):
    found = bleu.subject(full)
    (table,) = found.section.blocks
    first, *rest = table.cells
    assert (table.headers[1], table.headers[5]) == ("BLEU", "loss, nats a sentence")
    assert (first[0], first[4]) == ("cross1.1", "differs")
    estimate = bleu_table(translated_without(), 0.5).estimate[2, 0]
    assert float(first[1].replace("−", "-")) == pytest.approx(estimate, abs=0.1)
    # A single changed sentence tells little of the others.
    assert {line[0]: line[4] for line in rest} == {"encoder1.1": "non-inferior", "encoder1.2": "undecided"}
    assert found.findings[0].startswith("1 of 3 heads")
    alone = bleu.subject(results(bleu=translated_without()))
    assert alone.section.blocks[0].headers[-1] == "verdict"
    assert {row.endpoint for row in found.rows} == {"zero.bleu"}


def test_the_largest_effect_may_be_a_gain():
    arrays = ablated()
    order = arrays["phenomenon"] == "order"
    arrays["zero.wrong"][2] -= 20 * order
    (text, *_) = knock_out.subject(results(ablation=arrays)).section.blocks
    assert "order: 2 (largest effect: encoder1.2)" in text


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
    assert accuracy.estimate[2, column] == -50
    assert told.estimate[2, column] == 0
    assert not any("order falls" in line for line in knock_out.subject(results(ablation=arrays)).findings)


def test_bleu_of_a_model_without_a_right_phrase_gets_no_verdict():
    counts = translated_without()["counts"][:, :8].copy()
    counts[:3, :, 1:4] = 0
    table = bleu_table(translated_without() | {"counts": counts}, 0.5)
    assert table.whole[0] > 0  # by smoothing
    assert set(table.verdict.flat) == {"undecided"}


def test_the_mean_of_linear_bleu_is_bleu_and_its_values_are_derivatives():
    counts = np.random.default_rng(0).integers(1, 9, (2, 20, 10)).astype(float)
    counts[..., -1] += 5 * np.array([[0], [1]])
    values, exact = linear_bleu(counts), bleu_of(counts.sum(axis=1))
    assert values.mean(axis=1) == pytest.approx(exact)
    for sentence in (0, 7):
        weighted = counts.sum(axis=1) + 1e-6 * counts[:, sentence]
        slope = 20 * (bleu_of(weighted) - exact) / 1e-6
        assert values[:, sentence] - exact == pytest.approx(slope, rel=1e-3)


@pytest.mark.medium
def test_the_docs_name_every_part_and_every_endpoint_of_the_table(made):
    text = (Path(__file__).parents[1] / "docs" / "heads.md").read_text(encoding="utf-8")
    (parts,) = re.findall(r"\n\| part \|.*?\n\n", text, re.DOTALL)
    assert re.findall(r"^\| `(\w+)` \|", parts, re.MULTILINE) == [part.name for part in PARTS]
    (endpoints,) = re.findall(r"\n\| endpoint \|.*?\n\n", text, re.DOTALL)
    named = "|".join(re.sub(r"[A-Z]+", r"\\w+", re.escape(name)) for name in re.findall(r"`([\w.]+)`", endpoints))
    assert [row for row in made.rows if not re.fullmatch(named, row.endpoint)] == []


def test_bleu_without_a_changed_word_is_not_known_exactly():
    table = bleu_table(translated_without(), 0.5)
    assert table.estimate[0, 0] == 0
    assert table.low[0, 0] < 0 < table.high[0, 0]
    exact = bleu_of(translated_without()["counts"].sum(axis=1))
    assert table.estimate[:, 0] == pytest.approx(exact[1:] - exact[0])
    assert table.low[2, 0] < table.estimate[2, 0] < table.high[2, 0] < 0


@pytest.mark.medium
def test_bounds_are_those_of_the_run(full, made):
    page = run_page(replace(full, bounds=Bounds(loss=100, margin=0.1, accuracy=2, bleu=99)))
    text = html(page)
    assert "Free to cut by loss (non-inferior, one head at a time): encoder1.1, encoder1.2, cross1.1." in text
    assert "for less than 99 BLEU" in text
    assert "The bound of the loss is 100 nats a token" in text
    assert "Free to cut by loss (non-inferior, one head at a time): encoder1.1, encoder1.2." in html(made)


@pytest.mark.medium
def test_a_corpus_without_contrasts_has_a_map_of_the_loss():
    page = run_page(results(ablation=ablated(gold=False)))
    assert not page.page.flags
    assert {row.column for row in page.rows} == {"loss"}
    (finding,) = page.findings
    assert finding == "1 of 3 heads change something that can be distinguished from chance."
    assert page.page.verdict == finding


@pytest.mark.medium
def test_each_part_has_its_section(made):
    page = made.page
    assert not page.flags
    titles = [section.title for section in page.sections]
    assert titles == [
        "What is lost without each head",
        "BLEU without each head",
        "Heads that carry the cue",
        "Is importance by gradient a good guide?",
        "Heads together",
        "How many heads can go?",
        "Through training",
    ]
    names = {plot.name: plot for plot in page.plots}
    assert {"cutting_loss", "cutting_worst", "cutting_bleu"} <= set(names)
    assert {"training_order", "interactions"} <= set(names)
    assert {"circuit_order", "twins", "proxy_loss_importance", "knock_out_margin"} <= set(names)
    assert "circuit_case" not in names
    assert all(head in names["circuit_order"].svg for head in ("encoder1.1", "cross1.1", "output"))


@pytest.mark.medium
def test_a_section_that_fails_is_a_flag(full, monkeypatch):
    def broken(results):
        raise ZeroDivisionError("a | b")

    monkeypatch.setattr(knock_out, "subject", broken)
    page = run_page(full)
    (flag,) = page.page.flags
    assert "'knock_out' is missing" in flag
    assert len(page.cards) == len(HEADS)
    assert "ZeroDivisionError" in html(page)
    with pytest.raises(ZeroDivisionError):
        run_page(full, debug=True)


@pytest.mark.medium
def test_the_page_of_a_sweep_names_its_runs(full):
    rows = {"1": [full], "2": [Results("b run", Path("runs/b"), ("en", "de"), full.parts, BOUNDS)]}
    study = Study(Path("runs"), "heads", rows, (Unfinished("c", "stopped"),), ("a note",))
    page = study_page(study)
    assert page.page.flags == ("a note",)
    assert "2 of 3 runs" in page.page.progress
    assert page.page.sections[0].blocks[1].cells[1][:2] == ("order", "1 of 1: cross1 1")
    assert not any("have a head" in line for line in page.findings)  # of one seed a row nothing recurs
    assert "Each head" not in html(page)
    assert {"1", "2"} <= {row.head for row in page.rows}
    assert all(row.unit for row in page.rows)


@pytest.mark.medium
def test_heads_of_seeds_are_matched(full):
    runs = [full, Results("b run", Path("runs/b"), ("en", "de"), full.parts, BOUNDS)]
    page = study_page(Study(Path("runs"), "heads", {"4": runs}))
    assert not page.page.flags
    assert {"matched_accuracy_4", "matched_margin_4"} <= {plot.name for plot in page.page.plots}
    table = page.page.sections[1].blocks[-3]
    assert table.cells[0][:3] == ("4", "2", "1.00")
    # With two heads in one layer, chance has the same match; that is no finding.
    assert not any("matched" in line for line in page.findings)
    assert page.findings[0] == "Phenomena that have a head in every run: heads 4: order (2 seeds)."


@pytest.mark.medium
def test_labels_of_rows_name_files(full, tmp_path):
    runs = [full, replace(full, name="b run")]
    study = Study(Path("runs"), "row", {"norm=pre, init_from=runs/a b": runs, "norm=post": runs})
    write(study_page(study), tmp_path)
    pictures = re.findall(r"\]\(([^)]+)\)", (tmp_path / "heads.md").read_text(encoding="utf-8"))
    assert "plots/matched_margin_norm=pre_init_from=runs_a_b.svg" in pictures
    assert all((tmp_path / picture).is_file() and " " not in picture for picture in pictures)


@pytest.mark.medium
def test_the_page_of_a_sweep_has_a_section_for_each_part(full):
    runs = [full, replace(full, name="b run")]
    other = replace(full, name="c run", parts={"ablation": full.parts["ablation"]})
    page = study_page(Study(Path("runs"), "heads", {"4": runs, "2": [other]}))
    assert not page.page.flags
    sections = {section.title: section for section in page.page.sections}
    assert list(sections) == [
        "How often is there a head for a phenomenon?",
        "Mean knock-out over seeds",
        "Over how many heads is a function spread?",
        "Where the cue goes",
        "Is importance by gradient a good guide, over seeds?",
        "How many heads can go, over seeds?",
        "Through training, over seeds",
    ]
    cutting = sections["How many heads can go, over seeds?"].blocks[1]
    greedy = ("4", "true loss after each cut", "3", "2.0, 2 to 2")
    assert cutting.cells == (greedy,)
    training = sections["Through training, over seeds"].blocks[1]
    assert [line[5] for line in training.cells] == ["undecided", "undecided"]
    note = "Measured in 2 of 3 runs (heads 4: 2 of 2, heads 2: 0 of 1)."
    assert all(block.note.endswith(note) for block in (cutting, training))
    lines = heads_csv(page.rows).splitlines()
    assert len(lines) == 1 + len(page.rows) == 1 + len({(row.head, row.endpoint, row.column) for row in page.rows})
    assert {"cutting_bleu_heads_4"} <= {plot.name for plot in page.page.plots}


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


def test_a_figure_that_is_not_there_is_an_empty_cell():
    row = Row("cross1.1", "twins.share", "order", float("nan"), float("nan"), 2.5)
    assert heads_csv([row]).splitlines()[1] == "cross1.1,twins.share,order,,,2.5,,,,"


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
    text = (Path(__file__).parents[1] / "docs" / "heads.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(home)
    exec(compile(code.replace("runs/latest", "runs/first"), "heads.md", "exec"), {})
    shown = capsys.readouterr().out
    for part in ("'whole' 'cross1.1'", "pattern  (sentence, head, query, key)", "'logit' (head: "):
        assert part in shown
