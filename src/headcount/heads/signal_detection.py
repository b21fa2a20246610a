"""Signal detection: does a head carry the cue, or does it lean towards one answer?

Both translations of a pair are scored with the sentence, whose right translation is the first, and with its twin, whose
right translation is the second. The answer "first" is a hit with the sentence and a false alarm with the twin. Without
a head that carries the cue the two rates approach each other; without one that leans, both rise or fall. Green and
Swets 1966, "Signal detection theory and psychophysics".
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from headcount.statistics.bootstrap import Floats


def sensitivity(arrays: Mapping[str, NDArray]) -> tuple[list[str], dict[str, Floats]]:
    """Phenomena, and d_prime and criterion [setting, phenomenon] of the whole model and without each head, from the
    arrays of `ablation`; of the pairs that have a twin.

    d_prime = z(hits) - z(alarms), 0 at chance; criterion = -(z(hits) + z(alarms)) / 2, above 0 where the second
    translation is preferred whatever the source. The sign of its log-odds decides a pair, under zero ablation. Rates
    have half a pair added to each answer, so that they are never 0 or 1: Hautus 1995, "Corrections for extreme
    proportions".
    """
    known = np.isfinite(arrays["zero.twin_right"]).all(axis=0)
    phenomena = np.unique(arrays["phenomenon"][known])
    inside = ((arrays["phenomenon"] == phenomena[:, None]) & known).astype(int)  # [phenomenon, pair]
    pairs = inside.sum(axis=1) + 1
    hits, alarms = (
        norm.ppf(((arrays[f"zero.{side}right"] > arrays[f"zero.{side}wrong"]) @ inside.T + 0.5) / pairs)
        for side in ("", "twin_")
    )
    return phenomena.tolist(), {"d_prime": hits - alarms, "criterion": -(hits + alarms) / 2}
