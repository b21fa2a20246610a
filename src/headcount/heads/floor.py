"""The floor of contrastive pairs: how often the right translation is more probable to a model without the source.

Where a model of the target alone is nearly always right, the pairs do not test translation, and nothing about the
source or about cross-attention follows from the effects of heads on them.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.likelihood import Progress
from headcount.run.contrasts import DECIDES, HIDDEN, MARK, TRIGRAM, accuracy, contrast_scores, trigrams


@part(
    "floor",
    "contrastive pairs without their source",
    lacks=lambda analysis: None if len(analysis.test.tested) else "needs contrastive pairs; give a file as contrasts=",
)
def floor(analysis: Analysis, progress: Progress) -> Arrays:
    """The log-probabilities of `contrast_scores` for the test pairs, [pair]; also row, phenomenon and grade of each."""
    test, trigram = analysis.test, trigrams(analysis.run, analysis.splits["train"]["target"])
    return {**contrast_scores(analysis.run, test.rows.select(test.tested), trigram), **test.labels}


def floors(arrays: Arrays) -> Iterator[tuple[str, str, float]]:
    """The model without the source, the phenomenon, and its accuracy in percent."""
    for name in np.unique(arrays["phenomenon"]).tolist():
        for model in (TRIGRAM, HIDDEN):
            yield model, name, accuracy(arrays, arrays["phenomenon"] == name, f"{model}.")


def decided(table: pd.DataFrame) -> Mapping[str, str]:
    """The phenomena that the target alone decides, with the mark that pages give them, from the table of heads.csv: a
    floor, over seeds its mean, is above `DECIDES`."""
    own = table[table["endpoint"].str.startswith("floor.")]
    largest = own.groupby(["column", "endpoint"])["estimate"].mean().groupby("column").max()
    return {name: f"{name}{MARK}" for name, value in largest.items() if value > DECIDES}
