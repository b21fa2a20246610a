"""The HTTP server: uvicorn with deadlines for slow clients, errors as JSON, and a clean end."""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from headcount.errors import InputError, reason

GRACE = 10  # seconds that requests have to end when the server stops

logger = logging.getLogger(__name__)


class Protocol(H11Protocol):
    """HTTP/1.1 with a deadline for each request and each answer, so that no client keeps a connection for long.

    timeout: seconds from the first byte of a request (or from the connection) to its last, and from a full buffer to
    an empty one. max_connections: further ones are refused.
    """

    timeout: float
    max_connections: int

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._late: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(503, "too many connections; try again later")
        else:
            self._late = self.loop.call_later(self.timeout, self._too_late)

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._late, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._late is None:
            self._late = self.loop.call_later(self.timeout, self._too_late)
        super().data_received(data)
        if self._late is not None and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._late.cancel()  # the request is whole
            self._late = None

    def handle_events(self) -> None:
        super().handle_events()
        if self._late is None and self.conn.their_state is h11.SEND_BODY:  # of a request that came with the last one
            self._late = self.loop.call_later(self.timeout, self._too_late)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None and not self.transport.is_closing():
            self._stuck.cancel()
            self._stuck = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "not a valid HTTP/1.1 request")

    def _too_late(self) -> None:
        self._refuse(408, f"the request did not arrive within {self.timeout:g} seconds")

    def _refuse(self, status: int, message: str) -> None:
        """Answer outside of the application, where it has not begun to, and end the connection."""
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            body = json.dumps({"error": message}).encode()
            head = f"HTTP/1.1 {status} Error\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        self._end()

    def _end(self) -> None:
        """Close the connection, at once where the client does not read what is still to send."""
        self.transport.close()
        self._stuck = self._stuck or self.loop.call_later(self.timeout, self.transport.abort)


class Server(uvicorn.Server):
    """uvicorn's server, which ends with exit code 0 after the first SIGINT or SIGTERM, and at once after a second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        logger.info("stopping: requests that have begun are answered")
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # which alone gets signals
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises InputError where it cannot."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)
        # asyncio sets it only where the socket names TCP; without it, the second half of an answer comes 40 ms late.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(
            f"host={host} port={port}: cannot listen there ({reason(error)}); give another port, 0 for any that is free"
        ) from error


def make_server(app: Starlette, timeout: float, max_connections: int) -> Server:
    """The server of an application. timeout, max_connections: see `Protocol`."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what clients do wrong is for them to know
    protocol = type("Limited", (Protocol,), {"timeout": timeout, "max_connections": max_connections})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    return Server(config)
