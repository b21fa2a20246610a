"""Scores of one run, or of several side by side."""

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from datasets import Dataset, DatasetDict
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import Progress
from tabulate import tabulate

from headcount.data.corpora import read_parallel
from headcount.errors import InputError
from headcount.evaluation.contrastive import TargetScorer, contrastive_accuracy
from headcount.evaluation.scoring import compare, score
from headcount.run.directory import Run, open_as_asked, read_metrics, update_metrics, write_text

Figures = dict[str, Any]


def evaluate(config: DictConfig) -> str:
    """What conf/evaluate.yaml asks for, as text for a person. Writes to the runs what is theirs."""
    directories = list(config.run) if OmegaConf.is_list(config.run) else [config.run]
    if not directories:
        raise InputError("run=[]: give a run directory, or several")
    splits = list(dict.fromkeys(config.split)) if OmegaConf.is_list(config.split) else [config.split]
    if not splits or "train" in splits or not all(isinstance(split, str) for split in splits):
        raise InputError(f"split={config.split}: must be test or valid, or the name of a further test set, or a list")
    if (config.input is None) != (config.reference is None):
        raise InputError("input= and reference= go together: the text to translate, and its translation")
    if config.checkpoint and len(directories) > 1:
        raise InputError("checkpoint= goes with one run: it replaces that run's weights")
    if not isinstance(config.lowercase, bool):
        raise InputError(f"lowercase={config.lowercase}: must be true or false")
    runs = {name: open_as_asked(config, name) for name in directories}
    chosen = [config.input, config.checkpoint, *config.search.values()]
    own = all(choice is None for choice in chosen)
    if own:
        for run in runs.values():
            read_metrics(run.directory)  # what is damaged should show before the work, not after
    if config.input is not None:
        splits = ["input"]
        sources, references = read_parallel(config.input, config.reference)
        rows = {name: {"input": Dataset.from_dict({"source": sources, "target": references})} for name in runs}
    else:
        rows = {name: splits_of(name, run, splits) for name, run in runs.items()}
    hypotheses: dict[str, dict[str, list[str]]] = {split: {} for split in splits}
    figures: dict[str, dict[str, Figures]] = {split: {} for split in splits}
    for split in splits:
        references = rows[directories[0]][split]["target"][:]
        for name in runs:
            if rows[name][split]["target"][:] != references:
                raise InputError(f"{name}: another {split} split than {directories[0]}; compare runs of one corpus")
    for split, (name, run) in itertools.product(splits, runs.items()):
        references = rows[name][split]["target"][:]
        hypotheses[split][name], found = evaluate_split(run, rows[name][split], with_loss=config.input is None)
        if config.lowercase:
            scores = score(hypotheses[split][name], references, lowercase=True)
            found["lowercase"] = {metric: asdict(figure) for metric, figure in scores.items()}
        if own:
            record(run, split, hypotheses[split][name], references, found)
        figures[split][name] = found
    parts = [score_table(labelled(figures))]
    for split in splits:
        heading = f"{split}: " if len(splits) > 1 else ""
        if len(runs) > 1:
            references = rows[directories[0]][split]["target"][:]
            parts.append(heading + comparison_table(hypotheses[split], references, config.lowercase))
        if any("contrastive" in figure for figure in figures[split].values()):
            parts.append(heading + contrastive_table(figures[split]))
    if own:
        kept = ", ".join(f"{name}/metrics.json" for name in runs)
        parts.append(f"figures: {kept}; translations: {', '.join(f'{split}.hyp.*' for split in splits)} beside")
    else:
        parts.append("not the run's own split, weights and search: nothing was written to its metrics.json")
    return "\n\n".join(parts)


def splits_of(name: str, run: Run, splits: Sequence[str]) -> DatasetDict:
    """What the run's corpus has, with all of `splits`. Raises InputError where it lacks one."""
    data = run.data()
    for split in splits:
        if split not in data.held_out_splits:
            raise InputError(f"split={split}: {name} has {', '.join(data.held_out_splits)}")
    return data.data


def labelled(figures: dict[str, dict[str, Figures]]) -> dict[str, Figures]:
    """The figures of every split and run in one, under a label that says only what differs."""
    many_splits, many_runs = len(figures) > 1, any(len(of_split) > 1 for of_split in figures.values())
    return {
        (f"{name} {split}" if many_runs else split) if many_splits else name: figure
        for split, of_split in figures.items()
        for name, figure in of_split.items()
    }


