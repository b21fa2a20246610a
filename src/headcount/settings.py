"""Settings: the words for kinds of parts, what each part takes, and what a run is made of.

conf/ holds the values and says what they mean. Here stands which words there are (`KINDS`). The parameters of the class
behind a word are its settings: their annotations are the types, checked by pydantic.
"""

import difflib
import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, NotRequired, Required, get_args, get_type_hints

from annotated_types import Ge

from headcount.errors import InputError, first_line, printable

# The kinds of each part: what `loss.kind=r_drop` chooses. A module of your own, named by extensions=[mymodule], adds to
# them: KINDS["loss"]["mine"] = MyLoss.
KINDS: dict[str, dict[str, str | Callable[..., Any] | None]] = {
    "data": {
        "grammar": "headcount.grammar:Grammar",
        "copy": "headcount.grammar:Copy",
        "files": "headcount.data.corpora:FilesCorpus",
        "hub": "headcount.data.corpora:HubCorpus",
    },
    "tokenizer": {
        "joint": "headcount.data.tokenizer:SentencePiece",
        "separate": "headcount.data.tokenizer:SentencePiecePair",
    },
    "segmentation": {
        "best": None,
        "bpe_dropout": "headcount.data.subword_regularization:BpeDropout",
        "sampled": "headcount.data.subword_regularization:SampledSegmentation",
    },
    "model": {
        "transformer": "headcount.model.transformer:Transformer",
        "recurrent": "headcount.model.recurrent:Recurrent",
    },
    "attention": {
        "scaled_dot": "headcount.model.attention:ScaledDotProduct",
        "luong_dot": "headcount.model.attention_kinds:LuongDot",
        "luong_general": "headcount.model.attention_kinds:LuongGeneral",
        "additive": "headcount.model.attention_kinds:Additive",
        "gaussian_window": "headcount.model.attention_kinds:GaussianWindow",
    },
    "loss": {
        "label_smoothing": "headcount.training.loss:LabelSmoothing",
        "r_drop": "headcount.training.loss:RDrop",
        "simcut": "headcount.training.loss:SimCut",
    },
    "optimizer": {
        "muon": "headcount.training.optimizers:Muon",
        "adamw": "headcount.training.optimizers:AdamW",
        "nadamw": "torch.optim:NAdam",
        "schedule_free": "schedulefree:AdamWScheduleFree",
        "soap": "pytorch_optimizer:SOAP",
    },
    "schedule": {
        "linear": "headcount.training.schedule:Linear",
        "cosine": "headcount.training.schedule:Cosine",
        "inverse_sqrt": "headcount.training.schedule:InverseSquareRoot",
        "noam": "headcount.training.schedule:Noam",
        "trapezoid": "headcount.training.schedule:Trapezoid",
        "constant": "headcount.training.schedule:Constant",
    },
    "averaging": {
        "none": None,
        "checkpoints": "headcount.training.averaging:CheckpointAverage",
        "ema": "headcount.training.averaging:ExponentialAverage",
        "best": "headcount.training.averaging:BestCheckpoint",
    },
    "search": {
        "beam": "headcount.decoding.beam:BeamSearch",
        "diverse": "headcount.decoding.diverse:DiverseBeamSearch",
        "sample": "headcount.decoding.sampling:Sampling",
        "mbr": "headcount.decoding.mbr:MinimumBayesRisk",
    },
}

# What a run learns, by dotted name. These settings make its identity, name the folder of a job, and cannot change where
# a run is resumed. All others say how much of the machine to use, what is saved and printed, what a study is called.
LEARNT: tuple[str, ...] = (
    *("data", "tokenizer", "segmentation", "model", "loss", "optimizer", "schedule", "averaging", "search"),
    *("seed", "steps", "init_from"),
    *(f"trainer.{name}" for name in ("precision", "accumulate_grad_batches", "gradient_clip_val", "deterministic")),
)
NOT_LEARNT = ("data.directory", "data.workers")
# Where the text of a corpus lies: the same text is the same corpus wherever that is.
PLACES = ("data.root", "data.train", "data.valid", "data.test")

