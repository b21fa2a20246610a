"""Configs: every option that ships composes and builds."""

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import completed, failed, refused
from headcount.run.trusted import TRUSTED, check_targets
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import program
from headcount.errors import InputError
from headcount.export.limits import unsupported
from headcount.run.build import build, build_parts, check_processes, without_effect
from headcount.run.resolvers import CONF, register_resolvers
from headcount.settings import AS_TRAINED

NOT_AN_OPTION = "default"  # what the options of a group share; of logger it is an option
OPTIONS = sorted(
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in CONF.rglob("*.yaml")
    if path.parent not in (CONF, CONF / "preset")
    and not path.is_relative_to(CONF / "hydra")
    and (path.stem != NOT_AN_OPTION or path.parent.name == "logger")
)
GROUPS = {group for group, _ in OPTIONS}
FILES = [f"data.{split}_{side}=x" for split in ("train", "valid", "test") for side in ("source", "target")]
LANGUAGES = ["data.source=en", "data.target=de"]
NEEDED = {  # what an option can't be without
    ("data", "files"): [*LANGUAGES, *FILES],
    ("data", "hub"): [*LANGUAGES, "data.path=some/set"],
    ("loss", "r_drop"): ["model.dropout=0.1"],
    ("optimizer", "schedule_free"): ["schedule.kind=constant", "averaging.kind=none"],
    ("trainer", "fsdp"): ["optimizer=adamw"],
    ("segmentation", "sampled"): ["tokenizer.model_type=unigram"],
    ("recipe", "tatoeba_en_de"): ["data.root=x"],
    ("recipe", "news_de_en"): ["data.root=x"],
}
STUDIES = {"study/arm": ["study=lineage"], "study/optimizer": ["study=optimizers"]}  # of which a group has the arms


def composed(name: str, *overrides: str) -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))


def test_there_are_options_of_every_part():
    assert {"data", "model", "tokenizer", "optimizer", "schedule", "trainer", "logger", "search"} <= GROUPS


@pytest.mark.medium
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_option_builds(group, option, tmp_path):
    if (group, option) == ("trainer", "gpu") and not torch.cuda.is_available():
        pytest.skip("no GPU")
    if (group, option) == ("trainer", "mps") and not torch.backends.mps.is_available():
        pytest.skip("no Apple GPU")
    if option in ("wandb", "mlflow"):
        pytest.importorskip(option)
    needed = NEEDED.get((group, option), STUDIES.get(group, []))
    config = composed("train", f"{group}={option}", *needed)
    check_processes(config)
    parts = build_parts(config, tmp_path)
    assert parts.steps == config.steps
    assert not list(tmp_path.iterdir())  # building writes nothing
    # A run keeps the config resolved, and is opened again only if all it names is known.
    check_targets(OmegaConf.to_container(config, resolve=True), "", ())


OURS = sorted((slot, name) for slot, names in TRUSTED.items() for name in names if name.startswith("headcount."))
AT_RUN_TIME = {  # arguments that are no settings
    "model": {"vocab_size", "source_vocab_size"},
    "optimizer": {"params"},
    "model.cross_attention": {"num_heads", "d_head"},
    "model.self_attention": {"num_heads", "d_head"},
}


@pytest.mark.parametrize(("slot", "name"), OURS)
def test_a_setting_has_its_default_in_conf_alone(slot, name):
    parameters = inspect.signature(get_class(name)).parameters.values()
    settings = [each for each in parameters if each.name not in AT_RUN_TIME.get(slot, ())]
    assert [each.name for each in settings if each.default is not each.empty] == []
    assert [each.name for each in settings if each.kind is not each.KEYWORD_ONLY] == []


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_entry_config_composes(path: Path):
    config = composed(path.stem)
    assert config.debug is False
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


@pytest.mark.medium
def test_each_command_explains_itself():
    for path in CONF.glob("*.yaml"):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            header = compose(path.stem, return_hydra_config=True).hydra.help.header
        assert program(path.stem) in header


SEARCHES = [option for group, option in OPTIONS if group == "search"]
ASKING = ("evaluate", "translate")


