"""What every script shares: Hydra's command line, plain messages, and one line for what a person got wrong."""

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from headcount.errors import InputError
from headcount.run.config import register_resolvers

CONF = Path(__file__).parents[3] / "conf"


def main(config_name: str) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    """Makes a script of a function of a config: Hydra's command line, plain messages, and one line for what a person
    got wrong, with exit code 2 (`debug=true` shows the traceback)."""

    def decorate(function: Callable[[DictConfig], None]) -> Callable[[], None]:
        @functools.wraps(function)
        def guarded(config: DictConfig) -> None:
            try:
                function(config)
            except InputError:
                if config.debug:
                    raise
                _remove_if_empty()
                raise

        script = hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(guarded)

        def run() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, not to Hydra's printer
            register_resolvers()
            set_up_logging()
            debug = "debug=true" in sys.argv
            try:
                script()
            except (InputError, HydraException, OmegaConfBaseException) as error:
                if debug:
                    raise
                sys.exit(_complain(error))
            except KeyboardInterrupt:
                sys.exit(130)
            except BrokenPipeError:
                # The reader of our output has gone, as `| head` does. Nothing is wrong, and nothing more can be said.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

        return run

    return decorate


def _complain(error: Exception) -> int:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Several settings may be wrong at once: a line each. Hydra's own messages say in the first two what is wrong.
    messages = lines if isinstance(error, InputError) else [" ".join(lines[:2])]
    sys.stderr.writelines(f"error: {message}\n" for message in messages)
    return 2


def _remove_if_empty() -> None:
    """Take back the directory that Hydra made, if nothing was written to it."""
    output = Path(HydraConfig.get().runtime.output_dir)
    if output.is_dir() and output != Path.cwd() and not any(output.iterdir()):
        output.rmdir()


def set_up_logging() -> None:
    """Plain lines on standard error, from us; from others only what matters."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("headcount").setLevel(logging.INFO if int(os.environ.get("RANK", 0)) == 0 else logging.WARNING)
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # The loader of an endless stream has no use for worker processes, and batches know their own size.
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def log_to_file(path: Path) -> logging.Handler:
    """Copy what is said to a file as well."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logging.getLogger("headcount").addHandler(handler)
    return handler
