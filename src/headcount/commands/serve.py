"""Serve the translations of a run over HTTP."""

import asyncio
import json
import logging
import re
import socket
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Queue
from threading import Thread
from typing import Annotated, Any, Literal

from annotated_types import Interval
from omegaconf import DictConfig

from headcount.errors import InputError, first_line, need, reason
from headcount.settings import Opening

MOST = 2**16  # bytes of a request
LIMITS: dict[str, Any] = {"limit_concurrency": 1024, "timeout_keep_alive": 5, "timeout_graceful_shutdown": 10}
TITLES = "".join(rf"(?<!\b{title})" for title in ("Dr", "Mr", "Mrs", "Prof", "St"))
STOP = re.compile(rf"(?:{TITLES}(?<=\w\w)\.|[!?])['\"”»)]*\s+[^\w\s]*[^\W\d_a-z]|[。！？]\s*\w")
SEVERAL = "a text seems to have several sentences, of which some may be left out; send a list, one sentence per text"
Request = tuple[list[str], Future[list[str]]]  # texts, and their translations once there are any
logger = logging.getLogger("headcount.serve")


@dataclass(frozen=True, kw_only=True)
class Settings(Opening):
    """conf/serve.yaml explains them."""

    device: str
    host: str
    port: Annotated[int, Interval(ge=0, lt=2**16)]
    precision: Literal["float32", "bfloat16", "int8"]
    engine: Literal["headcount", "ctranslate2"]


def translate_waiting(queue: Queue[Request], translator: Any) -> None:
    """Translate the requests of a queue for ever, all that wait in one batch."""
    while True:
        batch = [queue.get()]
        while not queue.empty():
            batch.append(queue.get())
        batch = [request for request in batch if request[1].set_running_or_notify_cancel()]
        try:
            found = iter(translator.translate([text for texts, _ in batch for text in texts]))
            for texts, answer in batch:
                answer.set_result([next(found) for _ in texts])
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)


def application(translator: Any, about: dict[str, str]) -> Any:
    """The Starlette application of a `Translator`. about: what /health answers beside its status."""
    from starlette.applications import Starlette  # here, since it is an extra
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    queue: Queue[Request] = Queue()
    Thread(target=translate_waiting, args=(queue, translator), daemon=True).start()

    async def translate(request: Any) -> JSONResponse:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST:
                raise HTTPException(413, f"the body has more than {MOST:,} bytes; send less text at once")
        text = text_of(body)
        if text is None:
            raise HTTPException(400, 'the body must be JSON such as {"text": "One."} or {"text": ["One.", "Two."]}')
        texts, most = text if isinstance(text, list) else [text], translator.longest
        pieces = max(map(len, translator.codec.encode(texts)), default=0)
        if most is not None and pieces > most:
            raise HTTPException(413, f"a text has {pieces:,} subwords, more than {most:,}; cut it into sentences")
        answer: Future[list[str]] = Future()
        queue.put((texts, answer))
        try:
            found = await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            raise HTTPException(503, "the server is stopping; try again later") from None
        except Exception as error:
            logger.error("a request failed: %s", first_line(error))
            raise HTTPException(500, "the translation failed; the server's log says why") from error
        warning = {"warning": SEVERAL} if any(map(STOP.search, texts)) else {}
        return JSONResponse({"translation": found if isinstance(text, list) else found[0], **warning})

    async def refused(request: Any, error: Any) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    health = Route("/health", lambda request: JSONResponse({"status": "ok", **about}))
    routes = [health, Route("/translate", translate, methods=["POST"])]
    return Starlette(routes=routes, exception_handlers={HTTPException: refused})


def text_of(body: bytes) -> str | list[str] | None:
    """The text, or texts, of a request; None for a body of another form."""
    with suppress(ValueError, RecursionError):
        match json.loads(body):
            case {"text": str() | list() as text, **others} if not others and all(type(each) is str for each in text):
                return text
    return None


def run(config: DictConfig) -> None:
    """Serve until SIGINT or SIGTERM. Raises InputError."""
    need("serve")
    import uvicorn  # here, because --help does not need these

    from headcount.export.engine import chosen_engine
    from headcount.run.opened import ensemble, open_runs

    with_engine = chosen_engine(config)
    runs = open_runs(config)
    opened = with_engine(ensemble(list(runs.values())))
    name, (source, target) = " + ".join(runs), opened.languages
    app = application(opened.translator, {"run": name, "source": source, "target": target})
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, log_level="critical", **LIMITS))
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)  # a line for each request
    host, port = config.host, config.port
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError, TypeError, UnicodeError) as error:
        raise InputError(f"host={host} port={port}: cannot listen there ({reason(error)})") from error
    with listener:
        # asyncio sets it only where the socket names TCP; without it, the second half of an answer comes 40 ms late.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        logger.info("%s: %s to %s on http://%s:%d (Ctrl-C ends)", name, source, target, *listener.getsockname()[:2])
        server.run([listener])
