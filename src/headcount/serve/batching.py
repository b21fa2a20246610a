"""Batching of concurrent requests: while one batch is translated, the sentences of others wait, and form the next."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

THREAD = "batches"  # the name of its thread begins with this


class BusyError(Exception):
    """As many pieces wait as may."""


@dataclass(eq=False)
class Request:
    """Sentences of one client. pieces: of each sentence. taken: sentences that are in a batch, or have been."""

    texts: Sequence[str]
    pieces: Sequence[int]
    answer: asyncio.Future[list[str]]
    translations: list[str] = field(default_factory=list)
    taken: int = 0


class Batcher:
    """Translates the sentences of all requests in batches, one batch after the other, in a thread of its own.

    A batch takes one sentence of each waiting request in turn, so a long request does not hold short ones. translate:
    sentences to translations. batch_pieces: most source pieces in a batch, if it has more than one sentence.
    max_waiting: most pieces that may wait.
    """

    def __init__(self, translate: Callable[[list[str]], list[str]], batch_pieces: int, max_waiting: int) -> None:
        self.translate = translate
        self.batch_pieces = batch_pieces
        self.max_waiting = max_waiting
        self.waiting = 0  # pieces
        self._queue: deque[Request] = deque()
        self._arrived = asyncio.Event()

    async def answer(self, texts: Sequence[str], pieces: Sequence[int]) -> list[str]:
        """The translation of each sentence. pieces: of each. Raises BusyError, and what `translate` raises. Where it is
        cancelled, sentences that are not in a batch yet no longer wait."""
        if not texts:
            return []
        if self.waiting and self.waiting + sum(pieces) > self.max_waiting:
            raise BusyError
        request = Request(texts, pieces, asyncio.get_running_loop().create_future())
        self.waiting += sum(pieces)
        self._queue.append(request)
        self._arrived.set()
        try:
            return await request.answer
        except asyncio.CancelledError:
            self._drop(request)
            raise

    async def run(self) -> None:
        """Translate until cancelled; a batch that has begun goes on in its thread."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, THREAD)
        try:
            while True:
                await self._arrived.wait()
                if not (batch := self._take()):
                    self._arrived.clear()
                    continue
                texts = [request.texts[row] for request, row in batch]
                try:
                    translations = await loop.run_in_executor(thread, self.translate, texts)
                except Exception as error:
                    self._fail({request for request, _ in batch}, error)
                else:
                    for (request, _), translation in zip(batch, translations, strict=True):
                        self._give(request, translation)
        finally:
            thread.shutdown(wait=False)  # to wait for its batch would hold the other tasks of the loop

    def _take(self) -> list[tuple[Request, int]]:
        """Sentences for a batch, as (request, number of the sentence)."""
        batch: list[tuple[Request, int]] = []
        room = self.batch_pieces
        while self._queue:
            request = self._queue[0]
            pieces = request.pieces[request.taken]
            if batch and pieces > room:
                break
            room -= pieces
            self.waiting -= pieces
            batch.append((request, request.taken))
            request.taken += 1
            self._queue.popleft()
            if request.taken < len(request.texts):
                self._queue.append(request)
        return batch

    @staticmethod
    def _give(request: Request, translation: str) -> None:
        request.translations.append(translation)
        if len(request.translations) == len(request.texts) and not request.answer.done():
            request.answer.set_result(request.translations)

    def _fail(self, requests: set[Request], error: Exception) -> None:
        for request in requests:
            self._drop(request)
            if not request.answer.done():
                request.answer.set_exception(error)

    def _drop(self, request: Request) -> None:
        if request in self._queue:
            self._queue.remove(request)
            self.waiting -= sum(request.pieces[request.taken :])
