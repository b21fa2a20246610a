"""Untrusted run directories: opening one runs no code and writes no file of its choice."""

import contextlib
import json
import shutil
import time
from pathlib import Path

import conftest
import pyarrow as pa
import pytest
from built import files, hub
from conftest import command, completed, snapshot
from hostile import CHECKPOINT, CONFIG, TOKENIZER, WEIGHTS, bounded, data_that_lies
from limits import Late
from omegaconf import OmegaConf
from sweeps import write_sweep

from headcount.errors import InputError
from headcount.report.table import Table
from headcount.run.arrays import read_arrays
from headcount.run.opened import open_run
from headcount.run.resume import newest_checkpoint

FILES = {f"{split}_{side}": "x" for split in ("train", "valid", "test") for side in ("source", "target")}


@pytest.fixture
def run(home, tmp_path):
    """A run to spoil, in a folder in which something precious lies."""
    (tmp_path / "precious").write_text("precious")
    return shutil.copytree(home / "runs" / "second", tmp_path / "work" / "run")


def spoil(run: Path, **settings):
    config = OmegaConf.load(run / "config.yaml")
    for setting, value in settings.items():
        OmegaConf.update(config, setting.replace("__", "."), value, merge=False, force_add=True)
    OmegaConf.save(config, run / "config.yaml")


def refused(run: Path, *arguments: str) -> str:
    """The one line with which a command refuses the run; nothing has changed."""
    (line,) = conftest.refused(*arguments, cwd=run.parent, watched=run.parents[1])
    return line


@pytest.mark.medium
@pytest.mark.parametrize("code", ["x/../../../PWNED", "..", "", "x" * 36, "de\n"])
def test_a_language_code_is_no_path(code, run):
    (run / "test.hyp.x").mkdir()
    spoil(run, data__target=code)
    assert "data.target" in refused(run, "evaluate", "run=run")
    with pytest.raises(ValueError, match=r"data\.target"):
        files("en", code, **FILES)
    with pytest.raises(ValueError, match=r"data\.source"):
        hub("some/set", code, "en")


@pytest.mark.medium
def test_a_run_that_is_evaluated_follows_no_link(run):
    names = ("test.hyp.de", "test.ref.de", "test.hyp.de.part", "test.ref.de.part", "metrics.json.part")
    for name in names:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(run.parents[1] / "precious")
    completed("evaluate", "run=run", cwd=run.parent)
    assert (run.parents[1] / "precious").read_text() == "precious"
    assert not (run / "test.hyp.de").is_symlink()
    assert len((run / "test.ref.de").read_text().splitlines()) == 30


@pytest.mark.medium
def test_a_run_does_not_choose_where_data_is_prepared(run):
    elsewhere = run.parents[1] / "elsewhere"
    (elsewhere / "prepared").mkdir(parents=True)
    spoil(run, data__directory=str(elsewhere))
    completed("evaluate", "run=run", cwd=run.parent)
    assert not list((elsewhere / "prepared").iterdir())
    (key,) = (path for path in (run.parent / "data" / "prepared").iterdir() if path.is_dir())
    shutil.move(key, elsewhere / "prepared")
    shutil.rmtree(run.parent / "data")
    before = snapshot(elsewhere)
    completed("evaluate", "run=run", cwd=run.parent)
    assert snapshot(elsewhere) == before
    assert not (run.parent / "data").exists()  # what is prepared there is read


