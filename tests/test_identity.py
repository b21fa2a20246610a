"""Identity of runs: settings and text, not paths."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import completed, refused, rewrite
from headcount.run.aliases import RENAMED
from hydra.utils import get_class
from omegaconf import OmegaConf
from built import composed

from headcount.run.build import NOT_CORPUS, build
from headcount.run.directory import read_config
from headcount.run.identity import config_hash, differences, identified, recorded, with_text
from headcount.run.kept import unpack
from headcount.run.sweep import job_directory, read_plan

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@pytest.fixture
def config(home):
    return read_config(home / "runs" / "second")


@pytest.fixture
def run(home, tmp_path) -> Path:
    """The run of `config`, to be changed."""
    return Path(shutil.copytree(home / "runs" / "second", tmp_path / "run"))


def with_root(config, root):
    config = config.copy()
    config.data.root = str(root)
    return with_text(config)


def other_text(text, folder):
    """A copy of the toy corpus of which one line of the test set is another."""
    shutil.copytree(text, folder)
    with (folder / "test.de").open("a") as target, (folder / "test.en").open("a") as source:
        target.write("der Hund\n")
        source.write("the dog\n")
    return folder


@pytest.mark.medium
def test_a_run_is_its_text_and_not_the_path_of_it(config, text, tmp_path):
    shutil.copytree(text, tmp_path / "same")
    roots = (text, tmp_path / "same", other_text(text, tmp_path / "other"))
    here, same, other = (with_root(config, root) for root in roots)
    assert config_hash(here) == config_hash(same) != config_hash(other)
    assert differences(here, same) == ""
    assert differences(here, other).startswith(f"data.fingerprint={here.data.fingerprint}, now ")
    assert f"data.root={text}, now {tmp_path / 'other'}" in differences(here, other)


def test_text_that_changed_under_its_path_is_another_run(config, text, tmp_path):
    root = shutil.copytree(text, tmp_path / "text")
    before = with_root(config, root)
    lines = (root / "train.de").read_text().splitlines(keepends=True)
    (root / "train.de").write_text("".join([*lines[1:], lines[0]]))
    assert config_hash(before) != config_hash(with_root(config, root))


def test_a_run_records_its_text(home, config):
    assert recorded(config) == config.data.fingerprint == with_text(config).data.fingerprint
    figures = json.loads((home / "runs" / "second" / "metrics.json").read_text())
    assert figures["config_hash"] == config_hash(config)


@pytest.mark.medium
def test_how_the_text_is_used_matters(config):
    for path in ("data.cleaning.max_ratio", "data.max_length", "data.batch_tokens", "data.hide_source", "seed"):
        other = config.copy()
        OmegaConf.update(other, path, 3)
        assert config_hash(other) != config_hash(config), path
        assert differences(config, other) == f"{path}={OmegaConf.select(config, path)}, now 3"


@pytest.mark.medium
@pytest.mark.parametrize("study", ["heads_fixed_size_grammar", "length_groups_grammar", "recurrent_multi30k"])
def test_a_kept_run_is_that_of_the_same_command_today(study, tmp_path):
    unpack(RESULTS / study / "runs.parquet", tmp_path)
    jobs = read_plan(tmp_path).jobs
    job = min(jobs)
    kept = read_config(tmp_path / job)
    now = composed("train", *jobs[job])
    if text := recorded(kept):  # which is not here
        now = identified(now, text)
    assert differences(kept, now) == ""


PRINTED = {  # words of a study, what is shown while a run is trained
    "study.about": "x",
    "study.title": "x",
    "study.label": "n",
    "study.published": ["x"],
    "study.constant": ["train.steps"],
    "validation.samples": 0,
    "trainer.log_every_n_steps": 10,
}


@pytest.mark.medium
@pytest.mark.parametrize("setting", PRINTED)
def test_what_is_only_read_or_printed_makes_no_other_run(setting):
    before = composed("train", "study=length_groups", "study.arm=two")
    now = before.copy()
    OmegaConf.update(now, setting, PRINTED[setting])
    assert OmegaConf.select(now, setting) != OmegaConf.select(before, setting)
    assert config_hash(before) == config_hash(now)
    assert differences(before, now) == ""
    assert job_directory(["seed=1", f"{setting}=x"], "sweep") == "seed=1"  # nor another folder in a sweep


@pytest.mark.medium
def test_an_arm_of_a_study_is_another_run_by_what_it_sets():
    one, two = (composed("train", "study=length_groups", f"study.arm={arm}") for arm in ("one", "two"))
    assert config_hash(one) != config_hash(two)
    assert "data.batch_tokens=2048, now 1024" in differences(one, two)
    folders = {job_directory([f"study.arm={arm}", "study=length_groups"], "length_groups") for arm in ("one", "two")}
    assert folders == {"study.arm=one", "study.arm=two"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_class_opens_as_the_same_run(old, new, config, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, name in ((before, old), (after, new)):
        folder.mkdir()
        config.search._target_ = name
        OmegaConf.save(config, folder / "config.yaml", resolve=True)
    assert read_config(before).search._target_ == new
    assert config_hash(read_config(before)) == config_hash(read_config(after))
    assert differences(read_config(before), read_config(after)) == ""
    assert get_class(new)


@pytest.mark.medium
def test_a_run_from_before_a_setting_opens_and_is_the_same_run(config, tmp_path):
    before = config.copy()
    del before.model.self_attention
    assert config_hash(before) == config_hash(config)
    del before.search.max_source  # part of the hash
    assert differences(before, config) == differences(config, before) == ""
    OmegaConf.save(before, tmp_path / "config.yaml", resolve=True)
    opened = read_config(tmp_path)
    assert build(opened.model, "model", (), vocab_size=8)
    assert build(opened.search, "search").max_source == config.search.max_source
    config.search.beam += 1
    assert differences(before, config).startswith("search.beam=")
    config.search.beam -= 1
    config.model.self_attention._target_ = "headcount.model.score_functions.Additive"
    assert config_hash(before) != config_hash(config)


def test_a_run_from_before_fingerprints_is_compared_by_the_path_of_its_text(config, text, tmp_path):
    before = config.copy()
    del before.data.fingerprint
    assert differences(before, config) == ""
    shutil.copytree(text, tmp_path / "same")
    assert "data.root=" in differences(before, with_root(config, tmp_path / "same"))


@pytest.mark.medium
def test_a_run_is_not_scored_on_text_that_changed(run, config, text, tmp_path):
    root = shutil.copytree(text, tmp_path / "text")
    config.data.root = str(root)
    OmegaConf.save(config, run / "config.yaml")
    completed("evaluate", "run=run", cwd=tmp_path)  # the same text elsewhere
    before = (run / "metrics.json").read_bytes()
    rewrite(root / "test.de", lambda text: text.replace("Hund", "Hahn"))
    for problem in ("its corpus has changed", "its test.ref.de is not the test split", "has no test.ref.de to compare"):
        if problem != "its corpus has changed":  # as a run from before fingerprints, of which only its references tell
            OmegaConf.update(config, "data.fingerprint", None)
            OmegaConf.save(config, run / "config.yaml")
        if problem.startswith("has no"):
            (run / "test.ref.de").unlink()
        (line,) = refused("evaluate", "run=run", cwd=tmp_path, watched=run)
        assert all(part in line for part in (problem, "other_text=true", "input= and reference="))
    result = completed("evaluate", "run=run", "other_text=true", cwd=tmp_path)
    assert "its metrics.json is left as it is" in result.out
    assert (run / "metrics.json").read_bytes() == before
    (run / "test.ref.de").write_text((root / "test.de").read_text())
    completed("evaluate", "run=run", cwd=tmp_path)


@pytest.mark.medium
def test_a_run_from_before_fingerprints_is_scored_on_its_own_text(run, config, tmp_path):
    del config.data.fingerprint
    OmegaConf.save(config, run / "config.yaml")
    completed("evaluate", "run=run", cwd=tmp_path)


@pytest.mark.medium
def test_a_run_whose_corpus_has_a_node_of_its_own_opens_and_keeps_its_hash(run, config, tmp_path):
    older = OmegaConf.to_container(config)
    uses = {name: older["data"].pop(name) for name in NOT_CORPUS if name in older["data"]}
    older["data"] = uses | {"source": "en", "target": "de", "corpus": older["data"]}
    OmegaConf.save(older, run / "config.yaml")
    assert config_hash(read_config(run)) == config_hash(config)
    completed("evaluate", "run=run", cwd=tmp_path)
