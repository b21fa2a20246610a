"""Read the runs of a sweep from disk."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from headcount.data.corpora.text import read_lines
from headcount.errors import InputError
from headcount.evaluation.metrics import PRIMARY
from headcount.report.rows import differing_settings, grouped, make_rows, natural_order, parsed, tune
from headcount.report.runs import CORPUS, Config, RunResult, Sweep, Unfinished, finite
from headcount.run.directory import is_finished, read_metrics, read_settings
from headcount.run.kept import unpack
from headcount.run.sweep import begun_jobs, read_plan, why_unfinished
from headcount.settings import Design, at, named_by, within

SIGNATURE = f"test.signature.{PRIMARY}"
ELSE = "so their scores can't be compared; make a sweep directory of each"


def read_sweep(path: Path, tuned: str | None = None, text: str | None = None) -> Sweep:
    """All runs of a directory, or of a file of kept runs.

    tuned: a setting of which each row keeps the value with the lowest validation loss. text: a directory with the
    references of each held-out split, such as test.de (plain or .gz), for runs that lack them. Raises InputError if no
    run is finished, a file is damaged, or runs were tested on different text.
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
    jobs = plan | {name: [] for name in sorted(begun_jobs(directory), key=natural_order) if name not in plan}
    if not jobs:
        raise InputError(
            f"sweep={directory}: holds no run (a folder with a config.yaml); give the directory of a sweep"
        )
    results = [_read_run(name, directory / name, text) for name in jobs]
    runs = [result for result in results if isinstance(result, RunResult)]
    unfinished = tuple(result for result in results if isinstance(result, Unfinished))
    if not runs:
        first = unfinished[0]
        raise InputError(f"sweep={directory}: none of its {len(jobs)} runs is finished yet; {first.name}: {first.why}")
    runs, corpora = _with_references(runs)
    of_seeds: tuple[str, ...] = CORPUS if corpora else ()
    tried, left_out = None, []
    if tuned is not None:
        every = runs
        runs, tried, together = tune(every, tuned, of_seeds)
        of_seeds, left_out = (*of_seeds, *together), [run for run in every if run not in runs]
    design, notes = Design.of(runs[0].config), list[str]()
    if corpora:
        notes.append(
            "Each seed has a corpus of its own, with test sentences of its own: the verdicts are on corpora of this "
            "kind, not on one of them."
        )
    given = {job: {named_by(word): parsed(word.partition("=")[2]) for word in words} for job, words in jobs.items()}
    rows, label, repeated = make_rows(runs, given, design, of_seeds, notes)
    return Sweep(
        directory=directory,
        jobs=len(jobs),
        design=replace(design, label=label),
        rows=rows,
        unfinished=unfinished,
        differing=differing_settings(runs),
        corpora=corpora,
        notes=tuple(notes),
        left_out=(*repeated, *left_out),
        tried=tried,
    )


def _read_run(name: str, directory: Path, text: str | None) -> RunResult | Unfinished:
    config_path = directory / "config.yaml"
    if not is_finished(directory) or not config_path.is_file():
        return Unfinished(name, why_unfinished(directory))
    metrics, config = read_metrics(directory), read_settings(config_path)
    splits = [split for split in metrics if finite(at(metrics, f"{split}.{PRIMARY}"))]
    texts = [
        {split: lines for split in splits if (lines := _text(directory, config, split, kind, text))}
        for kind in ("hyp", "ref")
    ]
    return RunResult(name, directory, config, metrics, _curves(directory / "logs" / "metrics.csv"), *texts)


def _text(directory: Path, config: Config, split: str, kind: str, text: str | None) -> list[str] | None:
    """The lines of <split>.<kind>.<language>, None if there is no such file. kind: hyp or ref; the latter may be those
    of <split>.<language> in `text`."""
    found = sorted(directory.glob(f"{split}.{kind}.*"))
    # A copy of somebody's, such as test.hyp.bak, is not what the run wrote; but not every config has the language.
    own = [path for path in found if path.name.endswith(f".{at(config, 'data.target')}")]
    if found or text is None or kind == "hyp":
        return read_lines((own or found)[0]) if found else None
    path = Path(text, f"{split}.{at(config, 'data.target')}")
    return read_lines(path if path.is_file() else f"{path}.gz")


def _curves(path: Path) -> pd.DataFrame:
    """The numbers of Lightning's CSV; a cell that is none is not a number."""
    if not path.is_file() or not path.stat().st_size:
        return pd.DataFrame()
    table = pd.read_csv(path, dtype=str, encoding_errors="replace", on_bad_lines="skip")
    return table.apply(pd.to_numeric, errors="coerce")


def _with_references(runs: Sequence[RunResult]) -> tuple[list[RunResult], bool]:
    """The runs, each with all references of its corpus, and whether each seed has a corpus of its own, the same in
    every row. Raises InputError if runs were tested on different references, or scored differently."""
    apart = "were scored differently (BLEU {}); evaluate one of them again"
    _alike(runs, lambda run: str(run.figure(SIGNATURE)), apart)
    groups = grouped(runs, lambda run: run.key(CORPUS))
    corpora = _own_corpora(runs, groups)
    found: dict[str, RunResult] = {}
    for group in groups.values() if corpora else [runs]:
        if not all("test" in run.references for run in group):
            _alike(group, lambda run: run.corpus, f"were trained on different corpora ({{}}), {ELSE}")
        references: dict[str, Sequence[str]] = {}
        for split in dict.fromkeys(split for run in group for split in (*run.references, *run.hypotheses)):
            words = f"were tested on different references ({split}.ref), {ELSE}"
            lines = _alike(group, partial(_known, split=split), words)
            references |= {split: lines} if lines else {}
            for run in group:
                if lines and (count := len(run.hypotheses.get(split, lines))) != len(lines):
                    raise InputError(
                        f"{run.directory}: its {split}.hyp has {count} lines, and the references have {len(lines)}; "
                        "evaluate the run again"
                    )
        found |= {run.name: replace(run, references=references) for run in group}
    return [found[run.name] for run in runs], corpora


def _known(run: RunResult, split: str) -> tuple[str, ...] | None:
    return tuple(run.references[split]) if split in run.references else None


def _own_corpora(runs: Sequence[RunResult], groups: dict[str, list[RunResult]]) -> bool:
    """Whether each seed has a corpus of its own, the same in every row. groups: the runs on each corpus."""
    seeds = {run.seed for run in runs}
    if not len({(run.seed, run.key(CORPUS)) for run in runs}) == len(seeds) == len(groups) > 1:
        return False
    # They are of other sentences: else it is one test set, of which the sentences are drawn once.
    tested = [next(filter(None, (_known(run, "test") for run in own)), None) for own in groups.values()]
    known = [lines for lines in tested if lines is not None]
    # With one run on each, the seeds may differ by chance, as where two corpora are compared by a run of each.
    several = any(len(own) > 1 for own in groups.values())
    return len(set(known)) == len(known) and (several or all(within(name, CORPUS) for name in differing_settings(runs)))


def _alike(runs: Sequence[RunResult], value: Callable[[RunResult], Any], words: str) -> Any:
    """The value of all runs but those where it is None. Raises InputError with `words` of one of the usual and one of
    the odd runs."""
    values = [value(run) for run in runs]
    usual = Counter(each for each in values if each is not None).most_common(1)
    for run, each in zip(runs, values, strict=True):
        if each is not None and each != usual[0][0]:
            first = runs[values.index(usual[0][0])]
            raise InputError(f"{first.directory} and {run.directory} {words.format(f'{usual[0][0]} and {each}')}")
    return usual[0][0] if usual else values[0]
