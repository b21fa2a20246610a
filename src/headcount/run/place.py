"""Command lines as they work in the current directory, and the folder of configs.

In a checkout conf/ is beside src/, in an installed package inside of it. `make`, and `python scripts/NAME.py` for some
commands, work in the folder of a checkout alone, `headcount NAME` wherever the package is installed.
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
    script = f"scripts/{name}.py"
    return f"python {script}" if in_checkout() and Path(script).is_file() else f"headcount {name}"


def command(name: str, *words: str, **settings: str | int) -> str:
    """The line to type for a command of headcount.

    words: its further arguments. settings: those that have a variable in the Makefile, such as `run`; with these, or
    without any argument, the line in a checkout is one of make, which needs no active environment.
    """
    if in_checkout() and (settings or not words):
        # The Makefile puts a value into Hydra's quotes, except a list and what begins with a quote; no backslash of it.
        given = {variable: str(value) for variable, value in settings.items()}
        given |= {variable: quoted(text) for variable, text in given.items() if text[:1] in ("[", "'") or "\\" in text}
        variables = [f"{variable.upper()}={shlex.quote(text)}" for variable, text in given.items()]
        further = " ".join(map(shell_word, words)).replace("$", "$$")
        return " ".join(["make", name, *variables, *([f"ARGS={in_double_quotes(further)}"] if words else [])])
    values = [f"{each}={value if isinstance(value, int) else hydra_text(value)}" for each, value in settings.items()]
    return " ".join([program(name), *map(shell_word, [*values, *words])])


def hydra_text(text: str) -> str:
    """Text as a value of Hydra's command line, in quotes where it would be none there, or another, such as a number."""
    plain = r"[\w./+-]*/[\w./+-]*|(?!(null|true|false|inf|nan)$)[a-z_][\w./+-]*"
    return text if re.fullmatch(plain, text, re.ASCII | re.IGNORECASE) else quoted(text)


def quoted(text: str) -> str:
    """Text in Hydra's quotes, in which a backslash has a meaning before a quote alone."""
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'") + "'"


def word(setting: str, text: str) -> str:
    """A setting with text as its value, as a word of the shell."""
    return shell_word(f"{setting}={hydra_text(text)}")


def shell_word(word: str) -> str:
    """A word as the shell takes it; one with Hydra's quotes in double ones."""
    return in_double_quotes(word) if "'" in word else shlex.quote(word)


def in_double_quotes(text: str) -> str:
    """Text in the shell's double quotes; in single ones where these would not do."""
    return shlex.quote(text) if "!" in text else '"' + re.sub(r'(["$`\\])', r"\\\1", text) + '"'
