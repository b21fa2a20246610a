"""A run directory on disk: its config, its metrics and the links to it."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.command_lines import command
from headcount.errors import InputError, reason
from headcount.files import point, show, write_text

# Settings of `data` and of optimizer=muon in runs of earlier versions, which every kept run has as they act today.
REMOVED = ("batch_ramp", "batch_ramp_start", "hide_source", "pad_to", "streaming")
REMOVED_OF_MUON = ("nesterov", "ns_steps", "ns_coefficients", "ns_dtype")
MOMENT = 1.0  # seconds to wait for a lock


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a run directory: training holds it to its end, a script that puts figures there for a moment. Raises
    InputError if another process is training into it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(directory / ".lock", timeout=MOMENT):
            yield
    except Timeout as error:
        raise InputError(f"{show(directory)}: another process is training into it; wait until it has ended") from error


def read_config(directory: Path) -> DictConfig:
    """The config of a run directory. Raises InputError if it is not one."""
    path = directory / "config.yaml"
    if not path.is_file():
        hint = f"train one with `{command('train')}`" if not directory.exists() else "it has no config.yaml"
        raise InputError(f"{directory} is not a run directory: {hint}")
    settings = read_settings(path)
    groups = ("data", "tokenizer", "model", "search")
    if not all(isinstance(settings.get(name), dict) for name in groups):
        raise InputError(f"{path}: not the config of a run, which has the groups {', '.join(groups)}")
    if "_target_" in settings["model"]:
        raise InputError(f"{path}: is of an earlier version; python scripts/migrate_run.py {show(directory)} renews it")
    try:
        return OmegaConf.create(_renewed(settings))
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        raise InputError(f"{path}: not the config of a run ({type(error).__name__})") from error


def _renewed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an earlier version as they are named today; one that came later is off."""
    model = {"head_gate": None} | settings["model"]
    data = {name: value for name, value in settings["data"].items() if name not in REMOVED}
    optimizer = settings.get("optimizer")
    if isinstance(optimizer, dict) and optimizer.get("kind") == "muon":
        optimizer = {name: value for name, value in optimizer.items() if name not in REMOVED_OF_MUON}
    return settings | {"data": data, "model": model} | ({"optimizer": optimizer} if "optimizer" in settings else {})


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a config.yaml, as plain containers. Raises InputError for what is none, or is not resolved."""
    try:
        text = path.read_text(encoding="utf-8")
        settings = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path}: not a readable config: {reason(error)}") from error
    if not isinstance(settings, dict) or "${" in text:
        raise InputError(f"{path}: not the config of a run, whose settings have values")
    return settings


def write_config(directory: Path, config: DictConfig) -> None:
    """Write the config of a run, resolved."""
    write_text(directory / "config.yaml", OmegaConf.to_yaml(config, resolve=True))


def read_metrics(directory: Path) -> dict[str, Any]:
    """metrics.json of a run, or an empty dict. Raises InputError for a damaged one."""
    path = directory / "metrics.json"
    try:
        metrics = json.loads(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)}); move it away, and evaluate again") from error
    if not isinstance(metrics, dict):
        raise InputError(f"{path}: not the figures of a run; move it away, and evaluate the run again")
    return metrics


def is_finished(directory: Path) -> bool:
    """Whether the run has been trained and scored to its end."""
    return "config_hash" in read_metrics(directory)


def update_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Put figures into metrics.json, dict by dict."""
    _write_metrics(directory, merged(read_metrics(directory), figures))


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both dicts as one; the values of `other` replace those of `one`, and dicts are merged again."""
    both = one.keys() & other.keys()
    common = {
        key: (one[key], other[key]) for key in both if isinstance(one[key], dict) and isinstance(other[key], dict)
    }
    return {**one, **other, **{key: merged(*values) for key, values in common.items()}}


def begin_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Write metrics.json anew, with the figures of training, after new weights were saved. Figures, translations and
    log-probabilities of earlier weights are deleted."""
    for path in (*directory.glob("*.hyp.*"), *directory.glob("*.pairs.npz"), *directory.glob("contrasts/*.npz")):
        path.unlink()
    _write_metrics(directory, dict(figures))


def mark_unfinished(directory: Path) -> None:
    """Remove the mark of a finished run from metrics.json, since training continues."""
    metrics = read_metrics(directory)
    if metrics.pop("config_hash", None):
        _write_metrics(directory, metrics)


def _write_metrics(directory: Path, metrics: Any) -> None:
    write_text(directory / "metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def link_latest(directory: Path) -> None:
    """Let `latest` in the folder of a run be a link to it."""
    link = directory.parent / "latest"
    if link.exists() and not link.is_symlink():
        raise InputError(f"{link} is in the way: it should be a link to the newest run; move it elsewhere")
    point(link, directory.name)
