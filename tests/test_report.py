"""Reports on toy sweeps: rows, verdicts, sections, files, and messages for bad input."""

import csv
import gzip
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from conftest import completed, refused, rewrite
from reports import MARGINS, ROWS, edit, job, page_of, rows_of, table_of_section, with_data
from sweeps import STUDY, sentences, write_run, write_sweep

from headcount.evaluation.metrics import METRICS, score
from headcount.report.page import html, markdown
from headcount.report.read import read_sweep
from headcount.report.study import Study
from headcount.report.write import SECTIONS, keep_runs, make_page, results_csv
from headcount.run.kept import read


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Path:
    """A finished sweep and its report; not to be written to."""
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), ROWS)
    assert completed("report", f"sweep={folder}", "resamples=200").out == ""
    return folder


@pytest.mark.medium
def test_each_plot_is_there_as_svg(reported):
    shown = re.findall(r"\]\(plots/(\w+)\.svg\)", (reported / "report.md").read_text(encoding="utf-8"))
    assert set(shown) == {"quality", "differences", "contrastive", "curves"}
    assert {path.stem for path in (reported / "plots").glob("*.svg")} == set(shown)
    assert not list(reported.rglob("*.part"))


@pytest.mark.medium
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


@pytest.mark.medium
def test_both_formats_say_the_same(reported, undrawn):
    marked = re.sub(r"[\\`]", "", (reported / "report.md").read_text(encoding="utf-8"))
    shown = unescape(re.sub(r"<[^>]*>", "", (reported / "report.html").read_text(encoding="utf-8")))
    plain = [re.sub(r"\s+", "", text) for text in (marked, shown)]
    page = page_of(reported)
    texts = [page.title, page.verdict, page.about, *(section.title for section in page.sections)]
    assert len(page.sections) == len(SECTIONS) - 3  # no effects of several settings, no choice, no contrasts
    for text in texts:
        assert all(re.sub(r"[\s\\`]+", "", text) in each for each in plain), text


@pytest.mark.medium
def test_the_same_sweep_gives_the_same_report(reported, tmp_path):
    for file in (job(1, 1), job(4, 3), "sweep.json"):  # whenever it was written
        path = reported / file
        path.touch()
    completed("report", f"sweep={reported}", f"output={tmp_path / 'again'}", "resamples=200")
    files = sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert len(files) == 7
    for file in files:
        one, other = ((folder / file).read_bytes() for folder in (tmp_path / "again", reported))
        assert one == other, file


@pytest.mark.medium
def test_what_is_kept_of_the_runs_makes_the_same_report(sweep, undrawn, tmp_path):
    edit(sweep / job(4, 2) / "metrics.json", config_hash=None)
    (sweep / job(1, 1) / "model.safetensors").touch()
    kept = tmp_path / "kept"
    completed("report", f"sweep={sweep}", f"keep={kept}")
    assert sorted(path.name for path in kept.iterdir()) == ["report.md", "results.csv", "runs.parquet"]
    runs = read(kept / "runs.parquet")
    texts = {f"{split}.{kind}.de" for split in ("test", "valid") for kind in ("hyp", "ref")}
    files = texts | {"config.yaml", "metrics.json", "logs/metrics.csv"}
    finished = {job(heads, seed): files for heads, seed in ((1, 1), (1, 2), (4, 1))}
    assert {run: set(own) for run, own in runs.items()} == finished | {"": {"sweep.json"}}
    for run, file in ((run, file) for run, own in runs.items() for file in own):
        assert runs[run][file].encode() == (sweep / run / file).read_bytes()
    # A report on what was kept says what was said before, of all runs that are finished.
    for folder in (sweep, tmp_path / "again"):
        given = () if folder == sweep else (f"output={folder}",)
        completed("report", f"sweep={kept / 'runs.parquet' if given else sweep}", *given)
        assert (folder / "results.csv").read_bytes() == (kept / "results.csv").read_bytes()
        assert table_of(folder) == table_of(kept)
        assert "![" in (folder / "report.md").read_text(encoding="utf-8")
    assert "![" not in (kept / "report.md").read_text(encoding="utf-8")
    before = (kept / "report.md").read_bytes()
    completed("report", f"sweep={kept / 'runs.parquet'}")  # beside the runs
    assert (kept / "report.md").read_bytes() == before
    completed("report", f"sweep={kept / 'runs.parquet'}", "margin.bleu=1")
    again = f"report sweep={kept / 'runs.parquet'} output=DIR margin.bleu=1\n"
    assert again in (kept / "report.md").read_text(encoding="utf-8")


