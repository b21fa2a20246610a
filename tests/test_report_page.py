"""The page of a report and the views on it; sections of charts; and in a browser, where there is one."""

import json
import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest
from reports import ROWS, edit, page_of
from sweeps import write_sweep

from headcount.report.page import Marked, Page, Section, View, code, escaped, html, markdown, markdown_table, write
from headcount.report.views import curve, forest, graph, heat_map, ranked

EVIL = "</script><b>a|b_c_ *d* [x](javascript:1) `e`</b>"
TABLE = pd.DataFrame(
    {
        "the.label": ["b", "a", EVIL] * 2,
        "column": ["x", "y", "x"] * 2,
        "value": [1.0, -2.0, 0.5, 30.0, 10.0, 20.0],
        "low": [0.0, -3.0, 0.1, 29.0, 9.0, 19.0],
        "high": [2.0, -1.0, 0.9, 31.0, 11.0, 21.0],
        "weak": [True, False, False] * 2,
        "text": ["1", "-2", ".5", "30", "10", "20"],
        "kind": ["zero"] * 3 + ["mean"] * 3,
    }
)
ENDS = {"low": "low", "high": "high"}
EDGES = pd.DataFrame({"source": ["p", "q"], "target": ["q", "r"], "value": [0.5, -1.0]})
NODES = pd.DataFrame({"name": ["p", "q", "r"], "x": [0, 1, 2], "y": [0, 1, 0]})
HALF = TABLE[:3]
VIEWS = {  # the chart, and texts in their order
    "heat map": (heat_map(HALF, x="column", y="the.label", value="value", text="text", faint="weak"), ["b", "a"]),
    "ranked": (ranked(HALF, label="the.label", value="value"), ["b", EVIL[:3], "a"]),
    "ranked, chosen": (ranked(TABLE, label="the.label", value="value", **ENDS, choose="kind"), ["b", EVIL[:3], "a"]),
    "curve": (curve(TABLE, x="value", y="high", colour="kind"), ["zero", "mean"]),
    "forest": (forest(HALF, label="the.label", value="value", **ENDS, at=None), ["b", "a", EVIL[:3]]),
    "graph": (graph(NODES, EDGES), ["p", "q", "r"]),
}


@pytest.mark.medium
@pytest.mark.parametrize(("chart", "texts"), VIEWS.values(), ids=VIEWS)
def test_a_view_draws_its_table_in_order(chart, texts):
    svg = View("name", "title", chart).svg()
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    places = [next(i for i, text in enumerate(found) if text.startswith(name.replace("<", "&lt;"))) for name in texts]
    assert places == sorted(places)
    assert "currentColor" in svg
    assert "prefers-color-scheme:dark" in svg
    assert not re.search(r"#0{6}\b|NaN|<script", svg)


def spec_of(chart) -> dict:
    return json.loads(View("name", "title", chart).spec)


def test_a_heat_map_is_centred_on_zero_for_each_choice():
    spec = spec_of(heat_map(TABLE, x="column", y="the.label", value="value", choose="kind"))
    low, middle, _, high = spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    ends = {"zero": 2.0, "mean": 30.0}
    assert (low["expr"], middle, high["expr"]) == (f"-({json.dumps(ends)})[chosen]", 0, f"({json.dumps(ends)})[chosen]")
    (choice,) = spec["params"]
    assert (choice["value"], choice["bind"]["options"]) == ("zero", ["zero", "mean"])
    assert spec["layer"][0]["transform"] == [{"filter": "datum.choose == chosen"}]


def test_a_heat_map_of_no_loss_has_no_blue():
    spec = spec_of(heat_map(TABLE.assign(value=TABLE["value"].abs()), x="column", y="the.label", value="value"))
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == [0, 30.0]


def test_edges_are_as_wide_as_their_values_and_coloured_by_sign():
    spec = spec_of(graph(NODES, EDGES))
    lines = next(rows for rows in spec["datasets"].values() if "size" in rows[0])
    assert [(line["x"], line["x2"], line["size"], line["sign"]) for line in lines] == [
        (0, 1, 0.5, True),
        (1, 2, 1, False),
    ]


