"""Console: Hydra's command line, logging, and error messages of one line, for every script."""

import argparse
import contextlib
import difflib
import gc
import io
import itertools
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError, printable
from headcount.files import FULL, first_error, free_space, naming, readable, show
from headcount.machine import (
    END_WITH_PARENT,
    end_with_parent,
    refused_memory,
    use_allowed_cores,
    use_faster_products,
    use_memory_again,
)
from headcount.run.aliases import RENAMED_SETTINGS
from headcount.run.design import DESIGN, Design
from headcount.run.place import CONF, hydra_text, in_double_quotes, program, quoted
from headcount.run.resolvers import register_resolvers
from headcount.run.values import flatten, named_by, within

WRONG = (InputError, HydraException, OmegaConfBaseException, OSError)  # errors that a user can put right
STANDARD_OUTPUT = "standard output"

# Groups of settings that no class takes, so that nothing else would refuse another one.
CLOSED = ("validation", "divergence", "data.budget", DESIGN)

register_resolvers()  # here, since the processes that a launcher starts compose configs, and import only this module


def run_script(config_name: str, function: Callable[[DictConfig], str | None]) -> None:
    """Run a function of a config as a script: Hydra's command line, logging, the text that it returns on standard
    output, and for wrong input one line and exit code 2 (`debug=true` shows the traceback)."""
    failed, debug = False, any(asks_for_traceback(word) for word in sys.argv)

    def complain(error: Exception, where: str = "") -> None:
        nonlocal failed
        failed = True
        if debug:
            traceback.print_exception(error)
        with contextlib.suppress(OSError):  # the exit code says it as well
            sys.stderr.writelines(f"error: {where}{line}\n" for line in _lines(error, config_name))
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            _stop_writing()

    def guarded(config: DictConfig) -> None:
        nonlocal debug
        debug = debug or asks_for_traceback(f"debug={config.get('debug')}")
        try:
            check_given(config, config_name)
            answer = function(config) or ""
            with naming(STANDARD_OUTPUT, len(answer.encode())):
                sys.stdout.write(answer)
                sys.stdout.flush()
        except Exception as error:
            if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
                _stop_writing()
                return
            if not is_wrong(error):
                raise
            # Printed here and not raised: Hydra would add a line, and show only the first error of a sweep.
            hydra_config = HydraConfig.get()
            sweep = hydra_config.mode == RunMode.MULTIRUN
            complain(error, f"{Path(hydra_config.runtime.output_dir).name}: " if sweep else "")
        finally:
            _remove_if_empty()

    open_streams()
    gc.freeze()  # the garbage collector need not visit what was imported
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, not to Hydra's printer
    set_up_logging()
    threading.excepthook = _in_a_thread
    if parent := os.environ.get(END_WITH_PARENT):
        end_with_parent(int(parent) or None)
    use_memory_again()
    use_faster_products()
    use_allowed_cores()
    try:
        read_options()
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(guarded)()
    except BrokenPipeError:
        _stop_writing()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not is_wrong(error):
            raise
        complain(error)
    if failed:
        sys.exit(2)


def asks_for_traceback(word: str) -> bool:
    """Whether a word of the command line is debug=true, or what stands for true elsewhere."""
    return named_by(word) == "debug" and word.partition("=")[2].lower() in ("true", "1", "yes", "on")


def read_options() -> None:
    """Take the folder of --config-dir. Raises InputError for options that do not go together, and for what is no option
    of a group; OverrideParseException."""
    check_no_help()
    given = get_args_parser().parse_args()
    if given.multirun and given.cfg:
        raise InputError("--cfg: shows one job; leave out --multirun, and give one value of each setting")
    for override in OverridesParser.create().parse_overrides(given.overrides):
        name, value = override.key_or_group, override.value()
        group = name.replace(".", "/")
        options = sorted(
            {path.stem for path in (CONF / group).glob("*.yaml")} - (set() if name == "logger" else {"default"})
        )
        if name != group and value in options:
            raise InputError(f"{name}={value}: is chosen with a slash: {group}={value}")
        one = options and name == group and not override.is_sweep_override() and not override.is_delete()
        if one and (not isinstance(value, str) or (value == "default" and value not in options)):
            raise InputError(f"{override.input_line}: is no option; there are {', '.join(options)}")
    OwnConfigs.folder = given.config_dir
    Plugins.instance().register(OwnConfigs)


