"""Reports on toy sweeps: rows, verdicts, sections, files, and messages for bad input."""

import csv
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from conftest import completed, refused, rewrite
from sweeps import STUDY, sentences, write_run, write_sweep

from headcount.evaluation.metrics import METRICS, score
from headcount.report.blocks import Code, Section
from headcount.report.drawing import Plot
from headcount.report.endpoint import Endpoint, bleu_endpoint
from headcount.report.markdown import markdown
from headcount.report.page import SECTIONS, Page, make_page
from headcount.report.read import read_sweep
from headcount.report.sections.next_steps import next_steps
from headcount.report.sections.published import published
from headcount.report.statistics.comparison import compare, interaction
from headcount.report.study import Margins, Study
from headcount.report.table import Table
from headcount.report.verdicts import Names, needed, pair_verdict, summary
from headcount.report.write import html, results_csv
from headcount.run.directory import is_finished

ROWS = {1: 0.45, 4: 0.2}
MARGINS = Margins(bleu=0.5, loss=0.02, accuracy=5.0)
EMPTY = {"br", "meta", "img", "hr", "link", "input"}


def edit(path: Path, **changes) -> None:
    """Change figures, given as test__bleu=1; None takes one away."""
    figures = json.loads(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        node, *groups, last = figures, *name.split("__")
        for group in groups:
            node = node[group]
        node[last] = value
        if value is None:
            del node[last]
    path.write_text(json.dumps(figures), encoding="utf-8")


def with_data(line: str):
    """Gives a config a line more under data."""
    return lambda text: text.replace("data:\n", f"data:\n  {line}\n")


def job(heads: int, seed: int) -> str:
    return f"model.num_heads={heads},seed={seed}"


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Path:
    """A finished sweep and its report; not to be written to."""
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), ROWS)
    assert completed("report", f"sweep={folder}", "resamples=200").out == ""
    return folder


@pytest.fixture
def sweep(tmp_path) -> Path:
    """A small sweep to be changed."""
    return write_sweep(tmp_path / "sweep", ROWS, seeds=(1, 2), lines=30)


@pytest.fixture
def undrawn(monkeypatch):
    """Plots are empty, since drawing takes most of the time."""
    monkeypatch.setattr(Plot, "of", lambda name, title, *_: Plot(name, title, "", b""))


def page_of(folder: Path) -> Page:
    return make_page(Study.of(read_sweep(folder), 0.3, 100, MARGINS))


def page_with(folder: Path, **changes) -> Page:
    """The page where every run of a sweep has other figures."""
    for path in folder.glob("*/metrics.json"):
        edit(path, **changes)
    return page_of(folder)


def rows_of(folder: Path) -> list[str]:
    return [row.label for row in read_sweep(folder).rows]


def section_of(page: Page, title: str) -> Section:
    (section,) = (section for section in page.sections if section.title == title)
    return section


def table_of_section(page: Page, title: str) -> Table:
    (table,) = (block for block in section_of(page, title).blocks if isinstance(block, Table))
    return table