@pytest.mark.medium
def test_runs_without_text_are_reported_on_with_that_of_their_corpus(sweep, tmp_path):
    """As kept runs of a corpus that is not the built-in one."""
    before = page_of(sweep)
    texts = {path.name: path.read_bytes() for path in (sweep / job(1, 1)).glob("*.ref.de")}
    for path in sweep.glob("*/*.ref.de"):
        path.unlink()
    for path in sweep.glob("*/config.yaml"):
        rewrite(path, with_data("target: de"))
    assert "test BLEU" in page_of(sweep).verdict
    for name, content in texts.items():
        split = name.partition(".")[0]
        (tmp_path / f"{split}.de.gz").write_bytes(gzip.compress(content))
    found = read_sweep(sweep, text=str(tmp_path))
    assert make_page(Study.of(found, 100, MARGINS)).verdict == before.verdict


def test_only_references_of_the_built_in_corpus_are_kept(sweep, tmp_path):
    for path in sweep.glob("*/config.yaml"):
        rewrite(path, lambda text: text.replace("kind: grammar", "kind: files"))
    kept = read(keep_runs(read_sweep(sweep), tmp_path / "runs.parquet"))
    assert all("test.hyp.de" in kept[run] and "test.ref.de" not in kept[run] for run in kept if run)


