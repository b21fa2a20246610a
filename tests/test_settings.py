"""Settings: their types, the kinds of parts, what makes a run another, and modules of one's own."""

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import pytest
import torch
import yaml
from annotated_types import Ge
from built import composed
from conftest import completed, refused
from omegaconf import OmegaConf

from headcount.cli import COMMANDS
from headcount.command_lines import CONF
from headcount.errors import InputError
from headcount.run.build import Parts, build_parts, plain, without_other_kinds
from headcount.run.identity import config_hash, differences
from headcount.run.resolvers import job_directory
from headcount.settings import KINDS, check, factory_of, typed


@dataclass(frozen=True, kw_only=True)
class Part:
    count: Annotated[int, Ge(1)] = 1
    share: float = 0.5
    on: bool = True
    word: Literal["left", "right"] = "left"
    heads: int | list[int] | None = None
    pair: tuple[float, float] = (0.9, 0.98)
    weights: dict[str, float | None] | None = None
    name: str = ""


TYPES = {  # values that fit, and others, each with the end of its line
    "count": ([1, 2], {"x": "a valid integer", 0: "greater than or equal to 1", True: "a valid integer"}),
    "share": ([0.1, 1], {True: "a valid number"}),
    "on": ([True], {1: "a valid boolean"}),
    "word": (["right"], {"up": "'left' or 'right'"}),
    "heads": ([2, [2, 4], None], {1.5: "a valid integer or a list or null"}),
    "pair": ([[0, 1.5]], {"x": "a list"}),
    "weights": ([{"length": None, "backward": 1}], {1: "an object or null"}),
    "name": (["", "x"], {3: "a valid string"}),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_value_has_the_type_of_its_annotation(name):
    fitting, others = TYPES[name]
    for value in fitting:
        check(Part, {name: value})
    for value, allowed in others.items():
        with pytest.raises(InputError) as error:
            check(Part, {name: value}, "part.")
        assert str(error.value) == f"part.{name}={typed(value)}: must be {allowed}"


def test_all_that_is_wrong_is_said_together():
    def needs(*, first: int, second: str, given: Any) -> None: ...

    with pytest.raises(InputError) as error:
        check(needs, {"frist": 1, "first": "x"}, "part.", given=("given",))
    lines = ["part.first=x: must be a valid integer", "part.frist: no such setting; did you mean part.first?"]
    assert sorted(str(error.value).split("\n")) == [*lines, "part.second: is missing; give it a value"]
    with pytest.raises(InputError, match=r"^part\.zebra: no such setting; there are count, share, on, "):
        check(Part, {"zebra": 1}, "part.")


FOLDERS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
OPTIONS = [f"{folder}={path.stem}" for folder in FOLDERS for path in sorted((CONF / folder).glob("*.yaml"))]
WORDS = [f"{group}.kind={word}" for group, words in KINDS.items() if not (CONF / group).is_dir() for word in words]
WORDS = [word.replace("attention.kind", "model.cross_attention") for word in WORDS]
FILES = [f"data.{split}=[x.en,x.de]" for split in ("train", "valid", "test")]
LANGUAGES = ("data.source=en", "data.target=de")
NEEDED = {  # what an option cannot be without
    "data=files": (*LANGUAGES, *FILES),
    "recipe=own_text": (*LANGUAGES, *FILES),
    "data=hub": (*LANGUAGES, "data.path=some/set"),
    "loss.kind=r_drop": ("model.dropout=0.1",),
    "optimizer=schedule_free": ("schedule.kind=constant", "averaging.kind=none"),
    "segmentation.kind=sampled": ("tokenizer.model_type=unigram",),
    "schedule.kind=noam": ("optimizer=adamw", "optimizer.lr=1", "optimizer.other_lr=1"),
    "recipe=tatoeba_en_de": ("data.root=x",),
    "recipe=news_de_en": ("data.root=x",),
}
ABSENT = {"optimizer=soap": "pytorch_optimizer", "optimizer=schedule_free": "schedulefree"}


def parts_of(folder, *words: str) -> Parts:
    names = [word.lstrip("+").partition("=")[0] for word in words]
    config = composed("train", *words)
    OmegaConf.set_struct(config, False)
    return build_parts(without_other_kinds(config, names), folder)


@pytest.mark.medium
@pytest.mark.parametrize("option", [*OPTIONS, *WORDS])
def test_every_option_and_every_kind_builds_and_writes_nothing(option, tmp_path):
    if option == "trainer=gpu" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    if option in ABSENT:
        pytest.importorskip(ABSENT[option])
    parts = parts_of(tmp_path, option, *NEEDED.get(option, ()))
    assert parts.trainer.max_steps >= 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("group", "word"), [(group, word) for group, words in KINDS.items() for word in words])
