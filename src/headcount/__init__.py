"""headcount: train translation Transformers from scratch and measure what every attention head is worth.

import headcount
headcount.load("runs/latest").translate(["The old doctor sleeps in the garden."])
"""

from typing import Any

__version__ = "0.2.0.dev0"
__all__ = ["load", "open_run"]


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: importing a part of the package should not import Lightning and Hydra.
    if name in __all__:
        from headcount.run import opened

        return getattr(opened, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
