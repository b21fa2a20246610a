"""Splits of the built-in corpus: random sentences without overlap, and the wrong translation of each."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from datasets import Dataset, DatasetDict, Features, Value

from headcount.errors import InputError
from headcount.grammar.draw import Draw, UnfitError
from headcount.grammar.lexicon.table import content
from headcount.grammar.phenomena import PHENOMENA, WEIGHTS
from headcount.grammar.phenomena.plain import plain
from headcount.grammar.sentence import Sentence, render, write
from headcount.settings import Positive

# Of the rules. Raise it when they make other sentences, so that the corpus is another one: a test fails until then.
VERSION = 1
# The name in fingerprints of rules and tables, where runs were recorded with another one.
RECORDED = {
    "b6a58d66c64bb32d70fd05ab9f111b9dfba9b0c10ea9ea30e9fc56147b284f8e": (
        "59f6964de9022f2a4ec5bed6f58bcba39adc131560f02ca1b670739248a4f4b5"
    )
}
GRADES = ("easy", "hard")
CELLS = tuple((phenomenon, grade) for phenomenon in PHENOMENA for grade in GRADES)
# The share of plain sentences in train and valid; the phenomena divide the rest by their weights.
PLAIN_SHARE = 0.25
WEIGHTED_CELLS = tuple(cell for cell in CELLS for _ in range(WEIGHTS[cell[0]]))
# Draws for one sentence before the sizes are called impossible.
PATIENCE = 2_000
# Words and punctuation marks of a sentence.
LENGTHS = range(4, 33)


def words(text: str) -> list[str]:
    """The words and punctuation marks, which the indices of `alignment` and `links` count."""
    return re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text)


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of the corpus."""

    phenomenon: str
    grade: str
    sentence: Sentence
    contrast: str
    twin: str


