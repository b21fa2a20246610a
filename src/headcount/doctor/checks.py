"""Twelve causes of a low score: each check gives a figure, its limit and what to do."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
import regex
from tabulate import tabulate

from headcount.data.cleaning import WIDE
from headcount.data.tokenizer import normalise
from headcount.doctor.evidence import Evidence, Pairs
from headcount.errors import InputError
from headcount.evaluation.metrics import PRIMARY, counts_sentences, tokenizer_of
from headcount.settings import at

BLOCKS, BLOCK = 10, 200  # most parts of a split, and least pairs of a part: files may be shifted from some line on
WORD = regex.compile(rf"{WIDE}|[\p{{L}}\p{{M}}]+")
# UTF-8 that was read as Latin-1 or Windows-1252 ("Ã¤", "â€™", "Ð¿"); replaced and control characters; HTML entities.
SECOND_BYTES = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
BROKEN = regex.compile(rf"[ÂÃÐÑ][{SECOND_BYTES}]|â€|\ufffd|&(?:[a-z]{{2,8}}|#\d{{1,6}});|[\x00-\x08\x0e-\x1b\x7f-\x9f]")
FUNCTION_WORDS = {  # that every text of the language has; those that two languages share count for neither
    "en": "a the of and to in is that it was for on are with as at by from this an be have not i do no they his her",
    "de": "der die das und in zu den ist ein eine einen einem mit auf von im nicht sich für dem es auch an des sie er",
    "fr": "le la les de des et un une du en est que qui dans pour sur pas il elle au aux avec ce ne se son sa sont par",
    "es": "el la los las de y en que un una por con para del se no es al su lo como más pero está este sus le",
    "it": "il la lo gli le di e che un una in per con del della non si è al sono da nel come più ma dei alla ha",
    "pt": "o a os as de e que em um uma do da no na por com para não se é ao dos das como mais mas foi seu sua",
    "nl": "de het een en van in te dat is op voor met niet zijn aan die er ook als bij door naar om hij ze wordt",
    "cs": "a v se na je že to s z do o i ve pro jako za by ale si jsou po od který jeho který jak bylo při muž",
    "ru": "и в не на что я он с как это по но к из у за от его для она так же бы был то мы",
    "zh": "的 是 在 不 了 一 有 人 我",
}

Figures = Mapping[str, float]  # by split, "" for a run as a whole; empty where there is no evidence


@dataclass(frozen=True)
class Finding:
    """The figure of a check. where: the split that it is of. least: whether the limit is the least that is allowed, or
    the most. unit: % for a share, else the word after the number. todo: what to do about a warning."""

    name: str
    value: float
    where: str
    limit: float
    least: bool
    unit: str
    todo: str

    @property
    def warning(self) -> bool:
        """Whether the figure is beyond its limit; NaN always is."""
        return not (self.value >= self.limit if self.least else self.value <= self.limit)

    @property
    def measured(self) -> str:
        return self._shown(self.value) + (f" ({self.where})" if self.where else "")

    @property
    def allowed(self) -> str:
        return f"at {'least' if self.least else 'most'} {self._shown(self.limit)}"

    def _shown(self, value: float) -> str:
        return f"{100 * value if self.unit == '%' else value:.3g} {self.unit}".strip()


Measure = Callable[[Evidence], Figures]
Check = Callable[[Evidence], Finding | None]
CHECKS: list[Check] = []


def _check(least: bool, limit: float, unit: str, name: str, todo: str) -> Callable[[Measure], Check]:
    """Make a check of a function that measures figures: its finding is the worst of them, None of none."""

    def decorated(measure: Measure) -> Check:
        def finding(evidence: Evidence) -> Finding | None:
            figures = measure(evidence)
            if not figures:
                return None
            where = (min if least else max)(figures, key=lambda split: figures[split])
            return Finding(name, figures[where], where, limit, least, unit, todo)

        CHECKS.append(finding)
        return finding

    return decorated


at_least, at_most = partial(_check, True), partial(_check, False)


# Learned by heart, 1 % of the sentences add about 0.6 BLEU to 40. Measured: at most 0.099 %.
@at_most(0.01, "%", "held-out text in train", "remove it from train; data.cleaning.drop_leaks drops equal sentences")
def leaks(evidence: Evidence) -> Figures:
    """Sentences of valid or test of which a side is in train, but for case and punctuation."""
    source, target = (set(side) - {""} for side in evidence.folded.get("train", ((), ())))
    return {
        split: fmean(one in source or other in target for one, other in zip(*pairs, strict=True))
        for split, pairs in evidence.folded.items()
        if split != "train"
    }


# Text that is shifted by a line has about 0. Measured: at least 0.85.
@at_least(0.4, "", "lengths correlate", "line n does not translate line n; compare the files in their middle")
def alignment(evidence: Evidence) -> Figures:
    """Correlation of the log lengths of sources and targets, in the worst part of a split."""
    found: dict[str, float] = {}
    for split, pairs in evidence.splits.items():
        lengths = np.log1p([[width(text) for text in side] for side in pairs])
        parts = min(BLOCKS, lengths.shape[1] // BLOCK)
        for part in np.array_split(lengths, parts, axis=1) if parts else []:
            if part.std(axis=1).min() > 0:
                found[split] = min(found.get(split, 1.0), float(np.corrcoef(part)[0, 1]))
    return found


# Measured: at most 1.19 times.
@at_most(2.0, "times", "length of one side to the other", "check that the files or columns are of one text")
def length_ratio(evidence: Evidence) -> Figures:
    """Characters of the longer side of a split over those of the other."""
    sizes = {split: [1 + sum(map(width, side)) for side in pairs] for split, pairs in evidence.splits.items()}
    return {split: max(both) / min(both) for split, both in sizes.items()}


def width(text: str) -> int:
    """Characters of a text; those of Chinese, Japanese and Korean count twice."""
    return len(text) if text.isascii() else len(text) + len(regex.findall(WIDE, text))


# Swapped sides have about 0 %, two sides of one language 50 %. Measured: at least 98.2 %.
@at_least(0.8, "%", "words of the right language", "exchange data.source and data.target, or their files")
def swapped(evidence: Evidence) -> Figures:
    """Of the function words of both languages, the share that is on the side of its own language."""
    codes = [regex.split("[-_]", code.lower())[0] for code in evidence.languages]
    source, target = (set(FUNCTION_WORDS.get(code, "").split()) for code in codes)
    own, found = (source - target, target - source), {}
    for split, pairs in evidence.splits.items() if all(own) else ():
        right = wrong = 0
        for side, here, there in zip(pairs, own, own[::-1], strict=True):
            some = side[:: len(side) // 10_000 + 1]
            words = [word for text in some for word in WORD.findall(text.lower())]
            right += sum(word in here for word in words)
            wrong += sum(word in there for word in words)
        if right + wrong >= 20:
            found[split] = right / (right + wrong)
    return found


# Measured: at most 0.25 %, control characters in news.
@at_most(0.005, "%", "broken characters", "decode the original again, as UTF-8, and unescape HTML entities")
def encoding(evidence: Evidence) -> Figures:
    """Pairs with characters that a wrong decoding leaves, or with HTML entities."""
    pairs = {split: zip(*sides, strict=True) for split, sides in evidence.splits.items()}
    return {split: fmean(any(map(BROKEN.search, pair)) for pair in pairs[split]) for split in pairs}


# From 1 to 2 % on, wide beams copy (Ott et al. 2018). Measured: at most 0.079 %.
@at_most(0.01, "%", "targets that copy", "remove these pairs, or translate them: the model learns to copy")
def copies(evidence: Evidence) -> Figures:
    """Targets that equal their source, but for case and punctuation."""
    return {
        split: fmean(one == other != "" for one, other in zip(*pairs, strict=True))
        for split, pairs in evidence.folded.items()
        if len(set(evidence.languages)) == 2
    }


# Measured: none in corpora, at most 0.8 % of the translations of a run in docs/results.
@at_most(0.01, "%", "empty lines", "remove empty pairs; if translations are empty, train longer or narrow search.beam")
def empty(evidence: Evidence) -> Figures:
    """Lines without text in the splits, and among the translations of a run."""
    texts = {f"translations of {split}": lines for split, (lines, _) in evidence.translations.items()}
    for split, pairs in evidence.splits.items():
        texts |= {f"{side} of {split}": lines for side, lines in pairs._asdict().items()}
    return {where: fmean(not normalise(text) for text in lines) for where, lines in texts.items()}


# A model that ignores its source has 0. Measured: 5.9 nats.
@at_least(0.5, "nats", "use of the source", "train longer, or try another seed, optimizer.lr or model")
def use_of_source(evidence: Evidence) -> Figures:
    """Loss on valid with the sources of other sentences, less the loss with their own."""
    sources, targets = (side[:200] for side in evidence.splits.get("valid", Pairs([], [])))
    if evidence.loss is None or len(sources) < 2:
        return {}
    half = len(sources) // 2
    return {"": evidence.loss(sources[half:] + sources[:half], targets) - evidence.loss(sources, targets)}


# Above all but a tenth of the runs in docs/results, which were short on purpose. Measured: 0.31 nats.
@at_most(0.5, "nats", "loss still falling", "train longer: resume=RUN steps=...")
def still_falling(evidence: Evidence) -> Figures:
    """The fall of the validation loss over the second half of the training."""
    curve = evidence.curves.get("valid/loss", ())
    earlier = [loss for step, loss in curve if step <= curve[-1][0] / 2]
    return {"": earlier[-1] - curve[-1][1]} if earlier else {}


# Far above the runs in docs/results, of which none has learned train by heart: at most 0.0005 nats.
@at_most(0.1, "nats", "loss rising again", "stop earlier (averaging.kind=best), or raise model.dropout")
def rising_again(evidence: Evidence) -> Figures:
    """The validation loss of the scored weights, less the lowest of the training; 0 where BLEU is at its best."""
    losses, scores = ([value for _, value in evidence.curves.get(name, ())] for name in ("valid/loss", "valid/bleu"))
    scored = at(evidence.metrics, "valid.loss")
    if not isinstance(scored, float) or not losses:
        return {}
    return {"": 0.0 if scores and scores[-1] >= max(scores) - 0.5 else scored - min(losses)}


# At 0.9, the brevity penalty takes a tenth of BLEU: 1 - exp(1 - 1 / 0.9).
@at_least(0.9, "times", "length of translations", "raise search.alpha; look for cut targets in train")
def short_translations(evidence: Evidence) -> Figures:
    """Words of the translations over those of the references."""
    ratios = {split: at(evidence.metrics, f"{split}.length_ratio") for split in evidence.translations}
    return {split: ratio for split, ratio in ratios.items() if isinstance(ratio, float)}


# 13a takes a sentence without spaces for one word.
@at_most(
    0, "splits", "tokenizer of BLEU unfit", "evaluate bleu_tokenizer=char (Chinese: zh): it takes sentences for words"
)
def tokenizer_unfit(evidence: Evidence) -> Figures:
    """Splits whose BLEU counts words of text without spaces between words, or of text that is not tokenised."""
    unfit = []
    for split, (_, references) in evidence.translations.items():
        with suppress(InputError):  # of a tokenizer that is not here
            used = tokenizer_of(str(at(evidence.metrics, f"{split}.signature.{PRIMARY}")))
            unfit.append(used == "none" or counts_sentences(used, references))
    return {"": sum(unfit)} if unfit else {}


def diagnose(evidence: Evidence) -> list[Finding]:
    """The findings of all checks that have evidence."""
    return [finding for each in CHECKS if (finding := each(evidence)) is not None]


def report(evidence: Evidence, findings: list[Finding], name: str) -> str:
    """A line for each finding, what to do for each warning, and a summary."""
    source, target = evidence.languages
    sizes = "".join(f"; {len(pairs.source):,} pairs of {split}" for split, pairs in evidence.splits.items())
    rows = [[each.name, each.measured, each.allowed, "warning" if each.warning else "OK"] for each in findings]
    table = tabulate(rows, headers=["check", "measured", "allowed", "verdict"], disable_numparse=True)
    todo = [f"{each.name}, {each.measured}: {each.todo}" for each in findings if each.warning]
    summary = f"{len(CHECKS)} checks, {len(CHECKS) - len(findings)} not measured; warnings: {len(todo)}"
    return "\n\n".join([f"{name}: {source} to {target}{sizes}", table, *evidence.notes, *todo, summary]) + "\n"