def test_a_setting_has_its_default_in_conf_alone(group, word):
    """vocab_size and the like are no settings, and come from other parts."""
    at_run_time = {"vocab_size", "source_vocab_size", "params", "num_heads", "d_head"}
    if group == "optimizer" and find_spec(str(KINDS[group][word]).partition(":")[0]) is None:
        pytest.skip("its package is not installed")
    factory = factory_of(group, word)
    if factory is None or not factory.__module__.startswith("headcount."):
        return
    settings = [each for each in inspect.signature(factory).parameters.values() if each.name not in at_run_time]
    assert [each.name for each in settings if each.default is not each.empty] == []
    assert [each.name for each in settings if each.kind is not each.KEYWORD_ONLY] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_config_of_a_command_composes_and_has_the_types_of_its_settings(name):
    config: Any = OmegaConf.to_container(composed(name), resolve=True, throw_on_missing=True)
    assert config["debug"] is False
    if kind := getattr(import_module(f"headcount.commands.{name}"), "Settings", None):
        check(kind, {setting: value for setting, value in config.items() if setting != "search"})


def test_only_plugins_of_hydra_are_classes_named_in_yaml():
    naming = [path for path in CONF.rglob("*.yaml") if "_target_" in path.read_text(encoding="utf-8")]
    assert [path for path in naming if not path.is_relative_to(CONF / "hydra")] == []


OF_THE_MACHINE = """study.about=x study.title=x validation.samples=0 validation.every=7
    trainer.log_every_n_steps=10 threads=2 checkpoint.every=7 data.workers=1 logger=none name=x"""
LEARNT = """model.num_heads=8 steps=7 seed=2 data.cleaning.max_ratio=2 data.batch_tokens=100 search.beam=2
    optimizer.lr=0.3 trainer.accumulate_grad_batches=3"""


@pytest.mark.medium
def test_what_is_learnt_makes_a_run_another_and_nothing_else_does():
    before = without_other_kinds(composed("train", "study=length_groups", "study.arm=two"))
    for words, is_learnt in ((OF_THE_MACHINE, False), (LEARNT, True)):
        for word in words.split():
            setting, _, text = word.partition("=")
            now, was, value = before.copy(), OmegaConf.select(before, setting), yaml.safe_load(text)
            OmegaConf.update(now, setting, value)
            assert was != value
            assert (config_hash(before) != config_hash(now)) == is_learnt, setting
            assert differences(before, now) == (f"{setting}={was}, now {value}" if is_learnt else "")
            assert job_directory([word, "seed=1"]) == (
                f"{','.join(sorted([word, 'seed=1']))}" if is_learnt else "seed=1"
            )


@pytest.mark.medium
def test_a_setting_of_training_may_stand_beside_prepare(tiny, tmp_path):
    out = completed("train", *tiny, "prepare=true", "++seed=3", f"data.directory={tmp_path}", cwd=tmp_path).out
    assert "\nnext:  " in out
    assert not (tmp_path / "runs").exists()


MODULE = """
from headcount.decoding.beam import BeamSearch
from headcount.settings import KINDS
from headcount.training.loss import LabelSmoothing

class Mine(LabelSmoothing): ...
class Wider(BeamSearch): ...

KINDS["loss"]["mine"], KINDS["search"]["wider"] = Mine, Wider
"""


@pytest.mark.medium
def test_a_module_of_ones_own_adds_kinds(tiny, tmp_path, monkeypatch):
    (tmp_path / "mymodule.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for group in ("loss", "search"):
        monkeypatch.setitem(KINDS, group, dict(KINDS[group]))
    known = {group: dict(KINDS[group]) for group in KINDS}
    ours = ("loss.kind=mine", "search.kind=wider", "steps=2")

    def forgotten() -> None:
        sys.modules.pop("mymodule", None)
        for group in ("loss", "search"):
            KINDS[group] = dict(known[group])

    lines = refused("train", *tiny, *ours, cwd=tmp_path)
    assert [line.partition(": must be one of ")[0] for line in lines] == ["loss.kind=mine", "search.kind=wider"]
    completed("train", *tiny, *ours, "extensions=[mymodule]", "hydra.run.dir=run", cwd=tmp_path)
    forgotten()
    monkeypatch.setitem(sys.modules, "mymodule", None)  # a run's config.yaml is somebody else's: nothing imports it
    (line,) = refused("translate", "run=run", cwd=tmp_path, stdin=b"the dog\n")
    assert line.startswith("search.kind=wider: must be one of ")
    assert refused("train", "resume=run", "steps=4", cwd=tmp_path)[0].startswith("loss.kind=mine: must be one of ")
    forgotten()
    completed("translate", "run=run", "extensions=[mymodule]", cwd=tmp_path, stdin=b"the dog\n")
    completed("train", "resume=run", "steps=4", "extensions=[mymodule]", cwd=tmp_path)
    forgotten()


@pytest.mark.medium
def test_a_setting_of_another_kind_is_refused_where_it_is_typed():
    config = composed("train", "schedule.final=0.1", "schedule.kind=constant", "model.gain=2", "loss.p_cut=0.5")
    own = plain(without_other_kinds(config))
    assert own["schedule"] == {"kind": "constant", "warmup_steps": 200}
    with pytest.raises(InputError) as error:
        without_other_kinds(config, ["schedule.final", "model.gain", "loss.p_cut", "seed"])
    assert sorted(str(error.value).split("\n")) == [
        "loss.p_cut=0.5: has no effect with loss.kind=label_smoothing",
        "model.gain=2: has no effect with these kinds of attention",
        "schedule.final=0.1: has no effect with schedule.kind=constant",
    ]
