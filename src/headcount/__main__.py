"""Command line of headcount: `headcount NAME ...`, or `python -m headcount NAME ...`."""

import ast
import difflib
import importlib
import sys
from pathlib import Path

from headcount import __version__, commands
from headcount.errors import printable


def main() -> None:
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        sys.stdout.write(overview())
    elif name == "--version":
        sys.stdout.write(f"headcount {__version__}\n")
    elif name not in commands.NAMES:
        sys.stderr.write(f"error: {unknown(name)}\n")
        sys.exit(2)
    else:
        sys.argv = [f"headcount {name}", *words]
        importlib.import_module(f"headcount.commands.{name}").main()


def overview() -> str:
    """All commands, one line each."""
    width = max(map(len, commands.NAMES))
    lines = [f"  {name:{width}}  {about(name)}\n" for name in commands.NAMES]
    return (
        "usage: headcount COMMAND [name=value ...]\n\n"
        f"{''.join(lines)}\n"
        "headcount COMMAND --help lists the settings of a command, headcount --version prints the version.\n"
    )


def about(name: str) -> str:
    """The first line of a command's docstring; its module is read and not imported, since that takes seconds."""
    source = (Path(commands.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


def unknown(name: str) -> str:
    near = difflib.get_close_matches(name, commands.NAMES)
    meant = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"{printable(name)}: no such command{meant} headcount --help lists all"


if __name__ == "__main__":
    main()
