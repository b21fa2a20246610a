"""Read the runs of a sweep from disk."""

import csv
from collections.abc import Sequence
from pathlib import Path

import yaml

from headcount.errors import InputError
from headcount.report.rows import differing_settings, make_rows, name_by_settings, natural_order, say, setting_value
from headcount.report.study import STUDY, Config, RunResult, StudyConfig, Sweep, Unfinished, at, corpus_name, finite
from headcount.run.directory import is_finished, read_metrics
from headcount.run.jobs import begun_jobs, read_plan, why_unfinished


def read_sweep(directory: Path) -> Sweep:
    """All there is in a directory of runs. Raises InputError where there is no finished run, a file is damaged, or runs
    were tested on different text."""
    if not directory.is_dir():
        raise InputError(f"sweep={directory}: no such directory; give one that holds a directory for each run")
    plan = read_plan(directory)
    jobs = plan.jobs | {name: [] for name in sorted(begun_jobs(directory), key=natural_order) if name not in plan.jobs}
    if not jobs:
        raise InputError(
            f"sweep={directory}: holds no run (a folder with a config.yaml); give the directory of a sweep"
        )
    runs: list[RunResult] = []
    unfinished: list[Unfinished] = []
    for name in jobs:
        found = _read_run(name, directory / name)
        if isinstance(found, RunResult):
            runs.append(found)
        else:
            unfinished.append(found)
    if not runs:
        raise InputError(
            f"sweep={directory}: none of its {len(jobs)} runs is finished yet; "
            f"{unfinished[0].name}: {unfinished[0].why}"
        )
    references = _check_same_test(runs)
    study = _study(runs[0])
    notes: list[str] = []
    if any(_study(run) != study for run in runs):
        notes.append(f"The runs don't all name the same study; this is told as {runs[0].name} has it.")
    differing = differing_settings(runs)
    if not study.varies:
        study, told = name_by_settings(runs, jobs, differing, study)
    else:
        told = {run.name: (say(value), value) for run in runs for value in [setting_value(run.config, study.varies)]}
        if all(value is None for _, value in told.values()):
            notes.append(f"No run has the setting {study.varies} that the study is said to vary.")
    rows = make_rows(runs, told, notes)
    return Sweep(
        directory, plan.overrides, len(jobs), study, rows, tuple(unfinished), differing, references, tuple(notes)
    )


def _read_run(name: str, directory: Path) -> RunResult | Unfinished:
    config_path = directory / "config.yaml"
    if not is_finished(directory) or not config_path.is_file():
        return Unfinished(name, why_unfinished(directory))
    metrics = read_metrics(directory)
    try:
        config = yaml.safe_load(config_path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{config_path}: not readable YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(config, dict):
        raise InputError(f"{config_path}: not the config of a run")
    for path in ("seed", "test.bleu", "test.chrf", "test.signature.bleu", "test.signature.chrf"):
        value = at(metrics, path)
        if value is None or not (finite(value) or path.startswith("test.signature")):
            raise InputError(
                f"{directory / 'metrics.json'}: has no {path}, though the run is said to be finished; move it away, "
                "and start the sweep again"
            )
    return RunResult(
        name,
        directory,
        config,
        metrics,
        _read_curves(directory / "logs" / "metrics.csv"),
        _read_lines(directory, metrics, "hyp"),
        _read_lines(directory, metrics, "ref"),
    )


def _read_lines(directory: Path, metrics: Config, kind: str) -> dict[str, list[str]]:
    """The lines of <split>.<kind>.<language> for every split that was scored."""
    found = {}
    for split in (name for name in metrics if finite(at(metrics, f"{name}.bleu"))):
        path = next(directory.glob(f"{split}.{kind}.*"), None)  # the language, which not every config names, comes last
        if path is None:
            continue
        try:
            found[split] = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except ValueError as error:
            raise InputError(f"{path}: not UTF-8 text ({error})") from error
    return found


def _read_curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The columns of Lightning's CSV by step; cells that it left empty, or that are no numbers, are left out."""
    curves: dict[str, list[tuple[int, float]]] = {}
    if not path.is_file():
        return curves
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            for name, cell in line.items():
                try:
                    curves.setdefault(name, []).append((int(line["step"]) + 1, float(cell)))
                except (TypeError, ValueError, KeyError):
                    continue
    return curves


def _check_same_test(runs: Sequence[RunResult]) -> dict[str, Sequence[str]]:
    """The references of each split, which all runs were tested on. Raises InputError for two test sets."""
    first = runs[0]
    for run in runs:
        unread = "test" not in run.references or "test" not in first.references
        if unread and corpus_name(run) != corpus_name(first):
            raise InputError(
                f"{first.directory} and {run.directory} were trained on different corpora ({corpus_name(first)} and "
                f"{corpus_name(run)}), so their scores can't be compared; make a sweep directory of each"
            )
        signatures = [each.figure("test.signature.bleu") for each in (first, run)]
        if signatures[0] != signatures[1]:
            raise InputError(
                f"{first.directory} and {run.directory} were scored differently (BLEU {signatures[0]} and "
                f"{signatures[1]}); evaluate one of them again"
            )
    splits = dict.fromkeys(split for run in runs for split in (*run.references, *run.hypotheses))
    return {split: lines for split in splits if (lines := _references(runs, split)) is not None}


def _references(runs: Sequence[RunResult], split: str) -> Sequence[str] | None:
    """The references of a split, None if no run has them. Raises InputError where runs differ."""
    known = next((run for run in runs if split in run.references), None)
    if known is None:
        return None
    lines = known.references[split]
    for run in runs:
        if run.references.get(split, lines) != lines:
            raise InputError(
                f"{known.directory} and {run.directory} were tested on different references ({split}.ref), so their "
                "scores can't be compared; make a sweep directory of each"
            )
        translated = run.hypotheses.get(split, lines)
        if len(translated) != len(lines):
            raise InputError(
                f"{run.directory}: its {split}.hyp has {len(translated)} lines, and the references of "
                f"{known.directory} have {len(lines)}; evaluate the run again"
            )
    return lines


def _study(run: RunResult) -> StudyConfig:
    node = at(run.config, STUDY)
    if not isinstance(node, dict):
        return StudyConfig()
    return StudyConfig(
        title=node.get("title"),
        varies=node.get("varies"),
        label=node.get("label") or (node["varies"].rpartition(".")[2] if node.get("varies") else None),
        constant=tuple(node.get("constant") or ()),
        about=node.get("about"),
        published=tuple(node.get("published") or ()),
    )
