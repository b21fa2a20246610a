"""The primary endpoint of a report: corpus BLEU on the sentences of all held-out splits together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.evaluation.metrics import tokenizer_of
from headcount.report.statistics.bootstrap import Floats, bleu_of, bootstrapped_bleu, sentence_counts
from headcount.report.statistics.comparison import Comparison, compare, interaction
from headcount.report.study import Row, RunResult, Sweep, finite

ROUNDING = 0.01  # BLEU
UNSAMPLED = "Intervals are those over seeds on this very test set; what other sentences would say is not accounted for."


@dataclass(frozen=True)
class Endpoint:
    """BLEU of every run, and all pairs of rows compared by it.

    splits: whose sentences it is counted on. sentences: how many take part in the intervals, 0 if none. scores: by row
    and run. counted: by row and run, what `sentence_counts` gives; none where text is missing.
    """

    splits: tuple[str, ...]
    sentences: int
    scores: tuple[tuple[float, ...], ...]
    counted: tuple[tuple[Floats, ...], ...]
    comparison: Comparison

    @property
    def name(self) -> str:
        return f"BLEU on {' + '.join(self.splits)}" if len(self.splits) > 1 else f"{self.splits[0]} BLEU"

    def length_ratio(self, index: int, row: Row) -> float | None:
        """Tokens of the translations per token of the references, mean of a row; None where nobody counted."""
        found = row.figures("test.length_ratio")
        if self.counted:
            sums = [counts.sum(axis=0) for counts in self.counted[index]]
            found = [float(summed[-2] / summed[-1]) for summed in sums]
        return sum(found) / len(found) if found else None


def bleu_endpoint(sweep: Sweep, resamples: int, flags: list[str]) -> Endpoint:
    """resamples: of the sentences. flags: gets a line for everything that a reader must know."""
    splits = [split for split in _scored(sweep.runs) if not _missing(sweep, split, flags)]
    if "test" not in splits:
        flags.append(UNSAMPLED)
        scores = [row.figures("test.bleu") for row in sweep.rows]
        return Endpoint(("test",), 0, _frozen(scores), (), compare(scores))
    tokenizer = tokenizer_of(str(sweep.runs[0].figure("test.signature.bleu")))
    counted = [[_counts(run, sweep.references, splits, tokenizer, flags) for run in row.runs] for row in sweep.rows]
    scores = [[float(bleu_of(counts.sum(axis=0))) for counts in row] for row in counted]
    rows = [index for index, row in enumerate(counted) for _ in row]
    every = np.stack([counts for row in counted for counts in row])  # [run, sentence, 10]
    sampling = interaction(bootstrapped_bleu(every, resamples), rows, every.shape[1])
    return Endpoint(
        tuple(splits), every.shape[1], _frozen(scores), tuple(map(tuple, counted)), compare(scores, sampling)
    )


def _frozen(scores: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, scores))


def _scored(runs: Sequence[RunResult]) -> list[str]:
    """The splits on which all runs have BLEU, in the order of the first run."""
    return [name for name in runs[0].metrics if all(finite(run.figure(f"{name}.bleu")) for run in runs)]


def _missing(sweep: Sweep, split: str, flags: list[str]) -> bool:
    """Whether a split's text is incomplete; then flags say so."""
    without = [run.name for run in sweep.runs if split not in run.hypotheses]
    if split not in sweep.references:
        what = f"No run has the {split} references ({split}.ref)"
    elif without:
        more = f" and {len(without) - 1} other runs" if len(without) > 1 else ""
        what = f"{without[0]}{more} lack the {split} translations ({split}.hyp)"
    else:
        return False
    flags.append(f"{what}, so the {split} sentences take no part in the verdicts on BLEU.")
    return True


def _counts(
    run: RunResult, references: Mapping[str, Sequence[str]], splits: Sequence[str], tokenizer: str, flags: list[str]
) -> Floats:
    """What a run has in common with the references, sentence by sentence of all splits."""
    found = []
    for split in splits:
        counts = sentence_counts(run.hypotheses[split], references[split], tokenizer)
        known, score = float(run.figure(f"{split}.bleu")), float(bleu_of(counts.sum(axis=0)))
        if abs(known - score) > ROUNDING:
            flags.append(
                f"{run.name}: its {split}.hyp has BLEU {score:.2f}, and its metrics.json says {known:.2f}; was one of "
                "them written by another evaluation?"
            )
        found.append(counts)
    return np.concatenate(found)
