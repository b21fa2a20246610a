"""Translation with CTranslate2: the engine of `translate` and of `serve` with engine=ctranslate2."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.decoding.beam import BeamSearch, length_penalty
from headcount.decoding.search import NOT_FINITE, Hypothesis, NotFiniteError
from headcount.decoding.translator import Translator, hooked
from headcount.errors import InputError
from headcount.export.limits import unsupported
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

LONGEST = 8192  # subwords of a source, where search.max_source is null: the engine has a table of positions
USUAL = 20  # tokens of a translation, at which the two length penalties are made equal


def chosen_engine(config: Any) -> Callable[[Run], Run]:
    """A function that gives an opened run the translator of `config.engine`; config: that of the command.

    To be called before the run is opened: with CTranslate2 `config.precision` is that of the engine's products, and
    the weights stay in float32. Raises InputError.
    """
    if config.engine == "headcount":
        if config.precision == "int8":
            raise InputError("precision=int8: must be float32 or bfloat16, or add engine=ctranslate2")
        return lambda run: run
    if not isinstance(config.run, str) and len(config.run) > 1:
        raise InputError("engine=ctranslate2: translates with one run, not with several; give run=RUN")
    precision, config.precision = config.precision, "float32"
    return partial(with_ctranslate2, precision=precision)


def with_ctranslate2(run: Run, precision: str = "float32") -> Run:
    """The run, translating with CTranslate2. precision: float32, bfloat16 or int8, of the products.

    Raises InputError for a run that the engine cannot hold, with all reasons, and for a search that it does not have.
    """
    reasons = [f"{run.directory}: {why}" for why in unsupported(run, "ctranslate2")]
    if type(run.translator.search) is not BeamSearch:
        reasons.append("search: engine=ctranslate2 has beam search alone; give search=beam")
    if reasons:
        raise InputError("\n".join(reasons))
    return replace(run, translator=CTranslate2Translator(run, precision))


class CTranslate2Translator(Translator):
    """A `Translator` with the search of CTranslate2, which ends as `Beams` does: once `beam` hypotheses have finished.

    Scores are those of headcount. CTranslate2 divides by length^penalty, headcount by ((5 + length) / 6)^alpha, lengths
    with the end: so the log-probability is computed back, and hypotheses are ranked anew. A source has headcount's
    search, in float32, where a hypothesis reaches the most tokens that it may have, at which CTranslate2 cuts it and
    headcount makes it end. So no translation depends on the others of its batch.
    """

    forks = False  # the engine's threads are not in a forked process
    search: BeamSearch

    def __init__(self, run: Run, precision: str) -> None:
        from headcount.export.ctranslate2 import write_model  # here, since it is not always installed

        search, model, device = run.translator.search, run.model, run.model.device.type
        most = search.max_source or LONGEST
        search = replace(search, max_source=most)
        super().__init__(model, run.tokenizer, search, (PAD, BOS, EOS), name=str(run.directory))
        self.subwords = run.tokenizer.source.vocabulary
        self.numbers = {subword: number for number, subword in enumerate(run.tokenizer.target.vocabulary)}
        # Not 0 where several are kept: with 0, it ends as soon as the best of the beam has finished.
        equal = self.search.alpha * math.log((5 + USUAL) / 6) / math.log(USUAL)
        self.penalty = 0.0 if self.search.beam == 1 else max(equal, 1e-6)
        with tempfile.TemporaryDirectory() as folder:
            write_model(run, Path(folder), "float32", max(most, search.limit(most)) + 2)
            threads = torch.get_num_threads()
            settings: dict[str, Any] = {"compute_type": precision, "inter_threads": threads, "intra_threads": 1}
            try:
                self.engine = import_module("ctranslate2").Translator(folder, device=device, **settings)
            except ValueError as error:  # a precision that this processor does not have
                raise InputError(f"precision={precision}: {error}") from None
        torch.set_num_threads(threads)  # CTranslate2 has set its own 1 for the thread that calls it

    def _search(self, count: int, sources: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        assert isinstance(self.model, Transformer)
        if hooked(self.model) or any(name.endswith("head_gate") for name, _ in self.model.named_buffers()):
            raise InputError("engine=ctranslate2: gates and hooks do not act in it; translate without it")
        results = self.engine.translate_batch(
            [[self.subwords[number] for number in ids] for ids in sources],
            beam_size=self.search.beam,
            num_hypotheses=self.search.beam,
            length_penalty=self.penalty,
            max_input_length=0,
            max_decoding_length=max(limits) + 1,  # with the end; the engine has one limit for a batch
            min_decoding_length=0,  # by default 1: no empty translation, and more probable others
            return_scores=True,
        )
        found = [self._ranked(each) for each in results]
        cut = [row for row, each in enumerate(results) if max(map(len, each.hypotheses)) > limits[row]]
        if cut:
            again = super()._search(count, [sources[row] for row in cut], [limits[row] for row in cut])
            for row, hypotheses in zip(cut, again, strict=True):
                found[row] = hypotheses
        return found

    def _ranked(self, result: Any) -> list[Hypothesis]:
        ranked = []
        for subwords, score in zip(result.hypotheses, result.scores, strict=True):
            length = len(subwords) + 1  # with the end
            own = score * length**self.penalty / float(length_penalty(length, self.search.alpha))
            if not math.isfinite(own):
                raise NotFiniteError(f"{self.name}: {NOT_FINITE}")
            ranked.append(Hypothesis([self.numbers[subword] for subword in subwords], own))
        return sorted(ranked, key=lambda hypothesis: -hypothesis.score)
