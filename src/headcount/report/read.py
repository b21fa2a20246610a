"""Read the runs of a sweep from disk."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.data.corpora.text import read_lines
from headcount.errors import InputError, reason
from headcount.evaluation.metrics import PRIMARY
from headcount.files import read_bytes
from headcount.report.rows import differing_settings, make_rows, name_rows, natural_order
from headcount.report.runs import CORPUS, Config, RunResult, Sweep, Unfinished, finite
from headcount.report.tuning import tune
from headcount.run.directory import is_finished, read_metrics, read_settings
from headcount.run.kept import unpack
from headcount.run.sweep import begun_jobs, read_plan, why_unfinished
from headcount.settings import Design, at, named_by, within

MOST_TEXT = 2**28  # bytes of translations, or of curves
NEEDED = ("seed", f"test.{PRIMARY}", f"test.signature.{PRIMARY}")  # figures of every finished run


def read_sweep(path: Path, tuned: str | None = None, text: str | None = None) -> Sweep:
    """All runs of a directory, or of a file of kept runs.

    tuned: a setting of which each row keeps the value with the lowest validation loss. text: a directory with both
    sides of each held-out split, such as test.en and test.de (plain or .gz), for runs that lack references or sources.
    Raises InputError if no run is finished, a file is damaged, or runs were tested on different text.
    """
    if path.is_dir():
        return _read_directory(path, tuned, text)
    if not path.is_file():
        raise InputError(f"sweep={path}: no such directory; give one that holds a directory for each run, or kept runs")
    with TemporaryDirectory() as folder:
        unpack(path, folder)
        try:
            return replace(_read_directory(Path(folder), tuned, text), directory=path)
        except InputError as error:
            raise InputError(str(error).replace(folder, str(path))) from error


def _read_directory(directory: Path, tuned: str | None, text: str | None) -> Sweep:
    plan = read_plan(directory)
    jobs = plan.jobs | {name: [] for name in sorted(begun_jobs(directory), key=natural_order) if name not in plan.jobs}
    if not jobs:
        raise InputError(
            f"sweep={directory}: holds no run (a folder with a config.yaml); give the directory of a sweep"
        )
    results = [_read_run(name, directory / name, text) for name in jobs]
    runs = [result for result in results if isinstance(result, RunResult)]
    unfinished = [result for result in results if isinstance(result, Unfinished)]
    if not runs:
        raise InputError(
            f"sweep={directory}: none of its {len(jobs)} runs is finished yet; "
            f"{unfinished[0].name}: {unfinished[0].why}"
        )
    corpora = _own_corpora(runs)
    place = {name: number for number, name in enumerate(jobs)}
    whole = [run for group in (corpora or {"": runs}).values() for run in _with_references(group)]
    runs = sorted(whole, key=lambda run: place[run.name])
    references = {} if corpora else runs[0].references
    of_seeds: tuple[str, ...] = CORPUS if corpora else ()
    tuning = None
    if tuned is not None:
        runs, tuning = tune(runs, tuned, of_seeds)
        of_seeds = (*of_seeds, *tuning.together)
    design, notes = _design(runs[0]), []
    if any(_design(run) != design for run in runs):
        notes.append(f"The runs do not all name the same study; this report takes that of {runs[0].name}.")
    differing = differing_settings(runs)
    if corpora:
        notes.append(
            "Each seed has a corpus of its own, with test sentences of its own: the verdicts are on corpora of this "
            "kind, not on one of them."
        )
    given = {job: {named_by(each): each.partition("=")[2] for each in overrides} for job, overrides in jobs.items()}
    names, label = name_rows(runs, given, design, of_seeds, notes)
    rows, repeated = make_rows(runs, names, notes, of_seeds)
    sources = {
        split: found for split, lines in references.items() if (found := _sources(runs, split, len(lines), text))
    }
    return Sweep(
        directory=directory,
        jobs=len(jobs),
        design=replace(design, label=label),
        rows=rows,
        unfinished=tuple(unfinished),
        differing=differing,
        corpora=bool(corpora),
        references=references,
        sources=sources,
        notes=tuple(notes),
        tuning=tuning,
        repeated=repeated,
    )


def _read_run(name: str, directory: Path, text: str | None) -> RunResult | Unfinished:
    config_path = directory / "config.yaml"
    if not is_finished(directory) or not config_path.is_file():
        return Unfinished(name, why_unfinished(directory))
    metrics = read_metrics(directory)
    config = read_settings(config_path)
    if not isinstance(config, dict):
        raise InputError(f"{config_path}: not the config of a run")
    for path in NEEDED:
        value = at(metrics, path)
        whole = path != "seed" or (finite(value) and float(value).is_integer())
        if value is None or not whole or not (finite(value) or ".signature." in path):
            raise InputError(
                f"{directory / 'metrics.json'}: has no {path}, although the run is marked as finished; move the file "
                "away, and start the sweep again"
            )
    if not isinstance(at(metrics, "test.contrastive") or {}, dict):
        raise InputError(
            f"{directory / 'metrics.json'}: test.contrastive is no group of figures; evaluate the run again"
        )
    return RunResult(
        name,
        directory,
        config,
        metrics,
        _read_curves(directory / "logs" / "metrics.csv"),
        _read_lines(directory, config, metrics, "hyp"),
        _read_lines(directory, config, metrics, "ref", text),
    )


def _read_lines(
    directory: Path, config: Config, metrics: Config, kind: str, text: str | None = None
) -> dict[str, list[str]]:
    """The lines of <split>.<kind>.<language> of every split that was scored, else of `text`. kind: hyp or ref."""
    lines = {}
    for split in (name for name in metrics if finite(at(metrics, f"{name}.{PRIMARY}"))):
        found = sorted(directory.glob(f"{split}.{kind}.*"))
        # A copy of somebody's, such as test.hyp.bak, is not what the run wrote; but not every config has the language.
        own = [path for path in found if path.name.endswith(f".{at(config, 'data.target')}")]
        if own or found:
            lines[split] = _lines((own or found)[0])
        elif text is not None:
            lines[split] = _side(text, split, config, "target")
    return lines


def _side(text: str, split: str, config: Config, side: str) -> list[str]:
    """The lines of <split>.<language> in a directory of text. side: source or target."""
    path = Path(text, f"{split}.{at(config, f'data.{side}')}")
    return read_lines(path if path.is_file() else f"{path}.gz")


def _lines(path: Path) -> list[str]:
    try:
        return read_bytes(path, MOST_TEXT).decode().removesuffix("\n").split("\n")
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not UTF-8 text ({reason(error)})") from error


def _read_curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of each column of Lightning's CSV, without empty cells and text."""
    curves: dict[str, list[tuple[int, float]]] = {}
    if not path.is_file():
        return curves
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path, MOST_TEXT).decode(errors="replace"), newline="")))
    except (csv.Error, OSError) as error:
        raise InputError(f"{path}: no learning curves ({reason(error)})") from error
    for row in rows:
        for name, cell in row.items():
            try:
                curves.setdefault(name, []).append((int(row["step"]) + 1, float(cell)))
            except (TypeError, ValueError, KeyError):
                continue
    return curves


