"""Twelve causes of a low score: each check gives a figure, its limit and what to do."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import regex
from tabulate import tabulate

from headcount.data.cleaning import WIDE
from headcount.data.tokenizer import normalise
from headcount.doctor.evidence import Evidence, Pairs
from headcount.evaluation.metrics import PRIMARY, counts_sentences, tokenizer_of
from headcount.settings import at

# UTF-8 that was read as Latin-1 or Windows-1252 ("Ã¤", "â€™", "Ð¿"); replaced and control characters; HTML entities.
BROKEN = regex.compile(r"[ÂÃÐÑ][\x80-\xbfŒ-ƒˆ˜–-›€™]|â€|\ufffd|&([a-z]{2,8}|#\d{1,6});|[\x00-\x08\x0e-\x1b\x7f-\x9f]")
FUNCTION_WORDS = {  # that every text of the language has; a word of two languages counts for neither
    "en": "a the of and to in is that it was for on are with as at by from this an be have not i do no they his her",
    "de": "der die das und in zu den ist ein eine einen einem mit auf von im nicht sich für dem es auch an des sie er",
    "fr": "le la les de des et un une du en est que qui dans pour sur pas il elle au aux avec ce ne se son sa sont par",
}

Figures = Mapping[str, float]  # by split, "" for a run as a whole; empty where there is no evidence


class Finding(NamedTuple):
    """The worst figure of a check. warning: whether it is beyond the limit. todo: what to do about that."""

    name: str
    measured: str
    allowed: str
    warning: bool
    todo: str


def shares(wrong: Callable[[str, str], bool], splits: Mapping[str, Pairs]) -> Figures:
    """Of the pairs of each split, the share that is wrong."""
    return {split: fmean(map(wrong, *pairs)) for split, pairs in splits.items()}


def leaks(evidence: Evidence) -> Figures:
    """Sentences of valid or test with a side in train, but for case and punctuation. 1 % adds 0.6 BLEU to 40."""
    source, target = (set(side) - {""} for side in evidence.folded.get("train", ((), ())))
    held_out = {split: pairs for split, pairs in evidence.folded.items() if split != "train"}
    return shares(lambda one, other: one in source or other in target, held_out)


def alignment(evidence: Evidence) -> Figures:
    """Correlation of the log lengths of both sides, in the worst part of a split: about 0 if shifted by a line."""
    found: dict[str, float] = {}
    for split, pairs in evidence.splits.items():
        lengths = np.log1p([[width(text) for text in side] for side in pairs])
        if parts := min(10, len(pairs.source) // 200):  # files may be shifted from some line on
            each = (np.corrcoef(part)[0, 1] for part in np.array_split(lengths, parts, axis=1))
            found[split] = float(min(each))
    return found


def length_ratio(evidence: Evidence) -> Figures:
    """Characters of the longer side of a split over those of the other."""
    sizes = {split: [1 + sum(map(width, side)) for side in pairs] for split, pairs in evidence.splits.items()}
    return {split: max(both) / min(both) for split, both in sizes.items()}


def width(text: str) -> int:
    """Characters of a text; those of Chinese, Japanese and Korean count twice."""
    return len(text) if text.isascii() else len(text) + len(regex.findall(WIDE, text))


def swapped(evidence: Evidence) -> Figures:
    """Of the function words of both languages, the share on the side of its own: about 0 if swapped."""
    source, target = (set(FUNCTION_WORDS.get(code.lower()[:2], "").split()) for code in evidence.languages)
    found = {}
    for split, pairs in evidence.splits.items() if source and target else ():
        one, other = (Counter(regex.findall(r"[\p{L}\p{M}]+", " ".join(side[:10_000]).lower())) for side in pairs)
        right = sum(one[word] for word in source - target) + sum(other[word] for word in target - source)
        wrong = sum(other[word] for word in source - target) + sum(one[word] for word in target - source)
        if right + wrong >= 20:
            found[split] = right / (right + wrong)
    return found


def encoding(evidence: Evidence) -> Figures:
    """Pairs with characters that a wrong decoding leaves, or with HTML entities."""
    return shares(lambda one, other: bool(BROKEN.search(one) or BROKEN.search(other)), evidence.splits)


def copies(evidence: Evidence) -> Figures:
    """Targets that equal their source, but for case and punctuation; 1 % makes wide beams copy (Ott et al. 2018)."""
    return shares(lambda one, other: one == other != "", evidence.folded if len(set(evidence.languages)) == 2 else {})


def empty(evidence: Evidence) -> Figures:
    """Lines without text in the splits, and among the translations of a run."""
    texts = {f"translations of {split}": pairs for split, pairs in evidence.translations.items()}
    return shares(lambda one, other: not (normalise(one) and normalise(other)), texts | dict(evidence.splits))


def use_of_source(evidence: Evidence) -> Figures:
    """Loss on valid with the sources of other sentences, less the loss with their own: 0 if sources are ignored."""
    sources, targets = (side[:200] for side in evidence.splits.get("valid", Pairs([], [])))
    if evidence.loss is None or len(sources) < 2:
        return {}
    half = len(sources) // 2
    return {"": evidence.loss(sources[half:] + sources[:half], targets) - evidence.loss(sources, targets)}


def still_falling(evidence: Evidence) -> Figures:
    """Fall of the validation loss over the second half of the training; nine of ten runs in docs/results have less."""
    curve = evidence.curves.get("valid/loss", ())
    earlier = [loss for step, loss in curve if step <= curve[-1][0] / 2]
    return {"": earlier[-1] - curve[-1][1]} if earlier else {}


def rising_again(evidence: Evidence) -> Figures:
    """The validation loss of the scored weights, less the lowest of the training; 0 where BLEU is at its best."""
    losses, scores = ([value for _, value in evidence.curves.get(name, ())] for name in ("valid/loss", "valid/bleu"))
    scored = at(evidence.metrics, "valid.loss")
    if not isinstance(scored, float) or not losses:
        return {}
    return {"": 0.0 if scores and scores[-1] >= max(scores) - 0.5 else scored - min(losses)}


def short_translations(evidence: Evidence) -> Figures:
    """Words of the translations over those of the references: at 0.9 the brevity penalty takes a tenth of BLEU."""
    ratios = {split: at(evidence.metrics, f"{split}.length_ratio") for split in evidence.translations}
    return {split: ratio for split, ratio in ratios.items() if isinstance(ratio, float)}


def tokenizer_unfit(evidence: Evidence) -> Figures:
    """Splits whose BLEU counts words of text without spaces between words, or of text that is not tokenised."""
    unfit = []
    for split, (_, references) in evidence.translations.items():
        if (signature := at(evidence.metrics, f"{split}.signature.{PRIMARY}")) is not None:
            used = tokenizer_of(str(signature))
            unfit.append(used == "none" or counts_sentences(used, references))
    return {"": sum(unfit)} if unfit else {}


CHECKS: list[tuple[Callable[[Evidence], Figures], Any, float, str, str, str]] = [  # ..., limit, unit, name, what to do
    (leaks, max, 0.01, "%", "held-out text in train", "remove it from train: data.cleaning.drop_leaks"),
    (alignment, min, 0.4, "", "lengths correlate", "line n does not translate line n: compare the files"),
    (length_ratio, max, 2.0, "times", "length of one side to the other", "check that the files are of one text"),
    (swapped, min, 0.8, "%", "words of the right language", "exchange data.source and data.target, or the files"),
    (encoding, max, 0.005, "%", "broken characters", "decode the original as UTF-8, unescape HTML entities"),
    (copies, max, 0.01, "%", "targets that copy", "remove these pairs, or translate them"),
    (empty, max, 0.01, "%", "empty lines", "remove empty pairs; for translations, train longer"),
    (use_of_source, min, 0.5, "nats", "use of the source", "train longer, or try another seed or optimizer.lr"),
    (still_falling, max, 0.5, "nats", "loss still falling", "train longer: resume=RUN steps=..."),
    (rising_again, max, 0.1, "nats", "loss rising again", "averaging.kind=best, or raise model.dropout"),
    (short_translations, min, 0.9, "times", "length of translations", "raise search.alpha; look for cut targets"),
    (tokenizer_unfit, max, 0, "splits", "tokenizer of BLEU unfit", "evaluate bleu_tokenizer=char (Chinese: zh)"),
]


def diagnose(evidence: Evidence) -> list[Finding]:
    """The findings of all checks that have evidence: the worst figure of each."""
    findings = []
    for measure, worst, limit, unit, name, todo in CHECKS:
        if figures := measure(evidence):
            split = next(
                (each for each in figures if math.isnan(figures[each])), worst(figures, key=figures.__getitem__)
            )
            measured = shown(figures[split], unit) + (f" ({split})" if split else "")
            allowed = f"at {'most' if worst is max else 'least'} {shown(limit, unit)}"
            beyond = worst(figures[split], limit) != limit  # NaN is
            findings.append(Finding(name, measured, allowed, beyond, todo))
    return findings


def shown(value: float, unit: str) -> str:
    """A figure; a share, whose unit is %, in percent."""
    return f"{100 * value if unit == '%' else value:.3g} {unit}".strip()


def report(evidence: Evidence, findings: list[Finding], name: str) -> str:
    """A line for each finding, what to do for each warning, and a summary."""
    sizes = "".join(f"; {len(pairs.source):,} pairs of {split}" for split, pairs in evidence.splits.items())
    rows = [[each.name, each.measured, each.allowed, "warning" if each.warning else "OK"] for each in findings]
    table = tabulate(rows, headers=["check", "measured", "allowed", "verdict"], disable_numparse=True)
    todo = [f"{each.name}, {each.measured}: {each.todo}" for each in findings if each.warning]
    summary = f"{len(CHECKS)} checks, {len(CHECKS) - len(findings)} not measured; warnings: {len(todo)}"
    return (
        "\n\n".join([f"{name}: {' to '.join(evidence.languages)}{sizes}", table, *evidence.notes, *todo, summary])
        + "\n"
    )