class OwnConfigs(SearchPathPlugin):
    """Puts the folder of --config-dir before conf/, after which Hydra looks there, so that a file in it replaces one of
    conf/."""

    folder: str | None = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.folder:
            search_path.prepend("own", str(Path(self.folder).absolute()), "main")


def open_streams() -> None:
    """Open the standard streams that whoever started this program has closed, and write UTF-8 in any locale: text is
    read as UTF-8, too."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(encoding="utf-8")


def check_given(config: DictConfig, config_name: str) -> None:
    """Raises InputError for a path that is given and empty, as `resume=$RUN` is where RUN is not set, and for a setting
    that + adds where nothing would read it."""
    for name in ("run", "resume", "init_from", "checkpoint", "input", "reference", "output", "sweep"):
        if config.get(name) == "":
            raise InputError(f"{name}=: is empty; give a path, or leave it out")
    task = HydraConfig.get().overrides.task
    if added := [named_by(each) for each in task if each.startswith("+")]:
        others = [each for each in task if not each.startswith("+")]
        if wrong := [message for name in added if (message := unknown_setting(name, config_name, others))]:
            raise InputError("\n".join(wrong))


def unknown_setting(name: str, config_name: str, words: Sequence[str] = ()) -> str | None:
    """A message for a setting that is none of the command, with these words on its command line; None for another, and
    for one of a group whose class says what it takes."""
    if renamed := [old for old in RENAMED_SETTINGS if within(name, (old,))]:
        return f"{renamed[0]}: is now {RENAMED_SETTINGS[renamed[0]]}"
    began = GlobalHydra.instance().is_initialized()
    with contextlib.nullcontext() if began else initialize_config_dir(str(CONF), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose(config_name, list(words), return_hydra_config=True))
    groups = [*config.pop("hydra")["runtime"]["choices"], *config]
    settings = [each for each in flatten(config) if not each.rpartition(".")[2].startswith("_")]
    settings += [f"{DESIGN}.{word.name}" for word in fields(Design)]
    first, (above, _, last) = name.partition(".")[0], name.rpartition(".")
    known = name in groups or any(within(each, (name,)) for each in settings)
    if known or "/" in first or (first in groups and above not in CLOSED):
        return None
    lasts = {each: each.rpartition(".")[2] for each in settings}
    near = [each for each in settings if f"_{lasts[each]}".endswith(f"_{last}")]
    near = sorted(near, key=lambda each: lasts[each].removeprefix("num_") != last)[:3]
    named = {lasts[each]: each for each in reversed(settings)} | {each: each for each in (*groups, *settings)}
    near = near or [named[each] for each in difflib.get_close_matches(name, named, 1, 0.7)]
    advice = f"did you mean {' or '.join(near)}?" if near else f"{program(config_name)} --help lists all"
    return f"{name}: no such setting; {advice}"


def check_no_help() -> None:
    """Let Hydra parse its command line under Python 3.14, whose argparse checks that each help is text: that of
    --shell-completion becomes text when it is shown."""
    if hasattr(argparse.ArgumentParser, "_check_help"):
        argparse.ArgumentParser._check_help = lambda self, action: None


def _lines(error: Exception, config_name: str) -> list[str]:
    """The message, a line for each wrong setting; of Hydra's messages, the part that a user can act on."""
    wrong = re.match(r"(?:In '\w+': )?Could not (?:override|find) '([^'/]+)", str(error))
    if wrong and isinstance(error, HydraException) and (message := unknown_setting(wrong[1], config_name)):
        return [message]
    if quoting := to_quote(error, config_name):
        return [quoting]
    lines = [printable(line.strip()) for line in str(error).split("\n") if line.strip()]
    if isinstance(error, InputError):
        return lines
    if refused_memory(error) is not None:
        return [no_memory(error, command=config_name)]
    if plugin := missing_plugin(error):
        return [f"{plugin}: this plugin of Hydra is not installed; pip install {plugin}"]
    if isinstance(error, OSError) and error.errno:
        return [printable(no_file(first_error(error)))]
    useful = itertools.takewhile(lambda line: not line.startswith(("Config search path", "Key '", "full_key")), lines)
    return ["; ".join(line.rstrip(".") for line in useful).replace(":; ", ": ") or (lines or [repr(error)])[0]]


