"""Scores of one run, or of several side by side."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import Progress
from tabulate import tabulate

from headcount.data.corpora import read_parallel
from headcount.errors import InputError
from headcount.evaluation.contrastive import TargetScorer, contrastive_accuracy
from headcount.evaluation.scoring import compare, score
from headcount.run.directory import Run, as_one, open_as_asked, read_metrics, update_metrics, write_text

Figures = dict[str, Any]


def evaluate(config: DictConfig) -> str:
    """What conf/evaluate.yaml asks for, as text for a person. Writes to the runs what is theirs."""
    directories = list(config.run) if OmegaConf.is_list(config.run) else [config.run]
    if not directories:
        raise InputError("run=[]: give a run directory, or several")
    if config.split not in ("test", "valid"):
        raise InputError(f"split={config.split}: must be test or valid")
    if (config.input is None) != (config.reference is None):
        raise InputError("input= and reference= go together: the text to translate, and its translation")
    if config.checkpoint and len(directories) > 1:
        raise InputError("checkpoint= goes with one run: it replaces that run's weights")
    for name in ("lowercase", "ensemble"):
        if not isinstance(config[name], bool):
            raise InputError(f"{name}={config[name]}: must be true or false")
    output = output_file(config.output, len(directories) == 1 or config.ensemble)
    runs = {name: open_as_asked(config, name) for name in directories}
    if config.ensemble:
        runs = {" + ".join(runs): as_one(list(runs.values()))}
    chosen = [config.input, config.checkpoint, *config.search.values()]
    own = all(choice is None for choice in chosen) and not config.ensemble
    if own:
        for run in runs.values():
            read_metrics(run.directory)  # what is damaged should show before the work, not after
    if config.input is not None:
        sources, references = read_parallel(config.input, config.reference)
        rows = {name: Dataset.from_dict({"source": sources, "target": references}) for name in runs}
    else:
        rows = {name: run.data().data[config.split] for name, run in runs.items()}
    first = next(iter(rows.values()))
    for name, split in rows.items():
        if split["target"] != first["target"]:
            raise InputError(f"{name}: another {config.split} split than {directories[0]}; compare runs of one corpus")
    with_loss = config.input is None and not config.ensemble  # an ensemble has no one model whose loss it would be
    hypotheses: dict[str, list[str]] = {}
    figures: dict[str, Figures] = {}
    for name, run in runs.items():
        hypotheses[name], figures[name] = evaluate_split(run, rows[name], with_loss)
        if config.lowercase:
            scores = score(hypotheses[name], first["target"], lowercase=True)
            figures[name]["lowercase"] = {metric: asdict(figure) for metric, figure in scores.items()}
        if own:
            record(run, config.split, hypotheses[name], first["target"], figures[name])
    parts = [score_table(figures)]
    if len(runs) > 1:
        parts.append(comparison_table(hypotheses, first["target"], config.lowercase))
    if any("contrastive" in figure for figure in figures.values()):
        parts.append(contrastive_table(figures))
    if own:
        kept = ", ".join(f"{name}/metrics.json" for name in runs)
        parts.append(f"figures: {kept}; translations: {config.split}.hyp.* beside")
    elif config.ensemble:
        parts.append("an ensemble: nothing was written to the metrics.json of its runs")
    else:
        parts.append("not the run's own split, weights and search: nothing was written to its metrics.json")
    if output is not None:
        write_text(output, "".join(line + "\n" for line in next(iter(hypotheses.values()))))
        parts.append(f"translations: {output}")
    return "\n\n".join(parts)


def output_file(output: str | None, one: bool) -> Path | None:
    """Where output= wants the translations. Raises InputError if they cannot go there, or are not those of `one`."""
    if output is None:
        return None
    if not one:
        raise InputError(f"output={output}: goes with one run, or with ensemble=true")
    path = Path(str(output))
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"output={output}: must be a file in a folder that exists")
    return path


def evaluate_split(run: Run, rows: Dataset, with_loss: bool = True) -> tuple[list[str], Figures]:
    """Translations of the rows' sources and the figures for metrics.json; on a corpus that comes with contrasts, their
    accuracy as well."""
    sources, references = list(rows["source"]), list(rows["target"])
    with progress_bar("translating", len(sources)) as progress:
        hypotheses = run.translator.translate(sources, progress)
    scores = score(hypotheses, references)
    figures: Figures = {name: figure.value for name, figure in scores.items()}
    figures["signature"] = {name: figure.signature for name, figure in scores.items()}
    figures["search"] = run.translator.search.settings
    scorer = TargetScorer(run.model, run.translator.codec.encode, run.tokenizer.encode)
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
