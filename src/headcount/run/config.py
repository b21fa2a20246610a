"""From config to objects: what may be built, and one line for what cannot."""

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError
from headcount.run.types import wrong_values

if TYPE_CHECKING:
    from headcount.data.module import TranslationData

# What a config that comes with a run may build, by the setting that describes it. `_target_` names code to call, so a
# config that somebody else made is code unless each exact name is known where it is used. `trust=[...]` on the command
# line adds names of your own.
TRUSTED = {
    "averaging": {
        "headcount.training.averaging.BestCheckpoint",
        "headcount.training.averaging.CheckpointAverage",
        "headcount.training.averaging.ExponentialAverage",
    },
    "checkpoint": {"headcount.training.callbacks.LastCheckpoint"},
    "data.cleaning": {"headcount.data.cleaning.Cleaning"},
    "data.corpus": {
        "headcount.data.corpora.FilesCorpus",
        "headcount.data.corpora.HubCorpus",
        "headcount.grammar.Copy",
        "headcount.grammar.Grammar",
    },
    "logger.*": {
        "pytorch_lightning.loggers.CSVLogger",
        "pytorch_lightning.loggers.MLFlowLogger",
        "pytorch_lightning.loggers.TensorBoardLogger",
        "pytorch_lightning.loggers.WandbLogger",
    },
    "loss": {"headcount.training.loss.LabelSmoothing", "headcount.training.loss.RDrop"},
    "model": {"headcount.model.recurrent.Recurrent", "headcount.model.transformer.Transformer"},
    "model.cross_attention": {
        "headcount.model.attention.ScaledDotProduct",
        "headcount.model.score_functions.Additive",
        "headcount.model.score_functions.LuongDot",
        "headcount.model.score_functions.LuongGeneral",
        "headcount.model.gaussian_window.GaussianWindow",
    },
    "optimizer": {"torch.optim.AdamW"},
    "schedule": {
        "headcount.training.schedule.Constant",
        "headcount.training.schedule.Cosine",
        "headcount.training.schedule.InverseSquareRoot",
        "headcount.training.schedule.Noam",
    },
    "search": {
        "headcount.decoding.beam.BeamSearch",
        "headcount.decoding.diverse.DiverseBeamSearch",
        "headcount.decoding.mbr.MinimumBayesRisk",
        "headcount.decoding.sampling.Sampling",
    },
    "segmentation": {
        "headcount.data.subword_sampling.BpeDropout",
        "headcount.data.subword_sampling.SampledSegmentation",
    },
    "tokenizer": {"headcount.data.tokenizer.SentencePiece", "headcount.data.tokenizer.SentencePiecePair"},
    "trainer": {"pytorch_lightning.Trainer"},
    "trainer.strategy": {"pytorch_lightning.strategies.DDPStrategy"},
}


def build(node: Any, setting: str, trust: Collection[str] | None = None, **arguments: Any) -> Any:
    """The object that `node` describes, None for an empty one.

    Raises InputError with a line for each setting that is wrong.

    setting: the node's name. trust: for a node of a run's config, which may build only what is `TRUSTED` there, and
    these; None for one of your own, which may build anything. arguments: go before the node's own.
    """
    if not node:
        return None
    if trust is not None:
        check_targets(OmegaConf.to_container(node, resolve=False), setting, trust)
    try:
        values: Any = OmegaConf.to_container(node, resolve=True)
        if isinstance(values, dict) and "_target_" in values:
            own = {name: value for name, value in values.items() if name not in arguments}
            if wrong := wrong_values(get_object(values["_target_"]), own, lambda name: f"{setting}.{name}"):
                raise InputError("\n".join(wrong))
        return instantiate(node, **arguments)
    except InstantiationException as error:
        first, *more = str(error.__cause__ or error).splitlines()
        message = f"{first} {more[0]}" if more and first.endswith(":") else first
        # Our own classes name the setting, others don't.
        named = message.startswith(setting.partition(".")[0])
        raise InputError(message if named else f"{setting}: {message}") from error
    except OmegaConfBaseException as error:
        raise InputError(f"{setting}: {str(error).splitlines()[0]}") from error


def check_targets(node: Any, setting: str, trust: Collection[str], where: str = "") -> None:
    """Raises InputError if `node`, of a run's config, names something to build that is not trusted, or interpolates.

    setting: the node's name, empty for a whole config. trust: class names to allow anywhere beside `TRUSTED`. where:
    what the message begins with.
    """
    if isinstance(node, dict):
        target = node.get("_target_")
        slot = re.sub(r"^logger\.[^.]+$", "logger.*", setting)
        if target is not None and target not in trust and target not in TRUSTED.get(slot, ()):
            raise InputError(
                f"{where}{setting}: the run's config wants to build {target!r}, which headcount does not build there; "
                f"if you know that code, add trust=[{target}]"
            )
        for key, value in node.items():
            check_targets(value, f"{setting}.{key}" if setting else str(key), trust, where)
    elif isinstance(node, list):
        for value in node:
            check_targets(value, setting, trust, where)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{where}{setting}: the run's config.yaml must be resolved, but holds {node!r}")


class Problems:
    """What is wrong with settings, collected so that it can be said at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def attempt(self, builder: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """What `builder` gives, or None where it raises ValueError."""
        try:
            return builder(*arguments, **keywords)
        except ValueError as error:
            self.lines.append(str(error))

    def say(self) -> None:
        """Raises InputError with a line for each, if there are any."""
        if self.lines:
            raise InputError("\n".join(dict.fromkeys("\n".join(self.lines).splitlines())))


def build_data(config: DictConfig, trust: Collection[str] | None = None) -> "TranslationData":
    """The data module, nothing read yet; `trust` as for `build`.

    Raises InputError with a line for each setting that is wrong.
    """
    # Not before it is needed: it brings Lightning, for which somebody who translates would wait a second.
    from headcount.data.module import TranslationData

    data = config.data
    settings = {
        "batch_tokens": data.batch_tokens,
        "max_length": data.max_length,
        "directory": data.directory,
        "workers": data.workers,
        "hide_source": data.hide_source,
        "seed": config.seed,
        "accumulation": config.trainer.accumulate_grad_batches,
    }
    elsewhere = {"seed": "seed", "accumulation": "trainer.accumulate_grad_batches"}
    problems = Problems()
    problems.lines += wrong_values(TranslationData, settings, lambda name: elsewhere.get(name, f"data.{name}"))
    parts = {
        "corpus": problems.attempt(build, data.corpus, "data.corpus", trust),
        "tokenizer": problems.attempt(build, config.tokenizer, "tokenizer", trust),
        "cleaning": problems.attempt(build, data.cleaning, "data.cleaning", trust),
        "segmentation": problems.attempt(build, config.get("segmentation"), "segmentation", trust),
    }
    problems.say()
    return TranslationData(**parts, **settings)