@pytest.mark.medium
@pytest.mark.parametrize(
    ("slot", "target"),
    [
        ("search", "pytorch_lightning.Trainer"),
        ("search", "headcount.data.corpora.HubCorpus"),
        ("model", "pytorch_lightning.loggers.WandbLogger"),
        ("model.cross_attention", "headcount.model.transformer.Transformer"),
        ("data", "pytorch_lightning.loggers.MLFlowLogger"),
        ("data.cleaning", "torch.optim.AdamW"),
        ("tokenizer", "headcount.training.callbacks.LastCheckpoint"),
        ("logger.csv", "headcount.data.corpora.HubCorpus"),
        ("logger", "pytorch_lightning.loggers.WandbLogger"),
        ("trainer", "headcount.training.callbacks.LastCheckpoint"),
        ("trainer.strategy", "pytorch_lightning.Trainer"),
        ("checkpoint", "headcount.data.corpora.FilesCorpus"),
        ("study", "torch.optim.AdamW"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(slot, target, run):
    spoil(run, **({"data._target_": target} if slot == "data" else {slot: {"_target_": target}}))
    commands = [("train", "resume=run", "steps=10")]
    if slot.partition(".")[0] in ("search", "model"):
        commands.append(("translate", "run=run"))
    elif slot.startswith("data"):
        commands.append(("evaluate", "run=run"))
    for each in commands:
        assert f"{slot}: the run's config wants to build '{target}', which headcount does not" in refused(run, *each)


@pytest.mark.medium
@pytest.mark.parametrize("settings", [{"logger__csv__name": "../.."}, {"logger__csv__version": "/tmp/x"}])
def test_a_logger_stays_in_its_run(settings, run):
    spoil(run, **settings)
    line = refused(run, "train", "resume=run", "steps=10")
    assert line.startswith("logger.csv: would write to ")


@pytest.mark.medium
@pytest.mark.parametrize("name", ["train.log", ".lock", "logs/metrics.csv", "checkpoints/average"])
def test_a_run_that_goes_on_writes_into_itself_alone(name, run):
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parents[1] / "precious")
    assert f"{name}: is a link out of the run" in refused(run, "train", "resume=run", "steps=10")


def test_a_test_set_takes_no_name_that_figures_or_folders_have(home):
    figures = json.loads((home / "runs" / "second" / "metrics.json").read_text())
    assert {"test", "seed", "train", "operations_per_token", "config_hash"} <= set(figures)
    for name in (*figures, "weights", "../x", "a/b", "", ".", "x" * 101, "a.b"):
        with pytest.raises(ValueError, match=r"cannot be the name of a test set"):
            files("en", "de", **FILES, tests={name: "x.tsv"})
        with pytest.raises(ValueError, match=r"cannot be the name of a test set"):
            hub("some/set", "en", "de", tests={name: "x"})


@pytest.mark.medium
def test_prepared_data_holds_no_paths(run):
    spoil(run, data__directory="run/own")
    completed("evaluate", "run=run", cwd=run.parent)
    shutil.move(run.parent / "data", run / "own")
    (report,) = run.glob("own/prepared/*/report.json")
    found = json.loads(report.read_text())
    found["counts"]["../../x"] = found["counts"]["test"]
    report.write_text(json.dumps(found))
    assert "is damaged (data.tests.../../x: cannot be the name" in refused(run, "evaluate", "run=run", "split=../../x")


def sleep():
    time.sleep(10)


def fill():
    bytearray(b"x" * 2**27)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("act", "limit", "value", "noticed"),
    [(sleep, "SECONDS", 1, "not done after 1 s"), (fill, "MEMORY", 2**26, r"took \d+ MB more")],
)
def test_what_takes_long_or_much_memory_is_noticed_where_errors_are_caught(act, limit, value, noticed, monkeypatch):
    monkeypatch.setattr(f"hostile.{limit}", value)
    for caught in (Exception, BaseException):
        with pytest.raises((Late, AssertionError), match=noticed), bounded(), contextlib.suppress(caught):
            act()


@pytest.mark.medium
@pytest.mark.parametrize("attack", [*CONFIG, *WEIGHTS, *TOKENIZER])
def test_a_spoiled_run_is_opened_within_bounds_or_refused_in_one_line(attack, run):
    spoil, words = (CONFIG | WEIGHTS | TOKENIZER)[attack]
    spoil(run)
    before = {path: path.lstat().st_mtime_ns for path in run.parents[1].rglob("*")}
    message, cause = "", None
    with bounded():
        try:
            open_run(run).translator.translate(["the dog"])
        except InputError as error:
            message, cause = str(error), error.__cause__
    assert not isinstance(cause, MemoryError)
    assert words in message or "data." in words  # where `translate` has no use for the setting
    assert len(message.splitlines()) == bool(words and "data." not in words)
    assert {path: path.lstat().st_mtime_ns for path in run.parents[1].rglob("*")} == before


@pytest.mark.medium
@pytest.mark.parametrize("attack", CHECKPOINT)
def test_a_spoiled_checkpoint_runs_nothing(attack, run):
    spoil, words = CHECKPOINT[attack]
    spoil(run)
    with bounded():
        if "damaged" not in words:
            assert newest_checkpoint(run)[1] == 8
        else:
            with pytest.raises(InputError, match=r"last\.ckpt is damaged"):
                newest_checkpoint(run)
    assert not (run.parents[1] / "ran").exists()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("folder", "arguments"),
    [("heads", ("heads", "run=run", "parts=[ablation]")), ("heads/plots", ("heads", "run=run", "parts=[ablation]"))],
)
def test_a_page_is_not_written_through_a_link(folder, arguments, run):
    elsewhere = run.parents[1] / "elsewhere"
    elsewhere.mkdir()
    (run / folder).parent.mkdir(exist_ok=True)
    (run / folder).symlink_to(elsewhere)
    assert f"{folder}: is a link out of the run" in refused(run, *arguments)