AS_TRAINED = "as_trained"  # a setting of the search that nobody has given: that of the run
Positive = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """conf/train.yaml explains them. accumulate_grad_batches: micro-batches in one optimizer step."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"]
    devices: Positive
    num_nodes: Positive
    strategy: Literal["auto", "ddp"]
    precision: Literal["auto", "32-true", "bf16-mixed", "bf16-true"]
    accumulate_grad_batches: Positive
    gradient_clip_val: Annotated[float, Ge(0)] | None
    log_every_n_steps: Positive
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class Validation:
    every: Positive
    samples: Natural
    patience: Positive | None
    metric: Literal["loss", "bleu"]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Settings of a command that opens runs."""

    run: str | list[str]
    checkpoint: str | None
    threads: Positive | None
    extensions: list[str]
    debug: Any  # true, 1, yes, ...


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a study compares, for its report; without a study, all None or empty.

    varies: the setting whose values are the rows. label: its name in tables and plots. constant: figures that the study
    claims to be equal in all rows. arm, arms: of a study whose rows differ in several settings. tables: other numbers
    that conf/study looks up.
    """

    title: str | None = None
    varies: str | None = None
    label: str | None = None
    constant: tuple[str, ...] = ()
    about: str | None = None
    arm: str | None = None
    arms: dict[str, Any] | None = None
    tables: dict[str, Any] | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Design":
        """The design that a config describes. Raises InputError with a line for each value of another type."""
        node = config.get("study") or {}
        if not isinstance(node, Mapping):
            raise InputError(f"study={typed(node)}: must be a group of settings; choose a file of conf/study")
        node = {name: value for name, value in node.items() if name != "published"}  # which older runs have
        check(cls, node, "study.")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in node.items()
        }
        if values.get("varies"):
            values["label"] = values.get("label") or values["varies"].rpartition(".")[2]
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Top:
    """The settings of `train` that are in no group."""

    seed: Natural
    steps: Positive
    name: str
    resume: str | None
    init_from: str | None
    extensions: list[str]
    threads: Positive | None
    cuda_graphs: Literal["auto", False]
    compile: bool
    bleu_tokenizer: str | None
    logger: Literal["default", "csv", "none", "wandb", "mlflow"]
    prepare: bool
    report: bool
    debug: Any


class Problems:
    """Errors of several settings, collected and raised together."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def attempt(self, builder: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """The result of `builder`, or None where it raises ValueError."""
        try:
            return builder(*arguments, **keywords)
        except ValueError as error:
            self.lines.append(str(error))

    def raise_all(self) -> None:
        """Raises InputError with a line for each, if there are any."""
        if self.lines:
            raise InputError("\n".join(dict.fromkeys("\n".join(self.lines).split("\n"))))


def is_learnt(name: str) -> bool:
    """Whether a setting, by dotted name, is a part of what a run learns: see `LEARNT`."""
    return within(name, LEARNT) and not within(name, NOT_LEARNT)


def factory_of(group: str, kind: Any, setting: str | None = None) -> Callable[..., Any] | None:
    """The class behind a word of a group, None for a word that stands for nothing, such as averaging.kind=none.

    setting: its name, if it is not GROUP.kind. Raises InputError for another word, and for a package that is missing.
    """
    setting = setting or f"{group}.kind"
    if not isinstance(kind, str) or kind not in KINDS[group]:
        own = "; one of your own needs extensions=[MODULE]"
        raise InputError(f"{setting}={typed(kind)}: must be one of {', '.join(KINDS[group])}{own}")
    target = KINDS[group][kind]
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(f"{setting}={kind}: needs the package {error.name}, which is not installed") from error


def own_settings(group: str, node: Mapping[str, Any], given: Collection[str], words: Collection[str]) -> dict[str, Any]:
    """The settings in the node of a group that its kind takes.

    conf/ gives a group the settings of all its kinds, so those of others are left out, unless one was typed.
    given: names of parameters that are no settings. words: the settings that were typed, by dotted name.
    Raises InputError with a line for each setting that no kind takes, or that was typed in vain.
    """
    kind = node.get("kind")
    takes, wrong = parameters_of(factory_of(group, kind)), []
    others = {name for name in node if name not in {*takes, "kind"}}
    of_others: set[str] = set()
    if others:
        for word in KINDS[group]:
            try:
                of_others |= set(parameters_of(factory_of(group, word)))
            except InputError:  # its package is not installed
                continue
    for name in sorted(others):
        if name not in of_others:
            wrong.append(unknown(f"{group}.{name}", [each for each in takes if each not in given], f"{group}."))
        elif f"{group}.{name}" in words:
            wrong.append(f"{group}.{name}={typed(node[name])}: has no effect with {group}.kind={kind}")
    if wrong:
        raise InputError("\n".join(wrong))
    return {name: value for name, value in node.items() if name in takes and name not in given}


def build(group: str, node: Mapping[str, Any], **given: Any) -> Any:
    """The object that the node of a group describes: `node["kind"]` says which; None for a word that stands for none.

    given: arguments that are no settings. Raises InputError with a line for each setting that is wrong.
    """
    factory, values = factory_of(group, node.get("kind")), own_settings(group, node, given, ())
    if factory is None:
        return None
    check(factory, values, f"{group}.", given)
    return made(
        factory, group, **values, **{name: each for name, each in given.items() if name in parameters_of(factory)}
    )


def made(factory: Callable[..., Any], setting: str, **arguments: Any) -> Any:
    """What a factory makes. Raises InputError, which begins with the setting, for what the factory refuses."""
    try:
        return factory(**arguments)
    except InputError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        message = first_line(error)
        named = message.startswith(setting) or re.match(r"[a-z_.]+[=:]", message)  # by our own classes; others don't
        raise InputError(str(error) if named else f"{setting}: {message}") from error


def parameters_of(factory: Callable[..., Any] | None) -> list[str]:
    """The names of its parameters, those of `*args` and `**kwargs` aside."""
    if factory is None:
        return []
    parameters = inspect.signature(factory).parameters.values()
    return [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def check(
    function: Callable[..., Any], values: Mapping[str, Any], prefix: str = "", given: Collection[str] = ()
) -> None:
    """Compare values, as YAML gives them, with the annotations of the parameters of a function or class.

    prefix: of the settings' names in messages. given: parameters that are no settings.
    Raises InputError with a line for each value of another type, each without a parameter, and each that is missing.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{prefix.rstrip('.')}={typed(values)}: must be a group of settings")
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # here, because --help does not need it
    from typing_extensions import TypedDict

    try:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function, include_extras=True)
    except (TypeError, NameError):  # somebody else's code, annotated with what only a type checker sees
        hints = {}
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters_of(function) if name not in given]
    fields = {
        name: (Required if parameters[name].default is parameters[name].empty else NotRequired)[hints.get(name, Any)]
        for name in names
    }
    shape: Any = TypedDict("shape", fields)  # type: ignore[misc]
    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    setattr(shape, "__pydantic_config__", strict)  # noqa: B010 - mypy knows no such attribute
    try:
        TypeAdapter(shape).validate_json(json.dumps(values, ensure_ascii=False).encode(errors="replace"))
        return
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        for each in error.errors(include_url=False):
            found.setdefault(str(each["loc"][0]), []).append(each["msg"] if each["type"] != "extra_forbidden" else "")
    lines = []
    for name, messages in found.items():
        if name not in values:
            lines.append(f"{prefix}{name}: is missing; give it a value")
        elif name not in names:
            lines.append(unknown(f"{prefix}{name}", names, prefix))
        else:
            allowed = [message.removeprefix("Input should be ").replace("valid array", "list") for message in messages]
            allowed = [re.sub(r"\b(True|False)\b", lambda found: found[0].lower(), each) for each in allowed]
            allowed += ["null"] if type(None) in get_args(hints[name]) else []
            lines.append(f"{prefix}{name}={typed(values[name])}: must be {' or '.join(dict.fromkeys(allowed))}")
    raise InputError("\n".join(lines))


def unknown(name: str, names: Collection[str], prefix: str = "") -> str:
    """The line for a setting that there is not, with the nearest that there are."""
    near = difflib.get_close_matches(name.removeprefix(prefix), names, 2, 0.6)
    advice = f"did you mean {' or '.join(prefix + each for each in near)}?" if near else f"there are {', '.join(names)}"
    return f"{printable(name)}: no such setting; {advice}"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name: {"a": {"b": 1}} as {"a.b": 1}. Lists and empty groups are values."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def at(tree: Any, path: str) -> Any:
    """The value at a dotted name; None if there is none."""
    for name in path.split("."):
        if not isinstance(tree, Mapping) or name not in tree:
            return None
        tree = tree[name]
    return tree


def named_by(override: str) -> str:
    """The setting of an override, such as model.dropout of ++model.dropout=0."""
    return override.lstrip("+~").partition("=")[0]


def within(name: str, groups: Collection[str]) -> bool:
    """Whether a dotted name is one of `groups`, or below one."""
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def typed(value: Any) -> str:
    """A value as one types it on the command line, in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(typed, value))}]"
    return printable(str(value))
