"""The engine that translates: the setting of `translate` and of `serve`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from headcount.errors import InputError
from headcount.run.opened import Run
from headcount.settings import typed


def chosen_engine(config: Any) -> Callable[[Run], Run]:
    """A function that gives an opened run the translator of `config.engine`; config: that of the command.

    To be called before the run is opened: `config.precision` is that of the engine's products, and becomes that of the
    weights which the engine is given. Raises InputError.
    """
    if config.engine == "headcount":
        if config.precision == "int8":
            raise InputError("precision=int8: must be float32 or bfloat16, or add engine=ctranslate2")
        return lambda run: run
    from headcount.export.engine import PRECISIONS, with_ctranslate2  # here, since it is not always installed

    if not isinstance(config.run, str) and len(config.run) > 1:
        raise InputError("engine=ctranslate2: translates with one run, not with several; give run=RUN")
    if config.precision not in PRECISIONS:
        raise InputError(f"precision={typed(config.precision)}: must be one of {', '.join(PRECISIONS)}")
    precision, config.precision = config.precision, "float32"
    return partial(with_ctranslate2, precision=precision)
