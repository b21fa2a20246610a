"""Parts built with the settings of conf/, with changes for a test."""

from functools import cache, partial
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.data.cleaning import Cleaning
from headcount.data.tokenizer import SentencePiece
from headcount.heads.statistics import Bounds
from headcount.run.build import NOT_CORPUS, without_other_kinds
from headcount.run.resolvers import register_resolvers
from headcount.settings import factory_of
from headcount.training.callbacks import SkippedSteps
from headcount.training.module import TranslationTask

BOUNDS = Bounds(loss=0.01, margin=0.1, accuracy=2.0, bleu=0.5)
ONE_LAYER = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "d_feed_forward": 16, "num_heads": 2}
TWO_LAYERS = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "d_feed_forward": 24, "dropout": 0.0}


@cache
def settings(option: str) -> Any:
    """The node of conf/train.yaml with an option or a kind chosen, such as search/beam or loss/r_drop, resolved."""
    group, _, name = option.partition("/")
    register_resolvers()
    choice = f"{group}={name}" if (CONF / group / f"{name}.yaml").exists() else f"{group}.kind={name}"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [choice])
    OmegaConf.set_struct(config, False)
    return without_other_kinds(config)[group]


def corpus(option: str, /, **changes: Any) -> Any:
    """The corpus of conf/data/`option`; the values of `changes` replace its settings."""
    node: Any = OmegaConf.to_container(settings(f"data/{option}"))
    node = {name: value for name, value in node.items() if name not in NOT_CORPUS}
    if changes.get("held_out"):
        changes["held_out"] = node["held_out"] | changes["held_out"]
    return factory_of("data", node.pop("kind"))(**node | changes)


def hub(path: Any = None, source: Any = None, target: Any = None, **changes: Any) -> Any:
    return corpus("hub", path=path, source=source, target=target, **changes)


def files(source: Any, target: Any, **changes: Any) -> Any:
    return corpus("files", source=source, target=target, **changes)


def built(option: str, /, **changes: Any) -> Any:
    """The object that `option` describes, such as `built("search/beam", beam=1)`; `changes`: settings or objects."""
    group, _, name = option.partition("/")
    if group == "attention":
        options = {"luong_dot": {"gain": None}, "gaussian_window": {"gaussians": 3}}.get(name, {})
        return partial(factory_of(group, name), **options | changes)
    node: Any = OmegaConf.to_container(settings(option))
    if group == "model":
        sides = {side: node.pop(side) for side in ("self_attention", "cross_attention") if side in node}
        changes = {side: built(f"attention/{word}") for side, word in sides.items()} | changes
        node = {name: value for name, value in node.items() if name not in ("gain", "gaussians")}
    factory = factory_of(group, node.pop("kind"))
    return partial(factory, **node | changes) if group == "optimizer" else factory(**node | changes)


def sentence_piece(vocab_size: int, model_type: str = "bpe", **changes: Any) -> SentencePiece:
    piece: SentencePiece = built("tokenizer/joint", vocab_size=vocab_size, model_type=model_type, **changes)
    return piece


def cleaning(**changes: Any) -> Cleaning:
    """Cleaning without limits but those of `changes`."""
    return Cleaning(**{**settings("data/grammar").cleaning, "max_words": None, "max_ratio": None, **changes})


def random_model(vocab_size: int, **settings: Any) -> Any:
    """A model of two layers whose weights are all random: no norm or bias is left at 1 or 0."""
    attends = ("self_attention", "cross_attention")
    chosen = {name: built(f"attention/{settings[name]}") for name in attends if name in settings}
    torch.manual_seed(1)
    model = built("model/nano", vocab_size=vocab_size, **TWO_LAYERS | settings | chosen).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += (0.6 if "embedding" in name else 0.3) * torch.randn_like(weight)
    return model


def task_without_data(model: torch.nn.Module, loss: Any = None) -> TranslationTask:
    """The training of a model, without sentences to validate on."""
    return TranslationTask(
        model=model,
        loss=loss,
        optimizer=torch.optim.AdamW,
        schedule=lambda step: 1.0,
        skipped=SkippedSteps(1),
        translator=None,
        sources=[],
        references=[],
        bleu_tokenizer="13a",
        samples=0,
        seed=1,
    )


def composed(name: str, *overrides: str) -> Any:
    """The config of a command, as Hydra gives it to it."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides))
