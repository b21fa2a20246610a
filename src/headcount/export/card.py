"""Model card: how to use an export, the scores, cost and limits of its run, and its settings, as README.md.

card.md.jinja is its text. Figures and settings of the run stand in indented YAML, where nothing is markup.
"""

from importlib.resources import files
from pathlib import PurePath
from typing import Any

import jinja2
import yaml

from headcount.run.directory import read_metrics
from headcount.run.identity import settings_of
from headcount.run.opened import Run
from headcount.settings import PLACES, within


def model_card(run: Run, format: str, quantization: str, max_positions: int) -> str:
    """The card of a run in a format, with the front matter of the Hugging Face hub.

    Raises InputError for damaged metrics.
    """
    settings = {name: without_place(value) for name, value in settings_of(run.config).items()}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["yaml"] = as_yaml
    return environment.from_string((files("headcount.export") / "card.md.jinja").read_text(encoding="utf-8")).render(
        run=run,
        format=format,
        quantization=quantization,
        metrics=read_metrics(run.directory),
        settings={name: value for name, value in settings.items() if value is not None and not within(name, PLACES)},
        separate=run.tokenizer.source is not run.tokenizer.target,
        longest=run.model.max_length or max_positions,
    )


def as_yaml(value: Any) -> str:
    """Nested settings or figures, those of the innermost group in one line."""
    return yaml.safe_dump(value, default_flow_style=None, sort_keys=False, allow_unicode=True, width=1000)


def without_place(value: Any) -> Any:
    """The value of a setting; of a path on the machine its last name alone."""
    return PurePath(value).name if isinstance(value, str) and value.startswith(("/", "~", ".")) else value
