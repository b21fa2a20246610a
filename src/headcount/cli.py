"""Command line: `headcount NAME setting=value ...`, by Hydra; an error that a user can put right is one line.

Nothing here imports torch before a command runs, so that help and wrong settings are shown at once.
"""

import contextlib
import difflib
import gc
import io
import itertools
import logging
import os
import re
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.filesize import decimal

from headcount import __version__
from headcount.command_lines import CONF, command, quoted, shell_word
from headcount.errors import InputError, printable
from headcount.files import FULL, STANDARD_OUTPUT, first_error, free_space, naming, show
from headcount.settings import KINDS, check, flatten

COMMANDS = ("train", "evaluate", "translate", "report", "heads", "export", "import", "doctor", "serve")
WRONG = (InputError, HydraException, OmegaConfBaseException, OSError)  # errors that a user can put right


def main() -> None:
    """The program `headcount`."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        abouts = {each: help_of(each).partition("\n")[0] for each in COMMANDS}
        sys.stdout.write(
            "usage: headcount COMMAND [name=value ...]\n\n"
            + "".join(f"  {each:10} {about}\n" for each, about in abouts.items())
            + "\nheadcount COMMAND --help lists the settings of a command, headcount --version prints the version.\n"
        )
    elif name == "--version":
        sys.stdout.write(f"headcount {__version__}\n")
    elif name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS)
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        sys.stderr.write(f"error: {printable(name)}: no such command{meant} headcount --help lists all\n")
        sys.exit(2)
    else:
        sys.argv = [f"headcount {name}", *words]
        run_command(name)


def help_of(name: str) -> str:
    """The help of a command: the first comment of its file of conf/, the options of its groups, and the file itself."""
    lines = (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    header = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    about = [line.removeprefix("#").removeprefix(" ") for line in header]
    own = ("- _self_", "- hydra: filter", "- override hydra: filter", "- train")  # of Hydra alone
    text = "\n".join(line for line in lines[len(header) :] if line.strip() not in own).replace("defaults:\n\n", "")
    groups = [path for path in sorted(CONF.iterdir()) if path.is_dir() and f"- {path.name}:" in text]
    choices = [f"{path.name}: {', '.join(sorted(each.stem for each in path.glob('*.yaml')))}" for path in groups]
    choices = [line for line in choices if not line.startswith("hydra:")]
    shown = ["", "== Choices: group=option ==", "", *choices] if choices else []
    return "\n".join([*about, *shown, "", "== Settings: name=value ==", "", text.strip(), ""])


def run_command(name: str) -> None:
    """Run a command as a program: the text that it returns goes to standard output; wrong input gives a line for each
    mistake and exit code 2 (`debug=true` shows the traceback)."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        sys.stdout.write(help_of(name))
        return
    failed, debug = False, bool({"debug=true", "debug=1"} & {word.lstrip("+").lower() for word in sys.argv})

    def complain(error: Exception, where: str = "") -> None:
        nonlocal failed
        failed = True
        if debug:
            traceback.print_exception(error)
        with contextlib.suppress(OSError):  # the exit code says it as well
            sys.stderr.writelines(f"error: {where}{line}\n" for line in _lines(error, name))
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            _stop_writing()

    def guarded(config: DictConfig) -> None:
        nonlocal debug
        debug = debug or bool(config.get("debug"))
        try:
            for setting in ("run", "resume", "init_from", "checkpoint", "input", "output", "sweep"):
                if config.get(setting) == "":  # as `resume=$RUN` is where RUN is not set
                    raise InputError(f"{setting}=: is empty; give a path, or leave it out")
            answer = _run_prepared(name, config) or ""
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

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # in any locale: text is read as UTF-8, too
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors come to us, not to Hydra's printer
    set_up_logging()
    try:
        _read_options(name)
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(guarded)()
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