class Grammar:
    """English sentences with German translations, made from the lexicon and the rules of this package.

    train_size, valid_size, test_size: numbers of sentences. seed: of the corpus; another one is another corpus. `load`
    gives the splits train, valid and test with the columns

    - `source`, `target`: a sentence and its one translation. Each English word has one German translation, except
      ambiguous nouns, which another word decides; word order is fixed.
    - `phenomenon`, `grade`: what the sentence tests, and how hard that is ("easy", "hard"). Sentences of the phenomenon
      "plain" test nothing, are all "easy", and occur in train and valid only.
    - `contrast`: a wrong translation, which is right for another source that differs in what decides the phenomenon;
      empty for plain sentences. No English phrase can belong to two verbs if the contrast depends on it.
    - `twin`: that other source, whose one translation is the contrast; empty for plain sentences.
    - `alignment`: pairs of word indices, as `words` counts.
    - `links`: relations between two words of the source. "subject": from a verb to its subject. "antecedent": from a
      pronoun, also a relative one, to the noun that it refers to. "sense": from an ambiguous noun to the word that
      decides it. "conjunction": from a verb whose translation ends its clause to the word that begins the clause.

    No pair of subject and verb, or of verb and object, that occurs in train occurs in valid or test. All words of valid
    and test occur in train.
    """

    source_language = "en"
    target_language = "de"

    def __init__(self, *, train_size: Positive, valid_size: Positive, test_size: Positive, seed: int) -> None:
        self.sizes = {"train": train_size, "valid": valid_size, "test": test_size}
        self.seed = seed

    def fingerprint(self) -> str:
        """A short name for this text: it changes with the sizes, the seed, the lexicon and `VERSION`."""
        folder = Path(__file__).parent
        tables = [(path.name, [line for _, line in content(path)]) for path in sorted(folder.rglob("*.tsv"))]
        rules = hashlib.sha256(repr((VERSION, tables)).encode()).hexdigest()
        found = repr((self.sizes, self.seed, RECORDED.get(rules, rules)))
        return hashlib.sha256(found.encode()).hexdigest()[:12]

    def load(self) -> DatasetDict:
        """The splits as tables. Raises InputError where train is too small for the others."""
        return DatasetDict({split: _table(pairs) for split, pairs in self.generate().items()})

    def generate(self) -> dict[str, list[Pair]]:
        """The splits, each sentence with its structure. Raises InputError where train is too small for the others."""
        generator = _Generator(self.seed)
        train = [generator.make(generator.draw_cell()) for _ in range(self.sizes["train"])]
        generator.restrict(train)
        valid = [generator.make(generator.draw_cell()) for _ in range(self.sizes["valid"])]
        test = [
            generator.make(CELLS[i % len(CELLS)], choice=bool(i // len(CELLS) % 2)) for i in range(self.sizes["test"])
        ]
        return {"train": train, "valid": valid, "test": test}


class _Generator:
    """Random sentence pairs, no two of which share a source or a target."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.draw = Draw(self.rng, False, seed)
        self.used: set[str] = set()
        self.known: set[str] = set()

    def draw_cell(self) -> tuple[str, str]:
        """A phenomenon and grade for train or valid."""
        return ("plain", "easy") if self.draw.chance(PLAIN_SHARE) else self.draw.pick(WEIGHTED_CELLS)

    def restrict(self, train: list[Pair]) -> None:
        """From now on, draw only held-out pairs of lemmas, and only words of these sentences."""
        self.draw = Draw(self.rng, True, self.seed)
        for pair in train:
            self.known.update(words(pair.sentence.source), words(pair.sentence.target))

    def make(self, cell: tuple[str, str], choice: bool | None = None) -> Pair:
        """A sentence pair of this phenomenon and grade. choice: one of the two twins; None for either.

        Raises InputError where none is left.
        """
        phenomenon, grade = cell
        for _ in range(PATIENCE):
            try:
                pair = self._try(phenomenon, grade, choice)
            except UnfitError:
                continue
            if pair:
                self.used.update(("en " + pair.sentence.source, "de " + pair.sentence.target))
                return pair
        raise InputError(
            f"data.train_size: too small for sentences about {phenomenon} whose words all occur "
            "in train; 3000 is enough"
        )

    def _try(self, phenomenon: str, grade: str, choice: bool | None) -> Pair | None:
        if phenomenon == "plain":
            parts, contrast, other = plain(self.draw), "", ""
        else:
            twin = PHENOMENA[phenomenon](self.draw, grade == "hard")
            flag = self.draw.chance(0.5) if choice is None else choice
            source, target = write(twin(not flag))
            contrast, other = target.text(), source.text()
            # Both twins must fit, or one choice would be more frequent than the other.
            if not self._fits(other, contrast, source.pairs):
                return None
            parts = twin(flag)
        sentence = render(parts)
        if sentence.target == contrast or not self._fits(sentence.source, sentence.target, sentence.pairs):
            return None
        return Pair(phenomenon, grade, sentence, contrast, other)

    def _fits(self, source: str, target: str, pairs: Sequence[tuple[str, str, str]]) -> bool:
        """Whether a sentence is new, of allowed pairs of lemmas, neither short nor long, and of known words."""
        if "en " + source in self.used or "de " + target in self.used:
            return False
        if not all(self.draw.keeps(*pair) for pair in pairs):
            return False
        sides = words(source), words(target)
        if not all(len(side) in LENGTHS for side in sides):
            return False
        return not self.known or self.known.issuperset(sides[0] + sides[1])


_TEXTS = ("source", "target", "phenomenon", "grade", "contrast", "twin")
_FEATURES = Features(
    {name: Value("string") for name in _TEXTS}
    | {
        "alignment": [{"source": Value("int32"), "target": Value("int32")}],
        "links": [{"relation": Value("string"), "dependent": Value("int32"), "head": Value("int32")}],
    }
)


def _table(pairs: list[Pair]) -> Dataset:
    sentences = [pair.sentence for pair in pairs]
    columns = {
        "source": [sentence.source for sentence in sentences],
        "target": [sentence.target for sentence in sentences],
        **{name: [getattr(pair, name) for pair in pairs] for name in ("phenomenon", "grade", "contrast", "twin")},
        "alignment": [[{"source": i, "target": j} for i, j in each.alignment] for each in sentences],
        "links": [[{"relation": name, "dependent": i, "head": j} for name, i, j in each.links] for each in sentences],
    }
    return Dataset.from_dict(columns, features=_FEATURES)
