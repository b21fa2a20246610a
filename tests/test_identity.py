"""Identity of runs: settings and text, not paths."""

import json
import shutil
from pathlib import Path

import pytest
from built import composed
from conftest import completed, refused, rewrite
from omegaconf import OmegaConf

from headcount.run.build import without_other_kinds
from headcount.run.directory import read_config
from headcount.run.identity import config_hash, differences, with_text
from headcount.run.kept import unpack
from headcount.run.opened import open_run
from headcount.run.sweep import read_plan

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@pytest.fixture
def config(home):
    return read_config(home / "runs" / "second")


def with_root(config, root):
    config = config.copy()
    config.data.root = str(root)
    return with_text(config)


@pytest.mark.medium
def test_a_run_is_its_text_and_not_the_path_of_it(home, config, text, tmp_path):
    for name in ("same", "other"):
        shutil.copytree(text, tmp_path / name)
    lines = (tmp_path / "other" / "train.de").read_text().splitlines(keepends=True)
    (tmp_path / "other" / "train.de").write_text("".join([*lines[1:], lines[0]]))
    here, same, other = (with_root(config, root) for root in (text, tmp_path / "same", tmp_path / "other"))
    assert config_hash(here) == config_hash(same) != config_hash(other)
    assert differences(here, same) == ""
    assert differences(here, other).startswith(f"data.fingerprint={here.data.fingerprint}, now ")
    assert f"data.root={text}, now {tmp_path / 'other'}" in differences(here, other)
    assert config.data.fingerprint == here.data.fingerprint
    figures = json.loads((home / "runs" / "second" / "metrics.json").read_text())
    assert figures["config_hash"] == config_hash(config)


@pytest.mark.medium
def test_a_later_setting_is_off_in_a_run_that_lacks_it(home, config, tmp_path):
    run = shutil.copytree(home / "runs" / "second", tmp_path / "run")
    rewrite(run / "config.yaml", lambda text: text.replace("  head_gate: null\n", ""))
    assert "head_gate" not in (run / "config.yaml").read_text()
    assert differences(open_run(run).config, config) == ""


@pytest.mark.medium
@pytest.mark.parametrize("study", ["heads_fixed_size_grammar", "length_groups_grammar", "recurrent_multi30k"])
def test_a_kept_run_is_that_of_the_same_command_today(study, tmp_path):
    unpack(RESULTS / study / "runs.parquet", tmp_path)
    jobs = read_plan(tmp_path)
    kept = read_config(tmp_path / min(jobs))
    now = without_other_kinds(composed("train", *jobs[min(jobs)]))
    assert differences(kept, with_text(now, kept.data.fingerprint)) == ""


@pytest.mark.medium
def test_a_run_is_not_scored_on_text_that_changed(home, config, text, tmp_path):
    run, root = (
        Path(shutil.copytree(home / "runs" / "second", tmp_path / "run")),
        shutil.copytree(text, tmp_path / "text"),
    )
    config.data.root = str(root)
    OmegaConf.save(config, run / "config.yaml")
    completed("evaluate", "run=run", cwd=tmp_path)  # the same text elsewhere
    before = (run / "metrics.json").read_bytes()
    rewrite(root / "test.de", lambda text: text.replace("Hund", "Hahn"))
    (line,) = refused("evaluate", "run=run", cwd=tmp_path, watched=run)
    assert all(part in line for part in ("its corpus has changed", "input= and reference="))
    assert (run / "metrics.json").read_bytes() == before
