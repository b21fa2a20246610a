"""Significance of a difference between systems: paired bootstrap over the sentences of a test set (Koehn 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.significance import PairedTest, Result

from headcount.evaluation.metrics import METRICS, composed


@dataclass(frozen=True)
class BootstrapResult:
    """A system's score in a paired bootstrap: mean and half-width of the 95 % interval over resamples, and the p-value
    of its difference from the first system (None for the first itself)."""

    score: float
    mean: float
    interval: float
    p_value: float | None


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], tokenizer: str, lowercase: bool = False
) -> tuple[dict[str, dict[str, BootstrapResult]], dict[str, str]]:
    """Paired bootstrap of each system against the first, with 1,000 resamples: comparisons by system and metric, and
    the signature of each metric. Both sides in NFC. The arguments are those of `metrics.score`."""
    metrics = {key: metric.build(tokenizer, lowercase) for key, metric in METRICS.items()}
    test = PairedTest(
        [(name, composed(lines)) for name, lines in systems.items()],
        metrics=metrics,
        references=[composed(references)],
        test_type="bs",
        n_samples=1000,
    )
    signatures, table = test()
    comparisons: dict[str, dict[str, BootstrapResult]] = {name: {} for name in systems}
    # sacrebleu names its results itself, such as chrF2, in the order of the metrics.
    labels = dict(zip(metrics, signatures, strict=True))
    for key, label in labels.items():
        results = [result for result in table[label] if isinstance(result, Result)]
        for name, result in zip(systems, results, strict=True):
            # sacrebleu counts the resamples beyond the observed difference, so a difference of 0 would be significant.
            p_value = 1.0 if result.p_value is not None and result.score == results[0].score else result.p_value
            comparisons[name][key] = BootstrapResult(
                result.score, float(result.mean or 0.0), float(result.ci or 0.0), p_value
            )
    return comparisons, {key: str(signatures[label]) for key, label in labels.items()}