class Tags(HTMLParser):
    """The names and addresses of a page, and whether its elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href") and value[0] != "#"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def hostile() -> Page:
    table = markdown_table((EVIL, "b"), [(EVIL, Marked("[c](d/)")), ("e\n|f", "1")], words=(0,))
    view = View("drawn", EVIL, ranked(TABLE, label="the.label", value="value"))
    folded = Section(EVIL, (code(f"```\n{EVIL}", "yaml"),), folded=True)
    return Page(EVIL, EVIL, escaped(EVIL), (EVIL,), (Section(EVIL, (table, escaped(EVIL), view, folded)),))


@pytest.mark.medium
def test_text_of_users_is_text_and_the_page_needs_nothing_else(tmp_path):
    path = write(hostile(), tmp_path, "page")
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    text = re.sub(r"(<script[^>]*>).*?</script>", r"\1</script>", text, flags=re.DOTALL)
    page = Tags(text)
    assert not page.open
    assert not {"b", "link", "iframe"} & set(page.tags)
    assert page.tags.count("script") == 3  # the chart, Vega, and what draws the chart
    assert page.links == ["d/", "plots/drawn.svg"]  # the second where scripts are off
    assert not re.search(r"@import|url\(", text)
    assert "<h1>&lt;/script&gt;&lt;b&gt;a|b_c_ *d* [x](javascript:1) `e`&lt;/b&gt;</h1>" in text
    assert page.tags.count("td") == 4
    assert '<div class="wide" tabindex="0"><table>' in text
    assert {path.name for path in tmp_path.rglob("*.*")} == {"page.html", "page.md", "drawn.svg"}
    marked = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "](plots/drawn.svg)" in marked
    assert "````yaml\n```" in marked


@pytest.mark.parametrize(
    "text", ["1. x", "12) x", "# x", "- x", "> x", "a_b_ *c*", "&amp;", "-3", "27.5 [1, 2]", "a\nb"]
)
def test_escaped_text_is_shown_unchanged(text):
    shown = html(Page("", "", escaped(text))).partition('<p class="verdict"></p>')[2].partition("</header>")[0]
    assert shown.strip() == f"<p>{text.replace('&', '&amp;').replace('>', '&gt;')}</p>".replace("\n", " ")


@pytest.mark.medium
def test_a_measure_can_be_chosen(sweep, undrawn):
    known = ["BLEU on valid + test", "valid BLEU", "valid chrF", "validation loss, nats", "test BLEU", "test chrF"]

    def options(name: str) -> list[str]:
        (view,) = (view for view in page_of(sweep).views if view.name == name)
        (choice,) = json.loads(view.spec)["params"]
        return choice["bind"]["options"]

    assert options("differences") == known
    assert options("quality")[:7] == [*known, "length ratio"]
    assert all(name.startswith("BLEU, ") for name in options("quality")[7:])
    for path in sweep.glob("*/metrics.json"):
        edit(path, valid__loss=None)
    assert known[3] not in options("quality")


def test_without_anything_to_show_a_section_is_absent(tmp_path, undrawn):
    folder = write_sweep(tmp_path / "one", {4: 0.2}, seeds=(1, 2), lines=20, study=None)
    titles = {section.title for section in page_of(folder).sections}
    assert "Every pair of conditions" not in titles
    assert "There is a single condition" in markdown(page_of(folder))


CHOOSE = """
const [place, value, done] = arguments, choice = document.querySelectorAll("select")[place];
choice.value = value;
for (const kind of ["input", "change"]) choice.dispatchEvent(new Event(kind, { bubbles: true }));
setTimeout(() => done(), 300);
"""
LIVE = "return document.querySelectorAll('figure svg').length"
OPTIONS = "return [...document.querySelectorAll('select')].map((each) => [...each.options].map((one) => one.value))"


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.wait import WebDriverWait

    if not (program := shutil.which("chromedriver")):
        pytest.skip("needs Chromium and its driver")
    page = page_of(write_sweep(tmp_path / "sweep", ROWS, lines=60))
    path = write(page, tmp_path / "out", "page")
    options = webdriver.ChromeOptions()
    for option in ("headless=new", "no-sandbox", "window-size=1200,900"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(program)) as browser:
        browser.get(path.resolve().as_uri())
        WebDriverWait(browser, 60).until(lambda found: found.execute_script(LIVE) == len(page.views))
        for place, values in enumerate(browser.execute_script(OPTIONS)):
            for value in values:
                browser.execute_async_script(CHOOSE, place, value)
        for width in (1200, 390):
            browser.set_window_size(width, 900)
            assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.get_log("browser") == []
