"""Model card: what a run was trained on, how, at what cost, its scores and limits, as the README.md of an export.

card.md.jinja is its text. Everything comes from the files of the run, which others may have made: text is escaped,
settings are an indented block, and what is no number is left out.
"""

import math
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import jinja2
import yaml

from headcount.errors import printable
from headcount.export.limits import ENGINES, kinds
from headcount.run.directory import read_metrics, read_settings
from headcount.run.opened import Run

# The groups of settings of the recipe.
RECIPE = ["init_from", "pruned", "data", "tokenizer", "segmentation", "model", "loss", "optimizer", "schedule"]
RECIPE += ["averaging", "trainer", "steps", "seed"]


def model_card(run: Run, format: str, quantization: str, max_positions: int) -> str:
    """The card of a run in a format, with the front matter of the Hugging Face hub.

    Raises InputError for damaged metrics.
    """
    metrics, settings = read_metrics(run.directory), read_settings(run.directory / "config.yaml")
    limited = run.model.max_length is not None or kinds(run.model)["positions"] != "rotary"  # type: ignore[arg-type]
    corpus = printable(without_places(str(settings["data"].get("path") or settings["data"].get("kind"))))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.ChainableUndefined)
    environment.filters |= {"text": text, "figure": figure, "yaml": as_yaml}
    return environment.from_string((files("headcount.export") / "card.md.jinja").read_text(encoding="utf-8")).render(
        run=run,
        format=format,
        library=ENGINES[format].lower(),
        quantization=quantization,
        metrics=metrics,
        settings=settings,
        front=front_matter(run, ENGINES[format].lower(), {} if run.checkpoint else metrics, corpus),
        corpus=corpus,
        splits=[name for name, each in metrics.items() if isinstance(each, Mapping) and "bleu" in each],
        separate=run.tokenizer.source is not run.tokenizer.target,
        longest=run.model.max_length or max_positions,
        limited=limited,
        recipe=recipe(settings),
    )


def front_matter(run: Run, library: str, metrics: Mapping[str, Any], corpus: str) -> dict[str, Any]:
    """The card's data for the hub. metrics: those of these weights."""
    found: dict[str, Any] = {
        "language": list(dict.fromkeys(run.languages)),
        "library_name": library,
        "pipeline_tag": "translation",
        "tags": ["translation", "headcount"],
    }
    test: Any = metrics.get("test", {})
    measured = {name: test[name] for name in ("bleu", "chrf") if isinstance(test.get(name), float)}
    if measured:
        each = [
            {"type": name, "value": round(value, 2), "name": f"{name} {test.get('signature', {}).get(name)}"}
            for name, value in measured.items()
        ]
        dataset = {"name": f"test set of {corpus}", "type": corpus}
        result = {"task": {"type": "translation"}, "dataset": dataset, "metrics": each}
        found["metrics"] = list(measured)
        found["model-index"] = [{"name": "-".join(run.languages), "results": [result]}]
    return found


def recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of training, without the paths of the machine."""
    found = {name: settings[name] for name in RECIPE if settings.get(name) not in (None, {})}
    left_out = ("directory", "root")
    found["data"] = {name: value for name, value in found["data"].items() if name not in left_out}
    return without_places(found)


def without_places(settings: Any) -> Any:
    """Settings with the last name alone of each path of the machine."""
    if isinstance(settings, dict):
        return {name: without_places(value) for name, value in settings.items()}
    if isinstance(settings, list):
        return [without_places(value) for value in settings]
    place = isinstance(settings, str) and settings.startswith(("/", "~", "./", "../"))
    return PurePath(settings).name if place else settings


def as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def figure(value: Any, form: str) -> str:
    """A figure; "unknown" for what is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return format(value, form) if known else "unknown"


def text(value: Any) -> str:
    """Text, or some settings, that Markdown shows unchanged, in one line."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{setting} {each}" for setting, each in value.items() if each is not None)
    if not isinstance(value, str) or not value:
        return "unknown"
    return re.sub(r"[\\`*_\[\]<>|&#]", r"\\\g<0>", printable(" ".join(value.split())))
