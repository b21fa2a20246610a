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
from collections.abc import Callable, Iterator
from pathlib import Path

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig
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
from headcount.run.place import CONF, program
from headcount.run.resolvers import register_resolvers
from headcount.run.values import named_by

WRONG = (InputError, HydraException, OmegaConfBaseException, OSError)  # errors that a user can put right
STANDARD_OUTPUT = "standard output"

register_resolvers()  # here, since the processes that a launcher starts compose configs, and import only this module


def run_script(config_name: str, function: Callable[[DictConfig], str | None]) -> None:
    """Run a function of a config as a script: Hydra's command line, logging, the text that it returns on standard
    output, and for wrong input one line and exit code 2 (`debug=true` shows the traceback)."""
    failed = False

    def complain(error: Exception, where: str = "") -> None:
        nonlocal failed
        failed = True
        if "debug=true" in sys.argv:
            traceback.print_exception(error)
        with contextlib.suppress(OSError):  # the exit code says it as well
            sys.stderr.writelines(f"error: {where}{line}\n" for line in _lines(error, config_name))
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            _stop_writing()

    def guarded(config: DictConfig) -> None:
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
    check_no_help()
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


def read_options() -> None:
    """Take the folder of --config-dir. Raises InputError for options that do not go together."""
    given = get_args_parser().parse_args()
    if given.multirun and given.cfg:
        raise InputError("--cfg: shows one job; leave out --multirun, and give one value of each setting")
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
    for override in HydraConfig.get().overrides.task:
        if override.startswith("+") and (message := unknown_setting(named_by(override), config_name)):
            raise InputError(message)


def unknown_setting(name: str, config_name: str) -> str | None:
    """A message for a setting whose first part is neither a setting nor a group of the command; None for another, and
    where somebody's own configs may have it."""
    first = name.partition(".")[0]
    file = yaml.safe_load((CONF / f"{config_name}.yaml").read_text("utf-8"))
    known = [*(group for each in file["defaults"] if isinstance(each, dict) for group in each), *file]
    if OwnConfigs.folder or "/" in first or first in known or (CONF / first).is_dir():
        return None
    near = difflib.get_close_matches(first, known, 1)
    advice = f"did you mean {near[0]}{name[len(first) :]}?" if near else f"{program(config_name)} --help lists all"
    return f"{name}: no such setting; {advice}"


def check_no_help() -> None:
    """Let Hydra parse its command line under Python 3.14, whose argparse checks that each help is text: that of
    --shell-completion becomes text when it is shown."""
    if hasattr(argparse.ArgumentParser, "_check_help"):
        argparse.ArgumentParser._check_help = lambda self, action: None


def _lines(error: Exception, config_name: str) -> list[str]:
    """The message, a line for each wrong setting; of Hydra's messages, the part that a user can act on."""
    for old, now in RENAMED_SETTINGS.items():
        if f"'{old}" in str(error):
            return [f"{old}: is now {now}"]
    wrong = re.match(r"Could not override '([^']+)'", str(error))
    if wrong and (message := unknown_setting(wrong[1], config_name)):
        return [message]
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
