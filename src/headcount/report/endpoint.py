"""Primary endpoint of a report: corpus BLEU on the sentences of all held-out splits together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.errors import InputError
from headcount.evaluation.metrics import tokenizer_of
from headcount.report.runs import RunResult, Sweep, finite
from headcount.statistics.bootstrap import Floats, bleu_of, bootstrapped_bleu, sentence_counts
from headcount.statistics.comparison import Comparison, Interaction, compare, interaction, sentence_variance

ROUNDING = 0.01  # BLEU
UNSAMPLED = "Intervals are over seeds, on this test set; they do not account for the choice of its sentences."


@dataclass(frozen=True)
class Endpoint:
    """BLEU of every run, and all pairs of rows compared by BLEU.

    splits: the held-out splits that it is computed on. sentences: the number of sentences of these, the mean over
    corpora if each seed has one; 0 if text is missing. scores: by row and run. counts: by row and run, from
    `sentence_counts`; empty if text is missing. flags: warnings for the reader. corpora: the number of corpora, each
    with sentences of its own; 1 if all runs share one.
    """

    splits: tuple[str, ...]
    sentences: int
    scores: tuple[tuple[float, ...], ...]
    counts: tuple[tuple[Floats, ...], ...]
    comparison: Comparison
    flags: tuple[str, ...] = ()
    corpora: int = 1

    @property
    def name(self) -> str:
        return f"BLEU on {' + '.join(self.splits)}" if len(self.splits) > 1 else f"{self.splits[0]} BLEU"


def bleu_endpoint(sweep: Sweep, resamples: int) -> Endpoint:
    """BLEU of all runs on the splits whose text all of them have, and its comparison; without such text on test, the
    test BLEU of metrics.json. resamples: of the sentences. Raises InputError for a signature that is not known."""
    splits, flags = _complete_splits(sweep)
    corpora = len({run.seed for run in sweep.runs}) if sweep.corpora else 1
    if "test" not in splits:
        scores = [row.figures("test.bleu") for row in sweep.rows]
        unsampled = () if sweep.corpora else (UNSAMPLED,)
        comparison = compare(scores, percent=True, blocks=sweep.blocks)
        return Endpoint(("test",), 0, _frozen(scores), (), comparison, (*flags, *unsampled), corpora)
    try:
        tokenizer = tokenizer_of(str(sweep.runs[0].figure("test.signature.bleu")))
    except InputError as error:
        raise InputError(f"{sweep.runs[0].directory / 'metrics.json'}: {error}; evaluate the runs again") from error
    counts = [[_counts(run, splits, tokenizer, flags) for run in row.runs] for row in sweep.rows]
    scores = [[float(bleu_of(run.sum(axis=0))) for run in row] for row in counts]
    if sweep.corpora:
        least = _sentence_variance(sweep, counts, resamples)
        comparison = compare(scores, least=[least] * len(scores), percent=True, blocks=sweep.blocks)
    else:
        comparison = compare(scores, _sampling(counts, resamples), percent=True)
    sentences, frozen = round(np.mean([len(run) for row in counts for run in row])), tuple(map(tuple, counts))
    return Endpoint(tuple(splits), sentences, _frozen(scores), frozen, comparison, tuple(flags), corpora)


def _sampling(counts: Sequence[Sequence[Floats]], resamples: int) -> Interaction:
    """What the draw of sentences adds to differences. counts: by row and run, on the same sentences."""
    rows = [index for index, row in enumerate(counts) for _ in row]
    every = np.stack([run for row in counts for run in row])  # [run, sentence, 10]
    return interaction(bootstrapped_bleu(every, resamples), rows, every.shape[1])


def _sentence_variance(sweep: Sweep, counts: Sequence[Sequence[Floats]], resamples: int) -> float:
    """The `sentence_variance` of the corpora that two rows or more share."""
    corpora: dict[int, list[Floats]] = {}
    for row, own in zip(sweep.rows, counts, strict=True):
        for run, counted in zip(row.runs, own, strict=True):
            corpora.setdefault(run.seed, []).append(counted)
    return sentence_variance(bootstrapped_bleu(np.stack(runs), resamples) for runs in corpora.values() if len(runs) > 1)


def _frozen(scores: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, scores))


def _complete_splits(sweep: Sweep) -> tuple[list[str], list[str]]:
    """The splits on which all runs have BLEU and text, in the order of the first run, and a flag for each other one
    that some run has."""
    complete, flags = [], []
    for split in dict.fromkeys(name for run in sweep.runs for name in run.metrics):
        lacking = {
            f"{split}.bleu": [run.name for run in sweep.runs if not finite(run.figure(f"{split}.bleu"))],
            f"references ({split}.ref)": [run.name for run in sweep.runs if split not in run.references],
            f"translations ({split}.hyp)": [run.name for run in sweep.runs if split not in run.hypotheses],
        }
        missing = [(what, names) for what, names in lacking.items() if names]
        if not missing:
            complete.append(split)
        elif len(lacking[f"{split}.bleu"]) < len(sweep.runs):
            (what, (first, *others)), *_ = missing
            more = f" and {len(others)} other runs" if others else ""
            flags.append(f"The verdicts on BLEU do not use the {split} sentences: no {what} of {first}{more}.")
    return complete, flags


def _counts(run: RunResult, splits: Sequence[str], tokenizer: str, flags: list[str]) -> Floats:
    """The n-gram counts of a run, sentence by sentence of all splits. flags: gets a line if its BLEU is not that of
    metrics.json."""
    counts = []
    for split in splits:
        counts.append(sentence_counts(run.hypotheses[split], run.references[split], tokenizer))
        known, score = float(run.figure(f"{split}.bleu")), float(bleu_of(counts[-1].sum(axis=0)))
        if abs(known - score) > ROUNDING:
            flags.append(
                f"{run.name}: its {split}.hyp has BLEU {score:.2f}, and its metrics.json says {known:.2f}; was one of "
                "them written by another evaluation?"
            )
    return np.concatenate(counts)
