"""Parts with the settings that conf/ gives them, and changes of a test's own."""

from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from headcount.run.resolvers import CONF, register_resolvers

ONE_LAYER = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "d_feed_forward": 16, "num_heads": 2}


@cache
def settings(option: str) -> Any:
    """The node of conf/train.yaml with `option` chosen, such as search/beam, resolved."""
    group, _, name = option.rpartition("/")
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        node = OmegaConf.select(compose("train", [f"{group}={name}"]), group.replace("/", "."))
    return OmegaConf.create(OmegaConf.to_container(node, resolve=True))


def built(option: str, /, **changes: Any) -> Any:
    """The object that `option` describes, such as `built("search/beam", beam=1)`; `changes`: settings or objects."""
    try:
        return instantiate(settings(option), **changes)
    except InstantiationException as error:
        raise (error.__cause__ or error) from None
