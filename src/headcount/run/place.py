"""Command lines as they work in the current directory, and the folder of configs.

In a checkout conf/ is beside src/, in an installed package inside of it. `make` and `python scripts/NAME.py` work in
the folder of a checkout alone, `headcount NAME` wherever the package is installed.
"""

import re
import shlex
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CHECKOUT = None if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1]
CONF = (CHECKOUT or PACKAGE) / "conf"


def in_checkout() -> bool:
    """Whether the current directory is the folder of the checkout that this package is in."""
    return CHECKOUT is not None and CHECKOUT.resolve() == Path.cwd()


def program(name: str) -> str:
    """How a command of headcount begins."""
    return f"python scripts/{name}.py" if in_checkout() else f"headcount {name}"


def command(name: str, *words: str, **settings: str | int) -> str:
    """The line to type for a command of headcount.

    words: its further arguments. settings: those that have a variable in the Makefile, such as `run`; with these, or
    without any argument, the line in a checkout is one of make, which needs no active environment.
    """
    if in_checkout() and (settings or not words):
        variables = [f"{setting.upper()}={shlex.quote(str(value))}" for setting, value in settings.items()]
        return " ".join(["make", name, *variables, *([f'ARGS="{" ".join(words)}"'] if words else [])])
    given = [f"{setting}={hydra_text(str(value))}" for setting, value in settings.items()]
    return " ".join([program(name), *map(shell_word, [*given, *words])])


def hydra_text(text: str) -> str:
    """Text as a value of Hydra's command line, in quotes where a character of it has a meaning there."""
    return text if re.fullmatch(r"[\w./+-]+", text) else quoted(text)


def quoted(text: str) -> str:
    """Text in Hydra's quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def shell_word(word: str) -> str:
    """A word as the shell takes it; one with Hydra's quotes in double ones."""
    return f'"{word}"' if "'" in word and not set('"$`\\!') & set(word) else shlex.quote(word)