class Checker(HTMLParser):
    """Collects what a page names, and whether its elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.tags, self.outside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "srcset") and not value.startswith("#"):
                self.outside.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(reported):
    text = (reported / "report.html").read_text(encoding="utf-8")
    page = Checker(text)
    assert not page.open
    assert not page.outside
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(page.ids)
    assert page.tags.count("h1") == 1
    assert "prefers-color-scheme: dark" in text


def test_plots_take_the_colour_of_the_text(reported):
    text = (reported / "report.html").read_text(encoding="utf-8")
    assert "currentColor" in text
    assert not re.search(r"#0{6}\b|#010101", text)


def test_each_plot_is_there_as_svg_and_png(reported):
    shown = re.findall(r"\]\(plots/(\w+)\.svg\)", (reported / "report.md").read_text(encoding="utf-8"))
    expected = {"bleu", "loss", "bleu_by_seconds", "curve_loss", "curve_bleu", "published_vaswani2017_a"}
    assert expected | {"contrastive_pronoun", "contrastive_all"} <= set(shown)
    assert "bleu_by_parameters" not in shown  # they don't differ
    assert {path.stem for path in (reported / "plots").glob("*.svg")} == set(shown)
    assert {path.stem for path in (reported / "plots").glob("*.png")} == set(shown)
    assert not list(reported.rglob("*.part"))
    assert (reported / "plots" / "bleu.png").read_bytes().startswith(b"\x89PNG")


def test_no_score_without_its_signature(reported):
    for name in ("report.md", "report.html"):
        text = (reported / name).read_text(encoding="utf-8")
        assert "nrefs:1|case:mixed|eff:no|tok:13a" in text
        assert "nrefs:1|case:mixed|eff:yes|nc:6" in text
    lines = list(csv.DictReader((reported / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert len(lines) == 6
    assert all(line["test.signature.bleu"] for line in lines)
    metrics = json.loads((reported / job(4, 2) / "metrics.json").read_text(encoding="utf-8"))
    (line,) = (line for line in lines if line["run"] == job(4, 2))
    assert (line["row"], line["seed"], line["finished"]) == ("4", "2", "yes")
    assert float(line["test.bleu"]) == metrics["test"]["bleu"]
    accuracy = metrics["test"]["contrastive"]["pronoun"]["hard"]["accuracy"]
    assert float(line["test.contrastive.pronoun.hard.accuracy"]) == accuracy


def test_both_formats_say_the_same(reported, undrawn):
    marked = (reported / "report.md").read_text(encoding="utf-8").replace("\\", "")
    shown = unescape(re.sub(r"<[^>]*>", "", (reported / "report.html").read_text(encoding="utf-8")))
    plain = [re.sub(r"\s+", "", text) for text in (marked, shown)]
    page = page_of(reported)
    sentences = [page.title, page.verdict, page.about, page.progress]
    for section in page.sections:
        sentences += [section.title, *(block for block in section.blocks if isinstance(block, str))]
    assert len(page.sections) == len(SECTIONS) - 1  # all is decided, so there is no next step
    for sentence in sentences:
        assert all(re.sub(r"\s+", "", sentence) in text for text in plain), sentence


def test_the_same_sweep_gives_the_same_report(reported, tmp_path):
    for file in (job(1, 1), job(4, 3), "sweep.json"):  # whenever it was written
        path = reported / file
        path.touch()
    completed("report", f"sweep={reported}", f"output={tmp_path / 'again'}", "resamples=200")
    files = sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert len(files) > 20
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (reported / file).read_bytes(), file


def test_what_is_kept_of_the_runs_makes_the_same_report(sweep, undrawn, tmp_path):
    edit(sweep / job(4, 2) / "metrics.json", config_hash=None)
    (sweep / job(1, 1) / "model.safetensors").touch()
    kept = tmp_path / "kept"
    completed("report", f"sweep={sweep}", f"output={kept}", "keep=true")
    names = {path.relative_to(kept / "runs").as_posix() for path in (kept / "runs").rglob("*") if path.is_file()}
    files = ("config.yaml", "metrics.json", "logs/metrics.csv", "test.hyp.de", "valid.hyp.de")
    finished = {f"{job(heads, seed)}/{file}" for heads, seed in ((1, 1), (1, 2), (4, 1)) for file in files}
    assert names == finished | {"sweep.json"}
    assert all(is_finished(run) for run in (kept / "runs").iterdir() if run.is_dir())
    # Put back where a run with references lies, it says what was said before.
    shutil.copytree(kept / "runs", sweep, dirs_exist_ok=True)
    for number in (1, 2):
        for split in ("test", "valid"):
            (sweep / job(1, number) / f"{split}.ref.de").unlink()
    completed("report", f"sweep={sweep}")
    assert (sweep / "results.csv").read_bytes() == (kept / "results.csv").read_bytes()
    assert table_of(sweep) == table_of(kept)


def table_of(report: Path) -> list[str]:
    return [line for line in (report / "report.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]


def test_the_verdict_comes_first(reported):
    lines = (reported / "report.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Heads at constant width"
    verdict = r"\*\*4 heads reach the highest BLEU on valid \+ test, [\d.]+ on average, and beat 1\.\*\*"
    assert re.match(verdict, lines[2])
    assert any(line.startswith("| 1 − 4  | differ: 4 heads beat 1 ") for line in lines)
    assert "All 6 runs are finished." in lines


def test_an_unfinished_sweep_lists_the_missing_runs(sweep, undrawn):
    edit(sweep / job(1, 2) / "metrics.json", config_hash=None)
    (sweep / job(1, 2) / "job.json").write_text('{"state": "failed"}', encoding="utf-8")
    (sweep / job(1, 2) / "job.log").write_text("begin\nerror: out of <memory>\n\n", encoding="utf-8")
    shutil.rmtree(sweep / job(4, 2))
    page = page_of(sweep)
    assert page.progress.startswith("2 of 4 runs are finished.")
    why = {unfinished.name: unfinished.why for unfinished in page.unfinished}
    log = sweep / job(1, 2) / "job.log"
    assert why == {job(1, 2): f"failed: error: out of <memory> ({log})", job(4, 2): "not begun"}
    assert "out of &lt;memory&gt;" in html(page)
    assert "the spread between seeds is unknown" in page.verdict
    plan = "python scripts/train.py --multirun study=heads_fixed_width model.num_heads=1,4"
    commands = [block.text for block in section_of(page, "What to type next").blocks if isinstance(block, Code)]
    assert commands == [f"{plan} seed=1,2", f"{plan} seed=1,2,3", f"python scripts/report.py sweep={sweep}"]


def test_without_a_plan_the_folders_are_the_runs(sweep):
    planned = read_sweep(sweep)
    (sweep / "sweep.json").unlink()
    for design in (planned, read_sweep(sweep)):
        assert [(row.label, [run.seed for run in row.runs]) for row in design.rows] == [("1", [1, 2]), ("4", [1, 2])]
        assert design.jobs == 4


def test_rows_without_a_study_are_what_differs(tmp_path):
    for norm in ("pre", "post"):
        for seed in (1, 2):
            model = {"num_heads": [4, 1], "norm": norm}
            data = {"target": "de", "source": "en", "root": f"/somewhere/{norm}{seed}"}
            write_run(tmp_path / f"{norm}{seed}", sentences(5), 0.2, seed, {"model": model, "data": data})
    sweep = read_sweep(tmp_path)
    assert [row.label for row in sweep.rows] == ["post", "pre"]
    assert (sweep.design.label, sweep.differing, sweep.notes) == ("norm", ("model.norm",), ())
    assert sweep.shared["model.num_heads"] == [4, 1]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([16, 4, 1], ["1", "4", "16"]),
        ([[4, 1], [1, 4]], ["[1,4]", "[4,1]"]),
        (["rotary", "learned"], ["learned", "rotary"]),
        ([None, 32], ["32", "null"]),
    ],
)
def test_rows_of_a_study_are_the_values_of_a_setting(values, labels, tmp_path):
    for index, value in enumerate(values):
        # What comes with the setting makes no row of its own.
        model = {"num_heads": value, "d_feed_forward": 100 + index}
        write_run(tmp_path / str(index), sentences(5), 0.2, 1, {"model": model, "study": STUDY})
    assert rows_of(tmp_path) == labels


def test_runs_that_don_t_belong_are_named(sweep):
    write_run(sweep / "twice", sentences(30), 0.2, 2, {"model": {"num_heads": 4, "norm": "post"}, "study": STUDY})
    shutil.copytree(sweep / job(4, 1), sweep / "again")
    notes = " ".join(read_sweep(sweep).notes)
    assert "twice has the seed of model.num_heads=4,seed=2, and is left out." in notes
    assert "again has the seed of model.num_heads=4,seed=1" in notes
    write_run(sweep / "third", sentences(30), 0.2, 3, {"model": {"num_heads": 4, "norm": "post"}, "study": STUDY})
    notes = " ".join(read_sweep(sweep).notes)
    assert "The runs of 4 differ in more than their seed: model.norm" in notes


FLAGS = {
    "an inconstant quantity": (
        {"parameters": 1000000},
        r"parameters should be constant, but differs by 8\.8 %: 919,040 \(1\) and 959,520 \(4\)",
    ),
    "a figure that a run lacks": (
        {"train__steps": None},
        "train.steps should be constant, but cannot be checked, since not every run has it",
    ),
    "hardware": ({"hardware__threads": 8}, "The runs differ in their hardware, so seconds and tokens/s cannot"),
    "versions": ({"versions__torch": "2.0"}, "The runs differ in their versions"),
    "precision": ({"train__precision": "32-true"}, "The runs differ in their precision"),
    "another score": ({"test__bleu": 1.0}, r"seed=2: its test\.hyp has BLEU .*, and its metrics\.json says 1\.00"),
    "a run that diverged": ({"valid__ppl": float("nan")}, "seed=2 has no finite validation perplexity"),
}


@pytest.mark.parametrize(("changes", "flag"), FLAGS.values(), ids=FLAGS)
def test_problems_of_a_study_are_flagged(changes, flag, sweep, undrawn):
    assert page_of(sweep).flags == ()
    edit(sweep / job(4, 2) / "metrics.json", **changes)
    assert re.search(flag, " ".join(page_of(sweep).flags))


def test_sentences_are_counted_in_the_tokens_that_the_signature_names(sweep, undrawn):
    for folder in sweep.glob("*/"):
        for split in ("valid", "test"):
            texts = [(folder / f"{split}.{kind}.de").read_text(encoding="utf-8") for kind in ("hyp", "ref")]
            bleu = score(*(text.splitlines() for text in texts), "char")["bleu"]
            edit(folder / "metrics.json", **{f"{split}__bleu": bleu.value})
        edit(folder / "metrics.json", test__signature__bleu=bleu.signature)
    assert page_of(sweep).flags == ()  # none says that the translations have another BLEU


def test_references_come_from_any_run(sweep, undrawn):
    expected = page_of(sweep)
    for name in (job(1, 1), job(1, 2), job(4, 1)):
        (sweep / name / "test.ref.de").unlink()
        (sweep / name / "valid.ref.de").unlink()
    assert page_of(sweep) == expected
    (sweep / job(4, 2) / "test.ref.de").unlink()
    page = page_of(sweep)
    assert "No run has the test references" in " ".join(page.flags)
    assert "bootstrap" not in markdown(page)
    assert "bootstrap" in markdown(expected)


def test_a_section_that_fails_is_a_flag(sweep, undrawn, monkeypatch):
    titles = [section.title for section in page_of(sweep).sections]
    monkeypatch.setattr("headcount.report.sections.lengths.by_length", lambda _: 1 / 0)
    page = page_of(sweep)
    assert page.flags == ("The section 'lengths' is missing, since it failed: ZeroDivisionError: division by zero",)
    assert [section.title for section in page.sections] == [title for title in titles if title != "By length"]


def test_a_new_metric_is_shown(sweep, undrawn, monkeypatch):
    monkeypatch.setitem(METRICS, "other", replace(METRICS["chrf"], label="Error", higher_is_better=False))
    assert ".other," not in results_csv(read_sweep(sweep))
    for index, path in enumerate(sweep.glob("*/metrics.json")):
        edit(path, test__other=40.0 + index, test__signature__other="case:lc")
    assert "test.other,test.length_ratio," in results_csv(read_sweep(sweep))
    page = page_of(sweep)
    assert "test Error (lower is better)" in table_of_section(page, "Results").headers
    assert "Error: `case:lc`" in markdown(page)


def test_other_vocabularies_have_other_perplexities(tmp_path, undrawn):
    for size in (1000, 2000):
        data = {"target": "de", "source": "en", "vocab_size": size}
        write_run(tmp_path / str(size), sentences(5), 0.2, 1, {"data": data})
    assert "different vocabularies" in " ".join(page_of(tmp_path).flags)


def test_text_from_runs_is_escaped(tmp_path, undrawn):
    study = STUDY | {"title": "<b>a|b_c_ *d*", "label": '"><i>', "about": "x & <script>y</script>"}
    page = page_of(write_sweep(tmp_path / "s", {1: 0.4, 4: 0.2}, seeds=(1, 2), lines=20, study=study))
    text = html(page)
    assert "<h1>&lt;b&gt;a|b_c_ *d*</h1>" in text
    assert not {"b", "i", "script"} & set(Checker(text).tags)
    assert markdown(page).startswith("# \\<b\\>a\\|b_c\\_ \\*d\\*\n")


BAD = {
    "nothing given": ((), "sweep=null: must be the directory of a sweep"),
    "no directory": (("sweep=nowhere",), "sweep=nowhere: no such directory"),
    "no runs": (("sweep=empty",), "sweep=empty: holds no run"),
    "a file": (("sweep=file",), "sweep=file: no such directory"),
    "output": (("sweep=sweep", "output=file"), "output=file: can't be written to"),
    "effect": (("sweep=sweep", "effect=0"), "effect=0: must be more than 0"),
    "effect as a word": (("sweep=sweep", "effect=much"), "effect=much: must be a number"),
    "resamples": (("sweep=sweep", "resamples=3"), "resamples=3: must be 100 or more"),
    "nowhere to keep": (("sweep=sweep", "keep=true"), "keep=true: needs a directory, output=DIR"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(arguments, message, sweep, undrawn):
    (sweep.parent / "empty").mkdir()
    (sweep.parent / "file").touch()
    (line,) = refused("report", *arguments, cwd=sweep.parent)
    assert line.startswith(message)


def other_language(config: Path) -> None:
    rewrite(config, with_data("target: fr"))
    config.with_name("test.ref.de").unlink()


def publish_nothing(config: Path) -> None:
    rewrite(config, lambda text: text.replace("liu2021", "nobody"))


ONE = job(4, 1)
TWO = r"\S+heads=1,seed=1 and \S+heads=4,seed=1"
HARMS = [  # files, what is done to them, message
    ("*/metrics.json", lambda path: edit(path, config_hash=None), r"sweep=\S+: none of its 4 runs is finished yet"),
    (f"{ONE}/metrics.json", lambda path: path.write_text("{"), r"\S+4,seed=1/metrics\.json: not readable JSON"),
    (f"{ONE}/metrics.json", lambda path: edit(path, test__signature=None), r"\S+\.json: has no test\.signature\.bleu"),
    (f"{ONE}/test.ref.de", lambda path: path.write_text("x\n" * 30), f"{TWO} were tested on different references"),
    (f"{ONE}/config.yaml", other_language, f"{TWO} were trained on different corpora"),
    (f"{ONE}/metrics.json", lambda path: edit(path, test__signature__bleu="case:lc"), f"{TWO} were scored differently"),
    (f"{ONE}/test.hyp.de", lambda path: path.write_text("x\n"), r"\S+heads=4,seed=1: its test\.hyp has 1 lines"),
    ("sweep.json", lambda path: path.write_text("[]"), r"\S+sweep\.json: not the plan of a sweep"),
    ("*/config.yaml", publish_nothing, r"study\.published=nobody: no such table; there are vaswani2017_a"),
]


@pytest.mark.parametrize(("files", "harm", "message"), HARMS)
def test_a_sweep_that_cannot_be_read_is_one_line(files, harm, message, sweep, undrawn):
    for path in sweep.glob(files):
        harm(path)
    (line,) = refused("report", f"sweep={sweep}", cwd=sweep)
    assert re.match(message, line)


def named(folder: Path) -> Names:
    return Names.of(read_sweep(folder))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([[30.0, 31.0, 30.5], [36.0, 37.0, 36.5]], "differ: 4 heads beat 1"),
        ([[36.0, 37.0, 36.5], [30.0, 31.0, 30.5]], "differ: 1 head beats 4"),
        ([[36.0, 36.01, 36.02], [36.2, 36.21, 36.22]], "differ: 4 heads beat 1, by less than 0.5 BLEU"),
        ([[36.0, 36.1, 36.2], [36.05, 36.1, 36.15]], "equal within 0.5 BLEU"),
        ([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]], "undecided"),
    ],
)
def test_a_pair_differs_is_equal_or_undecided(scores, words, sweep):
    (pair,) = compare(scores).differences
    assert pair_verdict(pair, named(sweep), 0.5, "BLEU") == words


def test_of_two_losses_the_lower_wins(sweep):
    (pair,) = compare([[1.0, 1.1, 1.05], [2.0, 2.1, 2.05]]).differences
    assert pair_verdict(pair, named(sweep), 0.02, "nats", higher=False) == "differ: 1 head beats 4"


def test_seeds_needed_come_with_their_interval():
    text = needed(compare([[36.0, 37.0, 36.5], [36.4, 36.9, 36.0]]), 0.3, "BLEU")
    about, low, high = (int(number) for number in re.findall(r"(?:About|:|to) (\d+)", text))
    assert low < about < high
    assert 40 <= about < 50
    assert "0.3 BLEU four times in five" in text
    drawn = np.random.default_rng(0).normal(size=(1000, 2))
    of_sentences = interaction(np.repeat(drawn, 2, axis=1), [0, 0, 1, 1], 1000)
    text = needed(compare([[36.0, 36.1], [36.0, 36.2]], of_sentences), 0.3, "BLEU")
    assert text == "No number of seeds a row would detect a difference of 0.3 BLEU on these sentences."
    assert needed(compare([[36.0], [36.0]], interaction(drawn, [0, 1], 1000)), 0.3, "BLEU") == ""


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([[30.0, 31.0], [36.0, 37.0]], r"4 heads reach the highest test BLEU, 36\.5 on average, and beat 1\.$"),
        (
            [[36.0, 37.0], [36.4, 36.9]],
            r"4 heads reach the highest test BLEU, 36\.6 on average\. Undecided against 1\.$",
        ),
        (
            [[36.0, 36.1, 36.2], [36.05, 36.1, 36.2]],
            r"4 heads reach the highest test BLEU, 36\.1 on average\. Equal within 0\.5 BLEU: 1\.$",
        ),
        ([[36.0], [30.0]], r"1 head reaches the highest test BLEU, 36\.0\. With one seed a row and no text"),
        ([[36.0, 36.1]], "There is a single row"),
        (
            [[30.0, 31.0], [36.0, 37.0], [36.2, 36.9]],
            r"16 heads reach the highest test BLEU, 36\.\d on average, and beat 1\. Undecided against 4\. Of 3 pairs "
            r"of rows, 2 differ, none is equal within 0\.5 BLEU and 1 is undecided\.$",
        ),
    ],
)
def test_sentences_of_a_study(scores, text, sweep):
    write_run(sweep / "more", sentences(30), 0.2, 1, {"model": {"num_heads": 16, "norm": "pre"}, "study": STUDY})
    assert re.match(text, summary(compare(scores), named(sweep), "test BLEU", 0.5))


def test_rows_whose_names_begin_with_a_number_are_not_counted(tmp_path):
    for arm in ("1 rnn", "8 dot"):
        study = STUDY | {"varies": "study.arm", "arm": arm, "label": "step"}
        write_run(tmp_path / arm, sentences(5), 0.2, 1, {"study": study})
    (pair,) = compare([[36.0, 37.0, 36.5], [30.0, 31.0, 30.5]]).differences
    assert pair_verdict(pair, named(tmp_path), 0.5, "BLEU") == "differ: step 1 rnn beats step 8 dot"


def test_bleu_is_compared_on_all_held_out_sentences(sweep, undrawn):
    endpoint = bleu_endpoint(read_sweep(sweep), 100)
    assert (endpoint.splits, endpoint.sentences, endpoint.name) == (("valid", "test"), 60, "BLEU on valid + test")
    run = sweep / job(4, 2)
    texts = ("".join((run / f"{split}.{kind}.de").read_text() for split in endpoint.splits) for kind in ("hyp", "ref"))
    hypotheses, references = (text.splitlines() for text in texts)
    assert endpoint.scores[1][1] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    headers = table_of_section(page_of(sweep), "Results").headers
    assert {"BLEU on valid + test", "valid BLEU", "test BLEU", "length ratio"} <= set(headers)
    assert not endpoint.flags


def test_without_validation_text_the_test_set_decides(sweep, undrawn):
    (sweep / job(4, 2) / "valid.hyp.de").unlink()
    page = page_of(sweep)
    assert f"{job(4, 2)} lack the valid translations (valid.hyp)" in " ".join(page.flags)
    assert "The primary endpoint is test BLEU" in markdown(page)
    assert "30 sentences" in markdown(page)


@pytest.mark.parametrize("counted", [True, False], ids=["from the text", "from metrics.json"])
def test_the_length_ratio_stands_beside_bleu(counted, sweep, undrawn):
    for path in () if counted else sweep.glob("*/*.ref.de"):
        path.unlink()
    table = table_of_section(page_with(sweep, test__length_ratio=0.875), "Results")
    shown = [row[table.headers.index("length ratio")] for row in table.cells]
    assert all(0.9 < float(ratio) < 1.1 for ratio in shown) if counted else shown == ["0.875", "0.875"]


def test_an_average_that_lost_is_flagged(sweep, undrawn):
    assert not page_with(sweep, weights={"scored": "average", "valid_loss": {"average": 1.0, "last": 1.2}}).flags
    edit(sweep / job(1, 1) / "metrics.json", weights__valid_loss__average=1.35, weights__scored="last")
    (flag,) = page_of(sweep).flags
    assert flag.startswith("The average lost in 1 of 4 runs: its validation loss was higher than that of the last")
    assert "by 0.15 nats" in flag
    by_bleu = {"valid_bleu": {"average": 30.0, "last": 29.0}, "valid_loss": {"average": 1.35, "last": 1.2}}
    edit(sweep / job(1, 1) / "metrics.json", weights={"scored": "average", **by_bleu})
    assert not page_of(sweep).flags


def test_runs_that_scored_a_stale_average_are_flagged(sweep, undrawn):
    """Older runs, whose metrics.json names no weights, but whose log ends with a lower loss."""
    for index, path in enumerate(sorted(sweep.glob("*/metrics.json"))):
        last = float((path.parent / "logs" / "metrics.csv").read_text().splitlines()[-1].split(",")[5])
        edit(path, valid__loss=last + 0.17 + 0.01 * (index % 2))
    (flag,) = page_of(sweep).flags
    worse = "The scored weights are worse than the last by 0.17 to 0.18 nats of validation loss in 4 of 4 runs"
    assert flag.startswith(worse)
    # A best checkpoint is no average; the best by BLEU may have more loss.
    for path in sweep.glob("*/config.yaml"):
        rewrite(path, "averaging:\n  _target_: headcount.training.averaging.BestCheckpoint\n{}".format)
    assert not page_of(sweep).flags


def advice(sweep: Path, noise: float) -> tuple[str, str]:
    """The first step, where the seeds of a row lie 1 BLEU apart and the draw of 60 sentences makes `noise` of that."""
    scores = ((36.0, 37.0), (36.2, 37.2))
    drawn = noise * np.random.default_rng(0).normal(size=(1000, 4))
    comparison = compare(scores, interaction(drawn, [0, 0, 1, 1], 60))
    endpoint = Endpoint(("valid", "test"), 60, scores, (), comparison)
    return next_steps(Study(read_sweep(sweep), endpoint, MARGINS, 1.0))[0]


def test_advice_is_more_of_what_is_missing(sweep):
    what, command = advice(sweep, noise=0.1)
    assert what.startswith("Train ")
    assert "seed=1,2,3," in command
    what, command = advice(sweep, noise=0.7)
    assert re.match(r"Score more sentences: their draw makes nearly all of the error .* instead of 60, would be", what)
    assert command.endswith("seed=1,2 'data.tests={NAME:{source:FILE,target:FILE}}'")


def test_a_spread_that_the_draw_of_sentences_explains_is_flagged(sweep):
    drawn = np.random.default_rng(0).normal(size=(1000, 4))
    for noise in (0.1, 2.0):
        comparison = compare(((36.0, 37.0), (36.2, 37.2)), interaction(noise * drawn, [0, 0, 1, 1], 60))
        explained = "The draw of sentences alone explains the spread of these runs."
        assert needed(comparison, 5.0, "BLEU").endswith(explained) == (noise > 1)
    assert "their draw makes nearly all of the error variance" in advice(sweep, noise=2.0)[0]


def test_the_bound_of_rows_that_vary_unlike_is_named(sweep, undrawn):
    pairs = "Every pair of rows: validation loss"
    note = table_of_section(page_of(sweep), pairs).note
    assert "(studentised range), over seeds" in note
    for path in sweep.glob("*/metrics.json"):
        heads, seed = (int(part.rpartition("=")[2]) for part in path.parent.name.split(","))
        edit(path, valid__loss=2 + seed * (1.0 if heads == 1 else 1e-6))
    note = table_of_section(page_of(sweep), pairs).note
    assert "(studentised range or Bonferroni's bound, whichever is larger), over seeds" in note


def test_more_sentences_of_the_built_in_corpus_are_a_setting(sweep):
    for path in sweep.glob("*/config.yaml"):
        rewrite(path, with_data("test_size: 30"))
    what, command = advice(sweep, noise=0.7)
    wanted = int(re.search(r"times as many, ([\d,]+) instead of 60", what)[1].replace(",", ""))
    assert command.endswith(f"seed=1,2 data.test_size={wanted - 30}")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("margin.bleu=0", "margin.bleu=0: must be a number above 0"),
        ("margin.bleu=inf", "margin.bleu=inf: must be a number above 0"),
        ("margin.loss=small", "margin.loss=small: must be a number above 0"),
        ("+margin.chrf=1", "margin.chrf: no such setting; there are bleu, loss, accuracy"),
    ],
)
def test_a_margin_that_cannot_be_is_one_line(argument, message, sweep):
    assert refused("report", f"sweep={sweep}", argument, cwd=sweep) == [message]


def test_published_tables_are_whole():
    keys = ["vaswani2017_a", "vaswani2017_b", "shazeer2019", "bhojanapalli2020", "liu2021", "wu2021"]
    for table in published(keys):
        assert table.source
        assert table.about
        assert bool(table.rows) == bool(table.convention) == bool(table.label)
        assert table.read == bool(table.rows)
    assert [row.bleu for row in published(["vaswani2017_a"])[0].rows] == [24.9, 25.5, 25.8, 25.8, 25.4]


def test_power_prints_a_table():
    arguments = ("seeds=[2,3]", "rows=2", "studies=4", "resamples=20", "world.sentences=50", "effect=20")
    result = completed("power", *arguments)
    assert not result.errors
    first, _, _, _, *rows = result.out.splitlines()
    assert first.startswith("2 rows, 50 sentences, run-to-run deviation 0.4, effect 8, margin 1.6; 4 studies of each")
    assert [row.split()[0] for row in rows] == ["2", "3"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("seeds=[1]", "seeds=[1]: each must be 2 or more"),
        ("seeds=[]", "seeds=[]: must be one number or more"),
        ("seeds=3", "seeds=3: must be a list"),
        ("rows=1", "rows=1: must be 2 or more"),
        ("studies=0", "studies=0: must be 1 or more"),
        ("margin=0", "margin=0: must be more than 0"),
        ("world.deviations=[1,3]", "world.deviations=[1, 3]: must be one for each of the 4 rows, or none"),
        ("world.deviations=[-1]", "world.deviations=[-1]: each must be 0 or more"),
        ("world.sentences=0", "world.sentences=0: must be 1 or more"),
        ("world.noise=-1", "world.noise=-1: must be 0 or more"),
        ("world.bleu=x", "world.bleu=x: must be a number"),
        ("+world.x=1", "world.x: no such setting"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(argument, message, tmp_path):
    (line,) = refused("power", argument, cwd=tmp_path)
    assert line.startswith(message)


TYPED = (("tiny", "pre"), ("tiny", "post"), ("big", "pre"))


def varied(folder: Path, plan: dict | None) -> list[str]:
    """The names of rows that differ in several settings, of which one follows from another."""
    for index, (norm, size, width) in enumerate([("pre", 16, 32), ("post", 16, 32), ("pre", 64, 128)]):
        model = {"norm": norm, "d_model": size, "d_feed_forward": width}
        write_run(folder / f"run{index},seed=1", sentences(5), 0.2, 1, {"model": model})
    if plan:
        (folder / "sweep.json").write_text(json.dumps({"overrides": [], "jobs": plan}), encoding="utf-8")
    return rows_of(folder)


def test_rows_are_named_by_their_overrides(tmp_path):
    plan = {f"run{i},seed=1": [f"model={size}", f"model.norm={norm}", "seed=1"] for i, (size, norm) in enumerate(TYPED)}
    assert varied(tmp_path, plan) == ["model=big, norm=pre", "model=tiny, norm=post", "model=tiny, norm=pre"]


def test_rows_are_named_by_as_few_settings_as_distinguish_them(tmp_path):
    names = [f"d_feed_forward={rest}" for rest in ("32, norm=post", "32, norm=pre", "128, norm=pre")]
    assert varied(tmp_path, None) == names


def test_a_name_that_would_be_long_is_that_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.report.rows.LONGEST", 5)
    assert varied(tmp_path, None) == ["run0", "run1", "run2"]


def test_one_of_a_count_is_in_the_singular(sweep):
    rows = read_sweep(sweep).rows
    names = Names("heads of keys and values", rows)
    assert [names.full(row) for row in (0, 1)] == ["1 head of keys and values", "4 heads of keys and values"]
    assert Names("d_k", rows).full(1) == "4"


def test_a_study_may_vary_a_setting_of_its_own(tmp_path):
    for arm in ("base", "encoder_1"):
        study = STUDY | {"varies": "study.arm", "arm": arm}
        write_run(tmp_path / arm, sentences(5), 0.2, 1, {"study": study})
    assert rows_of(tmp_path) == ["base", "encoder_1"]
    assert not read_sweep(tmp_path).notes
