"""Primary endpoint of a report: corpus BLEU on the sentences of all held-out splits together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.evaluation.metrics import tokenizer_of
from headcount.report.rows import grouped
from headcount.report.runs import RunResult, Sweep
from headcount.statistics.bootstrap import Floats, bleu_of, bootstrapped_bleu, sentence_counts
from headcount.statistics.comparison import ERROR, Comparison, compare, interaction, sentence_variance

ROUNDING = 0.01  # BLEU
UNSAMPLED = "Intervals are over seeds, on this test set; they do not account for the choice of its sentences."
Scores = Sequence[Sequence[float]]  # of the runs of each row


@dataclass(frozen=True)
class Endpoint:
    """BLEU of every run, and all pairs of rows compared by BLEU.

    splits: the held-out splits that it is computed on. sentences: the number of sentences of these, the mean over
    corpora if each seed has one; 0 if text is missing. scores: by row and run. counts: by row and run, from
    `sentence_counts`; resampled: bootstrapped scores [resample, run] by row; both empty if text is missing. flags:
    warnings for the reader. corpora: the number of corpora, each with sentences of its own; 1 if all runs share one.
    """

    splits: tuple[str, ...]
    sentences: int
    scores: Scores
    counts: Sequence[Sequence[Floats]]
    resampled: Sequence[Floats]
    comparison: Comparison
    flags: tuple[str, ...] = ()
    corpora: int = 1

    @property
    def name(self) -> str:
        return f"BLEU on {' + '.join(self.splits)}" if len(self.splits) > 1 else f"{self.splits[0]} BLEU"


def bleu_endpoint(sweep: Sweep, resamples: int) -> Endpoint:
    """BLEU of all runs on the splits whose text all of them have, and its comparison; without such text on test, the
    test BLEU of metrics.json. resamples: of the sentences."""
    splits, flags = _complete_splits(sweep)
    corpora = len({run.seed for run in sweep.runs}) if sweep.corpora else 1
    if "test" not in splits:
        flags += [] if sweep.corpora else [UNSAMPLED]
        scores = [row.figures("test.bleu") for row in sweep.rows]
        return Endpoint(("test",), 0, scores, (), (), compared(sweep, scores, (), 0), tuple(flags), corpora)
    tokenizer = tokenizer_of(sweep.runs[0].figure("test.signature.bleu"))
    counts = [[_counts(run, splits, tokenizer, flags) for run in row.runs] for row in sweep.rows]
    scores = [[float(bleu_of(run.sum(axis=0))) for run in row] for row in counts]
    sentences = round(np.mean([len(run) for row in counts for run in row]))
    resampled = _resampled(sweep, counts, resamples)
    comparison = compared(sweep, scores, resampled, sentences)
    return Endpoint(tuple(splits), sentences, scores, counts, resampled, comparison, tuple(flags), corpora)


def compared(
    sweep: Sweep, scores: Scores, resampled: Sequence[Floats], sentences: int, error: float = ERROR
) -> Comparison:
    """Rows, or values of a setting that all rows have the seeds of, compared by BLEU over seeds and the draw of
    sentences. resampled: as in `Endpoint`; empty to ignore that draw. error: of the family."""
    if not resampled:
        return compare(scores, error=error, percent=True, blocks=sweep.blocks)
    if not sweep.corpora:
        of_runs = [row for row, own in enumerate(resampled) for _ in own.T]
        sampling = interaction(np.concatenate(resampled, axis=1), of_runs, sentences)
        return compare(scores, sampling, error, percent=True)
    corpora: dict[int, list[Floats]] = {}
    for row, own in zip(sweep.rows, resampled, strict=False):
        for run, column in zip(row.runs, own.T, strict=True):
            corpora.setdefault(run.seed, []).append(column)
    least = sentence_variance(np.stack(own, axis=1) for own in corpora.values() if len(own) > 1)
    return compare(scores, error=error, least=[least] * len(scores), percent=True, blocks=sweep.blocks)


def _resampled(sweep: Sweep, counts: Sequence[Sequence[Floats]], number: int) -> list[Floats]:
    """Bootstrapped BLEU by row, with the same resamples for all runs on the same sentences."""
    corpora = grouped(sweep.runs, lambda run: str(run.seed) if sweep.corpora else "")
    known = dict(zip([run.name for run in sweep.runs], [run for row in counts for run in row], strict=True))
    columns: dict[str, Floats] = {}
    for own in corpora.values():
        scores = bootstrapped_bleu(np.stack([known[run.name] for run in own]), number)
        columns |= zip([run.name for run in own], scores.T, strict=True)
    return [np.stack([columns[run.name] for run in row.runs], axis=1) for row in sweep.rows]


def _complete_splits(sweep: Sweep) -> tuple[list[str], list[str]]:
    """The splits of which all runs have both texts, in the order of the first run, and a flag for each other one that
    some run has."""
    complete, flags = [], []
    for split in dict.fromkeys(name for run in sweep.runs for name in (*run.hypotheses, *run.references)):
        lacking = [run.name for run in sweep.runs if split not in run.references or split not in run.hypotheses]
        if lacking:
            more = f" and {len(lacking) - 1} other runs" if len(lacking) > 1 else ""
            flags.append(
                f"The verdicts on BLEU do not use the {split} sentences: no {split}.ref or {split}.hyp of "
                f"{lacking[0]}{more}."
            )
        else:
            complete.append(split)
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
