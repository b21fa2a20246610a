"""Translator: lines of text to translations, in batches of similar length."""

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Protocol, runtime_checkable

import torch

from headcount.decoding.parallel import parallel_map
from headcount.decoding.search import (
    MULTIPLE,
    Hypothesis,
    NotFiniteError,
    SearchMethod,
    Translation,
    TranslationModel,
    search_loop,
)
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

    special: ids of padding, beginning and end of sentence. name: of the model, for error messages. longest: most pieces
    of a source, without its end; None: any number.
    """

    forks = True  # whether the model works in forked processes

    def __init__(
        self,
        model: TranslationModel,
        codec: Codec,
        search: SearchMethod,
        special: tuple[int, int, int],
        name: str = "the model",
    ) -> None:
        self.model = model
        self.codec = codec
        self.search = search
        self.pad, self.bos, self.eos = special
        self.name = name
        positions = None if model.max_length is None else model.max_length - 1
        bounds = [bound for bound in (search.max_source, positions) if bound is not None]
        self.longest: int | None = min(bounds, default=None)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The token ids of each source, without the end of sentence."""
        return self.codec.encode(texts)

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
        InputError if a process that searched was killed.
        """
        width = self.search.rows(count)
        texts = [line.strip() for line in lines]
        pieces = self.codec.encode(texts)
        longest, positions = self.longest, self.model.max_length
        for line, ids in enumerate(pieces):
            if longest is not None and len(ids) > longest:
                what = f"and {self.name} has positions for {longest:,} and the end; cut it into sentences"
                if longest == self.search.max_source:
                    what = f"more than search.max_source={longest}; cut it into sentences, or raise that"
                raise LineError(line, f"{len(ids):,} subwords, {what}")
        limits = [self.search.limit(len(ids)) for ids in pieces]
        if positions is not None:
            limits = [min(limit, positions - 1) for limit in limits]
        translations = [[Translation("", 0.0)]] * len(texts)
        if progress is not None:
            progress(sum(not ids for ids in pieces))
        alone = hooked(self.model)
        batches = [[row] for row, ids in enumerate(pieces) if ids] if alone else self._batches(pieces, limits, width)
        jobs = [(count, [pieces[row] for row in rows], [limits[row] for row in rows]) for rows in batches]
        in_turn = alone or len(jobs) < 2 or self.model.device.type != "cpu"
        found = starmap(self._search, jobs) if in_turn else parallel_map(self._search, jobs, self.forks)
        for rows, hypotheses in zip(batches, found, strict=True):
            for row, best in zip(rows, self.search.choose(hypotheses, count, self.codec.decode), strict=True):
                translations[row] = best
            if progress is not None:
                progress(len(rows))
        return translations

    def _batches(self, pieces: list[list[int]], limits: list[int], width: int) -> list[list[int]]:
        """The lines of each batch; a line without pieces is in none. limits: most tokens of each translation. width:
        rows of a line.

        A line takes a share of search.batch_tokens by the keys and values of its translations, which have three tokens
        for each of the source where a model never ends them and the limit is the usual one.

        Longest first: the first batch shows whether memory suffices. On a CPU a batch takes a quarter of what is left,
        if that is less, but no less than a quarter of search.batch_tokens: the last ones are small, so that processes
        end at nearly the same time.
        """
        most = self.search.batch_tokens * LARGER_BATCHES.get(self.model.device.type, 1)
        shares = [width * max(len(ids) + 1, (limit + 1) // 3) for ids, limit in zip(pieces, limits, strict=True)]
        rows = sorted((row for row, ids in enumerate(pieces) if ids), key=lambda row: -shares[row])
        left, batches = sum(shares[row] for row in rows), []
        while rows:
            budget = max(min(most, left // 4), most // 4) if self.model.device.type == "cpu" else most
            size = max(1, budget // shares[rows[0]])
            if size > 2 * MULTIPLE:
                size -= size % MULTIPLE
            batches.append(rows[:size])
            left -= sum(shares[row] for row in rows[:size])
            rows = rows[size:]
        return batches

    @torch.inference_mode()
    def _search(self, count: int, sources: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        """The best hypotheses of each source of a batch. sources: token ids without the end. limits: most tokens of
        each translation. Raises NotFiniteError."""
        lengths = torch.tensor([len(ids) + 1 for ids in sources])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        source = torch.full(mask.shape, self.pad)
        source[mask] = torch.tensor([token for ids in sources for token in (*ids, self.eos)])
        device = self.model.device
        most = torch.tensor(limits, device=device)
        state = self.model.start(source.to(device), None if bool(mask.all()) else mask.to(device))
        hypotheses = self.search.begin(sources, most, count, self.eos)
        try:
            return search_loop(self.model, state, most, hypotheses, self.bos, self.eos)
        except NotFiniteError as error:
            raise NotFiniteError(f"{self.name}: {error}") from error


def hooked(model: object) -> bool:
    """Whether somebody's forward hook is on a part of the model. Its lines are then searched one after the other, in
    order, in this process: what the hook collects stays, and is of a line that one can tell."""
    members = getattr(model, "members", [model])
    parts = [part for member in members for part in getattr(member, "modules", list)()]
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)
