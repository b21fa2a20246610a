"""Translation with CTranslate2: the translator of a run whose search that engine does."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.decoding.beam import BeamSearch, length_penalty
from headcount.decoding.search import Hypothesis, NotFiniteError
from headcount.decoding.translator import Translator, hooked
from headcount.errors import InputError
from headcount.export.ctranslate2 import unsupported, write_model
from headcount.export.parts import positions_of
from headcount.model.transformer import Transformer
from headcount.run.opened import Run

PRECISIONS = ("float32", "bfloat16", "int8")
LONGEST = 8192  # pieces of a source, where search.max_source is null and the engine gets a table of positions


def check_settings(run: Any, precision: Any) -> None:
    """Raises InputError for settings of `translate` that the engine cannot take."""
    if not isinstance(run, str) and len(run) > 1:
        raise InputError("engine=ctranslate2: translates with one run, not with several; give run=RUN")
    if precision not in PRECISIONS:
        raise InputError(f"precision={precision}: must be one of {', '.join(PRECISIONS)} for engine=ctranslate2")


def with_ctranslate2(run: Run, precision: str = "float32") -> Run:
    """The run, translating with CTranslate2. precision: one of `PRECISIONS`, of the products.

    Raises InputError for a run that the engine cannot run, with all reasons, and for a search that it does not have.
    """
    search = run.translator.search
    reasons = [f"{run.directory}: {why}" for why in unsupported(run)]
    if type(search) is not BeamSearch:
        reasons.append(
            f"search: engine=ctranslate2 has beam search alone, not {type(search).__name__}; give search=beam"
        )
    if reasons:
        raise InputError("\n".join(reasons))
    return replace(run, translator=CTranslate2Translator(run, precision))


class CTranslate2Translator(Translator):
    """A `Translator` with the search of CTranslate2, which ends as `Beams` does: once `beam` hypotheses have finished.

    Scores are those of headcount. CTranslate2 divides by length^penalty, headcount by ((5 + length) / 6)^alpha, lengths
    with the end: so the log-probability is computed back, and hypotheses are ranked anew. A source has headcount's
    search, in float32, where a hypothesis reaches the most tokens that it may have, at which CTranslate2 cuts it and
    headcount makes it end, and where CTranslate2 may have left out one of the best. So no translation depends on the
    others of its batch.
    """

    forks = False  # the engine's threads are not in a forked process
    search: BeamSearch

    def __init__(self, run: Run, precision: str) -> None:
        import ctranslate2  # installed: headcount.export.ctranslate2 needs it, too

        ours, kind = run.translator, run.model.device.type
        known = [name for name in PRECISIONS if name in ctranslate2.get_supported_compute_types(kind)]
        if precision not in known:
            raise InputError(
                f"precision={precision}: CTranslate2 does not have it on this machine; give one of {', '.join(known)}"
            )
        search, model = ours.search, run.model
        assert isinstance(model, Transformer)  # see `unsupported`
        if search.max_source is None and positions_of(model) == "sinusoidal":
            search = replace(search, max_source=LONGEST)
        super().__init__(run.model, run.tokenizer, search, (PAD, BOS, EOS), name=str(run.directory))
        self.pieces = run.tokenizer.source.vocabulary
        self.numbers = {piece: number for number, piece in enumerate(run.tokenizer.target.vocabulary)}
        most = search.max_source or 1  # other positions have no table here
        longest = max(most, search.limit(most)) + 2
        with tempfile.TemporaryDirectory() as folder:
            write_model(run, Path(folder), "float32", longest)
            threads = torch.get_num_threads()
            self.engine = ctranslate2.Translator(
                folder, device=kind, compute_type=precision, inter_threads=threads, intra_threads=1
            )
        torch.set_num_threads(threads)  # CTranslate2 has set its own 1 for the thread that calls it

    def _search(self, count: int, sources: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        assert isinstance(self.model, Transformer)
        if hooked(self.model) or self.model.gates:
            raise InputError("engine=ctranslate2: gates and hooks do not act in it; translate without it")
        beam = self.search.beam
        penalty = self.penalty(sum(map(len, sources)) // len(sources) + 1)
        found = self.engine.translate_batch(
            [[self.pieces[number] for number in ids] for ids in sources],
            beam_size=beam,
            num_hypotheses=beam,
            length_penalty=penalty,
            max_input_length=0,
            max_decoding_length=max(limits) + 1,  # with the end; the engine has one limit for a batch
            min_decoding_length=0,  # by default 1: no empty translation, and more probable others
            return_scores=True,
        )
        ranked = [self._ranked(each, penalty) for each in found]
        unsure = [
            row for row, own in enumerate(limits) if not self._is_sure(found[row], ranked[row], own, count, penalty)
        ]
        again = (
            super()._search(count, [sources[row] for row in unsure], [limits[row] for row in unsure]) if unsure else []
        )
        searched = dict(zip(unsure, again, strict=True))
        return [searched.get(row, best) for row, best in enumerate(ranked)]

    def penalty(self, length: int) -> float:
        """The exponent with which length^exponent is ((5 + length) / 6)^alpha at this length, as at 1: CTranslate2
        ranks nearly as headcount does then. Not 0 where several are kept: with 0, it ends as soon as the best of the
        beam has finished."""
        if self.search.beam == 1:
            return 0.0
        return max(self.search.alpha * math.log((5 + length) / 6) / math.log(length), 1e-6)

    def _is_sure(self, found: Any, ranked: list[Hypothesis], limit: int, count: int, penalty: float) -> bool:
        """Whether the `count` best are the best of all that have finished, of which CTranslate2 gives `beam`, and none
        is beyond the limit.

        Each of the others is at most as good, by CTranslate2, as the worst that is given. None is longer than the
        longest: the last ones to finish are as long as each other, and one of them is given. Up to there
        length^penalty / ((5 + length) / 6)^alpha, which rises and then falls, is least at an end; at length 1 it is 1.
        """
        longest = max(map(len, found.hypotheses))
        if longest > limit or len(ranked) < self.search.beam or self.search.beam == 1:
            return longest <= limit
        least = min(1.0, (longest + 1) ** penalty / float(length_penalty(longest + 1, self.search.alpha)))
        return ranked[count - 1].score >= min(found.scores) * least * (1 + 1e-5)  # rounding

    def _ranked(self, found: Any, penalty: float) -> list[Hypothesis]:
        pairs = zip(found.hypotheses, found.scores, strict=True)
        each = [self._hypothesis(pieces, score * (len(pieces) + 1) ** penalty) for pieces, score in pairs]
        return sorted(each, key=lambda hypothesis: -hypothesis.score)

    def _hypothesis(self, pieces: list[str], log_probability: float) -> Hypothesis:
        if not math.isfinite(log_probability):
            raise NotFiniteError(self.name)
        length = len(pieces) + 1  # with the end
        score = log_probability / length_penalty(length, self.search.alpha)
        return Hypothesis([self.numbers[piece] for piece in pieces], float(score))
