"""From config to objects: what may be built, and one line for what cannot."""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
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


def run_directory(resume: str | None) -> str:
    """Where a single run goes: the run to go on with, or a new folder named after the time."""
    if resume:
        return str(Path(resume).resolve()) if Path(resume).is_dir() else "."  # what is not there, `train` will say
    if int(os.environ.get("RANK", 0)) > 0:
        return "."  # the first process says where: see `shared_directory`
    name = first = Path(f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}")
    for number in itertools.count(2):
        try:
            name.mkdir(parents=True)  # taken at once: of two runs started in the same second, each gets its own
            break
        except FileExistsError:
            name = first.with_name(f"{first.name}_{number}")
    return str(name)


def job_directory(overrides: Iterable[str], sweep: str) -> str:
    """The folder of one job of the sweep of that name: its overrides, as one name even if there are paths among them,
    without those that tell no job from another."""
    telling = [each for each in overrides if each.split("=")[0] not in NO_MATTER]
    telling = [each for each in telling if not (each.startswith("experiment=") and sweep in each)]
    name = ",".join(sorted(telling)).replace("/", "_") or "as_it_is"
    # File systems take 255 bytes; two jobs must not meet in what is left of their names. The end tells more: the seed.
    return name if len(name) <= 200 else f"{hashlib.sha256(name.encode()).hexdigest()[:8]},...{name[-180:]}"


# Settings that make no difference to what is learnt: places, names, and how much of the machine to use.
NO_MATTER = frozenset({"name", "debug", "trust", "resume", "threads", "logger", "data.root", "data.directory"})
NO_MATTER |= {"data.corpus.root", "data.workers", "checkpoint"}


def settings_that_matter(config: DictConfig) -> dict[str, Any]:
    """Every setting of a config, resolved, by its dotted name, less those that make no difference to what is learnt."""

    def flat(node: Any, name: str) -> Iterator[tuple[str, Any]]:
        if name in NO_MATTER:
            return
        if isinstance(node, dict) and node:
            for key, value in node.items():
                yield from flat(value, f"{name}.{key}" if name else str(key))
        else:
            yield name, node

    return dict(flat(OmegaConf.to_container(config, resolve=True), ""))


def config_hash(config: DictConfig) -> str:
    """Names a config: two runs with the same one, on the same machine, are the same run."""
    return hashlib.sha256(json.dumps(settings_that_matter(config), sort_keys=True).encode()).hexdigest()[:16]


def differences(one: DictConfig, other: DictConfig) -> str:
    """Where two configs differ, in words, the first three places."""
    before, now = settings_that_matter(one), settings_that_matter(other)
    names = [name for name in sorted(before | now) if before.get(name, ...) != now.get(name, ...)]
    told = [f"{name}={before.get(name, 'not set')}, now {now.get(name, 'not set')}" for name in names[:3]]
    return "; ".join(told) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")


def heads_of(kind: str, arm: str, heads: int) -> int:
    """Heads of one kind of attention in an arm of a study that varies them one at a time, such as `encoder_8`; `heads`
    where the arm is about another kind."""
    varied, _, number = arm.partition("_")
    if arm != "base" and not (varied in ("encoder", "decoder", "cross") and number.isdigit()):
        raise ValueError(f"study.arm={arm}: must be base, or encoder, decoder or cross with heads, such as encoder_8")
    return int(number) if varied == kind else heads


def balanced_feed_forward(
    width: int, d_model: int, heads: int, head_size: int, encoder_layers: int, decoder_layers: int
) -> int:
    """Width of the feed-forward that gives a model with `heads` as many parameters as one whose heads fill d_model and
    whose feed-forward is `width` wide: it gets what fewer heads leave (Shazeer 2019, Table 1)."""
    layers, attentions = encoder_layers + decoder_layers, encoder_layers + 2 * decoder_layers
    saved = (d_model - heads * head_size) * (4 * d_model + 3) * attentions
    return width + round(saved / (layers * (2 * d_model + 1)))


def peak_rate(d_model: Any) -> float:
    """Peak learning rate by width: 5e-3 at d_model 128, and inversely proportional to it."""
    # Where d_model is no width, the model says so; one line for that is enough.
    return 5e-3 * 128 / d_model if isinstance(d_model, int) and d_model > 0 else 1.0


def group_count() -> int:
    """Machines of a torchrun job."""
    return int(os.environ.get("WORLD_SIZE", 1)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def register_resolvers() -> None:
    """What conf/ may write between ${ and }, beside Hydra's own."""
    for resolver in (run_directory, job_directory, peak_rate, group_count, heads_of, balanced_feed_forward):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True, use_cache=resolver is run_directory)


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
