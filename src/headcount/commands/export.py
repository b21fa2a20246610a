"""Export a run to another inference engine, or as a page that runs it."""

import logging
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, reason
from headcount.files import new_directory, show, write_text
from headcount.run.opened import Run, open_from_config
from headcount.settings import Opening, typed

logger = logging.getLogger("headcount.export")


@dataclass(frozen=True, kw_only=True)
class Settings(Opening):
    """conf/export.yaml explains them."""

    run: str
    format: Literal["ctranslate2", "huggingface", "page"]
    output: str | None
    quantization: str | None
    max_positions: Annotated[int, Ge(2)]
    examples: Annotated[int, Ge(0)]
    contrasts: str | list[str] | None


MODULES = {"ctranslate2": "ctranslate2", "huggingface": "hugging_face", "page": "page.write"}  # of headcount.export
FLOATS = ("float32", "bfloat16", "float16")
QUANTIZATIONS = {  # of each format; the first is the default
    "ctranslate2": (*FLOATS, "int8", "int8_float32", "int8_bfloat16", "int8_float16", "int16"),
    "huggingface": FLOATS,
    "page": ("int8", "float32"),
}


def run(config: DictConfig) -> None:
    settings: Any = OmegaConf.to_container(config)
    form, quantization = settings["format"], settings["quantization"]
    if quantization not in (None, *QUANTIZATIONS[form]):
        known = ", ".join(QUANTIZATIONS[form])
        raise InputError(f"quantization={typed(quantization)}: must be one of {known} for {form}")
    logger.info("written: %s", show(export(open_from_config(config, config.run), settings)))


def export(run: Run, settings: dict[str, Any]) -> Path:
    """Write a run in a format: a new folder, or of a page one file; the settings are those of conf/export.yaml. Its
    path.

    Raises InputError for a run that the format cannot hold, with all reasons, and for what cannot be written.
    """
    from headcount.export.card import model_card  # here, because --help does not need them
    from headcount.export.limits import unsupported

    form = settings["format"]
    quantization = settings["quantization"] or QUANTIZATIONS[form][0]
    module = import_module(f"headcount.export.{MODULES[form]}")
    if reasons := unsupported(run, form):
        raise InputError("\n".join(f"run={run.directory}: {why}" for why in reasons))
    output = Path(settings["output"] or run.directory / ("page.html" if form == "page" else form))
    page = module.page(run, quantization, settings["examples"], settings["contrasts"]) if form == "page" else ""
    try:
        if form == "page":
            write_text(output, page)
        else:
            most = settings["max_positions"]
            with new_directory(output) as folder:
                module.write_model(run, folder, quantization, most)
                write_text(folder / "README.md", model_card(run, form, quantization, most))
    except FileExistsError as error:
        raise InputError(f"output={output}: is there already; move it away, or give another") from error
    except OSError as error:
        raise InputError(f"output={output}: can't be written to ({reason(error)}); name another") from error
    return output
