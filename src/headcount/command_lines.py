"""Command lines to type next, quoted for Hydra and the shell; and the folder of configs."""

import re
import shlex
import shutil
import sys
from pathlib import Path

from headcount.files import show

PACKAGE = Path(__file__).parent
# In a checkout conf/ is beside src/, in an installed package inside of it.
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1] / "conf"


def program() -> str:
    """How to type `headcount` in the current directory, for the environment that this process runs in."""
    own = Path(sys.prefix) / "bin" / "headcount"
    if not own.exists() or ((found := shutil.which("headcount")) and Path(found).resolve() == own.resolve()):
        return "headcount"
    return shlex.quote(show(own))


def command(name: str, *words: str, **settings: str | int) -> str:
    """The line to type for a command of headcount: settings, whose text is quoted for Hydra, and further words."""
    return f"{program()} {_line(name, *words, **settings)}"


def command_anywhere(name: str, *words: str, **settings: str | int) -> str:
    """The same for a page, which is read on other machines."""
    return f"headcount {_line(name, *words, **settings)}"


def _line(name: str, *words: str, **settings: str | int) -> str:
    values = [f"{each}={value if isinstance(value, int) else hydra_text(value)}" for each, value in settings.items()]
    return " ".join([name, *map(shell_word, [*values, *words])])


def hydra_text(text: str) -> str:
    """Text as a value of Hydra's command line, in quotes where it would be none there, or another, such as a number."""
    plain = r"[\w./+-]*/[\w./+-]*|(?!(null|true|false|inf|nan)$)[a-z_][\w./+-]*"
    return text if re.fullmatch(plain, text, re.ASCII | re.IGNORECASE) else quoted(text)


def quoted(text: str) -> str:
    """Text in Hydra's quotes, in which a backslash has a meaning before a quote alone."""
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'") + "'"


def shell_word(text: str) -> str:
    """A word as the shell takes it; one with Hydra's quotes in double ones."""
    if "'" not in text or "!" in text:
        return shlex.quote(text)
    return '"' + re.sub(r'(["$`\\])', r"\\\1", text) + '"'
