"""A run directory on disk: its config, its metrics and the links to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import point, write_text
from headcount.run.aliases import with_new_names


def read_config(directory: Path) -> DictConfig:
    """The config of a run directory. Raises InputError if it is not one."""
    path = directory / "config.yaml"
    if not path.is_file():
        hint = "train one with `make train`" if not directory.exists() else "it has no config.yaml"
        raise InputError(f"{directory} is not a run directory: {hint}")
    try:
        config = OmegaConf.create(with_new_names(yaml.safe_load(path.read_text(encoding="utf-8"))))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable config: {str(error).splitlines()[0]}") from error
    groups = ("data", "tokenizer", "model", "search")
    if not isinstance(config, DictConfig) or not all(isinstance(config.get(name), DictConfig) for name in groups):
        raise InputError(f"{path}: not the config of a run, which has the groups {', '.join(groups)}")
    return config


def write_config(directory: Path, config: DictConfig) -> None:
    """Write the config of a run, resolved."""
    write_text(directory / "config.yaml", OmegaConf.to_yaml(config, resolve=True))


def read_metrics(directory: Path) -> dict[str, Any]:
    """metrics.json of a run, or an empty dict. Raises InputError for a damaged one."""
    path = directory / "metrics.json"
    try:
        metrics = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise InputError(f"{path}: not readable JSON ({error}); move it away, and evaluate the run again") from error
    if not isinstance(metrics, dict):
        raise InputError(f"{path}: not the figures of a run; move it away, and evaluate the run again")
    return metrics


def is_finished(directory: Path) -> bool:
    """Whether the run has been trained and scored to its end."""
    return "config_hash" in read_metrics(directory)


def update_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Put figures into metrics.json, dict by dict."""
    merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(read_metrics(directory)), dict(figures)))
    _write_metrics(directory, merged)


def begin_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Write metrics.json anew, with the figures of training, after new weights were saved. Figures, translations and
    log-probabilities of earlier weights are deleted."""
    for path in (*directory.glob("*.hyp.*"), *directory.glob("*.pairs.npz")):
        path.unlink()
    _write_metrics(directory, dict(figures))


def mark_unfinished(directory: Path) -> None:
    """Remove the mark of a finished run from metrics.json, since training continues."""
    metrics = read_metrics(directory)
    if metrics.pop("config_hash", None):
        _write_metrics(directory, metrics)


def _write_metrics(directory: Path, metrics: Any) -> None:
    write_text(directory / "metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def check_links(directory: Path) -> None:
    """Raises InputError for a link in a run directory that leads out of it: a resumed run would write there."""
    root = directory.resolve()
    for path in directory.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InputError(
                f"{path}: is a link out of the run, which may write into its own directory alone; remove it"
            )


def link_latest(directory: Path) -> None:
    """Let `latest` in the folder of a run be a link to it."""
    link = directory.parent / "latest"
    if link.exists() and not link.is_symlink():
        raise InputError(f"{link} is in the way: it should be a link to the newest run; move it elsewhere")
    point(link, directory.name)