@pytest.mark.medium
@pytest.mark.parametrize("name", ASKING)
def test_defaults_of_an_evaluation_are_the_runs_own(name):
    search = composed("train").search
    overrides = composed(name).search
    assert set(overrides) == {key for key in search if not key.startswith("_")}
    assert all(value == AS_TRAINED for value in overrides.values())
    assert composed(name, "search.beam=8").search.beam == 8


@pytest.mark.medium
@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("option", SEARCHES)
def test_another_way_to_search_is_that_of_training(option, name):
    asked, trained = (composed(entry, f"search={option}").search.items() for entry in (name, "train"))
    assert {item for item in asked if item[1] is not None} == {item for item in trained if item[1] is not None}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["logger=wandb"], "logger.wandb: "),
        (["logger=mlflow"], "logger.mlflow: "),
        (["trainer=mps"], "trainer.accelerator=mps: no Apple GPU found; use trainer=cpu"),
        (["optimizer=muon", "optimizer.momentum=1"], "optimizer.momentum=1: must be 0 or more, and less than 1"),
        (["optimizer=muon", "optimizer.adjust_lr_fn=rms"], "optimizer.adjust_lr_fn=rms: must be one of original, "),
        (["optimizer=muon", "optimizer.ns_coefficients=[2,1]"], "optimizer.ns_coefficients=[2, 1]: must be three"),
        (
            ["optimizer=schedule_free", "schedule.kind=constant"],
            "averaging: optimizer=schedule_free averages the weights it",
        ),
        (
            ["optimizer=schedule_free", "averaging.kind=none"],
            "schedule: optimizer=schedule_free wants a constant rate aft",
        ),
        (["optimizer._target_=absent.Adam"], "optimizer: needs the package absent, which is not installed; install it"),
        (["optimizer=nadamw", "optimizer.lr=-1"], "optimizer: Invalid learning rate: -1"),
        (["optimizer=soap", "optimizer.lr=-1"], "optimizer: "),
        (["+trainer.max_epochs=1"], "trainer.max_epochs=1: is not a setting here"),
        (["+trainer.max_time=00:00:00:03"], "trainer.max_time=00:00:00:03: is not a setting here"),
        (["+trainer.overfit_batches=1"], "trainer.overfit_batches=1: is not a setting here"),
        (["+trainer.val_check_interval=0.5"], "trainer.val_check_interval=0.5: is not a setting here"),
        (["+trainer.gradient_clip_algorithm=value"], "trainer.gradient_clip_algorithm=value: must be norm"),
        (["+trainer.profiler=simple"], "trainer.profiler=simple: would have no effect here; leave it out"),
        (["trainer.gradient_clip_val=nan"], "trainer.gradient_clip_val=nan: must be 0 or more"),
        (["search.alpha=nan"], "search.alpha=nan: must be 0 (no length penalty) or more"),
        (["trainer.precision=16-true"], "trainer.precision=16-true: float16 would need scaled gradients"),
        (["validation.metric=chrf"], "validation.metric=chrf: must be one of bleu, loss"),
        (["trainer=ddp", "trainer.devices=2", "model.layer_dropout=0.1"], "model.layer_dropout=0.1: with several"),
        (["trainer=ddp", "trainer.num_nodes=2", "model.layer_dropout=0.1"], "model.layer_dropout=0.1: with several"),
        (["search=as_trained"], "search: names no class (_target_) to build; choose an option of conf/search"),
        (["data.both_directions=true", "tokenizer.kind=separate"], "data.both_directions=true: needs one vocabulary"),
        (
            ["recipe=multi30k_short", "schedule.kind=noam"],
            "optimizer.lr=0.0035: is a factor with schedule.kind=noam, 1 in the",
        ),
        (
            ["optimizer=muon", "schedule.kind=noam"],
            "optimizer.adamw_lr=0.02: is a factor with schedule.kind=noam, 1 in the paper; give optimizer.adamw_lr=1",
        ),
        (["loss.kind=r_drop"], "loss: r_drop compares two passes that differ by dropout; give model.dropout=0.1"),
        (
            ["optimizer=schedule_free", "schedule.kind=constant", "averaging.kind=none", "optimizer.betas=[0,0.9]"],
            "optimizer.betas: the first must be above 0",
        ),
        (["segmentation.kind=sampled"], "segmentation: SampledSegmentation needs tokenizer.model_type=unigram"),
    ],
)
def test_impossible_settings_get_one_line(overrides, line, tmp_path):
    name = overrides[0].partition("=")[2]
    if (name in ("wandb", "mlflow") and find_spec(name)) or (name == "mps" and torch.backends.mps.is_available()):
        pytest.skip("here it can be")
    with pytest.raises(InputError) as error:
        build_parts(composed("train", *overrides), tmp_path)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.medium
