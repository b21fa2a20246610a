"""Checks of the text: amount, duplicates, leaks, lengths, alignment, languages, encoding and case."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from headcount.data.tokenizer import normalise
from headcount.doctor.check import Measured, least, most, share
from headcount.doctor.evidence import Evidence, Pairs
from headcount.doctor.languages import own_words
from headcount.doctor.texts import BROKEN, TOKENISED, width, words

BLOCK = 200  # pairs that a correlation of lengths is computed on at least
BLOCKS = 10  # parts of a split, since files may be misaligned from some line on
SHORT = 12  # characters up to which lengths are not compared: "OK" is "In Ordnung"
UNLIKE = 3.0  # the factor by which the length ratio of an outlier differs from the median
CLEAR = 5.0  # nats by which the words of a sentence must speak for the other language


def amount(evidence: Evidence) -> Measured | None:
    """Words of the targets of train."""
    if not evidence.splits:
        return None
    counted = sum(evidence.word_counts[1].values())
    return Measured(counted * evidence.kept / max(len(evidence.splits["train"].target), 1))


def kept(evidence: Evidence) -> Measured | None:
    return Measured(evidence.kept / evidence.read) if evidence.read else None


def empty(evidence: Evidence) -> Measured | None:
    """Pairs of valid or test without text on one side; those of train are dropped."""
    return most(
        {
            split: share([not all(map(normalise, pair)) for pair in _pairs(evidence, split)])
            for split in evidence.held_out
        }
    )


def duplicates(evidence: Evidence) -> Measured | None:
    """Pairs of train that come again, but for case and punctuation."""
    if not evidence.splits:
        return None
    pairs = list(zip(*evidence.folded["train"], strict=True))
    return Measured(1 - len(set(pairs)) / max(len(pairs), 1))


def one_target(evidence: Evidence) -> Measured | None:
    """The most frequent target of train."""
    if not evidence.splits:
        return None
    targets = evidence.folded["train"].target
    return Measured(Counter(targets).most_common(1)[0][1] / len(targets))


def leaks(evidence: Evidence) -> Measured | None:
    """Sentences of valid or test of which a side is in train, but for case and punctuation."""
    if not evidence.splits:
        return None
    known = [set(side) - {""} for side in evidence.folded["train"]]
    return most(
        {
            f"{split} in train": share(
                [
                    source in known[0] or target in known[1]
                    for source, target in zip(*evidence.folded[split], strict=True)
                ]
            )
            for split in evidence.held_out
        }
    )


def copies(evidence: Evidence) -> Measured | None:
    """Targets that equal their source."""
    if not evidence.two_languages:
        return None
    return most(
        {
            split: share([bool(source) and source == target for source, target in zip(*pairs, strict=True)])
            for split, pairs in (evidence.folded if evidence.splits else {}).items()
        }
    )


def length_ratio(evidence: Evidence) -> Measured | None:
    """Median length of a target over its source in characters, or its inverse, whichever is larger."""
    medians = {
        split: float(np.exp(np.median(logs)))
        for split, pairs in evidence.splits.items()
        if len(logs := log_ratios(pairs))
    }
    return most({split: max(value, 1 / value) for split, value in medians.items()})


def outliers(evidence: Evidence) -> Measured | None:
    """Pairs whose length ratio differs much from the median of train."""
    if not evidence.splits or not len(logs := log_ratios(evidence.splits["train"])):
        return None
    middle = np.median(logs)
    return most(
        {
            split: float(np.mean(np.abs(found - middle) > np.log(UNLIKE)))
            for split, pairs in evidence.splits.items()
            if len(found := log_ratios(pairs))
        }
    )


def log_ratios(pairs: Pairs) -> np.ndarray:
    """log(target / source) of the lengths in characters, of the pairs that are not short."""
    source, target = _lengths(pairs)
    far = (np.minimum(source, target) > 1) & (np.maximum(source, target) > SHORT + 1)
    ratios: np.ndarray = np.log(target[far] / source[far])
    return ratios


def alignment(evidence: Evidence) -> Measured | None:
    """Correlation of the lengths of sources and targets, in the worst part of the text; of misaligned text it is 0."""
    found: dict[str, float] = {}
    for split, pairs in evidence.splits.items():
        lengths = np.log(_lengths(pairs))
        parts = min(BLOCKS, lengths.shape[1] // BLOCK)
        for part in np.array_split(lengths, parts, axis=1) if parts else []:
            if part.std(axis=1).min() > 0:
                found[split] = min(found.get(split, 1.0), float(np.corrcoef(part)[0, 1]))
    return least(found)


def _lengths(pairs: Pairs) -> np.ndarray:
    """Characters and one, [side, pair]; those of a script without spaces count twice, as in cleaning."""
    return np.array([[width(text) + 1 for text in side] for side in pairs], dtype=np.float64)


def languages(evidence: Evidence) -> Measured | None:
    """Of the common words of both languages, those of the side's own, in the worst side of a split."""
    found: dict[str, float] = {}
    for split, pairs in evidence.splits.items() if evidence.two_languages else ():
        for side, texts, codes in zip(
            Pairs._fields, pairs, (evidence.languages, evidence.languages[::-1]), strict=True
        ):
            own = own_words(texts, *codes)
            if own is not None:
                found[f"{side} of {split}"] = own
    return least(found)


def mixed(evidence: Evidence) -> Measured | None:
    """Pairs with a side that has the words of the other side of train."""
    if not evidence.splits or not evidence.two_languages:
        return None
    lean = _leaning(evidence)
    return most(
        {
            split: share([lean(source) > CLEAR or lean(target) < -CLEAR for source, target in zip(*pairs, strict=True)])
            for split, pairs in evidence.splits.items()
        }
    )


def _leaning(evidence: Evidence) -> Callable[[str], float]:
    """How much more probable the words of a text are as a target of train than as a source, in nats. Words that train
    has fewer than five times, such as names, count for neither."""
    source, target = evidence.word_counts
    total = np.log(max(sum(target.values()), 1)) - np.log(max(sum(source.values()), 1))
    known = {word for word, count in (source + target).items() if count >= 5}
    leans = {word: float(np.log((target[word] + 0.5) / (source[word] + 0.5)) - total) for word in known}
    return lambda text: sum(leans.get(word, 0.0) for word in words(text))


def encoding(evidence: Evidence) -> Measured | None:
    """Pairs with characters that a wrong decoding leaves, or with HTML entities."""
    return most(
        {split: share([any(map(BROKEN.search, pair)) for pair in _pairs(evidence, split)]) for split in evidence.splits}
    )


def tokenised(evidence: Evidence) -> Measured | None:
    """Sentences with a space before a full stop or comma, or with marks of a tokenizer."""
    return most(
        {
            f"{side} of {split}": share([TOKENISED.search(text) is not None for text in texts])
            for split, pairs in evidence.splits.items()
            for side, texts in zip(Pairs._fields, pairs, strict=True)
        }
    )


def case(evidence: Evidence) -> Measured | None:
    """Difference of valid or test to train in the share of sentences that have a capital."""
    shares = {
        (split, side): share([text != text.lower() for text in texts])
        for split, pairs in evidence.splits.items()
        for side, texts in zip(Pairs._fields, pairs, strict=True)
    }
    return most(
        {
            f"{side} of {split}": abs(value - shares["train", side])
            for (split, side), value in shares.items()
            if split != "train"
        }
    )


def _pairs(evidence: Evidence, split: str) -> zip:
    return zip(*evidence.splits[split], strict=True)