def table_of(report: Path) -> list[str]:
    return [line for line in (report / "report.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]


@pytest.mark.medium
def test_the_verdict_comes_first(reported):
    lines = (reported / "report.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Heads at constant width"
    verdict = r"\*\*4 has the highest BLEU on valid \+ test, [\d.]+, and is above 1\.\*\*"
    assert re.match(verdict, lines[2])
    assert any(re.match(r"\| 1 − 4 +\| 4 > 1 ", line) for line in lines)
    assert "Runs: 6, all finished." in lines


def test_an_unfinished_sweep_lists_the_missing_runs(sweep, undrawn):
    edit(sweep / job(1, 2) / "metrics.json", config_hash=None)
    (sweep / job(1, 2) / "job.log").write_text("begin\nerror: out of <memory>\n\n", encoding="utf-8")
    shutil.rmtree(sweep / job(4, 2))
    page = page_of(sweep)
    assert "Runs: 4; 2 are finished" in page.about
    why = {unfinished.name: unfinished.why for unfinished in read_sweep(sweep).unfinished}
    log = sweep / job(1, 2) / "job.log"
    assert why == {job(1, 2): f"out of <memory> ({log})", job(4, 2): "not begun"}
    assert "out of &lt;memory&gt;" in html(page)
    assert "the spread between seeds is unknown" in page.verdict


def test_without_a_plan_the_folders_are_the_runs(sweep):
    planned = read_sweep(sweep)
    (sweep / "sweep.json").unlink()
    (sweep / "latest").symlink_to(job(4, 1))
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
        r"parameters should be constant, but is not: 919,040 \(1\) and 959,520 \(4\)",
    ),
    "a figure that a run lacks": (
        {"train__steps": None},
        "train.steps should be constant, but cannot be checked, since not every run has it",
    ),
    "hardware": ({"hardware__threads": 8}, "The runs differ in their hardware: .*; .*threads 8"),
    "versions": ({"versions__torch": "2.0"}, "The runs differ in their versions"),
    "precision": ({"train__precision": "32-true"}, "The runs differ in their precision"),
    "another score": ({"test__bleu": 1.0}, r"seed=2: its test\.hyp has BLEU .*, and its metrics\.json says 1\.00"),
    "a run without a loss": ({"valid__loss": None}, "No finite validation loss, and .*seed=2"),
    "a run without a score": (
        {"valid__bleu": None},
        "The verdicts on BLEU do not use the valid sentences: no valid.ref or valid.hyp of .*seed=2",
    ),
}


@pytest.mark.medium
@pytest.mark.parametrize(("changes", "flag"), FLAGS.values(), ids=FLAGS)
def test_problems_of_a_study_are_flagged(changes, flag, sweep, undrawn):
    assert page_of(sweep).flags == ()
    edit(sweep / job(4, 2) / "metrics.json", **changes)
    assert re.search(flag, " ".join(page_of(sweep).flags))


@pytest.mark.medium
def test_sentences_are_counted_in_the_tokens_that_the_signature_names(sweep, undrawn):
    for folder in sweep.glob("*/"):
        for split in ("valid", "test"):
            texts = [(folder / f"{split}.{kind}.de").read_text(encoding="utf-8") for kind in ("hyp", "ref")]
            bleu = score(*(text.splitlines() for text in texts), "char")["bleu"]
            edit(folder / "metrics.json", **{f"{split}__bleu": bleu.value})
        edit(folder / "metrics.json", test__signature__bleu=bleu.signature)
    assert page_of(sweep).flags == ()  # none says that the translations have another BLEU


@pytest.mark.medium
def test_references_come_from_any_run(sweep, undrawn):
    expected = markdown(page_of(sweep))
    for name in (job(1, 1), job(1, 2), job(4, 1)):
        (sweep / name / "test.ref.de").unlink()
        (sweep / name / "valid.ref.de").unlink()
    assert markdown(page_of(sweep)) == expected
    (sweep / job(4, 2) / "test.ref.de").unlink()
    page = page_of(sweep)
    assert "no test.ref or test.hyp of " in " ".join(page.flags)
    assert "bootstrap" not in markdown(page)
    assert "bootstrap" in expected


@pytest.mark.medium
def test_a_section_that_fails_is_a_flag(sweep, undrawn, monkeypatch):
    title, titles = "Every pair of conditions", [section.title for section in page_of(sweep).sections]
    monkeypatch.setattr("headcount.report.sections.pairs.pair_lines", lambda *_: 1 / 0)
    page = page_of(sweep)
    failed = "'pairs' is missing, since it failed: ZeroDivisionError: division by zero"
    assert page.flags == (failed,)
    assert [section.title for section in page.sections] == [each for each in titles if each != title]


def test_a_new_metric_is_shown(sweep, undrawn, monkeypatch):
    monkeypatch.setitem(METRICS, "other", replace(METRICS["chrf"], label="Error", higher_is_better=False))
    assert ".other," not in results_csv(read_sweep(sweep))
    for index, path in enumerate(sweep.glob("*/metrics.json")):
        edit(path, test__other=40.0 + index, test__signature__other="case:lc")
    assert "test.other,test.length_ratio," in results_csv(read_sweep(sweep))
    page = page_of(sweep)
    assert "test Error" in [row[0] for row in table_of_section(page, "Quality").cells]
    assert "Error: `case:lc`" in markdown(page)


@pytest.mark.medium
def test_other_vocabularies_have_other_perplexities(tmp_path, undrawn):
    for size, dropout in ((1000, 0.1), (2000, 0.1), (2000, 0.2)):
        config = {"tokenizer": {"vocab_size": size}, "model": {"dropout": dropout}}
        for seed in (1, 2):
            write_run(tmp_path / f"{size}_{dropout}_{seed}", sentences(5), 0.2 + 0.01 * seed, seed, config)
    page = page_of(tmp_path)
    assert "different vocabularies" in " ".join(page.flags)
    assert len(table_of_section(page, "Every pair of conditions").cells) == 3
    ((pair, *_),) = table_of_section(page, "Every pair of conditions", 1).cells
    assert pair.count("2000") == 2


BAD = {
    "nothing given": ((), "sweep=null: must be the directory of a sweep"),
    "no directory": (("sweep=nowhere",), "sweep=nowhere: no such directory"),
    "no runs": (("sweep=empty",), "sweep=empty: holds no run"),
    "a file": (("sweep=file",), "file: not a file of kept runs"),
    "output": (("sweep=sweep", "output=file"), "file/plots: Not a directory"),
    "output of what is kept": (("sweep=sweep", "keep=file"), "file: File exists"),
    "no margin": (("sweep=sweep", "~margin.loss"), "margin.loss: is missing; give it a value"),
    "another margin": (("sweep=sweep", "+margin.chrf=1"), "margin.chrf: no such setting; there are bleu"),
    "endless margin": (("sweep=sweep", "margin.bleu=inf"), "margin.bleu=inf: must be less than inf"),
    "resamples": (("sweep=sweep", "resamples=3"), "resamples=3: must be greater than or equal to 100"),
    "kept twice": (("sweep=sweep", "keep=a", "output=b"), "keep=a: needs a directory of runs as sweep, and no output"),
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


ONE = job(4, 1)
TWO = r"\S+heads=1,seed=1 and \S+heads=4,seed=1"
HARMS = [  # files, what is done to them, message
    ("*/metrics.json", lambda path: edit(path, config_hash=None), r"sweep=\S+: none of its 4 runs is finished yet"),
    (f"{ONE}/metrics.json", lambda path: path.write_text("{"), r"\S+4,seed=1/metrics\.json: cannot be read"),
    (f"{ONE}/test.ref.de", lambda path: path.write_text("x\n" * 30), f"{TWO} were tested on different references"),
    (f"{ONE}/config.yaml", other_language, f"{TWO} were trained on different corpora"),
    (f"{ONE}/metrics.json", lambda path: edit(path, test__signature__bleu="case:lc"), f"{TWO} were scored differently"),
    (f"{ONE}/test.hyp.de", lambda path: path.write_text("x\n"), r"\S+heads=4,seed=1: its test\.hyp has 1 lines"),
    ("sweep.json", lambda path: path.write_text("[]"), r"\S+sweep\.json: not the plan of a sweep"),
]


@pytest.mark.parametrize(("files", "harm", "message"), HARMS)
def test_a_sweep_that_cannot_be_read_is_one_line(files, harm, message, sweep, undrawn):
    for path in sweep.glob(files):
        harm(path)
    (line,) = refused("report", f"sweep={sweep}", cwd=sweep)
    assert re.match(message, line)
