"""A run as a folder for another engine: its model, tokenizer and model card."""

from importlib import import_module
from pathlib import Path
from typing import Any

from headcount.errors import InputError, reason
from headcount.export.card import model_card
from headcount.files import new_directory, write_text
from headcount.run.directory import check_links
from headcount.run.opened import Run

FORMATS = {"ctranslate2": "ctranslate2", "huggingface": "hugging_face"}
"""Modules of this package by the name of their format: `QUANTIZATIONS`, `unsupported`, `write_model`."""


def write_folder(run: Run, *, format: str, output: str | None, quantization: str, max_positions: int) -> Path:
    """Write a run into a new folder, and return it; the settings are those of conf/export.yaml.

    Raises InputError for a wrong setting, for a run that the format cannot hold, with all reasons, and for a folder
    that is there already or cannot be written.
    """
    if format not in FORMATS:
        raise InputError(f"format={format}: must be one of {', '.join(FORMATS)}")
    module = import_module(f"headcount.export.{FORMATS[format]}")
    check(run, format, module, quantization, max_positions)
    if output is None:
        check_links(run.directory, format)
    folder = Path(output) if output else run.directory / format
    try:
        with new_directory(folder) as new:
            module.write_model(run, new, quantization, max_positions)
            write_text(new / "README.md", model_card(run, format, quantization, max_positions))
    except FileExistsError as error:
        raise InputError(f"output={folder}: is there already; move it away, or give another") from error
    except OSError as error:
        raise InputError(f"output={folder}: can't be written to ({reason(error)}); name another") from error
    return folder


def check(run: Run, format: str, module: Any, quantization: str, max_positions: int) -> None:
    """Raises InputError with a line for each reason why a run cannot be exported."""
    reasons = [f"run={run.directory}: {why}" for why in module.unsupported(run)]
    if quantization not in module.QUANTIZATIONS:
        reasons.append(f"quantization={quantization}: must be one of {', '.join(module.QUANTIZATIONS)} for {format}")
    if max_positions < 2:
        reasons.append(f"max_positions={max_positions}: must be 2 or more")
    if reasons:
        raise InputError("\n".join(reasons))
