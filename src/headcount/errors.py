"""InputError: wrong input, in one line that says what to do."""

import re
from importlib.metadata import distributions, requires


class InputError(ValueError):
    """A file, setting or option cannot be used.

    The message is one line: what was wrong, where (file and line number, or the setting's name), what is allowed,
    what to do. Scripts print it without a traceback and exit with code 2.
    """


def need(extra: str) -> None:
    """Raises InputError where a package of an extra of headcount is missing."""
    lines = [line for line in requires("headcount") or () if re.search(rf"extra == .{extra}\b", line)]
    names = [re.split(r"[^\w.-]", line)[0] for line in lines]
    if missing := [name for name in names if not list(distributions(name=name))]:
        verb = "is" if len(missing) == 1 else "are"
        raise InputError(f'{" and ".join(missing)} {verb} not installed: pip install "headcount[{extra}]"')


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def reason(error: Exception) -> str:
    """Why a file cannot be used: of an OSError the system's words alone, since the line that it goes into has the path;
    else the first line of the message."""
    return getattr(error, "strerror", None) or first_line(error)


def printable(text: str) -> str:
    """Text of a file or setting in one line, as a message shows it: line ends and control characters as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
