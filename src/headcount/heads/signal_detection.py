"""Signal detection: does a head carry the cue, or does it lean towards one answer?

Both translations of a pair are scored with the sentence, whose right translation is the first, and with its twin, whose
right translation is the second. The answer "first" is a hit with the sentence and a false alarm with the twin. Without
a head that carries the cue the two rates approach each other; without one that leans, both rise or fall. Green and
Swets 1966, "Signal detection theory and psychophysics".
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm


def sensitivity(arrays: Mapping[str, NDArray]) -> xr.Dataset:
    """d' and criterion of the whole model and without each head, by phenomenon, from the arrays of `ablation`; of the
    pairs that have a twin.

    d_prime [setting, phenomenon] = z(hits) - z(alarms), 0 at chance; criterion = -(z(hits) + z(alarms)) / 2, above 0
    where the second translation is preferred whatever the source. The sign of its log-odds decides a pair, under zero
    ablation. Rates have half a pair added to each answer, so that they are never 0 or 1: Hautus
    1995, "Corrections for extreme proportions". pairs [phenomenon]: their number.
    """
    known = np.isfinite(arrays["zero.twin_right"]).all(axis=0)
    phenomena = np.unique(arrays["phenomenon"][known])
    inside = ((arrays["phenomenon"] == phenomena[:, None]) & known).astype(int)  # [phenomenon, pair]
    pairs = inside.sum(axis=1)
    hits, alarms = (
        norm.ppf(((arrays[f"zero.{side}right"] > arrays[f"zero.{side}wrong"]) @ inside.T + 0.5) / (pairs + 1))
        for side in ("", "twin_")
    )
    dims = ("setting", "phenomenon")
    figures = {"d_prime": (dims, hits - alarms), "criterion": (dims, -(hits + alarms) / 2)}
    names = {"setting": ["whole", *arrays["head"].tolist()], "phenomenon": phenomena.tolist()}
    return xr.Dataset(figures, names).assign_coords(pairs=("phenomenon", pairs))
