"""headcount: train translation Transformers from scratch and measure what every attention head is worth.

import headcount
headcount.load("runs/latest").translate(["The old doctor sleeps in the garden."])
"""

import os
from importlib.metadata import version
from typing import Any

__version__ = version("headcount")
__all__ = ["load", "measure", "open_run"]

# How often a thread of GNU's OpenMP, torch's on Linux, looks before it sleeps at a barrier: longer, and it loses a time
# slice beside a busy program; shorter, and it is slow to wake (docs/reliability.md). Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: importing a part of the package should not import Lightning and Hydra.
    if name in __all__:
        from headcount.heads import door, registered

        return getattr(registered if name == "measure" else door, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
