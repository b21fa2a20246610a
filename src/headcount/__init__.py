"""headcount: train translation Transformers from scratch and measure what every attention head is worth.

import headcount
headcount.load("runs/latest").translate(["The old doctor sleeps in the garden."])
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["load"]


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: importing a part of the package should not import Lightning and Hydra.
    if name == "load":
        from headcount.run.opened import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
