"""The server: batches of concurrent requests, limits, errors as JSON, slow clients, and a clean end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import failed
from hostile_requests import GOOD, HEALTH, TIMEOUT, Answer, campaign, post, read, served, texts, translation

from headcount.decoding.search import NotFiniteError
from headcount.errors import InputError
from headcount.run.opened import open_run
from headcount.serve.batching import Batcher, BusyError
from headcount.serve.server import listen

LINES = ["the dog sees the cat", "the bear likes the wolf", "", "the horse"]


def batched(translate, *requests: list[str], batch_pieces: int = 100, max_waiting: int = 1000) -> list:
    """Answers, or errors, of requests that come at once; a text has as many pieces as letters."""

    async def answers() -> list:
        batcher = Batcher(translate, batch_pieces, max_waiting)
        task = asyncio.create_task(batcher.run())
        coming = (batcher.answer(request, [len(text) for text in request]) for request in requests)
        found = await asyncio.gather(*coming, return_exceptions=True)
        task.cancel()
        assert batcher.waiting == 0
        return found

    return asyncio.run(asyncio.wait_for(answers(), 10))


def test_requests_that_come_at_once_share_a_batch():
    batches: list[list[str]] = []

    def translate(lines: list[str]) -> list[str]:
        batches.append(lines)
        return [line.upper() for line in lines]

    assert batched(translate, ["a", "b"], ["c"], [], ["d"]) == [["A", "B"], ["C"], [], ["D"]]
    assert batches == [["a", "c", "d", "b"]]  # each request in turn


def test_a_long_request_does_not_hold_a_short_one():
    batches: list[list[str]] = []

    def translate(lines: list[str]) -> list[str]:
        batches.append(lines)
        return [line.upper() for line in lines]

    long, short = [f"{number}" * 4 for number in range(9)], ["x", "y"]
    assert batched(translate, long, short, batch_pieces=10)[1] == ["X", "Y"]
    assert batches[0] == [long[0], "x", long[1], "y"]
    assert all(sum(map(len, batch)) <= 10 for batch in batches)
    assert batched(translate, ["x" * 99], batch_pieces=10) == [["X" * 99]]  # alone, a longer one may come


def test_what_is_too_much_to_wait_is_refused_and_the_rest_answered():
    found = batched(lambda lines: lines, ["a" * 6], ["b" * 6], ["c" * 2], max_waiting=10)
    assert [type(each) for each in found] == [list, BusyError, list]
    assert batched(lambda lines: lines, ["a" * 60], max_waiting=10) == [["a" * 60]]  # nothing else waits


def test_an_error_is_that_of_its_batch_alone():
    def translate(lines: list[str]) -> list[str]:
        if "bad" in lines:
            raise NotFiniteError("run")
        return lines

    bad, good = batched(translate, ["bad", "next"], ["good"], batch_pieces=3)
    assert isinstance(bad, NotFiniteError)
    assert good == ["good"]


@pytest.fixture(scope="module")
def translator(home):
    return open_run(home / "runs" / "first", device="cpu").translator


@pytest.fixture(scope="module")
def address(translator):
    with served(translator) as found:
        yield found


def asked(address, request: bytes) -> tuple[int | None, dict]:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(request)
        status, body = read(client)
    return status, json.loads(body)


@pytest.mark.medium
def test_it_translates_as_the_run_does(address, translator):
    assert translation(address, *LINES) == translator.translate(LINES)
    one = asked(address, post(json.dumps({"text": LINES[0]}).encode(), "Connection: close"))
    assert one == (200, {"translation": translator.translate(LINES[:1])[0]})
    assert asked(address, post(b'{"text": []}', "Connection: close")) == (200, {"translation": []})


@pytest.mark.medium
def test_concurrent_clients_get_their_own_translations(address, translator):
    expected = dict(zip(LINES, translator.translate(LINES), strict=True))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda line: (line, translation(address, line, line)), LINES * 10))
    assert all(each == [expected[line]] * 2 for line, each in found)


def test_health_names_the_run(address):
    answer = asked(address, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer == (200, {"status": "ok", "run": "first", "source": "en", "target": "de"})


FORM = 'the body must be JSON such as {"text": "A sentence."} or {"text": ["One.", "Two."]}'


@pytest.mark.medium
@pytest.mark.parametrize(
    ("request_", "status", "error"),
    [
        (post(b"{"), 400, FORM),
        (post(b"\xff"), 400, FORM),
        (post(b"[" * 4000), 400, FORM),
        (post(b'{"text": 3}'), 400, FORM),
        (post(b'["text"]'), 400, FORM),
        (post(b'{"text": "dog", "nbest": 3}'), 400, f"'nbest' is not known; {FORM}"),
        (post(texts(*["dog"] * 17)), 413, "17 texts, more than 16; send fewer at once"),
        (post(texts("a", "dog " * 60)), 413, "text 2 has "),
        (post(b" " * 5000), 413, "the body has more than 4,096 bytes; send less text at once"),
        (post(b"", length=10**9), 413, "the body has more than 4,096 bytes; send less text at once"),
        (post(b"{}", path="/other"), 404, "Not Found"),
        (post(b"{}", path="/translate/"), 404, "Not Found"),
        (b"GET /translate HTTP/1.1\r\nHost: x\r\n\r\n", 405, "Method Not Allowed"),
        (b"nothing\r\n\r\n", 400, "not a valid HTTP/1.1 request"),
        (GOOD[:30], 408, "the request did not arrive within 0.5 seconds"),
        (GOOD[:-3], 408, "the request did not arrive within 0.5 seconds"),
    ],
)
def test_an_error_is_one_line_of_json(address, request_, status, error):
    found, answer = asked(address, request_)
    assert (found, list(answer)) == (status, ["error"])
    assert answer["error"].startswith(error)
    assert "\n" not in answer["error"]


@pytest.mark.medium
def test_a_failure_of_the_model_is_logged_and_the_next_request_answered(translator, caplog, monkeypatch):
    translate = translator.translate

    def failing(lines):
        if lines == ["the dog"]:
            raise NotFiniteError("runs/first")
        return translate(lines)

    monkeypatch.setattr(translator, "translate", failing)
    with served(translator) as address:
        answer = asked(address, post(texts("the dog"), "Connection: close"))
        assert answer == (500, {"error": "the translation failed; the server's log says why"})
        assert translation(address)
    assert "a request failed: runs/first: its probabilities are not finite numbers" in caplog.text


def held(translator):
    """A translator that waits, and the event it waits for; it keeps its batches."""
    event = threading.Event()

    class Held:
        longest, codec = translator.longest, translator.codec
        batches: list[list[str]] = []  # noqa: RUF012

        @classmethod
        def translate(cls, lines):
            cls.batches.append(lines)
            event.wait(20)
            return lines

    return Held, event


@pytest.mark.medium
def test_more_pieces_than_may_wait_are_refused(translator):
    waits, event = held(translator)
    with served(waits, max_waiting=20) as address, ThreadPoolExecutor(8) as pool:
        coming = [
            pool.submit(asked, address, post(texts("the dog sees the cat"), "Connection: close")) for _ in range(8)
        ]
        time.sleep(0.5)
        event.set()
        found = [each.result() for each in coming]
    refused = {"error": "too many texts are waiting; try again later"}
    assert sorted({status for status, _ in found}) == [200, 503]
    assert all(answer == refused for status, answer in found if status == 503)


@pytest.mark.medium
def test_a_client_that_is_gone_neither_waits_nor_is_translated(translator):
    waits, event = held(translator)
    with served(waits, max_waiting=20) as address, ThreadPoolExecutor(2) as pool:
        first = pool.submit(translation, address, "the dog")
        time.sleep(0.3)
        for _ in range(9):  # more than may wait
            with socket.create_connection(address) as client:
                client.sendall(post(texts("the cat", "the bear")))
                time.sleep(0.05)
        time.sleep(0.3)
        last = pool.submit(translation, address, "the wolf")
        time.sleep(0.3)
        event.set()
        assert (first.result(), last.result()) == (["the dog"], ["the wolf"])
    assert waits.batches == [["the dog"], ["the wolf"]]


@pytest.mark.medium
def test_slow_clients_hold_nobody(address):
    silent = [socket.create_connection(address) for _ in range(100)]
    began = time.monotonic()
    assert translation(address)
    assert time.monotonic() - began < 5
    assert {read(client)[0] for client in silent} == {408}  # each is told, and its connection ended


@pytest.mark.medium
def test_a_request_that_came_with_the_one_before_has_a_deadline_too(address):
    with socket.create_connection(address, timeout=TIMEOUT + 3) as client:  # uvicorn ends idle connections after 5 s
        client.sendall(HEALTH + post(b"", length=5))
        assert read(client)[0] == 200
        assert read(client)[0] == 408


@pytest.mark.medium
def test_a_connection_beyond_the_limit_is_refused(translator):
    with served(translator, timeout=20, max_connections=3) as address:
        held = [socket.create_connection(address) for _ in range(3)]
        time.sleep(0.2)
        assert asked(address, GOOD) == (503, {"error": "too many connections; try again later"})
        for client in held:
            client.close()
        time.sleep(0.2)
        assert translation(address)


@pytest.mark.parametrize(
    ("kind", "status", "broken_off", "fine"),
    [
        ("oversized: body", 413, False, True),
        ("oversized: body", 200, False, False),
        ("oversized: body", 408, False, False),
        ("oversized: body", None, True, True),
        ("oversized: body", None, False, False),
        ("slow: silent", None, False, False),
        ("slow: reset", None, False, True),
    ],
)
def test_an_answer_to_a_hostile_request_fits_its_kind(kind, status, broken_off, fine):
    assert Answer(kind, status, b'{"error": "line"}', broken_off, 0.1).is_fine is fine


@pytest.mark.medium
def test_hostile_requests(address):
    """The first of those of tests/reliability/test_requests.py."""
    found = campaign(address, 150)
    assert found.total() == 150
    assert {status for _, status in found} > {None, 200, 400, 413}
    assert translation(address)


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_first_half():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()


def test_a_port_that_is_taken_is_one_line():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            InputError, match=rf"^host=127.0.0.1 port={port}: cannot listen there \(Address already in use"
        ):
            listen("127.0.0.1", port)
    with pytest.raises(InputError, match=r"host=no.such.host.invalid port=1: cannot listen there"):
        listen("no.such.host.invalid", 1)


@pytest.mark.medium
def test_wrong_settings_are_a_line_each(tmp_path):
    lines = failed("serve", "port=99999", "timeout=0", "max_body=x", "host=[a]", "run=nothing", cwd=tmp_path)
    assert lines == [
        "max_body=x: must be a whole number, 1 or more",
        "timeout=0: must be a number of seconds, more than 0",
        "host=[a]: must be text, such as 127.0.0.1",
        "port=99999: must be a whole number from 0 to 65535",
    ]
    assert failed("serve", "run=nothing", cwd=tmp_path)[0].startswith("nothing is not a run directory")


@pytest.mark.medium
@pytest.mark.parametrize("engine", ["headcount", "ctranslate2"])
def test_the_engine_that_was_asked_for_translates(engine, home, monkeypatch):
    if engine != "headcount":
        pytest.importorskip(engine)

    def application(translator, about, limits):
        raise InputError(f"{type(translator).__name__}: {translator.translate(LINES)}")

    monkeypatch.setattr("headcount.serve.app.application", application)
    expected = open_run(home / "runs" / "first", device="cpu", search={"max_ratio": 10}).translator.translate(LINES)
    (found,) = failed("serve", "run=runs/first", "search.max_ratio=10", f"engine={engine}", cwd=home)
    name = {"headcount": "Translator", "ctranslate2": "CTranslate2Translator"}[engine]
    assert found == f"{name}: {expected}"


def test_without_its_packages_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.errors.find_spec", lambda name: None)
    assert failed("serve", cwd=tmp_path) == ['starlette and uvicorn are not installed: pip install "headcount[serve]"']


@contextlib.contextmanager
def started(line, home):
    """A server in a process of its own, and its port."""
    with subprocess.Popen(line, cwd=home, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "http://" not in (said := process.stderr.readline()):
            assert said, "the server has ended"
        try:
            yield process, int(said.split("127.0.0.1:")[1].split()[0])
        finally:
            process.kill()


STOPPING = b'{"error":"the server is stopping; try again later"}'


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["headcount", "ctranslate2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_when_the_requests_are_answered(home, number, engine):
    line = [sys.executable, "-m", "headcount", "serve", "run=runs/first", "port=0", "device=cpu", f"engine={engine}"]
    with started(line, home) as (process, port):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(GOOD[:-4])
            time.sleep(0.3)
            os.kill(process.pid, number)
            time.sleep(0.3)
            client.sendall(GOOD[-4:])
            assert read(client)[0] == 200
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "stopping: requests that have begun are answered\n"


@pytest.mark.medium
def test_requests_that_the_stop_cuts_off_are_told(translator, monkeypatch):
    monkeypatch.setattr("headcount.serve.server.GRACE", 0.2)
    waits, event = held(translator)
    clients = []
    with served(waits, timeout=20) as address:
        for request in (post(texts("the dog")), post(texts("the cat")), GOOD[:-4]):
            clients.append(socket.create_connection(address, timeout=10))
            clients[-1].sendall(request)
            time.sleep(0.2)
    assert [read(client) for client in clients] == [(503, STOPPING)] * 3
    event.set()
    assert waits.batches == [["the dog"]]


STUCK = """
import sys, time
import headcount.decoding.translator, headcount.serve.server
from headcount.commands.serve import main

headcount.decoding.translator.Translator.translate = lambda self, texts: time.sleep(40)
headcount.serve.server.GRACE = 1
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("signals", "code"), [(1, 0), (2, -signal.SIGTERM)])
def test_a_batch_that_takes_long_does_not_hold_the_end(home, signals, code):
    line = [sys.executable, "-c", STUCK, "run=runs/first", "port=0", "device=cpu"]
    with started(line, home) as (process, port), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(GOOD)
        time.sleep(0.5)
        began = time.monotonic()
        for _ in range(signals):
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.3)
        assert process.wait(30) == code
        assert time.monotonic() - began < (8 if signals == 1 else 2)
        assert read(client) == ((503, STOPPING) if signals == 1 else (None, b""))
