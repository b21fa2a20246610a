"""The corpus: splits without overlap, and the table that holds them."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from datasets import Dataset, DatasetDict, Features, Value

from headcount.errors import InputError
from headcount.grammar.phenomena import PHENOMENA, Draw, UnfitError, plain
from headcount.grammar.syntax import Rendered, render, say

GRADES = ("easy", "hard")
CELLS = tuple((phenomenon, grade) for phenomenon in PHENOMENA for grade in GRADES)
# Shares of train and valid; the phenomena and their grades divide what plain sentences leave, evenly but for two: which
# cue goes with which sense, and which noun has which gender, is learned by heart and takes more examples than a rule.
PLAIN_SHARE = 0.25
WEIGHTS = {"ambiguity": 2, "pronoun": 2}
WEIGHTED_CELLS = tuple(cell for cell in CELLS for _ in range(WEIGHTS.get(cell[0], 1)))
# Draws for one sentence before the sizes asked for count as impossible.
PATIENCE = 2_000
# Words and punctuation marks of a sentence.
LENGTHS = range(4, 33)


def words(text: str) -> list[str]:
    """Split into words and punctuation marks, which is what `alignment` and `links` count."""
    return re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text)


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of the corpus."""

    phenomenon: str
    grade: str
    sentence: Rendered
    contrast: str


class Grammar:
    """English sentences with German translations, made from the lexicon and the grammar of this package.

    `load` gives the splits train, valid and test with the columns

    - `source`, `target`: the sentence and its translation by the rules of this package: each English word has one
      German translation, but for ambiguous nouns, which another word decides; word order is fixed;
    - `phenomenon`, `grade`: what it tests and how hard that is ("easy", "hard"); "plain" sentences test nothing, are
      all "easy", and occur in train and valid only;
    - `contrast`: a wrong translation, right for another source that differs in what decides the phenomenon; empty for
      plain sentences. No English phrase of the source may belong to two verbs where the contrast hangs on it;
    - `alignment`: pairs of word indices, `links`: relations between words of the source ("subject": a verb to its
      subject; "antecedent": a pronoun, also a relative one, to what it stands for; "sense": an ambiguous noun to the
      word that decides it; "conjunction": the verb whose translation ends its clause to what introduces the clause).
      Indices count `words`.

    No pair of subject and verb or verb and object of train occurs in valid or test, all of whose words occur in train.
    """

    source_language = "en"
    target_language = "de"

    def __init__(
        self, train_size: int = 30_000, valid_size: int = 1_000, test_size: int = 2_000, seed: int = 1
    ) -> None:
        for name, size in (("train_size", train_size), ("valid_size", valid_size), ("test_size", test_size)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise InputError(f"{name}: {size!r} is not a number of sentences; give a whole number of at least 1")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InputError(f"seed: {seed!r} is not allowed; give a whole number")
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        self.seed = seed

    def fingerprint(self) -> str:
        """A short name for exactly this corpus: it changes with the sizes, the seed and the source of this package."""
        digest = hashlib.sha256(repr((self.sizes, self.seed)).encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:12]

    def load(self) -> DatasetDict:
        """Generate the splits. Raises InputError where train is too small for the others."""
        return DatasetDict({split: _table(pairs) for split, pairs in self.generate().items()})

    def generate(self) -> dict[str, list[Pair]]:
        """The splits as `Pair`s, which also know their pairs of lemmas."""
        maker = _Maker(self.seed)
        train = [maker.make(maker.mixed()) for _ in range(self.sizes["train"])]
        maker.restrict(train)
        valid = [maker.make(maker.mixed()) for _ in range(self.sizes["valid"])]
        test = [maker.make(CELLS[i % len(CELLS)], twin=bool(i // len(CELLS) % 2)) for i in range(self.sizes["test"])]
        return {"train": train, "valid": valid, "test": test}


class _Maker:
    """Draws pairs of which no two share a source or a target; after `restrict` only held-out ones of known words."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.draw = Draw(self.rng, False, seed)
        self.seen: set[str] = set()
        self.known: set[str] = set()

    def mixed(self) -> tuple[str, str]:
        """A phenomenon and grade for train or valid."""
        return ("plain", "easy") if self.draw.chance(PLAIN_SHARE) else self.draw.pick(WEIGHTED_CELLS)

    def restrict(self, train: list[Pair]) -> None:
        """From now on draw held-out pairs of lemmas, and only words of these sentences."""
        self.draw = Draw(self.rng, True, self.seed)
        for pair in train:
            self.known.update(words(pair.sentence.source), words(pair.sentence.target))

    def make(self, cell: tuple[str, str], twin: bool | None = None) -> Pair:
        """One pair of this phenomenon and grade; `twin` says which choice to take, by default either."""
        phenomenon, grade = cell
        for _ in range(PATIENCE):
            try:
                pair = self._try(phenomenon, grade, twin)
            except UnfitError:
                continue
            if pair:
                self.seen.update(("en " + pair.sentence.source, "de " + pair.sentence.target))
                return pair
        raise InputError(
            f"train_size: too small for sentences about {phenomenon} whose words all occur in train; "
            "make train_size larger (3000 is enough)"
        )

    def _try(self, phenomenon: str, grade: str, twin: bool | None) -> Pair | None:
        if phenomenon == "plain":
            parts, contrast = plain(self.draw), ""
        else:
            build = PHENOMENA[phenomenon](self.draw, grade == "hard")
            flag = self.draw.chance(0.5) if twin is None else twin
            source, target = say(build(not flag))
            contrast = target.text()
            # Both twins must be fit to stand here, or the choice between them would not be even.
            if not self._fits(source.text(), contrast, source.pairs):
                return None
            parts = build(flag)
        sentence = render(parts)
        if sentence.target == contrast or not self._fits(sentence.source, sentence.target, sentence.pairs):
            return None
        return Pair(phenomenon, grade, sentence, contrast)

    def _fits(self, source: str, target: str, pairs: Sequence[tuple[str, str, str]]) -> bool:
        if "en " + source in self.seen or "de " + target in self.seen:
            return False
        if not all(self.draw.keeps(*pair) for pair in pairs):
            return False
        found = words(source), words(target)
        if not all(len(text) in LENGTHS for text in found):
            return False
        return not self.known or self.known.issuperset(found[0] + found[1])


_FEATURES = Features(
    {
        "source": Value("string"),
        "target": Value("string"),
        "phenomenon": Value("string"),
        "grade": Value("string"),
        "contrast": Value("string"),
        "alignment": [{"source": Value("int32"), "target": Value("int32")}],
        "links": [{"relation": Value("string"), "dependent": Value("int32"), "head": Value("int32")}],
    }
)


def _table(pairs: list[Pair]) -> Dataset:
    columns = {
        "source": [pair.sentence.source for pair in pairs],
        "target": [pair.sentence.target for pair in pairs],
        "phenomenon": [pair.phenomenon for pair in pairs],
        "grade": [pair.grade for pair in pairs],
        "contrast": [pair.contrast for pair in pairs],
        "alignment": [[{"source": i, "target": j} for i, j in pair.sentence.alignment] for pair in pairs],
        "links": [
            [{"relation": name, "dependent": i, "head": j} for name, i, j in pair.sentence.links] for pair in pairs
        ],
    }
    return Dataset.from_dict(columns, features=_FEATURES)
