"""Build the parts of a run from its config; all that is wrong in it is reported together, before any data is read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, first_line
from headcount.run.directory import read_config
from headcount.run.resolvers import processes
from headcount.settings import (
    Design,
    Problems,
    Top,
    Trainer,
    Validation,
    build,
    check,
    factory_of,
    made,
    own_settings,
    parameters_of,
    typed,
    within,
)

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import Logger

    from headcount.data.corpora.corpus import Corpus
    from headcount.data.module import TranslationData
    from headcount.model.encoder_decoder import EncoderDecoder
    from headcount.training.averaging import Averaging
    from headcount.training.callbacks import StopOnInterrupt, TrainingProgress
    from headcount.training.checkpoint import LastCheckpoint

# Settings of `data` beside the corpus: how its text becomes batches.
OF_MODULE = ("max_length", "batch_tokens", "both_directions", "directory", "workers")
NOT_CORPUS = (*OF_MODULE, "cleaning", "rate_tokens", "fingerprint")
GROUPS = ("data", "tokenizer", "segmentation", "model", "loss", "optimizer", "schedule", "averaging", "search")
# Of a resumed or finished run, beside these: the changes of its settings, and the heads that it was pruned to.
NODES = (*GROUPS, "trainer", "validation", "checkpoint", "divergence", "study", "resumed", "pruned")
# Keys at the top of metrics.json beside the blocks of the test sets.
OF_METRICS = ("seed", "parameters", "operations_per_token", "model", "weights", "versions", "hardware", "config_hash")
ATTENTIONS = ("self_attention", "cross_attention")
OF_ATTENTION: tuple[str, ...] = ("gain", "gaussians")  # settings of `model` that a kind of attention takes
DEFAULT_MODEL = "nano"  # the option of conf/train.yaml
PLACEHOLDER_VOCABULARY = 8  # subwords, for a model that is built only to see whether its settings fit
LOGGERS = {
    "none": (),
    "csv": ("CSVLogger",),
    "default": ("CSVLogger", "TensorBoardLogger"),
    "wandb": ("CSVLogger", "WandbLogger"),
    "mlflow": ("CSVLogger", "MLFlowLogger"),
}


def plain(config: Any) -> dict[str, Any]:
    """A config, or a group of one, resolved, as plain containers."""
    container: Any = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else dict(config)
    return container


def command_line() -> list[Override]:
    """The settings that this command was started with; none where `train` is called from Python."""
    if not HydraConfig.initialized():
        return []
    return OverridesParser.create().parse_overrides(list(HydraConfig.get().overrides.task))


def names_given() -> list[str]:
    """The names of the settings that this command was started with."""
    return [each.key_or_group for each in command_line()]


def only_take(mode: str, names: Collection[str]) -> None:
    """Raises InputError for a setting that was typed beside those which a mode of a command takes."""
    if other := [name for name in names_given() if not within(name, (*names, "run", "extensions", "debug", "threads"))]:
        raise InputError(f"{other[0]}=: has no effect with {mode}; leave it out")


def load_extensions(config: Mapping[str, Any] | DictConfig) -> None:
    """Import the modules of the user that add kinds to `headcount.settings.KINDS`. Raises InputError."""
    modules: Any = config.get("extensions") or []
    modules = OmegaConf.to_container(modules) if OmegaConf.is_config(modules) else modules
    if not isinstance(modules, list | tuple) or not all(isinstance(module, str) for module in modules):
        raise InputError(f"extensions={typed(modules)}: must be a list of modules, such as [my_losses]")
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise InputError(f"extensions=[{module}]: {first_line(error)}") from error


def initial_config(config: DictConfig, wrong: list[str] | None = None) -> DictConfig:
    """The config of a new run, whose groups have the settings of their kinds; with `init_from`, that run's model and
    tokenizer, and on top of them what the command line or a recipe sets of the model.

    wrong: see `without_other_kinds`. Raises InputError for a directory that is not a run, a setting without effect, or
    a choice that another model or tokenizer would need.
    """
    words = names_given()
    if not config.init_from:
        return without_other_kinds(config, words, wrong)
    run = read_config(Path(config.init_from))
    brings = f"init_from={config.init_from} brings its own model and tokenizer"
    if own := [each for each in words if within(each, ("tokenizer",)) or each == "model"]:
        raise InputError(f"{own[0]}=: {brings}; leave it out")
    initial = _composed_on(run.model, config)
    initial.tokenizer = run.tokenizer
    wanted = without_other_kinds(config, words, []).model
    initial = without_other_kinds(initial, words, wrong)
    chosen = HydraConfig.get().runtime.choices["model"] if HydraConfig.initialized() else DEFAULT_MODEL
    if chosen != DEFAULT_MODEL and any(wanted[name] != initial.model.get(name) for name in wanted):
        raise InputError(
            f"model={chosen}: {brings}; leave out the recipe that chooses another, and give its settings one by one"
        )
    return initial


def _composed_on(model: DictConfig, config: DictConfig) -> DictConfig:
    """The config of this command where `model` is the option of the group model: what a recipe sets comes on top."""
    if not HydraConfig.initialized():
        return OmegaConf.merge(config, {"model": model})  # type: ignore[return-value]
    hydra = HydraConfig.get()
    ConfigStore.instance().store("of_init_from", plain(model), group="model")
    loader = GlobalHydra.instance().config_loader()
    words = [*hydra.overrides.task, "model=of_init_from"]
    composed = loader.load_configuration(hydra.job.config_name, words, RunMode.RUN)
    OmegaConf.set_struct(composed, False)
    composed.pop("hydra")
    return composed


def without_other_kinds(config: DictConfig, words: Collection[str] = (), wrong: list[str] | None = None) -> DictConfig:
    """A copy of a config whose groups have the settings of their kinds alone; conf/ gives each those of all.

    words: settings that were typed, which are refused if they have no effect. wrong: gets a line for each setting that
    is wrong; None: InputError is raised with these lines. See `own_settings`.
    """
    problems, container = Problems(), plain(config)
    for group in GROUPS:
        if not isinstance(container[group], dict):
            raise InputError(f"{group}={typed(container[group])}: is a group of settings, such as {group}.kind")
    for group in GROUPS:
        node = container[group]
        if group == "data":
            aside = {name: node.pop(name) for name in NOT_CORPUS if name in node}
            own = problems.attempt(own_settings, group, node, (), words)
            container[group] = {"kind": node.get("kind"), **(node if own is None else own), **aside}
        elif group == "model":
            container[group] = problems.attempt(_own_of_model, node, words) or node
        else:
            own = problems.attempt(own_settings, group, node, ("params", "steps"), words)
            container[group] = {"kind": node.get("kind"), **(node if own is None else own)}
    if wrong is None:
        problems.raise_all()
    else:
        wrong += problems.lines
    return OmegaConf.create(container)


def _own_of_model(node: dict[str, Any], words: Collection[str]) -> dict[str, Any]:
    options = {name: node[name] for name in OF_ATTENTION if name in node}
    rest = {name: value for name, value in node.items() if name not in options}
    own = own_settings("model", rest, ("vocab_size", "source_vocab_size"), words)
    kinds = [factory_of("attention", own[side], f"model.{side}") for side in ATTENTIONS if side in own]
    taken = {name: value for name, value in options.items() if any(name in parameters_of(kind) for kind in kinds)}
    for name in options:
        if name not in taken and f"model.{name}" in words:
            raise InputError(f"model.{name}={typed(options[name])}: has no effect with these kinds of attention")
    return {"kind": node.get("kind"), **own, **taken}


def new_model(node: Mapping[str, Any], vocab_size: int, **given: Any) -> "EncoderDecoder":
    """The model that the group `model` describes, with initial weights. Raises InputError."""
    settings = dict(node)
    options = {name: settings.pop(name) for name in OF_ATTENTION if name in settings}
    for side in ATTENTIONS:
        if side in settings:
            kind: Any = factory_of("attention", settings.pop(side), f"model.{side}")
            own = {name: value for name, value in options.items() if name in parameters_of(kind)}
            check(kind, own, "model.", given=("num_heads", "d_head", "dropout"))
            given[side] = partial(kind, **own)
    model: EncoderDecoder = build("model", settings, vocab_size=vocab_size, **given)
    return model


def build_model(config: DictConfig, tokenizer: Any) -> "EncoderDecoder":
    """The model that `config` describes, for the vocabulary of `tokenizer`, with initial weights. Raises InputError."""
    separate = tokenizer.source is not tokenizer.target
    source = {"source_vocab_size": tokenizer.source.vocab_size} if separate else {}
    return new_model(plain(config.model), tokenizer.vocab_size, **source)


def build_corpus(config: DictConfig) -> "Corpus":
    """The corpus that the group `data` describes. Raises InputError with a line for each setting that is wrong."""
    node = {name: value for name, value in plain(config.data).items() if name not in NOT_CORPUS}
    tests = node.get("tests")
    if taken := set(OF_METRICS) & set(tests if isinstance(tests, dict) else ()):
        raise InputError(f"data.tests.{min(taken)}: metrics.json has a figure of that name; give another")
    corpus: Corpus = build("data", node)
    return corpus


def build_data(config: DictConfig) -> "TranslationData":
    """The data module, nothing read yet. Raises InputError with a line for each setting that is wrong."""
    # Imported late: Lightning takes a second, and translating needs none of it.
    from headcount.data.cleaning import Cleaning
    from headcount.data.module import TranslationData

    data, problems = plain(config.data), Problems()
    settings = {name: data[name] for name in OF_MODULE if name in data}
    parts = ("corpus", "tokenizer", "cleaning", "segmentation", "seed", "accumulation")
    problems.attempt(check, TranslationData, settings, "data.", parts)
    problems.attempt(check, rate_of_batch, {"rate_tokens": data.get("rate_tokens")}, "data.")
    made_of = {
        "corpus": problems.attempt(build_corpus, config),
        "cleaning": problems.attempt(checked, Cleaning, "data.cleaning", data.get("cleaning")),
        "tokenizer": problems.attempt(build, "tokenizer", plain(config.tokenizer)),
        "segmentation": problems.attempt(build, "segmentation", plain(config.segmentation)),
    }
    problems.raise_all()
    module: TranslationData = made(
        TranslationData,
        "data",
        **made_of,
        **settings,
        seed=config.seed if isinstance(config.seed, int) and config.seed >= 0 else 0,  # another is reported by its type
        accumulation=config.trainer.accumulate_grad_batches,
    )
    return module


def rate_of_batch(*, rate_tokens: int) -> None:
    """The type of data.rate_tokens, which conf/optimizer reads."""


@dataclass
class Parts:
    """The parts of a training run.

    task: loss, optimizer, schedule, skipped steps, and the settings of validation. loggers: not the trainer's before it
    starts: Lightning would open them before it loads a checkpoint. precision: the one chosen, and why.
    """

    data: "TranslationData"
    trainer: "pl.Trainer"
    task: dict[str, Any]
    averaging: "Averaging | None"
    checkpoint: "LastCheckpoint"
    loggers: "list[Logger]"
    interrupt: "StopOnInterrupt"
    progress: "TrainingProgress"
    search: Any
    precision: str


def build_parts(config: DictConfig, directory: Path, wrong: Sequence[str] = ()) -> Parts:
    """Everything that a config describes, the model too (without memory, to see that its settings fit).

    Raises InputError with a line for each setting that is wrong. wrong: lines that are known.
    """
    import torch
    from pytorch_lightning.callbacks import LambdaCallback

    from headcount.devices import choose_precision
    from headcount.evaluation.metrics import bleu_tokenizer
    from headcount.training.callbacks import SkippedSteps, StopOnInterrupt, TrainingProgress
    from headcount.training.checkpoint import LastCheckpoint

    container, problems = plain(config), Problems()
    problems.lines += wrong
    attempt = problems.attempt
    attempt(check_nodes, container)
    with torch.device("meta"):
        attempt(new_model, container["model"], PLACEHOLDER_VOCABULARY)
    steps = config.steps if isinstance(config.steps, int) else 1  # another is reported by its type
    schedule_given = {"steps": steps, "d_model": container["model"].get("d_model")}
    task = {
        "loss": attempt(build, "loss", container["loss"]),
        "optimizer": attempt(optimizer_of, container["optimizer"]),
        "schedule": attempt(build, "schedule", container["schedule"], **schedule_given),
        "skipped": attempt(checked, SkippedSteps, "divergence", container["divergence"]),
    }
    search = attempt(build, "search", container["search"])
    averaging = attempt(averaging_of, container)
    checkpoint = attempt(checked, LastCheckpoint, "checkpoint", container["checkpoint"])
    data = attempt(build_data, config)
    tokenizer = attempt(bleu_tokenizer, data.target_language if data else "", config.bleu_tokenizer)
    attempt(check_together, container)
    loggers = attempt(loggers_of, container["logger"], directory)
    problems.raise_all()
    interrupt, progress = StopOnInterrupt(), TrainingProgress(task["skipped"])
    precision, why = choose_precision(config.trainer.precision, config.trainer.accelerator)
    # In the order in which they act: the checkpoint after all whose state it keeps; a signal waits for it at the end.
    callbacks = [interrupt, progress, averaging, *stopping_of(container["validation"]), checkpoint]
    callbacks.append(LambdaCallback(on_train_end=lambda *_: interrupt.close()))
    callbacks = [each for each in callbacks if each is not None]
    if config.cuda_graphs == "auto" and torch.cuda.is_available():
        from headcount.training.graphs import CudaGraphs

        callbacks.append(CudaGraphs())
    trainer = trainer_of(container, directory, precision, callbacks)
    task |= {"samples": config.validation.samples, "bleu_tokenizer": tokenizer}
    return Parts(
        data, trainer, task, averaging, checkpoint, loggers, interrupt, progress, search, f"{precision}, {why}"
    )


def checked(kind: Any, group: str, node: Mapping[str, Any]) -> Any:
    """What a group of settings describes. Raises InputError with a line for each that is wrong."""
    check(kind, node, f"{group}.")
    return made(kind, group, **node)


def check_nodes(config: Mapping[str, Any]) -> None:
    """Compare the names and types of all settings that no part checks. Raises InputError with a line for each."""
    problems = Problems()
    problems.attempt(check, Top, {name: value for name, value in config.items() if name not in NODES})
    for group, kind in {"trainer": Trainer, "validation": Validation}.items():
        problems.attempt(check, kind, config.get(group), f"{group}.")
    problems.attempt(Design.of, config)
    problems.raise_all()


def check_together(config: Mapping[str, Any]) -> None:
    """Raises InputError, with a line for each, for settings that do not go together and that no constructor sees."""
    wrong = []
    if config["compile"] and config["model"]["kind"] != "transformer":
        wrong.append("compile=true: only a Transformer's layers can be compiled; leave it out")
    dropouts = [value for name, value in config["model"].items() if name.endswith("dropout")]
    if config["loss"]["kind"] == "r_drop" and not any(dropouts):
        wrong.append("loss: r_drop compares two passes that differ by dropout; give model.dropout=0.1 with it")
    if wrong:
        raise InputError("\n".join(wrong))


def optimizer_of(node: Mapping[str, Any]) -> Any:
    """What makes the optimizer from parameter groups. It is made for one parameter first, to check its settings.

    Raises InputError.
    """
    import torch

    factory: Any = factory_of("optimizer", node["kind"])
    values = {name: value for name, value in node.items() if name != "kind"}
    check(factory, values, "optimizer.", given=("params",))
    make = partial(factory, **values)
    try:
        make([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    except Exception as error:  # each package has its own
        named = str(error).startswith("optimizer.")  # by our own classes; others don't
        raise InputError(str(error) if named else f"optimizer: {first_line(error)}") from error
    return make


def averaging_of(config: Mapping[str, Any]) -> "Averaging | None":
    """The averaging of weights, None for none; that of the optimizer, if it has its own. Raises InputError for settings
    that such an optimizer cannot have beside it."""
    from headcount.training.averaging import ScheduleFreeAverage

    if config["optimizer"]["kind"] != "schedule_free":
        averaging: Averaging | None = build("averaging", config["averaging"])
        return averaging
    if config["averaging"]["kind"] != "none" or config["schedule"]["kind"] != "constant":
        raise InputError(
            "optimizer=schedule_free averages the weights itself, at a constant rate; give averaging.kind=none and "
            "schedule.kind=constant"
        )
    return ScheduleFreeAverage()


def loggers_of(word: str, directory: Path) -> "list[Logger]":
    """Loggers of learning curves that write into `directory`. Raises InputError where a package is missing."""
    from pytorch_lightning import loggers

    try:
        made_of = []
        for kind in LOGGERS.get(word, ()):
            settings = {"name": "logs", "version": ""} if kind in ("CSVLogger", "TensorBoardLogger") else {}
            more = {"flush_logs_every_n_steps": 1} if kind == "CSVLogger" else {}
            made_of.append(getattr(loggers, kind)(save_dir=directory, **settings, **more))
        return made_of
    except ImportError as error:
        raise InputError(f"logger={word}: {first_line(error)}; install it, or choose another") from error


def stopping_of(validation: Mapping[str, Any]) -> "list[pl.Callback]":
    """What ends training where validation no longer improves, if that is set."""
    from headcount.training.averaging import MONITORED
    from headcount.training.callbacks import EarlyStopping

    if validation["patience"] is None:
        return []
    monitor, sign = MONITORED[validation["metric"]]
    return [EarlyStopping(monitor, patience=validation["patience"], mode="max" if sign > 0 else "min")]


def trainer_of(
    config: Mapping[str, Any], directory: Path, precision: str, callbacks: "list[pl.Callback]"
) -> "pl.Trainer":
    """Lightning's trainer, quiet, without an idea of epochs. Raises InputError, also for a GPU that isn't there."""
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.strategies import DDPStrategy

    from headcount.training.checkpoint import CheckpointFile

    settings = dict(config["trainer"])
    accelerator = settings["accelerator"]
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(f"trainer.accelerator={accelerator}: no GPU found; use trainer=cpu")
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise InputError("trainer.accelerator=mps: no Apple GPU found; use trainer=cpu")
    if settings["strategy"] == "ddp":
        # The head gates are buffers, and ranks may study different ones. Processes would wait for the gradients of
        # layers that one of them left out.
        unused = bool(config["model"].get("layer_dropout"))
        settings["strategy"] = DDPStrategy(broadcast_buffers=False, find_unused_parameters=unused)
    settings["precision"] = precision
    trainer = made(
        pl.Trainer,
        "trainer",
        **settings,
        max_steps=config["steps"],
        default_root_dir=directory,
        logger=False,
        callbacks=callbacks,
        # Everything counts in optimizer steps: there is one endless epoch, with a validation every few batches.
        max_epochs=-1,
        check_val_every_n_epoch=None,
        val_check_interval=config["validation"]["every"] * settings["accumulate_grad_batches"],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.strategy.checkpoint_io = CheckpointFile()
    return trainer


def check_processes(config: DictConfig) -> None:
    """Raises InputError where the processes that torchrun started are not those that the trainer expects: others would
    be waited for."""
    started = processes(True), processes(False)
    devices, machines = config.trainer.devices, config.trainer.num_nodes
    numbers = isinstance(devices, int) and isinstance(machines, int)  # others are reported by their type
    if numbers and (devices, machines) != started:
        raise InputError(
            f"trainer.devices={devices} trainer.num_nodes={machines}: {started[0]} processes were started on each of "
            f"{started[1]} machines; torchrun --nproc-per-node {devices} --nnodes {machines} -m headcount train "
            "trainer=ddp starts one a device"
        )
