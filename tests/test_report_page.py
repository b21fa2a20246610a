"""The page of a report: charts, translations that differ; and in a browser, where there is one."""

import json
import re
import shutil

import numpy as np
import pytest
from reports import ROWS, edit, job, page_of, table_of_section
from sweeps import sentences, write_sweep

from headcount.report.page import html
from headcount.report.read import read_sweep
from headcount.report.sections.translations import sentence_bleu, sentence_gaps
from headcount.statistics.bootstrap import sentence_counts


def specs_of(page) -> dict[str, dict]:
    return {plot.name: json.loads(plot.spec) for plot in page.plots}


def test_the_primary_endpoint_comes_first(sweep, undrawn):
    """A frame shows the first columns of a wide table; the rest scrolls."""
    headers = table_of_section(page_of(sweep), "Results").headers
    assert headers[1] == "BLEU on valid + test"


def test_sentence_bleu_by_hand():
    counts = sentence_counts(
        ["der Hund sieht den Kater", "der Hund", "x y", ""], ["der Hund sieht den Kater"] * 4, "13a"
    )
    whole, short, wrong, empty = sentence_bleu(counts)
    assert whole == pytest.approx(100)
    # 2 of 2 words and 1 of 1 pairs match; with one more of all, every precision is 1: brevity alone counts.
    assert short == pytest.approx(100 * np.exp(1 - 5 / 2))
    assert (wrong, empty) == (0, 0)


def test_a_gap_is_between_the_nearest_runs():
    right, wrong = (
        sentence_counts([text], ["der Hund sieht den Kater"], "13a") for text in ("der Hund sieht den Kater", "x")
    )
    same, none, mixed = [right, right], [wrong, wrong], [right, wrong]
    assert sentence_gaps(same, none) == pytest.approx(100)
    assert sentence_gaps(none, same) == pytest.approx(-100)
    assert sentence_gaps(same, mixed) == sentence_gaps(mixed, none) == 0


@pytest.mark.medium
def test_every_run_is_a_mark_that_leads_to_it(sweep, undrawn):
    page = page_of(sweep)
    text = html(page, "")
    table = table_of_section(page, "Every run")
    assert [line[0] for line in table.cells] == [run.name for run in read_sweep(sweep).runs]
    for name, spec in specs_of(page).items():
        if name != "differences":  # its marks are pairs of runs
            found = {mark["href"] for layer in spec["layer"] for mark in layer["data"]["values"] if "href" in mark}
            assert found == {f"#run-{number}" for number in (1, 2, 3, 4)}, name
    assert set(re.findall(r'id="(run-\d+)"', text)) == {f"run-{number}" for number in (1, 2, 3, 4)}
    assert 'href="model.num_heads%3D4%2Cseed%3D2/"' in text
    assert "num_heads%3D4" not in html(page)


@pytest.mark.medium
def test_a_measure_can_be_chosen(sweep, undrawn):
    specs = specs_of(page_of(sweep))
    known = ["BLEU on valid + test", "valid BLEU", "valid chrF", "validation loss, nats", "test BLEU", "test chrF"]
    for name in ("bleu", "differences"):
        (choice,) = specs[name]["params"]
        lengths = ["length ratio", "brevity penalty"] if name == "bleu" else ["brevity penalty"]
        assert choice["bind"]["options"] == [*known, *lengths]
        assert choice["value"] == known[0]
    for path in sweep.glob("*/metrics.json"):
        edit(path, valid__loss=None)
    specs = specs_of(page_of(sweep))
    assert "loss" not in specs
    assert known[3] not in specs["bleu"]["params"][0]["bind"]["options"]


@pytest.mark.medium
def test_translations_that_differ_in_all_runs(sweep, undrawn):
    title = "Translations that differ"
    table = table_of_section(page_of(sweep), title)
    assert table.headers == ("reference", "4", "1", "gap")
    gaps = [float(line[-1]) for line in table.cells]
    assert gaps == sorted(gaps, reverse=True)
    assert min(gaps) > 0
    lines = sentences(30)
    (sweep / job(4, 1) / "test.src.en").write_text("".join(f"source {line}\n" for line in lines), encoding="utf-8")
    (sweep / job(4, 1) / "valid.src.en").write_text("".join("source\n" for _ in lines), encoding="utf-8")
    table = table_of_section(page_of(sweep), title)
    assert table.headers[0] == "source"
    assert all(source in ("source", f"source {reference}") for source, reference, *_ in table.cells)


