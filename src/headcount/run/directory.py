"""A run directory on disk: its config, its metrics and the links to it."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import command
from headcount.errors import InputError, reason
from headcount.files import check_depth, point, read_bytes, read_json, show, write_text

MOST_CONFIG = 2**18  # bytes of config.yaml
MOMENT = 1.0  # seconds to wait for a lock
LARGEST = 2**128  # whole number of a setting, such as the seed


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


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: a few lines of these can mean billions of settings."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"line {self.peek_event().start_mark.line + 1} is an alias, which no run writes")
        return super().compose_node(parent, index)


def read_config(directory: Path) -> DictConfig:
    """The config of a run directory. Raises InputError if it is not one."""
    path = directory / "config.yaml"
    if not path.is_file():
        hint = f"train one with `{command('train')}`" if not directory.exists() else "it has no config.yaml"
        raise InputError(f"{directory} is not a run directory: {hint}")
    settings = read_settings(path)
    groups = ("data", "tokenizer", "model", "search")
    if not isinstance(settings, dict) or not all(isinstance(settings.get(name), dict) for name in groups):
        raise InputError(f"{path}: not the config of a run, which has the groups {', '.join(groups)}")
    if "_target_" in settings["model"]:
        raise InputError(f"{path}: is of an earlier version; python scripts/migrate_run.py {show(directory)} renews it")
    return OmegaConf.create(settings)


def read_settings(path: Path) -> Any:
    """The settings of a config.yaml, as plain containers. Raises InputError for what no run writes: YAML is more than
    settings."""
    try:
        settings = yaml.load(read_bytes(path, MOST_CONFIG).decode(), _PlainLoader)
        check_depth(settings)
        check_plain(settings)
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path}: not a readable config: {reason(error)}") from error
    return settings


def check_plain(node: Any, setting: str = "") -> None:
    """Raises ValueError for a setting that is no text, number, true, false, null, list or group of these, and for text
    to be interpolated: `write_config` has resolved it."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            check_plain(name)
            check_plain(value, f"{setting}.{name}" if setting else str(name))
            if not isinstance(name, str | int):
                raise ValueError(f"{setting}: {name!r} is no name of a setting")
    elif isinstance(node, int) and abs(node) > LARGEST:
        raise ValueError(f"{setting}: has more digits than a setting has")
    elif isinstance(node, str | int | float | None):
        if isinstance(node, str) and "${" in node:
            raise ValueError(f"{setting or node!r}: the run's config.yaml must be resolved, but holds {node!r}")
    elif isinstance(node, Sequence) and not isinstance(node, bytes):
        for value in node:
            check_plain(value, setting)
    else:
        raise ValueError(f"{setting}: {type(node).__name__} is no value of a setting")


def write_config(directory: Path, config: DictConfig) -> None:
    """Write the config of a run, resolved."""
    write_text(directory / "config.yaml", OmegaConf.to_yaml(config, resolve=True))


def read_metrics(directory: Path) -> dict[str, Any]:
    """metrics.json of a run, or an empty dict. Raises InputError for a damaged one."""
    path = directory / "metrics.json"
    try:
        metrics = read_json(path) if path.exists() else {}
    except OSError as error:  # the file may be whole
        raise InputError(f"{path}: cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise InputError(
            f"{path}: not readable JSON ({reason(error)}); move it away, and evaluate the run again"
        ) from error
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


def check_links(directory: Path, folder: str = ".") -> None:
    """Raises InputError for a link in a folder of a run directory, the folder itself included, that leads out of the
    run, since a command that writes into the folder would write there; and for a pipe or a device, which has no end."""
    root = directory.resolve()
    for path in (directory / folder, *(directory / folder).rglob("*")):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(f"{path}: is a pipe or a device, which no run writes; remove it")
        if path.is_symlink() and path != directory and not path.resolve().is_relative_to(root):
            raise InputError(
                f"{path}: is a link out of the run, which may write into its own directory alone; remove it"
            )


def link_latest(directory: Path) -> None:
    """Let `latest` in the folder of a run be a link to it."""
    link = directory.parent / "latest"
    if link.exists() and not link.is_symlink():
        raise InputError(f"{link} is in the way: it should be a link to the newest run; move it elsewhere")
    point(link, directory.name)