def test_a_setting_that_acts_beside_another_alone_is_told_where_that_is_off():
    config = composed("train", "model.local_window=2", "model.qk_scale=9", "model.qk_norm=fixed")
    names = ["model.local_window", "model.qk_scale", "seed"]
    assert without_effect(config, names) == ["model.local_window=2: has no effect without model.local_heads"]
    assert not without_effect(composed("train", "model.local_window=2", "model.local_heads=1"), names[:1])
    assert not without_effect(config, ["seed"])


@pytest.mark.medium
def test_a_loss_that_never_begins_gives_a_warning(tmp_path, caplog):
    for start, said in ((999, 0), (1000, 1)):
        caplog.clear()
        build_parts(composed("train", "loss.kind=simcut", f"loss.start={start}"), tmp_path)
        assert len([record for record in caplog.records if "loss.start" in record.message]) == said


@pytest.mark.medium
@pytest.mark.parametrize("optimizer", [option for group, option in OPTIONS if group == "optimizer"])
def test_every_rate_of_an_optimizer_follows_the_width(optimizer):
    nodes = [composed("train", f"optimizer={optimizer}", f"model={model}").optimizer for model in ("nano", "base")]
    names = [name for name in nodes[0] if name.endswith("lr")]
    second = {"muon": ["adamw_lr"], "muon_large_vocabulary": ["adamw_lr"], "adamw_large_vocabulary": ["other_lr"]}
    assert names == ["lr", *second.get(optimizer, [])]
    assert [nodes[1][name] for name in names] == [nodes[0][name] / 4 for name in names]  # d_model 128 and 512


@pytest.mark.medium
def test_the_rates_of_a_recipe_follow_the_width():
    for width, rates in {64: (0.02, 0.04), 128: (0.01, 0.02)}.items():
        optimizer = composed("train", "recipe=multi30k_quick", f"model.d_model={width}").optimizer
        assert (optimizer.lr, optimizer.adamw_lr) == rates
    assert composed("train", "recipe=multi30k_short", "model.d_model=256").optimizer.lr == 0.00175


@pytest.mark.medium
def test_a_gpu_has_large_batches_with_the_rate_that_goes_with_them():
    for recipe in ([], ["data=wmt14", "model=base", "optimizer=adamw"]):
        cpu, gpu = (composed("train", f"trainer={trainer}", *recipe) for trainer in ("cpu", "gpu"))
        assert (gpu.trainer.accelerator, gpu.data.batch_tokens, gpu.data.pad_to) == ("gpu", 25600, "auto")
        assert gpu.optimizer.lr == pytest.approx(cpu.optimizer.lr * 2.5)  # the root of 25600 / 4096
        assert {**cpu.trainer, "accelerator": "gpu"} == gpu.trainer
        assert (cpu.data.pad_to, cpu.data.rate_tokens) == (1, 4096)
    assert composed("train", "trainer=gpu", "data.batch_tokens=4096").optimizer.lr == composed("train").optimizer.lr


@pytest.mark.medium
@pytest.mark.parametrize(
    ("choices", "size"), [([], "nano"), pytest.param(["recipe=multi30k_study"], "tiny", marks=pytest.mark.slow)]
)
def test_steps_of_the_lineage_have_as_many_parameters(choices, size):
    study = ["study=lineage", *choices]
    pieces = composed("train", *study).tokenizer.vocab_size

    def parameters(*overrides: str) -> int:
        model = build(composed("train", *overrides).model, "model", vocab_size=pieces)
        return sum(weights.numel() for weights in model.parameters())

    steps = OmegaConf.load(CONF / "study" / "lineage.yaml").hydra.sweeper.params["study/arm"].split(",")
    assert len(steps) == 10
    counts = {step: parameters(*study, f"study/arm={step}") for step in steps}
    assert counts == pytest.approx(dict.fromkeys(steps, parameters(f"model={size}")), rel=0.01)