def _own_corpora(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The runs on each corpus, if each seed has one of its own, the same in every row; else empty."""
    corpora: dict[str, list[RunResult]] = {}
    for run in runs:
        corpora.setdefault(run.own_corpus, []).append(run)
    pairs = {(run.seed, run.own_corpus) for run in runs}
    if not len(pairs) == len({run.seed for run in runs}) == len(corpora) > 1:
        return {}
    # They are scored alike, and on other sentences: else it is one test set, of which the sentences are drawn once.
    kinds = {(run.corpus, str(run.figure(f"test.signature.{PRIMARY}"))) for run in runs}
    tested = [
        next((run.references["test"] for run in own if "test" in run.references), None) for own in corpora.values()
    ]
    known = [tuple(lines) for lines in tested if lines is not None]
    if len(kinds) > 1 or len(set(known)) < len(known):
        return {}
    # With one run on each, the seeds may differ by chance, as where two corpora are compared by a run of each.
    several = any(len(group) > 1 for group in corpora.values())
    return corpora if several or all(within(name, CORPUS) for name in differing_settings(runs)) else {}


def _with_references(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs, each with all references of their corpus. Raises InputError if they were tested on different ones."""
    first = _usual(runs, lambda run: (run.corpus, str(run.figure(f"test.signature.{PRIMARY}"))))
    for run in runs:
        unread = "test" not in run.references or "test" not in first.references
        if unread and run.corpus != first.corpus:
            raise InputError(
                f"{first.directory} and {run.directory} were trained on different corpora ({first.corpus} and "
                f"{run.corpus}), so their scores can't be compared; make a sweep directory of each"
            )
        signatures = [each.figure(f"test.signature.{PRIMARY}") for each in (first, run)]
        if signatures[0] != signatures[1]:
            raise InputError(
                f"{first.directory} and {run.directory} were scored differently (BLEU {signatures[0]} and "
                f"{signatures[1]}); evaluate one of them again"
            )
    splits = dict.fromkeys(split for run in runs for split in (*run.references, *run.hypotheses))
    references = {split: lines for split in splits if (lines := _references(runs, split)) is not None}
    return [replace(run, references=references) for run in runs]


def _usual(runs: Sequence[RunResult], key: Callable[[RunResult], Hashable]) -> RunResult:
    """The first of the runs that are most alike by `key`, so that an odd one is compared to the others."""
    keys = [key(run) for run in runs]
    return runs[keys.index(Counter(keys).most_common(1)[0][0])]


def _references(runs: Sequence[RunResult], split: str) -> Sequence[str] | None:
    """The references of a split, None if no run has them. Raises InputError if runs differ."""
    having = [run for run in runs if split in run.references]
    if not having:
        return None
    known = _usual(having, lambda run: tuple(run.references[split]))
    lines = known.references[split]
    for run in runs:
        if run.references.get(split, lines) != lines:
            raise InputError(
                f"{known.directory} and {run.directory} were tested on different references ({split}.ref), so their "
                "scores can't be compared; make a sweep directory of each"
            )
        count = len(run.hypotheses.get(split, lines))
        if count != len(lines):
            raise InputError(
                f"{run.directory}: its {split}.hyp has {count} lines, and the references of {known.directory} have "
                f"{len(lines)}; evaluate the run again"
            )
    return lines


def _sources(runs: Sequence[RunResult], split: str, number: int, text: str | None) -> list[str]:
    """The sources of a split, from the first run that has as many as there are references, or from a directory of text;
    empty if none has them."""
    for path in (path for run in runs for path in run.directory.glob(f"{split}.src.*")):
        lines = _lines(path)
        if len(lines) == number:
            return lines
    return [] if text is None else _side(text, split, runs[0].config, "source")


def _design(run: RunResult) -> Design:
    try:
        return replace(Design.of(run.config), arm=None)  # which is the row's own
    except InputError as error:
        path = run.directory / "config.yaml"
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).split("\n"))) from error
