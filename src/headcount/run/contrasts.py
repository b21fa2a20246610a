"""Contrastive pairs of a file, scored by runs and by two models that cannot know the source: the floor."""

from collections.abc import Mapping, Sequence

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
MEANING = """\
accuracy: pairs, in percent, of which the right translation is more probable; by token: its mean log-probability a
token is greater, which does not favour the shorter one. Chance is 50. margin: mean of log p(right) - log p(wrong), in
nats. floor: the same accuracies without the source, by a trigram model (interpolated Kneser-Ney) of the run's training
text and by the run itself with an empty source. Where one is above 75, the target alone decides: these pairs do not
test translation."""


def contrast_scores(run: Run, rows: Dataset) -> dict[str, np.ndarray]:
    """Log-probabilities in nats of both translations of each pair, [pair]: `right` and `wrong` by the run;
    `hidden.right` and `hidden.wrong` by the run with an empty source; `trigram.right` and `trigram.wrong` by
    trigrams of its training text. right_tokens, wrong_tokens [pair]: subwords, the end counted."""
    sources, sides = list(rows["source"]), {"right": list(rows["target"]), "wrong": list(rows["contrast"])}
    blind = TargetScorer(run.model, lambda texts: [[] for _ in texts], run.tokenizer.target.encode)
    trigram = trigram_of(run)
    found = {}
    for side, texts in sides.items():
        log_probs, tokens = run.scorer.score(sources, texts)
        found[side], found[f"{side}_tokens"] = np.array(log_probs), np.array(tokens)
        found[f"{HIDDEN}.{side}"] = np.array(blind.score(sources, texts)[0])
        found[f"{TRIGRAM}.{side}"] = trigram.log_prob(Sentences.of(run.tokenizer.target.encode(texts)))
    return found


def trigram_of(run: Run) -> Trigram:
    """The trigram model of the targets that a run was trained on."""
    text = list(run.data().one_way["train"]["target"])
    return Trigram(Sentences.of(run.tokenizer.target.encode(text)), run.tokenizer.target.vocab_size)


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
