"""Commands: the main function of each, for `headcount NAME` and scripts/NAME.py alike.

A module is imported when its command is called: some take seconds to import.
"""

import sys

# In the order of a list for people.
NAMES = (
    "prepare",
    "train",
    "evaluate",
    "translate",
    "score",
    "rerank",
    "report",
    "heads",
    "prune",
    "attention",
    "explore",
    "export",
    "doctor",
    "serve",
    "diversify",
    "power",
    "init",
)


def _unless_stopped(kind: type[BaseException], *error: object) -> None:
    """Show the traceback of an error, but not of Ctrl-C, which may come while modules are imported."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, *error)  # type: ignore[arg-type]


sys.excepthook = _unless_stopped
