"""Console: what every script shares. Hydra's command line, plain messages, and one line for what a person got wrong."""

import contextlib
import errno
import functools
import gc
import itertools
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError
from headcount.machine import end_with_parent, use_faster_products, use_memory_again
from headcount.run.resolvers import register_resolvers

WRONG = (InputError, HydraException, OmegaConfBaseException, OSError)  # what a person can put right
RENAMED = {
    "data.budget.average_every": "averaging.every (optimizer steps), or averaging.share (of the run)",
    "data.corpus": "data itself: data.corpus.seed is data.seed",
    "experiment": "recipe=NAME (choices that were measured) and study=NAME (what is compared)",
    "lineage": "study=lineage study/arm=NAME",
}
CONF = Path(__file__).parents[3] / "conf"

register_resolvers()  # not in `main`: the processes that a launcher starts compose configs, and import only this module


def main(config_name: str) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Makes a script of a function of a config: Hydra's command line, plain messages, and one line for what a person
    got wrong, with exit code 2 (`debug=true` shows the traceback)."""

    def decorate(function: Callable[[DictConfig], None]) -> Callable[[], None]:
        failed = False

        def complain(error: Exception, where: str = "") -> None:
            nonlocal failed
            failed = True
            if "debug=true" in sys.argv:
                traceback.print_exception(error)
            sys.stderr.writelines(f"error: {where}{line}\n" for line in _lines(error))

        @functools.wraps(function)
        def guarded(config: DictConfig) -> None:
            try:
                function(config)
            except BrokenPipeError:
                _stop_writing()
            except WRONG as error:
                # Said here and not passed on: Hydra would add a line of its own, and tell only the first of a sweep.
                hydra_config = HydraConfig.get()
                sweep = hydra_config.mode == RunMode.MULTIRUN
                complain(error, f"{Path(hydra_config.runtime.output_dir).name}: " if sweep else "")
            finally:
                _remove_if_empty()

        script = hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(guarded)

        def run() -> None:
            gc.freeze()  # what was imported stays: the garbage collector need not go through it again and again
            os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, not to Hydra's printer
            set_up_logging()
            end_with_parent()
            use_memory_again()
            use_faster_products()
            try:
                script()
                sys.stdout.flush()
            except BrokenPipeError:
                _stop_writing()
            except WRONG as error:
                complain(error)
            except KeyboardInterrupt:
                sys.exit(130)
            if failed:
                sys.exit(2)

        return run

    return decorate


def _lines(error: Exception) -> list[str]:
    """What to say: a line for each wrong setting. Hydra's messages go on with what only its authors can use."""
    for old, now in RENAMED.items():
        if f"'{old}" in str(error):
            return [f"{old}: is now {now}"]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, InputError):
        return lines
    if isinstance(error, OSError) and error.strerror:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "make room" if full else "make it a place that can be read and written"
        where = f"{error.filename}: " if error.filename else ""
        return [f"{where}{error.strerror}; {todo}, or give another, such as with data.directory= or hydra.run.dir="]
    useful = itertools.takewhile(lambda line: not line.startswith(("Config search path", "Key '", "full_key")), lines)
    return ["; ".join(line.rstrip(".") for line in useful).replace(":; ", ": ") or repr(error)]


def _stop_writing() -> None:
    """The reader of our output has gone, as `| head` does. Nothing is wrong, and nothing more can be said."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _remove_if_empty() -> None:
    """Take back the folders that Hydra made, if nothing was written to them."""
    output = Path(HydraConfig.get().runtime.output_dir)
    for folder in (output, output.parent):
        if folder.is_dir() and folder != Path.cwd() and not any(folder.iterdir()):
            folder.rmdir()


def set_up_logging() -> None:
    """Plain lines on standard error, from us; from others only what matters."""
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("headcount").setLevel(logging.INFO if int(os.environ.get("RANK", 0)) == 0 else logging.WARNING)
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # The loader of an endless stream has no use for worker processes, and batches know their own size.
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class _StandardError(logging.Handler):
    """Writes to what standard error is at the time: a progress bar puts something of its own there, to stay below."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


@contextlib.contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Copy what is said to a file as well."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("headcount")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
