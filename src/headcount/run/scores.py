"""Scores of a run on one split: measured, kept in its directory, and as tables for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset
from tabulate import tabulate

from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS, PRIMARY, composed, score
from headcount.evaluation.significance import compare
from headcount.files import write_text
from headcount.progress import progress_bar
from headcount.run.arrays import write_arrays
from headcount.run.directory import update_metrics
from headcount.run.opened import Run

Figures = dict[str, Any]  # of a split, as in metrics.json

# Ways to count other than the run's own: key and label.
CONVENTIONS = {"lowercase": "lowercased", "moses": "lowercased, Moses tokens"}


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a run on one split: sources, translations, references, figures for metrics.json, and by name
    the arrays of pairs.npz (see `likelihoods`; empty without the loss)."""

    sources: Sequence[str]
    hypotheses: list[str]
    references: list[str]
    figures: Figures
    arrays: dict[str, np.ndarray]


def evaluate_split(run: Run, rows: Dataset, tokenizer: str, with_loss: bool = True) -> Evaluation:
    """Translate the rows' sources and score them; on a corpus with contrasts, measure contrastive accuracy as well.

    tokenizer: of BLEU, by sacrebleu's name. Raises LineError for a line that is too long.
    """
    sources, references = list(rows["source"]), list(rows["target"])
    with progress_bar("translating", len(sources)) as progress:
        hypotheses = composed(run.translator.translate(sources, progress))
    scores = score(hypotheses, references, tokenizer)
    figures: Figures = {name: figure.value for name, figure in scores.items()}
    figures["length_ratio"] = scores[PRIMARY].length_ratio
    figures["signature"] = {name: figure.signature for name, figure in scores.items()}
    figures["search"] = run.translator.search.settings
    arrays = likelihoods(run, rows) if with_loss else {}
    if with_loss:
        figures["loss"] = -sum(arrays["log_prob"].tolist()) / int(arrays["tokens"].sum())
        figures["ppl"] = perplexity(figures["loss"])
        if len(arrays["row"]):
            figures["contrastive"] = contrastive_figures(rows, arrays)
    return Evaluation(sources, hypotheses, references, figures, arrays)


def likelihoods(run: Run, rows: Dataset) -> dict[str, np.ndarray]:
    """Log-probabilities of the references, sentence by sentence: enough for any later paired test.

    log_prob and tokens [sentence]: log-probability of the reference in nats, its tokens, the end counted.
    row, phenomenon, right and wrong [pair]: for each row that has a contrast its number, what it tests, and the
    log-probability of the right and of the wrong translation; empty on a corpus without contrasts.
    """
    log_prob, tokens = map(np.array, run.scorer.score(rows["source"], rows["target"]))
    contrasts = rows["contrast"] if "contrast" in rows.column_names else []
    tested = np.array([row for row, contrast in enumerate(contrasts) if contrast], dtype=np.int64)
    pairs = rows.select(tested)
    wrong, _ = run.scorer.score(pairs["source"], pairs["contrast"] if len(tested) else [])
    return {
        "log_prob": log_prob,
        "tokens": tokens.astype(np.int64),
        "row": tested,
        "phenomenon": np.array(pairs["phenomenon"] if len(tested) else [], dtype=np.str_),
        "right": log_prob[tested],
        "wrong": np.array(wrong),
    }


def contrastive_figures(rows: Dataset, arrays: Mapping[str, np.ndarray]) -> Figures:
    """Contrastive accuracy by phenomenon and grade."""
    pairs, right = rows.select(arrays["row"]), arrays["right"] > arrays["wrong"]  # a tie counts as wrong
    groups = list(zip(pairs["phenomenon"], pairs["grade"], strict=True))
    figures: dict[str, Figures] = {}
    for phenomenon, grade in sorted(set(groups)):
        wins = right[[group == (phenomenon, grade) for group in groups]]
        figures.setdefault(phenomenon, {})[grade] = {"accuracy": 100 * int(wins.sum()) / len(wins), "pairs": len(wins)}
    return figures


def record(run: Run, split: str, result: Evaluation) -> None:
    """Keep sources, translations, references as they were scored, likelihoods and figures in the run directory."""
    source, language = run.languages
    texts = {f"src.{source}": result.sources, f"hyp.{language}": result.hypotheses}
    for name, lines in (texts | {f"ref.{language}": composed(result.references)}).items():
        write_text(run.directory / f"{split}.{name}", "".join(f"{line}\n" for line in lines))
    write_arrays(run.directory / f"{split}.pairs.npz", result.arrays)
    update_metrics(run.directory, {split: result.figures})


def score_table(figures: Mapping[str, Figures]) -> str:
    """Every metric of every run, with the signatures below."""
    table = []
    for name, figure in figures.items():
        row = {"run": name}
        for key, metric in METRICS.items():
            row[metric.label] = figure[key]
            if key == PRIMARY:
                row["length ratio"] = figure["length_ratio"]
        if "loss" in figure:
            row["loss"] = figure["loss"]
        for convention, label in CONVENTIONS.items():
            for metric, found in figure.get(convention, {}).items():
                row[f"{METRICS[metric].label} {label}"] = found["value"]
        table.append(row)
    figure = next(iter(figures.values()))
    digits = tuple(".3f" if column == "length ratio" else ".2f" for column in table[0])
    lines = [tabulate(table, headers="keys", floatfmt=digits), "", *signature_lines(figure["signature"])]
    for convention, label in CONVENTIONS.items():
        signatures = {name: value["signature"] for name, value in figure.get(convention, {}).items()}
        lines += signature_lines(signatures, f" {label}")
    return "\n".join(lines)


def signature_lines(signatures: Mapping[str, str], label: str = "") -> list[str]:
    return [f"{METRICS[name].label}{label}: {signature}" for name, signature in signatures.items()]


def comparison_table(
    hypotheses: Mapping[str, Sequence[str]], references: Sequence[str], tokenizer: str, lowercase: bool
) -> str:
    """Paired bootstrap of every run against the first."""
    comparisons, signatures = compare(hypotheses, references, tokenizer, lowercase)
    table = [
        {"run": name}
        | {
            METRICS[metric].label: f"{figure.score:.2f} ± {figure.interval:.2f}"
            + ("" if figure.p_value is None else f" (p = {figure.p_value:.3f})")
            for metric, figure in row.items()
        }
        for name, row in comparisons.items()
    ]
    heading = "paired bootstrap against the first run, ± half a 95 % interval"
    return "\n".join([heading, "", tabulate(table, headers="keys"), "", *signature_lines(signatures)])


def contrastive_table(figures: Mapping[str, Figures]) -> str:
    """Contrastive accuracy in percent by phenomenon and grade, a column for each run whose corpus has contrasts."""
    tested = {name: figure["contrastive"] for name, figure in figures.items() if "contrastive" in figure}
    table = []
    for phenomenon, grades in next(iter(tested.values())).items():
        for grade, wins in grades.items():
            row = {"phenomenon": phenomenon, "grade": grade, "pairs": wins["pairs"]}
            for name, accuracies in tested.items():
                row[name if len(figures) > 1 else "accuracy %"] = accuracies[phenomenon][grade]["accuracy"]
            table.append(row)
    return "contrastive accuracy: the right translation more probable than the wrong one (chance: 50 %)\n\n" + tabulate(
        table, headers="keys", floatfmt=".1f", intfmt="d"
    )
