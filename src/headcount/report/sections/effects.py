"""Main effect of each setting: its values compared, averaged over the values of all other settings (Fisher 1935)."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from headcount.report.endpoint import compared
from headcount.report.page import Section, markdown_table
from headcount.report.runs import Row
from headcount.report.study import Study
from headcount.report.verdicts import of_difference, p_value, pair_verdict
from headcount.settings import typed
from headcount.statistics.comparison import ERROR, Comparison, Difference

Levels = Mapping[str, Mapping[str, Sequence[int]]]  # of each setting, the rows of each of its values


def effects(study: Study) -> Section | None:
    """None unless the rows are all combinations of two settings or more, with the same seeds, two at least."""
    levels = crossed_settings(study.rows)
    if levels is None:
        return None
    cells = [
        _cells(study, name, list(rows), list(rows.values()), difference)
        for name, rows in levels.items()
        for difference in main_effects(study, list(rows.values()), ERROR / len(levels)).differences
    ]
    seeds = "seeds, each with a corpus of its own" if study.sweep.blocks else "seeds and sentences"
    text = (
        f"Two values of a setting by {study.endpoint.name}, each averaged over all conditions that have it. The last "
        "column has the differences of single conditions with the same other settings: where these lie far apart, the "
        f"effect may depend on the other settings. Intervals are over {seeds}, for all lines at once (Bonferroni)."
    )
    headers = ("setting", "values", "verdict", "difference", "95 % interval", "p", "between single conditions")
    return Section("Effect of each setting", (text, markdown_table(headers, cells, words=(0, 1, 2))))


def crossed_settings(rows: Sequence[Row]) -> Levels | None:
    """The rows of each value of each setting that has several; None unless the rows are all combinations of two such
    settings or more, each once, with the same seeds, two at least."""
    table = pd.DataFrame([{name: typed(value) for name, value in row.settings.items()} for row in rows])
    seeds = {tuple(run.seed for run in row.runs) for row in rows}
    if len(seeds) != 1 or len(rows[0].runs) < 2 or table.isna().any(axis=None):
        return None
    varying = [name for name in table if table[name].nunique() > 1]
    levels = {name: {value: own.index.tolist() for value, own in table.groupby(name, sort=False)} for name in varying}
    combinations = len(table[varying].drop_duplicates()) if len(varying) > 1 else 0
    return levels if combinations == len(rows) == math.prod(map(len, levels.values())) else None


def main_effects(study: Study, levels: Sequence[Sequence[int]], error: float) -> Comparison:
    """The values of a setting compared as rows are, where the score of a seed is the mean over the rows of a value."""
    endpoint, known = study.endpoint, study.endpoint.resampled
    scores = [np.mean([endpoint.scores[row] for row in rows], axis=0).tolist() for rows in levels]
    resampled = [np.mean([known[row] for row in rows], axis=0) for rows in levels] if known else ()
    return compared(study.sweep, scores, resampled, endpoint.sentences, error)


def _cells(
    study: Study, name: str, values: Sequence[str], levels: Sequence[Sequence[int]], difference: Difference
) -> tuple[str, ...]:
    first, second = difference.first, difference.second
    means, others = study.endpoint.comparison.means, [{**row.settings, name: None} for row in study.rows]
    pairs = itertools.product(levels[first], levels[second])
    single = [means[row] - means[match] for row, match in pairs if others[row] == others[match]]
    return (
        re.split(r"[./]", name)[-1],
        f"{values[first]} − {values[second]}",
        pair_verdict(difference, values, study.margins.bleu),
        f"{difference.value:+z.2f}",
        of_difference(difference),
        p_value(difference.p),
        f"{min(single):+z.2f} to {max(single):+z.2f}",
    )
