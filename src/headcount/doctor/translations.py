"""Checks of the translations of a run, and of how they were scored."""

from collections import Counter
from collections.abc import Callable, Sequence

from headcount.doctor.check import Measured, least, most, share
from headcount.doctor.evidence import Evidence
from headcount.doctor.texts import folded, loops, words
from headcount.errors import InputError
from headcount.evaluation.metrics import PRIMARY, counts_sentences, score, tokenizer_of
from headcount.run.values import at


def too_short(evidence: Evidence) -> Measured | None:
    return least(_length_ratios(evidence))


def too_long(evidence: Evidence) -> Measured | None:
    return most(_length_ratios(evidence))


def _length_ratios(evidence: Evidence) -> dict[str, float]:
    ratios = {split: at(evidence.metrics, f"{split}.length_ratio") for split in evidence.translations}
    return {split: ratio for split, ratio in ratios.items() if isinstance(ratio, float)}


def one_translation(evidence: Evidence) -> Measured | None:
    """The most frequent translation, less the share of the most frequent reference."""
    return _beyond_references(evidence, lambda texts: Counter(texts).most_common(1)[0][1] / len(texts))


def endless(evidence: Evidence) -> Measured | None:
    """Translations that repeat a phrase three times in a row, less such references."""
    return _beyond_references(evidence, lambda texts: share([loops(text) for text in texts]))


def _beyond_references(evidence: Evidence, measure: Callable[[Sequence[str]], float]) -> Measured | None:
    found = {split: measure(ours) - measure(theirs) for split, (ours, theirs) in evidence.translations.items()}
    return most({split: max(value, 0.0) for split, value in found.items()})


def copies(evidence: Evidence) -> Measured | None:
    """Translations that equal their source, less such references."""
    found = {}
    for split, both in evidence.translations.items() if evidence.two_languages else ():
        sources = evidence.folded[split].source if split in evidence.splits else []
        if len(sources) == len(both[0]):
            ours, theirs = (
                share([bool(s) and s == folded(t) for s, t in zip(sources, texts, strict=True)]) for texts in both
            )
            found[split] = max(ours - theirs, 0.0)
    return most(found)


def order(evidence: Evidence) -> Measured | None:
    """Words that translations share with their own reference, less those shared with its neighbours, as shares."""
    return least({split: _own(*both) for split, both in evidence.translations.items() if len(both[0]) > 2})


def _own(ours: Sequence[str], theirs: Sequence[str]) -> float:
    translated, references = ([set(words(text)) for text in texts] for texts in (ours, theirs))

    def shared(by: int) -> float:
        moved = references[by:] + references[:by]
        return sum(len(a & b) / max(len(a | b), 1) for a, b in zip(translated, moved, strict=True)) / len(moved)

    return shared(0) - max(shared(1), shared(-1))


def case(evidence: Evidence) -> Measured | None:
    """BLEU without case, less BLEU."""
    found = {}
    for split, (ours, theirs) in evidence.translations.items():
        try:
            tokenizer = tokenizer_of(str(at(evidence.metrics, f"{split}.signature.{PRIMARY}")))
            lower, cased = (score(ours, theirs, tokenizer, lowercase)[PRIMARY].value for lowercase in (True, False))
        except InputError:
            continue
        found[split] = lower - cased
    return most(found)


def tokenizer(evidence: Evidence) -> Measured | None:
    """Splits whose BLEU counts words of text that has no spaces between words, or text that is not tokenised."""
    wrong = {}
    for split, (_, references) in evidence.translations.items():
        try:
            used = tokenizer_of(str(at(evidence.metrics, f"{split}.signature.{PRIMARY}")))
            wrong[split] = float(used == "none" or counts_sentences(used, references))
        except InputError:
            continue
    return most(wrong)
