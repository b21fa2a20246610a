"""Translator: lines of text to translations, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Protocol, runtime_checkable

import torch

from headcount.decoding.parallel import parallel_map
from headcount.decoding.search import Hypothesis, NotFiniteError, SearchMethod, Translation, TranslationModel, few_sizes
from headcount.errors import InputError

LARGER_BATCHES = {"cuda": 8}  # than search.batch_tokens: a GPU takes no longer for a step of many hypotheses


@runtime_checkable
class Codec(Protocol):
    """Turns text into token ids and back."""

    def encode(self, texts: list[str]) -> list[list[int]]: ...
    def decode(self, ids: list[list[int]]) -> list[str]: ...


class LineError(InputError):
    """A line that cannot be translated. line: its index, from 0. why: the reason, and what to do."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line + 1}: {why}")
        self.line = line
        self.why = why


class Translator:
    """A model, its tokenizer and a search: `translate` gives one translation for each line.

    special: ids of padding, beginning and end of sentence. hide_source: the model reads only the end of every source;
    how long a translation may be still follows from the source's pieces. name: of the model, for error messages.
    """

    forks = True  # whether the model works in forked processes

    def __init__(
        self,
        model: TranslationModel,
        codec: Codec,
        search: SearchMethod,
        special: tuple[int, int, int],
        hide_source: bool = False,
        name: str = "the model",
    ) -> None:
        self.model = model
        self.codec = codec
        self.search = search
        self.pad, self.bos, self.eos = special
        self.hide_source = hide_source
        self.name = name

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The token ids of each source that the model reads, without the end of sentence."""
        return [[] for _ in texts] if self.hide_source else self.codec.encode(texts)

    def translate(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
        """The translation of every line, in order; an empty line stays empty.

        progress: called with the number of lines done since the last call. Raises what `nbest` raises.
        """
        return [best.text for best, *_ in self.nbest(lines, 1, progress)]

    def nbest(
        self, lines: Sequence[str], count: int, progress: Callable[[int], None] | None = None
    ) -> list[list[Translation]]:
        """The `count` best translations of every line with their scores, in the order that the search gives them: best
        first and each text once, in sampling as drawn. Fewer if the search found fewer; a line without pieces gives one
        empty translation.

        Raises InputError if the search cannot give `count`, or if the model's probabilities are not finite;
        LineError, before anything is translated, for a line that is too long for the model or the search;
        WorkerKilledError if a process that searched was killed.
        """
        self.search.check(count)
        texts = [line.strip() for line in lines]
        pieces = self.codec.encode(texts)
        self._check_lengths([len(ids) for ids in pieces])
        sources = [[] for _ in pieces] if self.hide_source else pieces
        limits = [self._limit(len(ids)) for ids in pieces]
        translations = [[Translation("", 0.0)]] * len(texts)
        if progress is not None:
            progress(sum(not ids for ids in pieces))
        tokens = [self._tokens(len(ids), count) if ids else 0 for ids in pieces]
        alone = ([row] for row, length in enumerate(tokens) if length)
        batches = list(alone if hooked(self.model) else self._batches(tokens))
        jobs = [([sources[row] for row in rows], [limits[row] for row in rows]) for rows in batches]
        for rows, found in zip(batches, self._searched(count, jobs), strict=True):
            for row, best in zip(rows, self.search.choose(found, count, self.codec.decode), strict=True):
                translations[row] = best
            if progress is not None:
                progress(len(rows))
        return translations

    def _check_lengths(self, pieces: Sequence[int]) -> None:
        """Raises LineError for the first of the sources that is too long."""
        longest = self.longest
        for line, length in enumerate(pieces):
            if longest is None or length <= longest:
                continue
            if longest == self.search.max_source:
                what = f"more than search.max_source={longest}; cut it into sentences, or raise that"
            else:
                what = f"and {self.name} has positions for {longest:,} and the end; cut it into sentences"
            raise LineError(line, f"{length:,} pieces, {what}")

    @property
    def longest(self) -> int | None:
        """Most pieces of a source, without its end; None: any number."""
        positions = None if self.hide_source else self.model.max_length
        bounds = self.search.max_source, None if positions is None else positions - 1
        return min((bound for bound in bounds if bound is not None), default=None)

    def _limit(self, pieces: int) -> int:
        """Most tokens of the translation of a source of `pieces` pieces, without its end of sentence."""
        limit = self.search.limit(pieces)
        return limit if self.model.max_length is None else min(limit, self.model.max_length - 1)

    def _tokens(self, pieces: int, count: int) -> int:
        """The share of search.batch_tokens that a source of `pieces` pieces takes.

        Memory goes by the keys and values of its translations, which have three tokens for each of the source where a
        model never ends them and the limit is the usual one.
        """
        return self.search.rows(count) * max(pieces + 1, (self._limit(pieces) + 1) // 3)

    def _batches(self, tokens: list[int]) -> Iterator[list[int]]:
        """The lines of each batch, by their `_tokens`; 0 tokens are an empty line, which is in none.

        Longest first: the first batch shows whether memory suffices. On a CPU a batch takes a quarter of what is left,
        if that is less, but no less than a quarter of search.batch_tokens: the last ones are small, so that processes
        end at nearly the same time.
        """
        most = self.search.batch_tokens * LARGER_BATCHES.get(self.model.device.type, 1)
        rows = sorted((row for row, length in enumerate(tokens) if length), key=lambda row: -tokens[row])
        left = sum(tokens)
        while rows:
            share = max(min(most, left // 4), most // 4) if self.model.device.type == "cpu" else most
            size = few_sizes(max(1, share // tokens[rows[0]]))
            yield rows[:size]
            left -= sum(tokens[row] for row in rows[:size])
            rows = rows[size:]

    def _searched(self, count: int, jobs: list[tuple[list[list[int]], list[int]]]) -> Iterator[list[list[Hypothesis]]]:
        """What `_search` finds for the sources and limits of each batch, in order."""
        function = partial(self._search, count)
        if self.model.device.type == "cpu" and not hooked(self.model):
            return parallel_map(function, jobs, self.forks)
        return starmap(function, jobs)

    @torch.inference_mode()
    def _search(self, count: int, sources: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        """The best hypotheses of each source of a batch. sources: token ids without the end. limits: most tokens of
        each translation. Raises NotFiniteError."""
        device = self.model.device
        lengths = torch.tensor([len(ids) + 1 for ids in sources])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        source = torch.full(mask.shape, self.pad)
        source[mask] = torch.tensor([token for ids in sources for token in (*ids, self.eos)])
        most = torch.tensor(limits, device=device)
        state = self.model.start(source.to(device), None if bool(mask.all()) else mask.to(device))
        try:
            return self.search.search(self.model, state, sources, most, count, self.bos, self.eos)
        except NotFiniteError as error:
            raise NotFiniteError(self.name) from error


def hooked(model: object) -> bool:
    """Whether somebody's forward hook is on a part of the model. Its lines are then searched one after the other, in
    order, in this process: what the hook collects stays, and is of a line that one can tell."""
    members = getattr(model, "members", [model])
    parts = [part for member in members for part in getattr(member, "modules", list)()]
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)
