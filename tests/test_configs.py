"""Configs: what files of conf/ set together, and what commands and launchers get of it."""

from importlib.util import find_spec
from typing import Any

import pytest
from built import composed
from conftest import failed
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.run.build import new_model, plain, without_other_kinds
from headcount.run.opened import search_of
from headcount.run.resolvers import register_resolvers
from headcount.settings import AS_TRAINED

SEARCHES = [path.stem for path in sorted((CONF / "search").glob("*.yaml"))]
ASKING = ("evaluate", "translate", "serve")


def own(*words: str) -> Any:
    config = composed("train", *words)
    OmegaConf.set_struct(config, False)
    return without_other_kinds(config)


@pytest.mark.medium
@pytest.mark.parametrize("name", ASKING)
def test_the_search_of_a_command_is_the_runs_own_or_that_of_training(name):
    trained = own("search.beam=3")
    assert set(composed(name).search.values()) == {AS_TRAINED}
    assert vars(search_of(trained, composed(name).search))["beam"] == 3
    assert vars(search_of(trained, composed(name, "search.beam=8").search))["beam"] == 8
    for option in SEARCHES:
        asked = search_of(trained, composed(name, f"search={option}").search)
        there = search_of(own(f"search={option}"), {})
        assert type(asked) is type(there)
        assert vars(asked) == vars(there)


@pytest.mark.medium
def test_every_rate_of_an_optimizer_follows_the_width():
    second = {"muon": ["adamw_lr"], "adamw": ["other_lr"]}
    for optimizer in (path.stem for path in (CONF / "optimizer").glob("*.yaml")):
        nodes = [composed("train", f"optimizer={optimizer}", f"model={model}").optimizer for model in ("nano", "base")]
        names = [name for name in nodes[0] if name.endswith("lr")]
        assert names == ["lr", *second.get(optimizer, [])]
        assert [nodes[1][name] for name in names] == [nodes[0][name] / 4 for name in names]  # d_model 128 and 512
    for width, rates in {64: (0.02, 0.04), 128: (0.01, 0.02)}.items():
        optimizer = composed("train", "recipe=multi30k_quick", f"model.d_model={width}").optimizer
        assert (optimizer.lr, optimizer.adamw_lr) == rates


@pytest.mark.medium
def test_a_gpu_has_large_batches_with_the_rate_that_goes_with_them():
    cpu, gpu = (composed("train", f"trainer={trainer}") for trainer in ("cpu", "gpu"))
    assert (gpu.trainer.accelerator, gpu.data.batch_tokens, gpu.data.pad_to) == ("gpu", 25600, "auto")
    assert gpu.optimizer.lr == pytest.approx(cpu.optimizer.lr * 2.5)  # the root of 25600 / 4096
    assert {**cpu.trainer, "accelerator": "gpu"} == gpu.trainer
    assert composed("train", "trainer=gpu", "data.batch_tokens=4096").optimizer.lr == cpu.optimizer.lr


@pytest.mark.medium
@pytest.mark.parametrize(
    ("choices", "size"), [([], "nano"), pytest.param(["recipe=multi30k_study"], "tiny", marks=pytest.mark.slow)]
)
def test_steps_of_the_lineage_have_as_many_parameters(choices, size):
    study = ["study=lineage", *choices]
    pieces = composed("train", *study).tokenizer.vocab_size

    def parameters(*overrides: str) -> int:
        return sum(each.numel() for each in new_model(plain(own(*overrides).model), pieces).parameters())

    steps = OmegaConf.load(CONF / "study" / "lineage.yaml").hydra.sweeper.params["study.arm"].split(",")
    assert steps == list(OmegaConf.load(CONF / "study" / "lineage.yaml").study.arms)
    counts = {step: parameters(*study, f"study.arm='{step}'") for step in steps}
    assert counts == pytest.approx(dict.fromkeys(steps, parameters(f"model={size}")), rel=0.01)


@pytest.mark.medium
def test_launchers_of_a_cluster(tmp_path):
    def launcher(*words: str) -> Any:
        register_resolvers()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("train", list(words), return_hydra_config=True).hydra.launcher

    assert launcher("hydra/launcher=ray", "hydra.launcher.ray.remote.num_gpus=1").ray.remote == {
        "num_cpus": 2,
        "num_gpus": 1,
    }
    if not find_spec("hydra_plugins.hydra_ray_launcher"):
        (line,) = failed("train", "--multirun", "hydra/launcher=ray", cwd=tmp_path)
        assert line == "hydra-ray-launcher: this plugin of Hydra is not installed; pip install hydra-ray-launcher"
    if find_spec("hydra_plugins.hydra_submitit_launcher"):
        words = ("hydra/launcher=slurm", "hydra.launcher.partition=p", "trainer=ddp", "trainer.devices=4")
        slurm = launcher(*words)
        assert (slurm.gpus_per_node, slurm.tasks_per_node, slurm.nodes, slurm.partition) == (4, 1, 1, "p")
        assert slurm.max_num_timeout > 0
        assert get_class(slurm._target_).__name__ == "SlurmLauncher"
