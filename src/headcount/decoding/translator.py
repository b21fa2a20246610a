"""Text in, text out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from headcount.decoding.search import StepModel, beam_search

MOST_WORKERS = 8  # batches at once; between operations only one can go on, so that more would wait for each other


@runtime_checkable
class Codec(Protocol):
    """Turns text into token ids and back."""

    def encode(self, texts: list[str]) -> list[list[int]]: ...
    def decode(self, ids: list[list[int]]) -> list[str]: ...


@runtime_checkable
class TranslationModel(StepModel[Any], Protocol):
    """What `beam_search` needs, a way to begin, and where the tensors must be."""

    @property
    def device(self) -> torch.device: ...

    def start(self, source: Tensor, source_mask: Tensor | None) -> Any:
        """The state before the first target token; source [sentence, source], mask True = real token, None: all."""
        ...


class Search:
    """How to search: the settings of `beam_search`, and a cap on the length.

    beam: hypotheses kept, 1 for greedy. alpha: exponent of the length penalty (Wu et al. 2016, equation 14). A
    translation has at most max_ratio x source pieces + max_extra pieces. batch_tokens: source pieces x beam in a batch.
    Raises ValueError for a value out of range.
    """

    def __init__(
        self,
        beam: int = 5,
        alpha: float = 1.0,
        max_ratio: float = 2.0,
        max_extra: int = 10,
        batch_tokens: int = 8192,
    ) -> None:
        if beam < 1:
            raise ValueError(f"search.beam={beam}: must be 1 (greedy) or more")
        if alpha < 0:
            raise ValueError(f"search.alpha={alpha}: must be 0 (no length penalty) or more; 1 is usual")
        if max_ratio < 0 or max_extra < 0 or max_ratio + max_extra <= 0:
            raise ValueError(
                f"search.max_ratio={max_ratio}, search.max_extra={max_extra}: both 0 or more, and not both 0"
            )
        if batch_tokens < 1:
            raise ValueError(f"search.batch_tokens={batch_tokens}: must be 1 or more")
        self.beam = beam
        self.alpha = alpha
        self.max_ratio = max_ratio
        self.max_extra = max_extra
        self.batch_tokens = batch_tokens


class Translator:
    """A model, its tokenizer and a way to search: `translate` takes lines and gives as many back.

    special: ids of padding, beginning and end of sentence.
    """

    def __init__(self, model: TranslationModel, codec: Codec, search: Search, special: tuple[int, int, int]) -> None:
        self.model = model
        self.codec = codec
        self.search = search
        self.pad, self.bos, self.eos = special

    def translate(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
        """The translation of every line, in order; an empty line stays empty.

        progress: called with the number of lines done so far.
        """
        texts = [line.strip() for line in lines]
        sources = self.codec.encode(texts)
        translations = [""] * len(texts)
        done = sum(not text for text in texts)
        batches = list(self._batches([len(ids) + 1 if text else 0 for ids, text in zip(sources, texts, strict=True)]))
        with self._workers(len(batches)) as each:
            searched = each(self._search, ([sources[row] for row in rows] for rows in batches))
            for rows, tokens in zip(batches, searched, strict=True):
                for row, text in zip(rows, self.codec.decode(tokens), strict=True):
                    translations[row] = text
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
            if batch and lengths[batch[0]] * (len(batch) + 1) * self.search.beam > self.search.batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, sources: list[list[int]]) -> list[list[int]]:
        device = self.model.device
        lengths = torch.tensor([len(ids) + 1 for ids in sources])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        source = torch.full(mask.shape, self.pad)
        source[mask] = torch.tensor([token for ids in sources for token in (*ids, self.eos)])
        limits = ((lengths * self.search.max_ratio).long() + self.search.max_extra).to(device)
        hypotheses = beam_search(
            self.model,
            self.model.start(source.to(device), None if bool(mask.all()) else mask.to(device)),
            limits,
            beam=self.search.beam,
            bos=self.bos,
            eos=self.eos,
            alpha=self.search.alpha,
        )
        return [best[0].tokens for best in hypotheses]
