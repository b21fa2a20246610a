"""The HTTP application: GET /health and POST /translate, both JSON, with a line for each error."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headcount.decoding.translator import Translator
from headcount.errors import InputError, first_line
from headcount.serve.batching import Batcher, BusyError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What a request may have, and what may wait: see conf/serve.yaml."""

    max_body: int
    max_texts: int
    max_pieces: int
    batch_pieces: int
    max_waiting: int


def application(translator: Translator, about: Mapping[str, str], limits: Limits) -> Starlette:
    """The application of one translator. about: what /health answers beside its status."""
    batcher = Batcher(lambda texts: translator.translate(texts), limits.batch_pieces, limits.max_waiting)
    longest = limits.max_pieces if translator.longest is None else min(limits.max_pieces, translator.longest)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", **about})

    async def translate(request: Request) -> Response:
        try:
            return await translated(request)
        except asyncio.CancelledError:  # by the server, which ends
            raise HTTPException(503, "the server is stopping; try again later", {"Retry-After": "1"}) from None

    async def translated(request: Request) -> Response:
        text = parsed(await body_of(request, limits.max_body), limits.max_texts)
        texts = [text] if isinstance(text, str) else text
        pieces = [len(ids) + 1 for ids in await asyncio.to_thread(translator.codec.encode, texts)]
        for number, count in enumerate(pieces, start=1):
            if count - 1 > longest:
                what = f"text {number} has {count - 1:,} pieces, more than {longest:,}; cut it into sentences"
                raise HTTPException(413, what)
        try:
            translations = await unless_gone(request, batcher.answer(texts, pieces))
        except BusyError:
            raise HTTPException(503, "too many texts are waiting; try again later", {"Retry-After": "1"}) from None
        return JSONResponse({"translation": translations[0] if isinstance(text, str) else translations})

    app = Starlette(
        routes=[Route("/health", health), Route("/translate", translate, methods=["POST"])],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused, ClientDisconnect: gone, Exception: failed},
    )
    app.router.redirect_slashes = False  # another path is 404
    return app


async def unless_gone(request: Request, translations: Coroutine[Any, Any, list[str]]) -> list[str]:
    """The translations. Raises ClientDisconnect, and cancels them, where the client leaves before."""
    work, left = asyncio.create_task(translations), asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        left.cancel()


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request. Raises HTTPException where it has more than `most` bytes, which are not kept."""
    declared = request.headers.get("content-length", "0")
    parts, size = [], int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise HTTPException(413, f"the body has more than {most:,} bytes; send less text at once")
    return b"".join(parts)


def parsed(body: bytes, most: int) -> str | list[str]:
    """The text, or texts, of a body. Raises HTTPException for another form, or more than `most` texts."""
    form = 'the body must be JSON such as {"text": "A sentence."} or {"text": ["One.", "Two."]}'
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, form) from None
    if not isinstance(sent, dict) or "text" not in sent:
        raise HTTPException(400, form)
    if unknown := sorted(sent.keys() - {"text"}):
        raise HTTPException(400, f"{unknown[0][:50]!r} is not known; {form}")
    text = sent["text"]
    if isinstance(text, str):
        return text
    if not isinstance(text, list) or not all(isinstance(each, str) for each in text):
        raise HTTPException(400, form)
    if len(text) > most:
        raise HTTPException(413, f"{len(text):,} texts, more than {most:,}; send fewer at once")
    return text


def answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(error.status_code, error.detail, error.headers)


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def failed(request: Request, error: Exception) -> Response:
    """For what is no fault of the client, such as weights that are damaged."""
    what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}"
    logger.error("a request failed: %s", what)
    return answer(500, "the translation failed; the server's log says why")
