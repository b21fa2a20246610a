"""Error rate of the design: how often studies like this one, in which no row differs, claim that one does."""

import math

import numpy as np
import yaml

from headcount.progress import progress_bar
from headcount.report.blocks import Code, Section
from headcount.report.statistics.power import percent
from headcount.report.statistics.simulation import World, simulate
from headcount.report.study import Study
from headcount.run.place import CONF, command

BLEU = (5.0, 90.0)  # that a world may have


def section(study: Study) -> Section | None:
    if not study.simulate:
        return None
    seeds = min(study.endpoint.comparison.counts)
    world = world_like(study)
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
    found = (
        f"Of {study.simulate:,} simulated studies with {len(study.rows)} rows of {seeds} runs and {world.sentences:,} "
        f"sentences, in which no row differs, {alarms} % claim that a pair differs; the verdicts allow for 5 %. Of the "
        f"pairs in them, {equals} % are found to be equal within {study.margins.bleu:g} BLEU. In brackets are 95 % "
        "intervals. Mean BLEU, the length of sentences and the spread between runs are those of this study; how "
        "n-grams match is that of docs/results/statistics.md."
    )
    again = command("report", f"sweep={study.sweep.directory}", f"simulate={study.simulate}")
    return Section("Error rate of this design", (found, Code(again, "bash")))


def world_like(study: Study) -> World | None:
    """A world with the sentences, BLEU and spread between runs of the study; None without text or spread."""
    endpoint, comparison = study.endpoint, study.endpoint.comparison
    if not endpoint.counts or comparison.spread is None or comparison.interaction is None:
        return None
    # What the draw of the sentences adds to the variance between runs is drawn with the sentences.
    variances = np.maximum(np.array(comparison.spread.variances) - comparison.interaction.noise, 0)
    deviation = math.sqrt(variances.mean())
    words = np.mean([run[:, -1].mean() for row in endpoint.counts for run in row])
    own = yaml.safe_load((CONF / "power.yaml").read_text("utf-8"))["world"] | {
        "sentences": endpoint.sentences,
        "words": max(float(words), 1.0),
        "bleu": float(np.clip(np.mean(comparison.means), *BLEU)),
        "seed_deviation": deviation,
        "deviations": (np.sqrt(variances) / deviation).tolist() if deviation else [],
    }
    return World(**own)
