"""Significance of a difference between systems: paired bootstrap over the sentences of a test set (Koehn 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.significance import PairedTest, Result

from headcount.evaluation.metrics import METRICS, composed


@dataclass(frozen=True)
class Comparison:
    """A system's score in a paired bootstrap: mean and half-width of the 95 % interval over resamples, and the p-value
    of its difference from the first system (None for the first itself)."""

    score: float
    mean: float
    interval: float
    p_value: float | None


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], tokenizer: str, lowercase: bool = False
) -> tuple[dict[str, dict[str, Comparison]], dict[str, str]]:
    """Paired bootstrap (Koehn 2004; 1,000 resamples) of each system against the first: comparisons by system and
    metric, and the signature of each metric. Both sides are taken in NFC. tokenizer: as for `score`."""
    metrics = {name: kind.build(tokenizer, lowercase) for name, kind in METRICS.items()}
    test = PairedTest(
        [(name, composed(lines)) for name, lines in systems.items()],
        metrics=metrics,
        references=[composed(references)],
        test_type="bs",
        n_samples=1000,
    )
    signatures, table = test()
    comparisons: dict[str, dict[str, Comparison]] = {name: {} for name in systems}
    # sacrebleu labels what it found by names of its own, such as chrF2, in the order of the metrics it was given.
    labels = dict(zip(metrics, signatures, strict=True))
    for metric, label in labels.items():
        results = [result for result in table[label] if isinstance(result, Result)]
        for name, result in zip(systems, results, strict=True):
            # sacrebleu counts resamples beyond the difference seen, so that it finds no difference significant.
            p_value = 1.0 if result.p_value is not None and result.score == results[0].score else result.p_value
            comparisons[name][metric] = Comparison(
                result.score, float(result.mean or 0.0), float(result.ci or 0.0), p_value
            )
    return comparisons, {metric: str(signatures[label]) for metric, label in labels.items()}
