"""Commands: the main function of each, for `headcount NAME` and scripts/NAME.py alike.

A module is imported when its command is called: some take seconds to import.
"""

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
    "bench",
    "init",
)
