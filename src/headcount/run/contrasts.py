"""Contrastive pairs of a file, scored by runs and by two models that cannot know the source: the floor."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from tabulate import tabulate

from headcount.data.batches import Sentences
from headcount.evaluation.floor import Trigram
from headcount.evaluation.likelihood import TargetScorer
from headcount.run.opened import Run

Arrays = Mapping[str, np.ndarray]

HIDDEN, TRIGRAM = "hidden", "trigram"
DECIDES = 75.0  # percent: above, the target alone decides
MARK = " (target decides)"  # at a phenomenon, on pages
MEANING = """\
accuracy: pairs, in percent, of which the right translation is more probable; by token: its mean log-probability per
token is greater, which does not favour the shorter one. Chance is 50. margin: mean of log p(right) - log p(wrong), in
nats. floor: the same accuracies without the source, by a trigram model (interpolated Kneser-Ney) of the run's training
text and by the run itself with an empty source. Where one is above 75, the target alone decides: these pairs do not
test translation."""


def trigrams(run: Run, text: Iterable[str]) -> Trigram:
    """The trigram model of the targets that a run was trained on, in its tokens."""
    codec = run.tokenizer.target
    return Trigram(Sentences.of(codec.encode(list(text))), codec.vocab_size)


def contrast_scores(run: Run, rows: Dataset, trigram: Trigram) -> dict[str, np.ndarray]:
    """Log-probabilities in nats of both translations of each pair, [pair]: `right` and `wrong` by the run;
    `hidden.right` and `hidden.wrong` by the run with an empty source; `trigram.right` and `trigram.wrong` by
    its trigram model. right_tokens, wrong_tokens [pair]: subwords with the end."""
    sources, sides = list(rows["source"]), {"right": list(rows["target"]), "wrong": list(rows["contrast"])}
    codec = run.tokenizer.target
    blind = TargetScorer(run.model, lambda texts: [[] for _ in texts], codec.encode)
    found = {}
    for side, texts in sides.items():
        log_probs, tokens = run.scorer.score(sources, texts)
        found[side], found[f"{side}_tokens"] = np.array(log_probs), np.array(tokens)
        found[f"{HIDDEN}.{side}"] = np.array(blind.score(sources, texts)[0])
        found[f"{TRIGRAM}.{side}"] = trigram.log_prob(Sentences.of(codec.encode(texts)))
    return found


def contrast_rows(rows: Dataset, scores: Mapping[str, Arrays]) -> list[dict[str, str | int | float]]:
    """Accuracies in percent and margins in nats by phenomenon, a row for each run. scores: by name of run."""
    phenomena = np.array(rows["phenomenon"])
    table: list[dict[str, str | int | float]] = []
    for phenomenon in sorted(set(phenomena.tolist())):
        chosen = phenomena == phenomenon
        for name, own in scores.items():
            floors = {f"floor: {model}": accuracy(own, chosen, f"{model}.") for model in (TRIGRAM, HIDDEN)}
            table.append(
                {
                    "phenomenon": phenomenon,
                    "pairs": int(chosen.sum()),
                    "run": name,
                    "accuracy": accuracy(own, chosen),
                    "by token": accuracy(own, chosen, by_token=True),
                    "margin": float((own["right"] - own["wrong"])[chosen].mean()),
                    **floors,
                    "": "the target alone decides" if max(floors.values()) > DECIDES else "",
                }
            )
    return table


def contrast_figures(table: Sequence[Mapping[str, Any]], run: str, file: str) -> dict[str, Any]:
    """The rows of one run for metrics.json, under test.contrastive: by phenomenon, as of a grade with the file's name,
    accuracy, the larger floor and the number of pairs."""
    return {
        row["phenomenon"]: {
            file: {
                "accuracy": row["accuracy"],
                "floor": max(row[f"floor: {model}"] for model in (TRIGRAM, HIDDEN)),
                "pairs": row["pairs"],
            }
        }
        for row in table
        if row["run"] == run
    }


def contrast_table(table: Sequence[Mapping[str, object]]) -> str:
    """The rows as text, with what their columns are."""
    shown = tabulate(table, headers="keys", floatfmt=".1f", intfmt="d")
    return f"contrastive pairs\n\n{shown}\n\n{MEANING}"


def accuracy(scores: Arrays, chosen: np.ndarray, model: str = "", by_token: bool = False) -> float:
    """The share of the chosen pairs [pair] that are ranked correctly, in percent; a tie counts as wrong. model: such as
    "trigram."."""
    right, wrong = (
        scores[f"{model}{side}"] / (scores[f"{side}_tokens"] if by_token else 1) for side in ("right", "wrong")
    )
    return float(100 * (right > wrong)[chosen].mean())