@pytest.mark.medium
def test_a_sweep_writes_into_itself_alone(tmp_path, undrawn):
    sweep = write_sweep(tmp_path / "work" / "sweep", {1: 0.45}, seeds=(1,), lines=10)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (sweep / "plots").symlink_to(elsewhere)
    (line,) = conftest.refused("report", "sweep=sweep", cwd=tmp_path / "work", watched=tmp_path)
    assert "plots: is a link out of the run" in line
    (sweep / "plots").unlink()
    job = next(path for path in sweep.iterdir() if path.is_dir())
    shutil.move(job, elsewhere / "job")
    (sweep / job.name).symlink_to(elsewhere / "job")
    result = command("heads", "sweep=sweep", cwd=tmp_path / "work")
    assert result.code == 2
    assert f"{job.name}: is a link out of the run" in result.err
    for name in ("../../elsewhere/job", "..", ""):
        (sweep / "sweep.json").write_text(json.dumps({"jobs": {name: []}}))
        (line,) = conftest.refused("report", "sweep=sweep", cwd=tmp_path / "work", watched=tmp_path)
        assert "sweep.json: not the plan of a sweep" in line


@pytest.mark.medium
def test_prepared_data_that_lies_is_not_opened(run):
    spoil(run, data__directory="run/own")
    completed("evaluate", "run=run", cwd=run.parent)
    shutil.move(run.parent / "data", run / "own")
    (path,) = run.glob("own/prepared/*/test.arrow")
    whole = path.read_bytes()
    table = pa.ipc.open_stream(whole).read_all()
    offsets = table["source"].chunk(0).buffers()[1].to_pybytes()
    path.write_bytes(whole.replace(offsets[:16], b"\0\0\0\0\xff\xff\xff\x7f" * 2))
    assert "is damaged" in refused(run, "evaluate", "run=run")
    many = table.set_column(
        table.column_names.index("source_ids"), "source_ids", pa.array([[10**6]] * len(table), pa.list_(pa.int32()))
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, many.schema) as writer:
        writer.write_table(many)
    assert "pieces that the vocabulary lacks" in refused(run, "evaluate", "run=run")


@pytest.mark.medium
def test_a_resumed_run_does_not_choose_where_data_is_prepared(run):
    elsewhere = run.parents[1] / "elsewhere"
    elsewhere.mkdir()
    spoil(run, data__directory=str(elsewhere))
    completed("train", "resume=run", "steps=9", cwd=run.parent)
    assert not list(elsewhere.iterdir())
    assert (run.parent / "data" / "prepared").is_dir()


def test_figures_of_heads_that_lie_are_refused(run):
    data_that_lies(run)
    with bounded(), pytest.raises(InputError, match=r"ablation\.npz: not readable"):
        read_arrays(run / "heads" / "ablation.npz")


def test_text_of_runs_is_no_markup_in_markdown():
    cell = "\\<script>|x|<img src=x>[a](b)![c](d)`e`\n<!-- < 0.001 [1, 2]"
    shown = Table((cell, "b"), ((cell, cell),)).markdown
    assert len(shown.splitlines()) == 3
    assert (
        shown.splitlines()[2].count("\\\\\\<script>\\|x\\|\\<img src=x>[a\\](b)![c\\](d)\\`e\\` \\<!-- < 0.001 [1, 2]")
        == 2
    )
