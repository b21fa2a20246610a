"""BLEU and chrF by sacrebleu: no score without its signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result


@dataclass(frozen=True)
class Score:
    """A figure, and the signature that says how it was measured."""

    value: float
    signature: str


def _metrics(lowercase: bool) -> dict[str, BLEU | CHRF]:
    return {"bleu": BLEU(lowercase=lowercase), "chrf": CHRF(lowercase=lowercase)}


def score(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> dict[str, Score]:
    """Corpus BLEU (Papineni et al. 2002; 13a tokens) and chrF2 (Popovic 2015), 0 to 100, of one reference a line."""
    scores = {}
    for name, metric in _metrics(lowercase).items():
        figure = metric.corpus_score(list(hypotheses), [list(references)])
        scores[name] = Score(figure.score, str(metric.get_signature()))
    return scores


@dataclass(frozen=True)
class Comparison:
    """A system's score in a paired bootstrap: mean and half-width of the 95 % interval over resamples, and the p-value
    of its difference from the first system (None for the first itself)."""

    score: float
    mean: float
    interval: float
    p_value: float | None


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], lowercase: bool = False
) -> tuple[dict[str, dict[str, Comparison]], dict[str, str]]:
    """Paired bootstrap (Koehn 2004; 1,000 resamples) of each system against the first: comparisons by system and
    metric, and the signature of each metric."""
    test = PairedTest(
        [(name, list(lines)) for name, lines in systems.items()],
        metrics=_metrics(lowercase),
        references=[list(references)],
        test_type="bs",
        n_samples=1000,
    )
    signatures, table = test()
    comparisons: dict[str, dict[str, Comparison]] = {name: {} for name in systems}
    for metric, column in table.items():
        results = [result for result in column if isinstance(result, Result)]
        for name, result in zip(systems if results else (), results, strict=True):  # one column holds only names
            # sacrebleu counts resamples beyond the difference seen, so that it finds no difference significant.
            p_value = 1.0 if result.p_value is not None and result.score == results[0].score else result.p_value
            comparisons[name][_key(metric)] = Comparison(
                result.score, float(result.mean or 0.0), float(result.ci or 0.0), p_value
            )
    return comparisons, {_key(metric): str(signature) for metric, signature in signatures.items()}


def _key(metric: str) -> str:
    return "bleu" if metric.upper().startswith("BLEU") else "chrf"
