"""Too many heads, or too few frequencies: contrasts of kept runs with rotary and with sinusoidal positions.

Design: docs/record/log.md. A contrast may be a difference of differences, which a report does not have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from common import counts_of

from headcount.statistics.bootstrap import Floats, bleu_of, bootstrapped_bleu
from headcount.statistics.comparison import compare, interaction
from headcount.statistics.planned import Contrast, planned

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
    found: dict[Condition, list[Floats]] = {}
    for run, own in counts_of(study).items():
        given = dict(word.split("=") for word in run.removeprefix("model.").split(",model."))
        condition = int(given["num_heads"]), int(given["head_size"]), given["positions"].partition(",")[0]
        found.setdefault(condition, []).append(own)
    return {condition: np.stack(runs) for condition, runs in found.items()}


def contrasts(counts: Mapping[Condition, Floats], named: Mapping[str, Sides] = CONTRASTS) -> list[Contrast]:
    """Each contrast of BLEU over seeds and the draw of the sentences, see `planned`.

    counts: of each condition, `sentence_counts` of its runs, [run, sentence, 10]; as many runs each. A sum of BLEU over
    the conditions of a side, a run of each, is compared as the BLEU of one run; each contrast by itself, since sums
    vary more than single runs.
    """
    pairs = []
    for number, sides in enumerate(named.values()):
        sums = [np.sum([bleu_of(counts[each].sum(axis=1)) for each in side], axis=0) for side in sides]
        draws = [np.sum([bootstrapped_bleu(counts[each], RESAMPLES) for each in side], axis=0) for side in sides]
        runs, sentences = counts[sides[0][0]].shape[:2]
        sampling = interaction(np.concatenate(draws, axis=1), [0] * runs + [1] * runs, sentences)
        compared = compare([each.tolist() for each in sums], sampling)
        pairs += [replace(pair, first=2 * number, second=2 * number + 1) for pair in compared.differences]
    places = {name: (2 * number, 2 * number + 1) for number, name in enumerate(named)}
    return planned(replace(compared, differences=tuple(pairs)), places)
