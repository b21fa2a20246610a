"""Search: the step protocol of models, the loop that all search methods share, and their common settings.

Notation: a `sentence` is one source in the batch; a `row` is one hypothesis of one sentence, rows of a sentence side by
side.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from annotated_types import Ge, Le
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.errors import InputError
from headcount.settings import Positive

Limits = Int[Tensor, "sentence"]
"""Most tokens of each translation, without its end-of-sentence."""
Decode = Callable[[list[list[int]]], list[str]]

LOOK_EVERY = {"cpu": 1}  # steps between two looks at which sentences are done; on a device, to look is to wait for it
MULTIPLE = 8  # of the sentences in a large batch: few shapes of products, for each of which oneDNN compiles a program
Rows = Annotated[int, Ge(1), Le(4096)]  # of a sentence: more would not fit into memory
NOT_FINITE = (
    "its probabilities are not finite numbers (NaN or infinite): the weights are damaged or the training diverged; "
    "take an earlier checkpoint, or train again with a lower optimizer.lr, trainer.precision=32-true"
)
BOUNDS = ("max_ratio", "max_extra", "batch_tokens", "max_source")  # settings that bound the work, hardly ever a result


class NotFiniteError(InputError):
    """A model gave NaN or infinite numbers for log-probabilities."""


@runtime_checkable
class TranslationModel(Protocol):
    """The contract of a model that search can use."""

    @property
    def device(self) -> torch.device: ...

    @property
    def max_length(self) -> int | None:
        """Most tokens of a source with its end, and of a target with its beginning; None: any number."""

    def start(self, source: Tensor, source_mask: Tensor | None) -> Any:
        """The state before the first target token. source [sentence, source]; mask: True = real token, None: all."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [row, vocab] of the token after `tokens` [row]. Search may write into them, and
        does not need them after the next step."""

    def reorder(self, state: Any, rows: Tensor, sentences: Tensor) -> Any:
        """The state whose row i is row `rows[i]` of `state`; `sentences`: those that remain in the batch, in order."""


class Hypothesis(NamedTuple):
    """A finished translation: its tokens without beginning- and end-of-sentence, and its score (log-probability with
    the end-of-sentence, in beam search divided by the length penalty)."""

    tokens: list[int]
    score: float


class Translation(NamedTuple):
    """A hypothesis as text; `score` is what its search method ranks by."""

    text: str
    score: float


@runtime_checkable
class Hypotheses(Protocol):
    """Unfinished hypotheses of a batch of sentences, the same number for each sentence."""

    @property
    def done(self) -> Bool[Tensor, "sentence"]:
        """Which sentences are finished; further steps do not change their finished hypotheses."""

    def extend(
        self, log_probs: Float[Tensor, "sentence row vocab"]
    ) -> tuple[Int[Tensor, "sentence new_row"], Int[Tensor, "sentence new_row"]]:
        """Add a token to each hypothesis; returns the row that each new hypothesis extends, and its new token. Before
        the first step a sentence has one row."""

    def select(self, sentences: Int[Tensor, "kept"]) -> None:
        """Keep only these sentences."""

    def finished(self, sentences: Int[Tensor, "some"]) -> tuple[Tensor, Tensor]:
        """The tokens [sentence, row, length] and scores [sentence, row] of the finished hypotheses of these sentences,
        in the order of the n-best list; tokens count up to the first end, and a row of score -inf is none."""


def search_loop(
    model: TranslationModel, state: Any, limits: Limits, hypotheses: Hypotheses, bos: int, eos: int
) -> list[list[Hypothesis]]:
    """Extend `hypotheses` token by token until all are finished; returns the finished ones of every sentence.

    state: the model's state before the first token, one row a sentence. limits: most tokens that a translation may have
    before its end-of-sentence; a hypothesis of that length must end. Finished sentences leave the batch, some steps
    later where the batch is large or on an accelerator, see `LOOK_EVERY`.
    Raises NotFiniteError, at the greatest limit at the latest, if the model gives numbers that are not finite.
    """
    results: list[list[Hypothesis]] = [[] for _ in limits]
    every = LOOK_EVERY.get(limits.device.type, 8)
    index = torch.arange(len(limits), device=limits.device)  # the sentence of each line of the tensors below
    tokens = torch.full_like(index, bos)[:, None]  # [sentence, row], the newest of each hypothesis
    first_limit, last_limit = int(limits.min()), int(limits.max())
    for length in range(last_limit + 1):
        log_probs, state = model.step(tokens.flatten(), state)
        log_probs = log_probs.unflatten(0, tokens.shape)
        if length >= first_limit:
            ends = log_probs[:, :, eos].clone()
            log_probs.masked_fill_((limits <= length)[:, None, None], float("-inf"))
            log_probs[:, :, eos] = ends
        keep = torch.arange(len(index), device=index.device)
        first_rows = keep[:, None] * tokens.shape[1]
        parents, tokens = hypotheses.extend(log_probs)
        rows, done = parents + first_rows, hypotheses.done
        # To leave moves the caches of all that remain, so in a large batch several sentences leave together.
        if (length % every == every - 1 or length == last_limit) and int(done.sum()) > len(index) // 16:
            leaving, keep = done.nonzero()[:, 0], (~done).nonzero()[:, 0]
            if len(keep) > 2 * MULTIPLE:  # of a large batch, as many stay as make it a multiple
                spare = -len(keep) % MULTIPLE
                leaving, keep = leaving[spare:], torch.cat([keep, leaving[:spare]]).sort().values
            finished = (part.tolist() for part in (index[leaving], *hypotheses.finished(leaving)))
            for sentence, texts, scores in zip(*finished, strict=True):
                for row, score in zip(texts, scores, strict=True):
                    if score != -math.inf:
                        results[sentence].append(Hypothesis(row[: row.index(eos)], score))
            if not len(keep):
                break
            index, limits, rows, tokens = index[keep], limits[keep], rows[keep], tokens[keep]
            hypotheses.select(keep)
            first_limit = int(limits.min())
        state = model.reorder(state, rows.flatten(), keep)
    # A number that is not finite stays so in every sum, and a NaN never ends a search.
    if not all(found and all(math.isfinite(score) for _, score in found) for found in results):
        raise NotFiniteError(NOT_FINITE)
    return results


@dataclass(frozen=True, kw_only=True)
class SearchMethod(ABC):
    """A search strategy: the settings that all have in common, and how they bound a batch of sentences.

    A strategy adds its own settings as fields; the common ones are explained in conf/search/beam.yaml. Raises
    ValueError for a value out of range.
    """

    width_setting: ClassVar[str]  # the field with the rows of a sentence, at most that many translations of it

    max_ratio: Annotated[float, Ge(0), Le(100)]  # more would never end
    max_extra: Annotated[int, Ge(0), Le(10_000)]
    batch_tokens: Positive
    max_source: Positive | None

    def __post_init__(self) -> None:
        if self.max_ratio + self.max_extra == 0:
            raise ValueError("search.max_ratio=0, search.max_extra=0: must not both be 0")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that metrics.json records: all but `BOUNDS`."""
        return {name: value for name, value in asdict(self).items() if name not in BOUNDS}

    def limit(self, pieces: int) -> int:
        """Most tokens that the translation of a source of `pieces` pieces may have, without its end of sentence."""
        return int(pieces * self.max_ratio) + self.max_extra

    def rows(self, count: int) -> int:
        """Rows that a sentence takes in the batch for `count` translations of it. Raises InputError for more of them
        than the search can give."""
        width: int = getattr(self, self.width_setting)
        if not 1 <= count <= width:
            raise InputError(f"nbest={count}: must be 1 up to search.{self.width_setting}={width}, or raise that")
        return width

    @abstractmethod
    def begin(self, sources: list[list[int]], limits: Limits, count: int, eos: int) -> Hypotheses:
        """The hypotheses of these sources before the first token, for `count` translations of each."""

    def choose(self, found: list[list[Hypothesis]], count: int, decode: Decode) -> list[list[Translation]]:
        """At most `count` translations of each sentence, best first and each text once. Different pieces may spell the
        same text; it gets the best of their scores."""
        if count == 1:
            found = [hypotheses[:1] for hypotheses in found]  # the others cannot be better
        texts = iter(decode([tokens for hypotheses in found for tokens, _ in hypotheses]))
        chosen = []
        for hypotheses in found:
            best: dict[str, float] = {}
            for hypothesis in hypotheses:
                best.setdefault(next(texts), hypothesis.score)
            chosen.append([Translation(text, score) for text, score in best.items()][:count])
        return chosen

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.settings.items() if value is not None)
