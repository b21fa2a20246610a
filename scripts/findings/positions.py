"""Too many heads, or too few frequencies: contrasts of kept runs with rotary and with sinusoidal positions.

Design: docs/record/log.md. A contrast may be a difference of differences, which a report does not have.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from common import RESULTS, Estimate

from headcount.statistics.bootstrap import Floats, bleu_of, bootstrapped_bleu
from headcount.statistics.comparison import ERROR, compare, interaction
from headcount.statistics.planned import holm

RESAMPLES = 1000
Condition = tuple[int, int, str]  # heads, their size, positions
Sides = tuple[Sequence[Condition], Sequence[Condition]]  # conditions whose BLEU is added, and taken off
FEW, MANY = (4, 32), (32, 4)
CONTRASTS: Mapping[str, Sides] = {
    "rotary less sinusoidal": (((*FEW, "rotary"), (*MANY, "sinusoidal")), ((*MANY, "rotary"), (*FEW, "sinusoidal"))),
    "sinusoidal": (((*FEW, "sinusoidal"),), ((*MANY, "sinusoidal"),)),
    "size 8": (((16, 8, "rotary"),), ((8, 8, "rotary"),)),
}


def kept_counts(study: str) -> dict[Condition, Floats]:
    """The counts of the runs of each condition, [run, sentence, 10]."""
    table = pd.read_parquet(RESULTS / study / "counts.parquet")
    found: dict[Condition, list[Floats]] = {}
    for run, own in table.groupby("run"):
        given = dict(word.split("=") for word in str(run).removeprefix("model.").split(",model."))
        heads, size, positions = given["num_heads"], given["head_size"], given["positions"].partition(",")[0]
        found.setdefault((int(heads), int(size), positions), []).append(own.drop(columns="run").to_numpy(float))
    return {condition: np.stack(runs) for condition, runs in found.items()}


def contrasts(counts: Mapping[Condition, Floats], named: Mapping[str, Sides] = CONTRASTS) -> dict[str, Estimate]:
    """Each contrast of BLEU over seeds and the draw of the sentences, with an interval that holds for all of them
    (Bonferroni), and p by Holm's method; without contrasts whose conditions have no runs yet.

    counts: of each condition, `sentence_counts` of its runs, [run, sentence, 10]; as many runs each. A sum of BLEU over
    the conditions of a side, a run of each, is compared as the BLEU of one run.
    """
    known = {name: sides for name, sides in named.items() if {each for side in sides for each in side} <= {*counts}}
    scores = {name: bleu_of(own.sum(axis=1)) for name, own in counts.items()}
    resampled = {name: bootstrapped_bleu(own, RESAMPLES) for name, own in counts.items()}
    found, errors = {}, []
    for name, sides in known.items():
        sums = [np.sum([scores[each] for each in side], axis=0).tolist() for side in sides]
        draws = np.concatenate([np.sum([resampled[each] for each in side], axis=0) for side in sides], axis=1)
        rows = np.repeat([0, 1], len(sums[0]))
        sampling = interaction(draws, rows.tolist(), next(iter(counts.values())).shape[1])
        (alone,) = compare(sums, sampling).differences
        (together,) = compare(sums, sampling, error=ERROR / len(named)).differences
        errors.append(alone.p)
        found[name] = Estimate(together.value, *together.interval, alone.p)
    return {name: each._replace(p=p) for (name, each), p in zip(found.items(), holm(errors), strict=True)}
