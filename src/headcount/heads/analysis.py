"""Analysis of the heads of one run: what all its parts share, and the contract of a part."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from annotated_types import Ge, Lt
from datasets import Dataset, Features, concatenate_datasets

from headcount.errors import InputError
from headcount.evaluation.contrastive import read_all_contrasts
from headcount.evaluation.gold import read_gold
from headcount.heads.evaluation_set import EvaluationSet, evaluation_set
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress
from headcount.run.opened import Run
from headcount.settings import Positive

Arrays = dict[str, np.ndarray]
Several = Annotated[int, Ge(2)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of conf/heads.yaml that change the figures of a run, which explains them."""

    test: Several | None
    valid: Several | None
    contrasts: str | list[str] | None
    gold: str | list[str] | None
    seed: Annotated[int, Ge(0), Lt(2**63)]
    path_pairs: Positive | None
    path_senders: Positive | None
    pairs: Several
    pair_sentences: Several
    permutations: Several
    shapley_sentences: Several
    step_sentences: Several
    cutting_sentences: Several
    bleu_sentences: Several
    random_orders: Annotated[int, Ge(0)]
    order_sentences: Several | None
    gate_penalties: list[float]
    gate_steps: Positive


@dataclass(frozen=True)
class Analysis:
    """The run, its heads and its sentences. What is chosen is chosen on `valid`; figures are those of `test`. Pairs of
    files stand behind the corpus's own sentences: those of a quarter of their sources in `valid`, the others in `test`.
    """

    run: Run
    settings: Settings

    @cached_property
    def heads(self) -> Heads:
        return Heads(self.run.model)

    @cached_property
    def test(self) -> EvaluationSet:
        return evaluation_set(self.run, self._with_pairs("test"), self.settings.test)

    @cached_property
    def valid(self) -> EvaluationSet:
        return evaluation_set(self.run, self._with_pairs("valid"), self.settings.valid)

    @cached_property
    def own_test(self) -> EvaluationSet:
        """The sentences of the corpus itself among those of `test`."""
        return self._own(self.test)

    @cached_property
    def own_valid(self) -> EvaluationSet:
        """The sentences of the corpus itself among those of `valid`."""
        return self._own(self.valid)

    def _own(self, sentences: EvaluationSet) -> EvaluationSet:
        whole = len(sentences.own) == len(sentences)
        return sentences if whole else evaluation_set(self.run, sentences.rows.select(sentences.own))

    @cached_property
    def pairs(self) -> Dataset | None:
        """The contrastive pairs of the files `contrasts`. Raises InputError."""
        if self.settings.contrasts is None:
            return None
        tables = read_all_contrasts(self.settings.contrasts)
        return concatenate_datasets([rows.add_column("file", [name] * len(rows)) for name, rows in tables.items()])

    def _with_pairs(self, split: str) -> Dataset:
        rows = self.splits[split]
        if self.pairs is None:
            return rows
        quarter = np.array([crc32(source.encode()) % 4 == 0 for source in self.pairs["source"]])
        pairs = self.pairs.select(np.flatnonzero(quarter == (split == "valid")))
        if split == "test" and not len(pairs):
            raise InputError("contrasts=: all pairs serve for choices, none is left to measure; give more sources")
        types = {name: rows.features.get(name, feature) for name, feature in pairs.features.items()}
        return concatenate_datasets([rows, Dataset.from_dict(pairs.to_dict(), Features(types))])

    @cached_property
    def gold(self) -> Dataset | None:
        """The sentences with gold structure of the files `gold`. Raises InputError."""
        return None if self.settings.gold is None else read_gold(self.settings.gold)

    @cached_property
    def splits(self) -> Any:
        """The text of train, valid and test, with all columns of the corpus, in the run's own direction."""
        return self.run.data().one_way


@dataclass(frozen=True)
class Part:
    """A part of an analysis.

    about: what it measures, in a few words. measure: gives the arrays; it calls its second argument with the work done
    since the last call, of `steps` (None: not known). settings: the fields of `Settings` that it depends on, besides
    those of the sentences and the seed. lacks: what keeps it from being measured on a run, and the fix; None if nothing
    does. version: of the arrays; those of another version are measured anew.
    """

    name: str
    about: str
    measure: Callable[[Analysis, Progress], Arrays]
    steps: Callable[[Analysis], int | None] = lambda analysis: None
    settings: tuple[str, ...] = ()
    lacks: Callable[[Analysis], str | None] = lambda analysis: None
    version: int | str = 1


def part(name: str, about: str, **rest: Any) -> Callable[[Callable[[Analysis, Progress], Arrays]], Part]:
    """Make a function that measures into a `Part`."""
    return lambda measure: Part(name, about, measure, **rest)
