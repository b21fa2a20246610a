"""Build objects from config nodes, with one line for each setting that is wrong."""

import sys
from collections.abc import Callable, Collection
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError, printable
from headcount.run.aliases import NOT_HASHED, with_added_settings
from headcount.run.trusted import check_targets
from headcount.run.values import wrong_values

if TYPE_CHECKING:
    from headcount.data.corpora.corpus import Corpus
    from headcount.data.module import TranslationData

# Settings of `data` that came later, and their values before.
LATER = {name.removeprefix("data."): value for name, value in NOT_HASHED.items() if name.startswith("data.")}
# The settings of `data` beside the corpus: how its text becomes batches, and what other groups of the config take.
OF_MODULE = ("max_length", "batch_tokens", "hide_source", "directory", "workers", *LATER)
BATCHES = ("cleaning", "fingerprint", *OF_MODULE)
NOT_CORPUS = (*BATCHES, "vocab_size", "budget")


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
        values = with_added_settings(OmegaConf.to_container(node, resolve=True))
        if isinstance(values, dict):
            if "_target_" not in values:
                raise InputError(f"{setting}: names no class (_target_) to build; choose an option of conf/{setting}")
            if wrong := _wrong_settings(values, setting, arguments):
                raise InputError("\n".join(wrong))
        return instantiate(values, **arguments)
    except InstantiationException as error:
        first, *more = str(error.__cause__ or error).splitlines()
        message = f"{first} {more[0]}" if more and first.endswith(":") else first
        # Our own classes name the setting, others don't.
        named = message.startswith(setting.partition(".")[0])
        raise InputError(message if named else f"{setting}: {message}") from error
    except ImportError as error:
        if isinstance(error.__cause__, InputError):  # a file that is read as the class is imported
            raise error.__cause__ from error
        raise InputError(f"{setting}: {' '.join(str(error).splitlines()[:2])}") from error
    except InputError:
        raise
    except (OmegaConfBaseException, TypeError, ValueError, AttributeError) as error:  # such as of a wrong _partial_
        raise InputError(f"{setting}: {str(error).splitlines()[0]}") from error


def _wrong_settings(node: Any, setting: str, given: Collection[str] = ()) -> list[str]:
    """A line for each setting of `node`, or of an object in it, that its class cannot take; `given` ones aside."""
    if not isinstance(node, dict):
        return []
    own = {name: value for name, value in node.items() if name not in given}
    below = [line for name, value in own.items() for line in _wrong_settings(value, f"{setting}.{name}")]
    if "_target_" not in node:
        return below
    package = str(node["_target_"]).partition(".")[0]
    if package not in sys.modules and find_spec(package) is None:
        shown = printable(package)
        return [f"{setting}: needs the package {shown}, which is not installed; install it, or choose another option"]
    return wrong_values(get_object(node["_target_"]), own, lambda name: f"{setting}.{name}") + below


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


def keyword_arguments(
    function: Callable[..., Any], config: DictConfig, prefix: str = "", without: Collection[str] = ("debug",)
) -> dict[str, Any]:
    """The settings of `config`, less those of `without`, as keyword arguments of `function`.

    prefix: of the settings' names in messages. Raises InputError with a line for each value that `function` cannot
    take, and for each that it needs and `config` lacks; `without` are also those that its caller gives.
    """
    values: Any = OmegaConf.to_container(config)
    values = {name: value for name, value in values.items() if name not in without}
    wrong = wrong_values(function, values, lambda name: f"{prefix}{name}")
    needed = [each.name for each in signature(function).parameters.values() if each.default is each.empty]
    wrong += [f"{prefix}{name}: is missing; give it a value" for name in needed if name not in {*values, *without}]
    if wrong:
        raise InputError("\n".join(wrong))
    return values


def build_corpus(config: DictConfig, trust: Collection[str] | None = None) -> "Corpus":
    """The corpus that the node `data` describes, beside the settings of `NOT_CORPUS`; `trust` as for `build`.

    Raises InputError with a line for each setting that is wrong.
    """
    node = config.data.copy()
    OmegaConf.set_struct(node, False)
    for name in NOT_CORPUS:
        node.pop(name, None)
    if "_target_" not in node:
        raise InputError("data: names no corpus; choose one, such as data=grammar, or give the class, data._target_=")
    corpus: Corpus = build(node, "data", trust)
    return corpus


def build_data(config: DictConfig, trust: Collection[str] | None = None) -> "TranslationData":
    """The data module, nothing read yet; `trust` as for `build`.

    Raises InputError with a line for each setting that is wrong.
    """
    # Imported late: Lightning takes a second, and translating needs none of it.
    from headcount.data.module import TranslationData

    data = config.data
    elsewhere = {"seed": "seed", "accumulation": "trainer.accumulate_grad_batches"}
    settings: dict[str, Any] = LATER | {name: data[name] for name in OF_MODULE if name in data}
    settings |= {name: OmegaConf.select(config, setting) for name, setting in elsewhere.items()}
    problems = Problems()
    problems.lines += wrong_values(TranslationData, settings, lambda name: elsewhere.get(name, f"data.{name}"))
    parts = {
        "corpus": problems.attempt(build_corpus, config, trust),
        "tokenizer": problems.attempt(build, config.tokenizer, "tokenizer", trust),
        "cleaning": problems.attempt(build, data.cleaning, "data.cleaning", trust),
        "segmentation": problems.attempt(build, config.get("segmentation"), "segmentation", trust),
    }
    problems.raise_all()
    made: TranslationData = problems.attempt(TranslationData, **parts, **settings)
    problems.raise_all()
    return made
