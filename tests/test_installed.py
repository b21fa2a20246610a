"""Installed use: a wheel made from the source distribution works in an empty folder, without the checkout."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
SDIST = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
SMALL = (
    *("model.d_model=16", "model.d_feed_forward=16", "trainer=cpu", "steps=4", "validation.every=2"),
    *("data.train_size=600", "data.valid_size=8", "data.test_size=16", "tokenizer.vocab_size=400"),
    *("search.beam=2", "search.max_ratio=1", "threads=1", "logger=csv"),
)


def done(*line: object, cwd: Path, stdin: str = "", **environment: str) -> str:
    """Standard output of a program that must succeed."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    begun = subprocess.run(
        [str(word) for word in line], cwd=cwd, env=own | environment, input=stdin, capture_output=True, text=True
    )
    assert begun.returncode == 0, begun.stdout + begun.stderr
    return begun.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, made of a copy of the sources by way of the source distribution."""
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    sdist = done(sys.executable, "-c", SDIST, cwd=copy).splitlines()[-1]
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "wheels")
    done(sys.executable, "-m", "pip", "wheel", *options, copy / "dist" / sdist, cwd=copy)
    (found,) = (copy / "wheels").iterdir()
    return found


@pytest.mark.slow
def test_an_installed_headcount_works_in_an_empty_folder(wheel, tmp_path):
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    done(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=tmp_path)
    installed = {path: path.read_bytes() for path in site.rglob("*.yaml")}

    def headcount(*words: str, **options: str) -> str:
        return done(sys.executable, site / "bin" / "headcount", *words, cwd=home, PYTHONPATH=str(site), **options)

    # An editable install puts its checkout on the path of every Python; --target comes before it.
    where = "from headcount.command_lines import CONF; print(CONF)"
    assert done(sys.executable, "-c", where, cwd=home, PYTHONPATH=str(site)) == f"{site / 'headcount' / 'conf'}\n"
    assert "headcount translate run=runs/first" in headcount("train", *SMALL, "hydra.run.dir=runs/first").replace(
        f"{sys.prefix}/bin/", ""
    )
    assert headcount("translate", "run=runs/first", stdin="the dog sleeps\n\nthe cat sleeps\n").count("\n") == 3
    figures = json.loads((home / "runs" / "first" / "metrics.json").read_text())
    assert f"{figures['test']['bleu']:.2f}" in headcount("evaluate", "run=runs/latest")
    (home / "own" / "trainer").mkdir(parents=True)
    (home / "own" / "trainer" / "mine.yaml").write_text("accelerator: cpu\ngradient_clip_val: 0.5\n")
    jobs = ("trainer=mine", "model.num_heads=1,2", "hydra.launcher.n_jobs=2", "name=both")
    assert "2 of 2 jobs done" in headcount("train", "--config-dir", "own", "--multirun", *SMALL, *jobs)
    made = sorted((home / "runs" / "both_grammar").glob("*/config.yaml"))
    assert len(made) == 2
    assert all("gradient_clip_val: 0.5" in path.read_text() for path in made)
    assert sorted(path.name for path in home.iterdir()) == ["data", "own", "runs"]
    assert installed == {path: path.read_bytes() for path in site.rglob("*.yaml")}
