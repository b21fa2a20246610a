"""Text in, text out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from headcount.decoding.search import Hypothesis, SearchMethod, StepModel, Translation, grow

MOST_WORKERS = 8  # batches at once; between operations only one can go on, so that more would wait for each other


@runtime_checkable
class Codec(Protocol):
    """Turns text into token ids and back."""

    def encode(self, texts: list[str]) -> list[list[int]]: ...
    def decode(self, ids: list[list[int]]) -> list[str]: ...


@runtime_checkable
class TranslationModel(StepModel[Any], Protocol):
    """What `grow` needs, a way to begin, and where the tensors must be."""

    @property
    def device(self) -> torch.device: ...

    def start(self, source: Tensor, source_mask: Tensor | None) -> Any:
        """The state before the first target token; source [sentence, source], mask True = real token, None: all."""
        ...


class Translator:
    """A model, its tokenizer and a way to search: `translate` takes lines and gives as many back.

    special: ids of padding, beginning and end of sentence.
    """

    def __init__(
        self, model: TranslationModel, codec: Codec, search: SearchMethod, special: tuple[int, int, int]
    ) -> None:
        self.model = model
        self.codec = codec
        self.search = search
        self.pad, self.bos, self.eos = special

    def translate(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
        """The translation of every line, in order; an empty line stays empty.

        progress: called with the number of lines done so far.
        """
        return [best.text for best, *_ in self.nbest(lines, 1, progress)]

    def nbest(
        self, lines: Sequence[str], count: int, progress: Callable[[int], None] | None = None
    ) -> list[list[Translation]]:
        """The `count` best translations of every line with their scores, in the order that the search gives them: best
        first and each text once, in sampling as drawn. Less where the search has not found so many; of an empty line,
        the empty one.

        Raises InputError if the search cannot give so many.
        """
        self.search.check(count)
        texts = [line.strip() for line in lines]
        sources = self.codec.encode(texts)
        translations = [[Translation("", 0.0)]] * len(texts)
        done = sum(not text for text in texts)
        batches = list(self._batches([len(ids) + 1 if text else 0 for ids, text in zip(sources, texts, strict=True)]))
        with self._workers(len(batches)) as each:
            searched = each(partial(self._search, count), ([sources[row] for row in rows] for rows in batches))
            for rows, found in zip(batches, searched, strict=True):
                for row, best in zip(rows, self.search.choose(found, count, self.codec.decode), strict=True):
                    translations[row] = best
                done += len(rows)
                if progress is not None:
                    progress(done)
        return translations

    @contextmanager
    def _workers(self, batches: int) -> Iterator[Callable[..., Iterable[Any]]]:
        """`map`, on a CPU over several batches at once, which share out the threads that one would use.

        A step of search is many small operations, and each would end with the threads waiting for the slowest.
        """
        threads = torch.get_num_threads()
        workers = min(threads, batches, MOST_WORKERS)
        if workers < 2 or self.model.device.type != "cpu":
            yield map
            return
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # the workers have set theirs for whoever comes next, too

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        # Longest first: the first batch shows whether memory suffices. Length 0 is an empty line: nothing to search.
        batch: list[int] = []
        for row in sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row]):
            if batch and lengths[batch[0]] * (len(batch) + 1) * self.search.width > self.search.batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, count: int, sources: list[list[int]]) -> list[list[Hypothesis]]:
        device = self.model.device
        lengths = torch.tensor([len(ids) + 1 for ids in sources])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        source = torch.full(mask.shape, self.pad)
        source[mask] = torch.tensor([token for ids in sources for token in (*ids, self.eos)])
        limits = ((lengths * self.search.max_ratio).long() + self.search.max_extra).to(device)
        state = self.model.start(source.to(device), None if bool(mask.all()) else mask.to(device))
        return grow(self.model, state, limits, self.search.begin(sources, limits, count, self.bos, self.eos), self.eos)
