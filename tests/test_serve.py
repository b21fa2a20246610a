"""The server: a real process that answers over loopback, its batches, and errors as JSON."""

import asyncio
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from types import SimpleNamespace

import pytest
from conftest import failed

from headcount.commands.serve import MOST, SEVERAL, STOP, application, text_of, translate_waiting
from headcount.run.opened import open_run

LINES = ["the dog sees the cat", "the bear likes the wolf", "", "the horse"]


@pytest.fixture(scope="module", params=["headcount", "ctranslate2"])
def port(home, request):
    """The port of a server in a process of its own; SIGTERM ends it."""
    if request.param != "headcount":
        pytest.importorskip(request.param)
    words = f"-m headcount serve run=runs/first port=0 device=cpu engine={request.param}"
    with subprocess.Popen([sys.executable, *words.split()], cwd=home, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "http://127.0.0.1:" not in (said := process.stderr.readline()):
            assert said, "the server has ended"
        try:
            yield int(said.split("127.0.0.1:")[1].split()[0])
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == -signal.SIGTERM
            assert all(re.match(r"127.0.0.1:\d+ - \"[A-Z]+ /", line) for line in process.stderr)
        finally:
            process.kill()


def asked(port: int, method: str, path: str, body=b"") -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.medium
def test_a_server_translates_as_the_run_does(port, home):
    expected = open_run(home / "runs" / "first", device="cpu").translator.translate(LINES)
    assert asked(port, "GET", "/health") == (200, {"status": "ok", "run": "runs/first", "source": "en", "target": "de"})

    def translation(text):
        status, answer = asked(port, "POST", "/translate", json.dumps({"text": text}).encode())
        return answer["translation"] if status == 200 else answer

    with ThreadPoolExecutor(8) as pool:  # each gets its own
        assert list(pool.map(translation, LINES * 5)) == expected * 5
    assert (translation(LINES), translation([])) == (expected, [])
    two = asked(port, "POST", "/translate", b'{"text": "The dog sees. The cat"}')
    assert two[1]["warning"] == SEVERAL
    errors = [
        (asked(port, "POST", "/translate", b"{"), 400, "the body must be JSON such as "),
        (asked(port, "POST", "/translate", b" " * (MOST + 1)), 413, "the body has more than 65,536 bytes"),
        (asked(port, "POST", "/translate", iter([b" " * 9000] * 9)), 413, "the body has more than 65,536 bytes"),
        (asked(port, "POST", "/translate", b'{"text": "' + b"dog " * 9000 + b'"}'), 413, "a text has "),
        (asked(port, "POST", "/other"), 404, "Not Found"),
        (asked(port, "GET", "/translate"), 405, "Method Not Allowed"),
    ]
    for (status, answer), expected_status, message in errors:
        assert status == expected_status
        assert answer["error"].startswith(message)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"nothing\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_the_end_of_a_sentence_within_a_text():
    several = [
        "The dog sees. The cat",
        "Look at me. I am",
        "I am ok! The man",
        'Sit down! "You',
        "Really? (Yes.)",
        "\u597d\u3002\u597d",
    ]
    assert all(map(STOP.search, several))
    one = [
        "Dr. Smith is here.",
        "Mrs. Smith sleeps.",
        "At 3.5 p.m. today.",
        "Really?",
        "He said: Go.",
        "It is 5 a.m. now.",
        "\u597d\u3002",
    ]
    assert not any(map(STOP.search, one))


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"[" * 40_000, b'{"text": 3}', b'["text"]', b"{}", b'{"text": ["a", 1]}', b'{"text": "a", "n": 1}'],
)
def test_a_body_of_another_form_has_no_text(body):
    assert text_of(body) is None


def test_requests_that_wait_share_a_batch_and_its_error():
    batches: list[list[str]] = []

    def translate(lines: list[str]) -> list[str]:
        batches.append(lines)
        if "bad" in lines:
            raise ValueError("the weights are damaged")
        return [line.upper() for line in lines]

    def answers(*requests: list[str]) -> list[Future[list[str]]]:
        waiting: Queue = Queue()
        waiting.queue.extend((request, Future()) for request in requests)
        first, gone, *others = (answer for _, answer in waiting.queue)
        gone.cancel()
        arguments = (waiting, SimpleNamespace(translate=translate))
        threading.Thread(target=translate_waiting, args=arguments, daemon=True).start()
        return [first, *others]

    assert [each.result(10) for each in answers(["a", "b"], ["gone"], [], ["c"])] == [["A", "B"], [], ["C"]]
    assert [str(each.exception(10)) for each in answers(["a"], ["gone"], ["bad"])] == ["the weights are damaged"] * 2
    assert batches == [["a", "b", "c"], ["a", "bad"]]


def posted(translate) -> tuple[int, dict]:
    """The answer to a text, from a server that is stopped after half a second."""
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b'{"text": "dog"}'}

    async def send(message: dict) -> None:
        sent.append(message)

    async def stopped() -> None:
        app = application(SimpleNamespace(translate=translate, longest=None, codec=SimpleNamespace(encode=list)), {})
        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": []}
        task = asyncio.create_task(app(scope, receive, send))
        await asyncio.wait([task], timeout=0.5)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(stopped())
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.medium
def test_what_fails_is_logged_and_what_the_end_cuts_off_is_told(caplog):
    assert posted(lambda lines: 1 / 0) == (500, {"error": "the translation failed; the server's log says why"})
    assert "a request failed: division by zero" in caplog.text
    event = threading.Event()
    assert posted(lambda lines: event.wait(20)) == (503, {"error": "the server is stopping; try again later"})
    event.set()


@pytest.mark.medium
def test_wrong_settings_are_one_line(home, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = failed("serve", "run=runs/first", f"port={port}", cwd=home)
    assert line.startswith(f"host=127.0.0.1 port={port}: cannot listen there (Address already in use")
    (line,) = failed("serve", "run=runs/first", "port=99999", cwd=home)
    assert line == "port=99999: must be less than 65536"
    assert failed("serve", "run=nothing", cwd=home)[0].startswith("nothing is not a run directory")
    monkeypatch.setattr("headcount.errors.requires", lambda name: ['no-such-thing>=1; extra == "serve"', "other"])
    assert failed("serve", cwd=home) == ['no-such-thing is not installed: pip install "headcount[serve]"']
