"""From config to objects: what may be built, and one line for what cannot."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError
from headcount.run.types import wrong_values

if TYPE_CHECKING:
    from headcount.data.module import TranslationData

# What a config that comes with a run may build. `_target_` names code to call, so a config that somebody else made is
# code unless each exact name is known. `trust=[...]` on the command line adds names of your own.
TRUSTED = frozenset(
    {
        "headcount.data.cleaning.Cleaning",
        "headcount.data.corpora.FilesCorpus",
        "headcount.data.corpora.HubCorpus",
        "headcount.data.grammar.Copy",
        "headcount.data.grammar.Grammar",
        "headcount.data.segmentation.BpeDropout",
        "headcount.data.segmentation.SampledSegmentation",
        "headcount.data.tokenizer.SentencePiece",
        "headcount.data.tokenizer_pair.SentencePiecePair",
        "headcount.decoding.beam.BeamSearch",
        "headcount.decoding.diverse.DiverseBeamSearch",
        "headcount.decoding.risk.MinimumBayesRisk",
        "headcount.decoding.sampling.Sampling",
        "headcount.model.attention.ScaledDotProduct",
        "headcount.model.recurrent.Recurrent",
        "headcount.model.scores.Additive",
        "headcount.model.scores.LuongDot",
        "headcount.model.scores.LuongGeneral",
        "headcount.model.transformer.Transformer",
        "headcount.model.window.GaussianWindow",
        "headcount.training.averaging.BestCheckpoint",
        "headcount.training.averaging.CheckpointAverage",
        "headcount.training.averaging.ExponentialAverage",
        "headcount.training.callbacks.LastCheckpoint",
        "headcount.training.loss.LabelSmoothing",
        "headcount.training.loss.RDrop",
        "headcount.training.schedule.Constant",
        "headcount.training.schedule.Cosine",
        "headcount.training.schedule.InverseSquareRoot",
        "headcount.training.schedule.Noam",
        "pytorch_lightning.Trainer",
        "pytorch_lightning.loggers.CSVLogger",
        "pytorch_lightning.loggers.MLFlowLogger",
        "pytorch_lightning.loggers.TensorBoardLogger",
        "pytorch_lightning.loggers.WandbLogger",
        "pytorch_lightning.strategies.DDPStrategy",
        "torch.optim.AdamW",
    }
)


def build(node: Any, setting: str, trusted: frozenset[str] | None = None, **arguments: Any) -> Any:
    """The object that `node` describes, None for an empty one.

    Raises InputError with a line for each setting that is wrong.

    setting: the node's name. trusted: if given, the only `_target_`s allowed. arguments: go before the node's own.
    """
    if not node:
        return None
    if trusted is not None:
        check_targets(OmegaConf.to_container(node, resolve=False), setting, trusted)
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


def check_targets(node: Any, setting: str, trusted: frozenset[str]) -> None:
    """Raises InputError if `node`, of a run's config, names something to build that is not trusted, or interpolates."""
    if isinstance(node, dict):
        target = node.get("_target_")
        if target is not None and target not in trusted:
            raise InputError(
                f"{setting}: the run's config wants to build {target!r}, which is not a part of headcount; if you know "
                f"that code, add trust=[{target}]"
            )
        for key, value in node.items():
            check_targets(value, f"{setting}.{key}", trusted)
    elif isinstance(node, list):
        for value in node:
            check_targets(value, setting, trusted)
    elif isinstance(node, str) and "${" in node:
        raise InputError(f"{setting}: the run's config.yaml must be resolved, but holds {node!r}")


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


def build_data(config: DictConfig, trusted: frozenset[str] | None = None) -> "TranslationData":
    """The data module, nothing read yet. Raises InputError with a line for each setting that is wrong."""
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
        "corpus": problems.attempt(build, data.corpus, "data.corpus", trusted),
        "tokenizer": problems.attempt(build, config.tokenizer, "tokenizer", trusted),
        "cleaning": problems.attempt(build, data.cleaning, "data.cleaning", trusted),
        "segmentation": problems.attempt(build, config.get("segmentation"), "segmentation", trusted),
    }
    problems.say()
    return TranslationData(**parts, **settings)
