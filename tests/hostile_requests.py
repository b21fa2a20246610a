"""Hostile requests to the server: oversized, broken and slow ones, each drawn at random, and the answers to them."""

import asyncio
import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headcount.serve.app import Limits, application
from headcount.serve.server import listen, make_server

LIMITS = {"max_body": 4096, "max_texts": 16, "max_pieces": 40, "batch_pieces": 256, "max_waiting": 65536}
TIMEOUT = 0.5  # of the server, in seconds
USUAL = {"oversized": {413}, "broken": {400}, "slow": {408}}
OTHERS = {
    "declared body": {400, 413},
    "header": {400},
    "headers": {400},
    "path": {400, 404},
    "depth": {400},
    "number": {400},
    "bytes": {400, 404, 405, 408},
    "cut request": {408},
    "changed request": {200, 400, 404, 405, 408, 413},
    "changed body": {200, 400},
    "UTF-8": {200, 400},
    "odd text": {200, 413},
    "escaped surrogate": {200},
    "chunks": {400, 408},
    "method": {200, 400, 404, 405},
    "protocol": {400, 404, 408},
    "upgrade": {200},
    "expect": {408},
    "many at once": {200},
    "never reads": {200},
}
BROKEN_OFF = ("reset", "reset at once", "half closed")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER that ends a connection with RST


def post(body: bytes, *headers: str, path: str = "/translate", length: int | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def texts(*lines: str) -> bytes:
    return json.dumps({"text": lines}).encode()


GOOD = post(texts("the dog sees the cat"), "Connection: close")
ODD = (
    "\x00",
    "\u202e",
    "\ufeff",
    "\U0001f469\u200d\U0001f467",
    "\ud83d",
    "a\u0301" * 9,
    "\u2028",
    "\x1b[2J",
    "<b>",
    "%s",
)
FORMS = b'||null|[]|3|"text"|{}|{"text": null}|{"text": [3]}|{"text": {}}|NaN|{"text": [["a"]]}'.split(b"|")
NOT_UTF8 = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5")
LENGTHS = ("-1", "x", "1e3", "5, 6", "+2")
CHUNKS = (b"-1\r\n", b"zz\r\n", b"ffffffffffffffffffff\r\nx", b"5\r\nab")
METHODS = ("GET", "PUT", "TRACE", "CONNECT", "BREW", "G=T")
PATHS = ("/translate", "/", "/health", "*", "/../../etc/passwd", "http://y/")
HEADER_LINES = ("no colon", ": empty", "a b: c", "X: \x00", " folded: x")
PROTOCOLS = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"SSH-2.0-x\r\n",
    b"\n\n\n\n",
    b"GET /health\r\n\r\n",
)
HEAD = "POST /translate HTTP/1.1\r\nHost: x\r\n"
CHUNKED = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
)


def other_method(draw: random.Random) -> bytes:
    line = f"{draw.choice(METHODS)} {draw.choice(PATHS)} HTTP/1.1"
    return f"{line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


OVERSIZED: dict[str, Callable[[random.Random], bytes]] = {
    "body": lambda draw: post(texts("x" * draw.randrange(4096, 60_000))),
    "declared body": lambda draw: post(b"{", length=draw.choice([4097, 10**9, 10**18, 10**30])),
    "chunked body": lambda draw: _chunked([b"x" * 1000] * draw.randrange(5, 50)),
    "text": lambda draw: post(texts("dog " * draw.randrange(60, 900))),
    "texts": lambda draw: post(texts(*["dog"] * draw.randrange(17, 400))),
    "header": lambda draw: post(b"{}", "X: " + "x" * draw.randrange(70_000, 200_000)),
    "headers": lambda draw: post(b"{}", *[f"X-{n}: x" for n in range(draw.randrange(5000, 9000))]),
    "path": lambda draw: post(b"{}", path="/" + "x" * draw.randrange(1000, 100_000)),
    "depth": lambda draw: post(b'{"text":' + b"[" * draw.randrange(500, 4000)),
    "number": lambda draw: post(b'{"text": ' + b"9" * draw.randrange(3000, 4000) + b"}"),
}
BROKEN: dict[str, Callable[[random.Random], bytes]] = {
    "bytes": lambda draw: draw.randbytes(draw.randrange(1, 3000)),
    "bytes as a body": lambda draw: post(draw.randbytes(draw.randrange(1, 3000))),
    "cut request": lambda draw: GOOD[: draw.randrange(1, len(GOOD))],
    "changed request": lambda draw: _changed(draw, GOOD),
    "changed body": lambda draw: post(_changed(draw, texts("the dog", "the cat"))),
    "form": lambda draw: post(draw.choice(FORMS)),
    "UTF-8": lambda draw: post(b'{"text": "' + draw.choice(NOT_UTF8) + b'"}'),
    "odd text": lambda draw: post(texts("".join(draw.choices(ODD, k=draw.randrange(1, 12)))), "Connection: close"),
    "escaped surrogate": lambda draw: post(rb'{"text": "\ud83d"}', "Connection: close"),
    "length": lambda draw: f"{HEAD}Content-Length: {draw.choice(LENGTHS)}\r\n\r\n{{}}".encode(),
    "two lengths": lambda draw: post(b"{}", "Content-Length: 7"),
    "chunks": lambda draw: CHUNKED + draw.choice(CHUNKS),
    "length and chunks": lambda draw: post(b"0\r\n\r\n", "Transfer-Encoding: chunked"),
    "method": other_method,
    "protocol": lambda draw: draw.choice(PROTOCOLS),
    "upgrade": lambda draw: UPGRADE,
    "expect": lambda draw: post(b"", "Expect: 100-continue", length=10),
    "many at once": lambda draw: post(texts("the dog")) * draw.randrange(2, 30) + b"GET",
    "header line": lambda draw: post(b"{}", draw.choice(HEADER_LINES)),
}
SLOW = (
    *("silent", "silent header", "silent body", "drip", "reset", "reset at once"),
    *("half closed", "never reads", "second request", "pipelined body"),
)


