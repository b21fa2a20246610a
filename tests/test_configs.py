"""Every option that ships composes, and builds."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from headcount.run.config import TRUSTED, register_resolvers
from headcount.run.script import CONF
from headcount.run.train import build_parts, check_processes

NOT_AN_OPTION = "default"  # what the options of a group share; of logger it is an option
GROUPS = sorted(
    str(path.parent.relative_to(CONF))
    for path in CONF.rglob("*.yaml")
    if path.parent not in (CONF, CONF / "hydra") and (path.stem != NOT_AN_OPTION)
)
OPTIONS = sorted(
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in CONF.rglob("*.yaml")
    if path.parent not in (CONF, CONF / "hydra") and (path.stem != NOT_AN_OPTION or path.parent.name == "logger")
)
FILES = [f"data.{split}_{side}=x" for split in ("train", "valid", "test") for side in ("source", "target")]


def composed(name: str, *overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))


def test_there_are_options_of_every_part():
    assert {"data", "model", "tokenizer", "optimizer", "schedule", "trainer", "logger", "search"} <= set(GROUPS)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_option_builds(group, option, tmp_path):
    if (group, option) == ("trainer", "gpu") and not torch.cuda.is_available():
        pytest.skip("no GPU")
    extra = ["data.source=en", "data.target=de", *FILES] if (group, option) == ("data", "files") else []
    config = composed("train", f"{group}={option}", *extra)
    check_processes(config)
    parts = build_parts(config, tmp_path)
    assert parts.trainer.max_steps == config.data.budget.steps
    assert not list(tmp_path.iterdir())  # building writes nothing
    # A run keeps the config resolved, and is opened again only if all it names is known.
    targets = set(_targets(OmegaConf.to_container(config, resolve=True)))
    assert targets <= TRUSTED


def _targets(node):
    if isinstance(node, dict):
        yield from [node["_target_"]] if "_target_" in node else []
        for value in node.values():
            yield from _targets(value)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_entry_config_composes(path: Path):
    config = composed(path.stem)
    assert config.debug is False
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def test_each_command_explains_itself():
    for path in CONF.glob("*.yaml"):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            header = compose(path.stem, return_hydra_config=True).hydra.help.header
        assert f"python scripts/{path.stem}.py" in header


SEARCHES = [option for group, option in OPTIONS if group == "search"]
ASKING = ("evaluate", "translate")


@pytest.mark.parametrize("name", ASKING)
def test_defaults_of_an_evaluation_are_the_runs_own(name):
    search = composed("train").search
    overrides = composed(name).search
    assert set(overrides) == {key for key in search if not key.startswith("_")}
    assert all(value is None for value in overrides.values())
    assert composed(name, "search.beam=8").search.beam == 8


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("option", SEARCHES)
def test_another_way_to_search_is_that_of_training(option, name):
    asked = {key: value for key, value in composed(name, f"search={option}").search.items() if value is not None}
    assert asked == {
        key: value for key, value in composed("train", f"search={option}").search.items() if value is not None
    }