@pytest.mark.medium
def test_each_arm_of_heads_by_kind_changes_the_heads_of_one_kind():
    arms = OmegaConf.load(CONF / "study" / "heads_by_kind.yaml").hydra.sweeper.params["study.arm"].split(",")
    assert arms[0] == "base"
    for arm in arms[1:]:
        kind, heads = arm.split("_")
        model = composed("train", "study=heads_by_kind", f"study.arm={arm}").model
        counts = {name: model[f"{name}_heads"] for name in ("encoder", "decoder", "cross")}
        assert counts == {"encoder": None, "decoder": None, "cross": None} | {kind: int(heads)}


@pytest.mark.medium
@pytest.mark.xfail(strict=True, reason="settings become typed")
def test_the_help_offers_no_group_or_option_that_cannot_be_chosen(tmp_path):
    shown = completed("train", "--help", cwd=tmp_path).out
    choices = shown.partition("== Choices")[2].partition("== Settings")[0]
    assert "\nmodel: " in choices
    assert not re.search(r"^(preset|orders): ", choices, re.MULTILINE)
    assert not re.search(r"^(data|model|search|trainer): .*\bdefault\b", choices, re.MULTILINE)


@pytest.mark.medium
def test_what_an_export_advises_to_train_with_is_an_option():
    model = build(composed("train", "model.cross_attention=additive").model, "model", vocab_size=8)
    run = SimpleNamespace(model=model, translator=SimpleNamespace(hide_source=False))
    (line,) = unsupported(run, "page")
    word = line.partition("train with ")[2]
    assert word == "model.cross_attention=scaled_dot"
    assert composed("train", word).model.cross_attention._target_.endswith("ScaledDotProduct")


@pytest.mark.medium
@pytest.mark.parametrize("old", ["experiment=kv_heads", "lineage=rnn"])
def test_an_old_name_is_one_line(old, tmp_path):
    (line,) = refused("train", old, cwd=tmp_path)
    assert line.startswith(f"{old.partition('=')[0]}: is now ")


@pytest.mark.medium
def test_a_job_of_ray_asks_for_the_gpus_of_its_training(monkeypatch, tmp_path):
    def gpus(*words: str) -> int:
        register_resolvers()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            launcher = compose("train", ["hydra/launcher=ray", *words], return_hydra_config=True).hydra.launcher
        return launcher.ray.remote.num_gpus

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (gpus(), gpus("trainer=gpu")) == (0, 1)
    assert gpus("trainer=ddp", "trainer.accelerator=gpu", "trainer.devices=4") == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert (gpus(), gpus("trainer=cpu")) == (1, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert (gpus(), gpus("trainer.accelerator=cuda"), gpus("trainer=gpu", "trainer.devices=-1")) == (0, 1, 1)
    if not find_spec("hydra_plugins.hydra_ray_launcher"):
        (line,) = failed("train", "--multirun", "hydra/launcher=ray", cwd=tmp_path)
        assert line == "hydra-ray-launcher: this plugin of Hydra is not installed; pip install hydra-ray-launcher"


@pytest.mark.medium
def test_a_job_of_slurm_asks_for_the_gpus_of_its_training():
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    register_resolvers()
    words = ["hydra/launcher=slurm", "hydra.launcher.partition=p", "trainer=ddp", "trainer.devices=4"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        launcher = compose("train", words, return_hydra_config=True).hydra.launcher
    assert (launcher.gpus_per_node, launcher.tasks_per_node, launcher.nodes, launcher.partition) == (4, 1, 1, "p")
    assert launcher.max_num_timeout > 0
    assert get_class(launcher._target_).__name__ == "SlurmLauncher"