def _chunked(parts: list[bytes]) -> bytes:
    body = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts)
    return CHUNKED + body + b"0\r\n\r\n"


def _changed(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randrange(1, 6)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


@dataclass(frozen=True)
class Answer:
    """The first answer: its status, None for none, and its body.

    broken_off: whether the client closed its side of the connection. seconds: from the connection to the answer.
    """

    kind: str
    status: int | None
    body: bytes
    broken_off: bool
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether such a request may get it: JSON with a status that fits, or none where the client broke off."""
        family, _, kind = self.kind.partition(": ")
        if kind in BROKEN_OFF:
            return self.status in (None, 200)
        if self.status is None:
            return self.broken_off
        late = self.status == 408 and self.seconds > TIMEOUT  # also where this machine was slow
        if self.status not in OTHERS.get(kind, USUAL[family]) and not late:
            return False
        sent = json.loads(self.body)
        return self.status == 200 or (list(sent) == ["error"] and "\n" not in sent["error"])


def attack(address: tuple[str, int], seed: int) -> Answer:
    """One hostile request."""
    draw = random.Random(seed)
    began, broken_off = time.monotonic(), False
    family = draw.choice(("oversized", "broken", "slow"))
    with socket.create_connection(address, timeout=20) as client:
        if family == "slow":
            kind = draw.choice(SLOW)
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                slowly(client, kind, draw)
        else:
            requests = OVERSIZED if family == "oversized" else BROKEN
            kind = draw.choice(list(requests))
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                client.sendall(requests[kind](draw))
            if broken_off := draw.random() < 0.5:
                with contextlib.suppress(OSError):  # not connected: the server has closed it
                    client.shutdown(socket.SHUT_WR)
        status, body = read(client)
    return Answer(f"{family}: {kind}", status, body, broken_off, time.monotonic() - began)


def slowly(client: socket.socket, kind: str, draw: random.Random) -> None:
    if kind == "silent header":
        client.sendall(GOOD[: draw.randrange(1, 60)])
    elif kind == "silent body":
        client.sendall(GOOD[:-5])
    elif kind == "drip":
        for byte in GOOD[:40]:
            client.sendall(bytes([byte]))
            time.sleep(TIMEOUT / 20)
    elif kind.startswith("reset"):
        client.sendall(GOOD if kind == "reset" else GOOD[:30])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if kind == "reset":
            time.sleep(draw.random() * 0.05)
        client.close()
    elif kind == "half closed":
        client.sendall(GOOD)
        client.shutdown(socket.SHUT_WR)
    elif kind == "never reads":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.sendall(post(texts(*["the dog sees the cat"] * 16)) * 40)
        time.sleep(TIMEOUT / 2)
    elif kind == "second request":
        client.sendall(post(texts("the dog")))
        read(client)
        client.sendall(b"POST /tr")
    elif kind == "pipelined body":
        client.sendall(HEALTH + post(b"", length=5))
        read(client)


def read(client: socket.socket) -> tuple[int | None, bytes]:
    """The status and body of the next answer; None for none, also where the connection ends within it."""
    found = b""
    with contextlib.suppress(OSError):
        while (answer := whole(found)) is None and (part := client.recv(65536)):
            found += part
            if found.startswith(b"HTTP/1.1 100 "):
                found = found.partition(b"\r\n\r\n")[2]
        return answer or (None, b"")
    return None, b""


def whole(found: bytes) -> tuple[int, bytes] | None:
    """The status and body of an answer; None while some of it is missing."""
    head, end, body = found.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
    return (int(lines[0].split()[1]), body[:length]) if end and len(body) >= length else None


def campaign(
    address: tuple[str, int], count: int, clients: int = 32, first: int = 0
) -> Counter[tuple[str, int | None]]:
    """Answers to `count` hostile requests by kind and status; in between, good requests must be answered. Raises
    AssertionError for an answer that such a request must not get."""
    found: Counter[tuple[str, int | None]] = Counter()
    with ThreadPoolExecutor(clients) as pool:
        for number, answer in enumerate(pool.map(lambda seed: attack(address, seed), range(first, first + count))):
            assert answer.is_fine, answer
            found[answer.kind, answer.status] += 1
            if number % 50 == 0:
                assert translation(address) is not None, answer
    return found


def translation(address: tuple[str, int], *lines: str) -> object:
    """What a good request gets."""
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(post(texts(*lines or ("the dog sees the cat",)), "Connection: close"))
        status, body = read(client)
    assert status == 200, (status, body)
    return json.loads(body)["translation"]


@contextlib.contextmanager
def served(translator, timeout: float = TIMEOUT, max_connections: int = 256, **limits: int):
    """The address of a server in a thread of this process."""
    listener = listen("127.0.0.1", 0)
    app = application(translator, {"run": "first", "source": "en", "target": "de"}, Limits(**LIMITS | limits))
    server = make_server(app, timeout, max_connections)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()