def _run_prepared(name: str, config: DictConfig) -> str | None:
    """Run the function of a command, the machine prepared; of a sweep's job, another process is that."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        from headcount.run.sweep import run_job

        if name != "train":
            raise InputError(f"--multirun: {name} runs once; leave it out")
        run_job(config, Path(HydraConfig.get().runtime.output_dir))
        return None
    from headcount import devices
    from headcount.run.build import load_extensions

    if name == "heads" and isinstance(config.model, DictConfig):
        config.model = config.model.get("path")  # see `_read_options`
    load_extensions(config)
    devices.use_memory_again()
    devices.use_tf32()
    devices.use_threads(config.get("threads"))
    command = import_module(f"headcount.commands.{name}")
    for package in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric"):  # which set their level on import
        logging.getLogger(package).setLevel(logging.ERROR)
    if kind := getattr(command, "Settings", None):  # of another command than train, which sees to that itself
        given: Any = OmegaConf.to_container(config, resolve=True)
        check(kind, {setting: value for setting, value in given.items() if setting != "search"})
    gc.freeze()  # the garbage collector need not visit what was imported
    answer: str | None = command.run(config)
    return answer


def _read_options(command_name: str) -> None:
    """Register the resolvers of conf/ and the launcher of sweeps. Raises InputError for words that Hydra would take for
    something else."""
    from headcount.run.resolvers import register_resolvers

    given = get_args_parser().parse_args()
    if given.multirun and given.cfg:
        raise InputError("--cfg: shows one job; leave out --multirun, and give one value of each setting")
    for override in OverridesParser.create().parse_overrides(given.overrides):
        name, value, line = override.key_or_group, override.value(), override.input_line
        group, _, last = name.rpartition(".")
        options = sorted(path.stem for path in (CONF / group).glob("*.yaml")) if last == "kind" else []
        # The file of that kind has other numbers than the one that is chosen.
        if options and isinstance(value, str) and value in KINDS.get(group, ()):
            raise InputError(f"{line}: give {group}=, one of {', '.join(options)}")
        if command_name == "heads" and name == "model" and isinstance(value, str):
            path = value.replace("'", "\\'")
            sys.argv[sys.argv.index(str(line))] = (
                f"model={{path:'{path}'}}"  # a text would choose a file of conf/model/
            )
        if value is None and (CONF / name).is_dir() and not override.is_delete():
            raise InputError(f"{line}: leave it out")
    own = Path(given.config_dir or CONF)
    if hidden := [path for path in own.glob("**/*.yaml") if own != CONF and (CONF / path.relative_to(own)).exists()]:
        raise InputError(f"{show(hidden[0])}: conf/ has a file of this name, which is read first; name it otherwise")
    register_resolvers()


def _lines(error: Exception, name: str) -> list[str]:
    """The message, a line for each wrong setting; of Hydra's messages, the part that a user can act on."""
    option = re.match(r"(?:In '\w+': )?Could not find '([^']+)/([^'/]+)'", str(error))
    if option and (options := sorted(path.stem for path in (CONF / option[1]).glob("*.yaml"))):
        return [f"{option[1]}={option[2]}: is no option; there are {', '.join(options)}"]
    wrong = re.match(r"(?:In '\w+': )?Could not (?:override|find) '([^'/]+)", str(error))
    if wrong and isinstance(error, HydraException):
        return [_unknown_setting(wrong[1], name)]
    if quoting := _to_quote(error, name):
        return [quoting]
    lines = [printable(line.strip()) for line in str(error).split("\n") if line.strip()]
    if isinstance(error, InputError):
        return lines
    if _refused_memory(error):
        return [import_module("headcount.devices").no_memory(name)]
    if plugin := _missing_plugin(error):
        return [f"{plugin}: this plugin of Hydra is not installed; pip install {plugin}"]
    if isinstance(error, OSError) and error.errno:
        return [printable(_no_file(first_error(error)))]
    useful = itertools.takewhile(lambda line: not line.startswith(("Config search path", "Key '", "full_key")), lines)
    return ["; ".join(line.rstrip(".") for line in useful).replace(":; ", ": ") or (lines or [repr(error)])[0]]


def _unknown_setting(name: str, command_name: str) -> str:
    """The line for a setting that the command does not have, with those of a similar name."""
    began = GlobalHydra.instance().is_initialized()
    with contextlib.nullcontext() if began else hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        known = flatten(OmegaConf.to_container(hydra.compose(command_name)))  # type: ignore[arg-type]
    known.pop(name, None)  # another choice of its group has it
    last = name.rpartition(".")[2]
    near = [each for each in known if each.endswith(f".num_{name}")]
    near = near or difflib.get_close_matches(name, known, 2, 0.75)
    near = near or [each for each in known if each.endswith(f".{last}")][:3]
    advice = f"did you mean {' or '.join(near)}?" if near else f"headcount {command_name} --help lists all"
    return f"{name}: no such setting; {advice}"


def _to_quote(error: Exception, name: str) -> str | None:
    """How to type a setting that Hydra's grammar does not take; None for another error."""
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'$", str(error), re.MULTILINE)
    override = ambiguous[1] if ambiguous else getattr(error, "override", None)
    if override is None:
        return None
    setting, equals, value = override.partition("=")
    if equals:
        also = f", or {setting}=[{value}] as a list" if ambiguous else ""
        quotes = shell_word(f"{setting}={quoted(value.strip(chr(39) + chr(34)))}")
        return printable(f"{setting}: this value needs quotes: {quotes}{also}")
    piped = f"; the text comes through standard input: echo ... | {command('translate')}"
    return f"{printable(override)}: is not NAME=VALUE{piped if name == 'translate' else ''}"


def is_wrong(error: Exception) -> bool:
    """Whether an error is one that a user can put right."""
    return isinstance(error, WRONG) or _refused_memory(error) or _missing_plugin(error) is not None


def _refused_memory(error: Exception) -> bool:
    return "torch" in sys.modules and import_module("headcount.devices").refused_memory(error)


def _missing_plugin(error: Exception) -> str | None:
    """The package of a launcher or sweeper of Hydra whose class, hydra_plugins.PACKAGE.MODULE.CLASS, is not found."""
    name = re.match(r"Unknown plugin class : 'hydra_plugins\.(\w+)", str(error))
    return name[1].replace("_", "-") if name else None


def _no_file(error: OSError) -> str:
    """A file that cannot be read or written: its path, why, on a full disk the room that is free, and the notes of the
    error."""
    name, full = str(error.filename or "a file"), error.errno in FULL
    standard = name == STANDARD_OUTPUT
    free = f", {decimal(free_space(Path(name)))} are free" if full and not standard else ""
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    todo = "make room" if full else "make it a place that can be read and written"
    other = "" if standard else ", or give another, such as with data.directory= or hydra.run.dir="
    return f"{show(Path(name))}: {os.strerror(error.errno or 0)}{free}{notes}; {todo}{other}"


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
