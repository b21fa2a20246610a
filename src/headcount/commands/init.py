"""Write a folder of all settings, to edit."""

import shutil
import sys
from pathlib import Path

from headcount.errors import InputError, printable, reason
from headcount.files import new_directory, show
from headcount.run.place import CONF, program, shell_word

USAGE = """Write a folder of all settings, to edit: a copy of conf/, whose files replace the originals.

  headcount init settings
  headcount train --config-dir settings

Keep the files that you change, and remove the others: those come from headcount itself.
"""


def main() -> None:
    words = sys.argv[1:]
    if words in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        return
    try:
        if len(words) != 1 or words[0].startswith("-"):
            raise InputError("init: give the folder to write, such as headcount init settings")
        sys.stdout.write(write(Path(words[0])))
    except InputError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        sys.exit(2)


def write(folder: Path) -> str:
    """Copy conf/ to a new folder; a summary. Raises InputError for a folder that is there already or cannot be made."""
    try:
        with new_directory(folder) as copy:
            shutil.copytree(CONF, copy, dirs_exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"{folder} is there already: move it away, or give another folder") from error
    except OSError as error:
        raise InputError(f"{folder}: {reason(error)}") from error
    place = show(folder.absolute())
    return (
        f"written: {place}   (train.yaml, evaluate.yaml, ...: a file a command; a folder for each choice)\n"
        f"next:  edit a file of it, then {program('train')} --config-dir {shell_word(place)}\n"
    )
