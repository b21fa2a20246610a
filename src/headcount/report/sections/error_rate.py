"""Error rate of the design: how often studies like this one, in which no row differs, claim that one does."""

import math

import numpy as np
import yaml

from headcount.progress import progress_bar
from headcount.report.blocks import Code, Section
from headcount.report.statistics.bootstrap import Floats
from headcount.report.statistics.comparison import Comparison
from headcount.report.statistics.power import percent
from headcount.report.statistics.simulation import World, simulate
from headcount.report.study import Study
from headcount.run.place import CONF

BLEU = (5.0, 90.0)  # that a world may have


def section(study: Study) -> Section | None:
    if not study.simulate:
        return None
    seeds = min(study.endpoint.comparison.counts)
    world = world_like(study)
    if study.sweep.corpora and not study.sweep.blocks:
        return Section("Error rate of this design", ("Not simulated: a row lacks a run on one of the corpora.",))
    if world is None or seeds < 2 or len(study.rows) < 2:
        return Section(
            "Error rate of this design",
            ("Not simulated: it takes two rows, two runs of each, and the translations of all runs.",),
        )
    truth = np.full(len(study.rows), world.bleu)
    with progress_bar("simulating", study.simulate) as advance:
        outcomes = []
        studies = simulate(world, truth, seeds, study.simulate, study.resamples, margin=study.margins.bleu)
        for outcome in studies:
            outcomes.append(outcome)
            advance(1)
    alarms, equals = (percent([getattr(each, name) for each in outcomes]) for name in ("alarm", "equal"))
    if world.sentences is None:
        drawn, like = ", each with a corpus of its own", "The spread between runs is that of this study."
    else:
        fewest = " (the fewest of any row here)" if len(set(study.endpoint.comparison.counts)) > 1 else ""
        drawn = f"{fewest} and {world.sentences:,} sentences"
        like = (
            "Mean BLEU, the length of sentences and the spread between runs are those of this study; how n-grams match "
            "is that of docs/results/statistics.md."
        )
    found = (
        f"Of {study.simulate:,} simulated studies with {len(study.rows)} rows of {seeds} runs{drawn}, in which "
        f"no row differs, {alarms} % claim that a pair differs; the verdicts allow for 5 %. Of the pairs in them, "
        f"{equals} % are found to be equal within {study.margins.bleu:g} BLEU. In brackets are 95 % intervals. {like}"
    )
    return Section("Error rate of this design", (found, Code(study.command(), "bash")))


def world_like(study: Study) -> World | None:
    """A world with the sentences, BLEU and spread between runs of the study; None without text or spread.

    Where each seed has a corpus of its own, the draw of its sentences is part of the spread, and the world has none.
    """
    endpoint, comparison = study.endpoint, study.endpoint.comparison
    if study.sweep.blocks and comparison.spread is not None:
        whole = np.var(np.mean(endpoint.scores, axis=0), ddof=1)
        corpora = max(float(whole) - float(np.mean(comparison.spread.variances)) / len(study.rows), 0.0)
        return _world(comparison, np.array(comparison.spread.variances), corpus_deviation=math.sqrt(corpora))
    if not endpoint.counts or comparison.spread is None or comparison.interaction is None:
        return None
    # What the draw of the sentences adds to the variance between runs is drawn with the sentences.
    variances = np.maximum(np.array(comparison.spread.variances) - comparison.interaction.noise, 0)
    words = float(np.mean([run[:, -1].mean() for row in endpoint.counts for run in row]))
    return _world(comparison, variances, endpoint.sentences, max(words, 1.0))


def _world(
    comparison: Comparison,
    variances: Floats,
    sentences: int | None = None,
    words: float = 1.0,
    corpus_deviation: float | None = None,
) -> World:
    """A world with these variances between the runs of each row; the rest is that of power.yaml."""
    deviation = math.sqrt(variances.mean())
    own = yaml.safe_load((CONF / "power.yaml").read_text("utf-8"))["world"] | {
        "sentences": sentences,
        "words": words,
        "corpus_deviation": corpus_deviation,
        "bleu": float(np.clip(np.mean(comparison.means), *BLEU)),
        "seed_deviation": deviation,
        "deviations": (np.sqrt(variances) / deviation).tolist() if deviation else [],
    }
    return World(**own)