def evaluate_split(run: Run, rows: Dataset, with_loss: bool = True) -> tuple[list[str], Figures]:
    """Translations of the rows' sources and the figures for metrics.json; on a corpus that comes with contrasts, their
    accuracy as well."""
    sources, references = list(rows["source"]), list(rows["target"])
    with progress_bar("translating", len(sources)) as progress:
        hypotheses = run.translator.translate(sources, progress)
    scores = score(hypotheses, references)
    figures: Figures = {name: figure.value for name, figure in scores.items()}
    figures["signature"] = {name: figure.signature for name, figure in scores.items()}
    search = run.translator.search
    figures["search"] = {"beam": search.beam, "alpha": search.alpha}
    scorer = TargetScorer(run.model, run.translator.codec.encode, run.tokenizer.target.encode)
    if with_loss:
        log_probs, tokens = scorer.score(sources, references)
        figures["loss"] = -sum(log_probs) / tokens
        figures["ppl"] = math.exp(figures["loss"])
    if with_loss and "contrast" in rows.column_names:
        contrasts = list(rows["contrast"])
        tested = [row for row, contrast in enumerate(contrasts) if contrast]  # plain sentences test nothing
        wrong, _ = scorer.score([sources[row] for row in tested], [contrasts[row] for row in tested])
        groups = list(zip(rows["phenomenon"], rows["grade"], strict=True))
        accuracy = contrastive_accuracy([log_probs[row] for row in tested], wrong, [groups[row] for row in tested])
        contrastive: dict[str, Figures] = {}
        for (phenomenon, grade), wins in sorted(accuracy.items()):
            contrastive.setdefault(phenomenon, {})[grade] = {"accuracy": wins.percent, "pairs": wins.total}
        figures["contrastive"] = contrastive
    return hypotheses, figures


def record(run: Run, split: str, hypotheses: Sequence[str], references: Sequence[str], figures: Figures) -> None:
    """Keep translations, references and figures in the run directory."""
    language = run.languages[1]
    write_text(run.directory / f"{split}.hyp.{language}", "".join(line + "\n" for line in hypotheses))
    write_text(run.directory / f"{split}.ref.{language}", "".join(line + "\n" for line in references))
    update_metrics(run.directory, {split: figures})


def score_table(figures: dict[str, Figures]) -> str:
    """BLEU and chrF of every run, with the signatures below."""
    table = []
    for name, figure in figures.items():
        row = {"run": name, "BLEU": figure["bleu"], "chrF": figure["chrf"]}
        if "loss" in figure:
            row["loss"] = figure["loss"]
        if "lowercase" in figure:
            row["BLEU lowercased"] = figure["lowercase"]["bleu"]["value"]
            row["chrF lowercased"] = figure["lowercase"]["chrf"]["value"]
        table.append(row)
    figure = next(iter(figures.values()))
    lines = [tabulate(table, headers="keys", floatfmt=".2f"), "", *_signature_lines(figure["signature"])]
    if "lowercase" in figure:
        signatures = {name: value["signature"] for name, value in figure["lowercase"].items()}
        lines += _signature_lines(signatures, " lowercased")
    return "\n".join(lines)


def _signature_lines(signatures: dict[str, str], label: str = "") -> list[str]:
    names = {"bleu": "BLEU", "chrf": "chrF"}
    return [f"{names[name]}{label}: {signature}" for name, signature in signatures.items()]


def comparison_table(hypotheses: dict[str, list[str]], references: Sequence[str], lowercase: bool) -> str:
    """Paired bootstrap of every run against the first."""
    comparisons, signatures = compare(hypotheses, references, lowercase)
    table = [
        {"run": name}
        | {
            {"bleu": "BLEU", "chrf": "chrF"}[metric]: f"{figure.score:.2f} ± {figure.interval:.2f}"
            + ("" if figure.p_value is None else f" (p = {figure.p_value:.3f})")
            for metric, figure in row.items()
        }
        for name, row in comparisons.items()
    ]
    return "\n".join(
        [
            "paired bootstrap against the first run, ± half a 95 % interval",
            "",
            tabulate(table, headers="keys"),
            "",
            *_signature_lines(signatures),
        ]
    )


def contrastive_table(figures: dict[str, Figures]) -> str:
    """Contrastive accuracy in percent by phenomenon and grade, a column a run."""
    table = []
    for phenomenon, grades in next(f["contrastive"] for f in figures.values() if "contrastive" in f).items():
        for grade, wins in grades.items():
            row = {"phenomenon": phenomenon, "grade": grade, "pairs": wins["pairs"]}
            for name, figure in figures.items():
                row[name if len(figures) > 1 else "accuracy %"] = figure["contrastive"][phenomenon][grade]["accuracy"]
            table.append(row)
    return "contrastive accuracy: the right translation more probable than the wrong one (chance: 50 %)\n\n" + tabulate(
        table, headers="keys", floatfmt=".1f", intfmt="d"
    )


class progress_bar:  # noqa: N801 - used as a context manager
    """A bar on standard error while a person watches, and nothing otherwise; gives the function that moves it."""

    def __init__(self, what: str, total: int) -> None:
        self.bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        self.task = self.bar.add_task(what, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self.bar.start()
        return lambda done: self.bar.update(self.task, completed=done)

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
