"""False alarms of reports on studies made of kept translations: the generator shares nothing with the analysis.

    PYTHONPATH=scripts python tests/resampled.py [STUDIES]

writes docs/results/false_alarms.csv.

A row mixes two kept models, with a share of the better one that gives all rows the same BLEU over all sentences. A run
of it takes each sentence from one of the two at random, by a share that deviates from the row's as its seed has it. The
sentences of a study are drawn with replacement. So no row differs, and rows differ in what they do to each sentence as
models with other heads do.
"""

import functools
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import brentq
from simulation import analyse

from headcount.run.kept import Runs, read
from headcount.statistics.bootstrap import COUNTS, bleu_of, resamples, sentence_counts
from headcount.statistics.comparison import Comparison, compare
from headcount.statistics.planned import by_one_variance
from headcount.statistics.planning import percent

RESULTS = Path(__file__).parent.parent / "docs" / "results"
WEAK = "heads_fixed_size_grammar", {"model.num_heads": "1"}
FEW = [("heads_fixed_size_grammar", {"model.num_heads": heads}) for heads in ("2", "4", "8")]
FEW += [("heads_fixed_parameters_grammar", {"model.num_heads": "4"})]
WIDE = [
    ("heads_by_width_grammar", {"model.d_model": width, "model.num_heads": heads})
    for width, heads in itertools.product(("128", "256"), ("1", "2", "4", "8", "16"))
]
MANY = [*FEW, *WIDE, ("kv_heads_grammar", {"model.kv_heads": "4"})]
UNEQUAL = (1.0, 1.0, 1.0, 3.0)
DESIGNS = {  # rows, seeds, corpus for each seed, deviations of rows
    "4 conditions, 5 seeds, one corpus": (FEW, 5, False, (1.0,) * 4),
    "4 conditions, 5 seeds, one corpus, the last three times as far apart": (FEW, 5, False, UNEQUAL),
    "4 conditions, 5 seeds, a corpus for each": (FEW, 5, True, (1.0,) * 4),
    "4 conditions, 5 seeds, a corpus for each, the last three times as far apart": (FEW, 5, True, UNEQUAL),
    "15 conditions, 3 seeds, a corpus for each": (MANY, 3, True, (1.0,) * 15),
    "15 conditions, 3 seeds, a corpus for each, five twice as far apart": (MANY, 3, True, (1.0,) * 10 + (2.0,) * 5),
}


def counted(study: str, settings: dict[str, str], seed: int, sentences: int | None) -> np.ndarray:
    """N-gram counts of the test sentences of one kept run."""
    runs = [files for run, files in kept(study).items() if run.endswith(f"seed={seed}")]
    references = next(files["test.ref.de"] for files in runs if "test.ref.de" in files)
    for files in runs:
        model = yaml.safe_load(files["config.yaml"])["model"]
        if all(str(model.get(name.removeprefix("model."))) == value for name, value in settings.items()):
            texts = (text.removesuffix("\n").split("\n")[:sentences] for text in (files["test.hyp.de"], references))
            return sentence_counts(*texts, "13a")
    raise FileNotFoundError(f"{study}: no run with {settings}, seed {seed}")


@functools.cache
def kept(study: str) -> Runs:
    """The files of the kept runs of a study."""
    return read(RESULTS / study / "runs.parquet")


class Rows:
    """Rows without a difference. counts: of each model, [corpus, sentence, count], the weak one the last."""

    def __init__(self, models: Sequence[tuple[str, dict[str, str]]], corpora: int, sentences: int | None = None):
        of = [[counted(*model, seed, sentences) for seed in range(1, corpora + 1)] for model in (*models, WEAK)]
        self.counts = np.array(of)
        *strong, weak = self.counts
        target = min(self._bleu(model, weak, 1.0) for model in strong) - 0.5
        self.shares = [brentq(lambda share, own=model: self._bleu(own, weak, share) - target, 0, 1) for model in strong]
        self.slopes = [
            (self._bleu(model, weak, share) - self._bleu(model, weak, share - 0.05)) / 0.05
            for model, share in zip(strong, self.shares, strict=True)
        ]

    @staticmethod
    def _bleu(strong: np.ndarray, weak: np.ndarray, share: float) -> float:
        """The mean over corpora of the BLEU of a mixture."""
        return float(np.mean(bleu_of((share * strong + (1 - share) * weak).sum(axis=1))))

    def study(self, seeds: int, blocks: bool, deviations: Sequence[float], weights, rng) -> Comparison:
        """The analysis of one study. deviations: of the runs of each row, in BLEU."""
        corpora, sentences = self.counts.shape[1:3]
        drawn = rng.integers(sentences, size=(seeds, sentences))
        which = rng.integers(corpora, size=seeds)
        if not blocks:
            drawn, which = np.tile(drawn[0], (seeds, 1)), np.zeros(seeds, int)
        runs = np.empty((len(self.shares), seeds, sentences, COUNTS))
        for row, seed in np.ndindex(*runs.shape[:2]):
            share = self.shares[row] + deviations[row] * rng.standard_normal() / self.slopes[row]
            own = np.where(rng.random(sentences) < share, row, len(self.counts) - 1)
            runs[row, seed] = self.counts[own, which[seed], drawn[seed]]
        if blocks:
            return compare(bleu_of(runs.sum(axis=2)).tolist(), blocks=True)
        return analyse(runs.reshape(-1, sentences, COUNTS), len(runs), weights)


def studies(design: str, number: int, sentences: int | None = None, deviation: float = 0.4) -> list[Comparison]:
    """The analyses of simulated studies."""
    models, seeds, blocks, unlike = DESIGNS[design]
    rows, rng = Rows(models, seeds if blocks else 1, sentences), np.random.default_rng(1)
    weights = resamples(rows.counts.shape[2], 300, 1)
    return [rows.study(seeds, blocks, [deviation * each for each in unlike], weights, rng) for _ in range(number)]


def seeds_alone(comparison: Comparison) -> Comparison:
    """By one variance, as if the sentences were all that there are."""
    return by_one_variance(replace(comparison, interaction=None))


def alarms(found: Sequence[Comparison]) -> list[bool]:
    """Whether each study has a pair that differs."""
    return [any(pair.differs for pair in each.differences) for each in found]


if __name__ == "__main__":
    table = []
    for name in DESIGNS:
        own = studies(name, int(sys.argv[1]) if len(sys.argv) > 1 else 500)
        ways = (own, map(by_one_variance, own), map(seeds_alone, own))
        table.append([name, *(percent(alarms([*way])) for way in ways), percent([each.spread.alike for each in own])])
    headers = ["design", "false alarms %", "by one variance", "and seeds alone", "share a variance %"]
    pd.DataFrame(table, columns=headers).to_csv(RESULTS / "false_alarms.csv", index=False)