def to_quote(error: Exception, config_name: str) -> str | None:
    """How to type a setting that Hydra's grammar does not take; None for another error."""
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'$", str(error), re.MULTILINE)
    override = ambiguous[1] if ambiguous else getattr(error, "override", None)
    if override is None:
        return None
    name, equals, value = override.partition("=")
    if equals:
        bare = value[1:-1] if value[:1] + value[-1:] in ("''", '""') else value
        listed = [f"[{','.join(map(hydra_text, value[1:-1].split(',')))}]"] if value[:1] + value[-1:] == "[]" else []
        for text in (*listed, quoted(bare)):
            with contextlib.suppress(HydraException):
                OverridesParser.create().parse_override(f"{name}={text}")
                also = f", or {name}=[{value}] as a list" if ambiguous else ""
                return printable(f"{name}: this value needs quotes: {in_double_quotes(f'{name}={text}')}{also}")
    piped = f"; the text comes through standard input: echo ... | {program('translate')}"
    return f"{printable(override)}: is not NAME=VALUE{piped if config_name == 'translate' else ''}"


def is_wrong(error: Exception) -> bool:
    """Whether an error is one that a user can put right."""
    return isinstance(error, WRONG) or refused_memory(error) is not None or missing_plugin(error) is not None


def missing_plugin(error: Exception) -> str | None:
    """The package of a launcher or sweeper of Hydra whose class, hydra_plugins.PACKAGE.MODULE.CLASS, is not found."""
    name = re.match(r"Unknown plugin class : 'hydra_plugins\.(\w+)", str(error))
    return name[1].replace("_", "-") if name else None


def no_file(error: OSError) -> str:
    """A file that cannot be read or written: its path, why, on a full disk the room that is needed and free, and the
    notes of the error."""
    name, full = str(error.filename or "a file"), error.errno in FULL
    standard = name == STANDARD_OUTPUT
    free = f", {readable(free_space(Path(name)))} are free" if full and not standard else ""
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    todo = "make room" if full else "make it a place that can be read and written"
    other = "" if standard else ", or give another, such as with data.directory= or hydra.run.dir="
    where = show(Path(name))
    return f"{where}: {os.strerror(error.errno or 0)}{free}{notes}; {todo}{other}"


def no_memory(error: Exception, what: str = "", command: str = "train") -> str:
    """Memory that does not suffice: for what, how much could not be had, and what to lower."""
    amount = refused_memory(error)
    refused = f" ({amount} more could not be had)" if amount else ""
    lower = "the length of lines"
    if command == "train":
        lower = (
            "data.batch_tokens (and raise trainer.accumulate_grad_batches as much), data.max_length or the model's "
            "size (model.d_model, model.encoder_layers, data.vocab_size)"
        )
    of_search = ", in translation search.batch_tokens or search.beam"
    return f"not enough memory{' for ' if what else ''}{what}{refused}; lower {lower}{of_search}"


def _in_a_thread(failed: threading.ExceptHookArgs) -> None:
    # TensorBoard's thread, which writes files, gives its error to the main thread as well.
    if not issubclass(failed.exc_type, OSError):
        threading.__excepthook__(failed)


def _stop_writing() -> None:
    """Discard all further output: its reader is gone, as with `| head`. That is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _remove_if_empty() -> None:
    """Take back the folders that Hydra made, if nothing was written to them."""
    output = Path(HydraConfig.get().runtime.output_dir)
    for folder in (output, output.parent):
        if folder.is_dir() and folder != Path.cwd() and not any(folder.iterdir()):
            folder.rmdir()


def set_up_logging() -> None:
    """Log headcount's messages to standard error as plain lines, and only warnings of other packages."""
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("headcount").setLevel(logging.INFO if int(os.environ.get("RANK", 0)) == 0 else logging.WARNING)
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # The loader of an endless stream has no use for worker processes, and batches know their own size.
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # conf/hydra/launcher/ray.yaml takes the place of the launcher's own.
    warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/ray' is validated against ConfigStore schema")


class _StandardError(logging.Handler):
    """Writes to the current sys.stderr: a progress bar replaces it, to stay below the lines."""

    def emit(self, record: logging.LogRecord) -> None:
        # A run goes on where nobody reads its lines any more: they are in train.log as well.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(self.format(record) + "\n")


class _LogFile(logging.FileHandler):
    """A log file whose errors end the program, such as that of a full disk; Python would print them, line by line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        with naming(self.baseFilename):
            raise


@contextlib.contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Copy the log to a file as well."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("headcount")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