def test_without_anything_to_show_a_section_is_absent(tmp_path, undrawn):
    folder = write_sweep(tmp_path / "one", {4: 0.2}, seeds=(1, 2), lines=20, study=None)
    titles = {section.title for section in page_of(folder).sections}
    assert not titles & {"Translations that differ", "Every pair of rows: BLEU on valid + test"}


def test_a_drawing_of_its_own_has_no_links_into_the_page():
    marks = '<a xlink:href="#run-1"><path id="clip"/></a><g clip-path="url(#clip)"/>'
    svg = f'<svg width="1" height="2" viewBox="0 0 1 2">{marks}</svg>'
    plot = Plot("name", "a title", svg, "{}")
    assert "<a" not in plot.file
    shown = plot.inline("1-")
    assert 'id="1-name-clip"' in shown
    assert "url(#1-name-clip)" in shown
    assert 'href="#run-1"' in shown
    assert '<svg role="img" aria-label="a title" viewBox="0 0 1 2">' in shown


@pytest.fixture
def browser():
    """Headless Chromium, whose console is read."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    if not (program := shutil.which("chromedriver")):
        pytest.skip("needs Chromium and its driver")
    options = webdriver.ChromeOptions()
    for option in ("headless=new", "no-sandbox", "window-size=1200,900"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(program))
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


LIVE = """
const done = arguments[arguments.length - 1], figures = [...document.querySelectorAll("figure")];
const check = () => figures.every((each) => "live" in each.dataset) ? done(figures.length) : setTimeout(check, 100);
check();
"""
POINTER = """
const mark = document.querySelector("figure path[aria-roledescription=circle]");
const box = mark.getBoundingClientRect(), at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
for (const kind of ["pointerover", "mouseover", "pointermove", "mousemove", "mousedown", "mouseup", "click"])
  mark.dispatchEvent(new MouseEvent(kind, { bubbles: true, view: window, ...at }));
const done = arguments[arguments.length - 1];
setTimeout(() => done([document.querySelector("#vg-tooltip-element").textContent, location.hash]), 300);
"""
CHOOSE = """
const [place, value, done] = arguments, choice = document.querySelectorAll("select")[place];
choice.value = value;
for (const kind of ["input", "change"]) choice.dispatchEvent(new Event(kind, { bubbles: true }));
setTimeout(() => done(document.querySelector("figure").textContent), 300);
"""
NAMES = "return Math.max(...[...document.querySelectorAll('th[scope=row]')].map((each) => each.offsetWidth))"
OPTIONS = "return [...document.querySelectorAll('select')[arguments[0]].options].map((each) => each.value)"


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path, browser):
    from headcount.report.write import report

    folder = write_sweep(tmp_path / "sweep", ROWS, lines=60)
    page = report(str(folder), None, 0.3, 100, {"bleu": 0.5, "loss": 0.02, "accuracy": 5.0})
    assert page.stat().st_size < 3_000_000
    browser.get(page.resolve().as_uri())
    assert browser.execute_async_script(LIVE) == sum(
        len(block.plots) for section in page_of(folder).sections for block in section.blocks if isinstance(block, Plots)
    )
    tooltip, place = browser.execute_async_script(POINTER)
    assert "seed" in tooltip
    assert place == "#run-1"
    assert "test chrF" in browser.execute_async_script(CHOOSE, 0, "test chrF")
    for width in (1200, 390):
        browser.set_window_size(width, 900)
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    choices = browser.execute_script("return [...document.querySelectorAll('select')].map((each) => each.name)")
    assert 0 < browser.execute_script(NAMES) <= 0.5 * browser.execute_script("return window.innerWidth")
    for place, name in enumerate(choices):
        for value in browser.execute_script(OPTIONS, place) if name.startswith("measure") else ():
            browser.execute_async_script(CHOOSE, place, value)
    assert browser.get_log("browser") == []
