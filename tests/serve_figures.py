"""Latency of docs/serve.md: python tests/serve_figures.py RUN [SETTING=VALUE ...] starts a server for each engine and
prints a table. The servers take turns; those that wait do nothing.

Clients, in a process beside them, send test sentences one after the other: 20 to warm up, then for each number of
clients as many as take SECONDS. Milliseconds are those from the request to the whole answer.
"""

import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from headcount.run.opened import open_run

CLIENTS = (1, 8, 64)
SECONDS = 15.0
ENGINES = {
    "headcount": (),
    "ctranslate2": ("engine=ctranslate2",),
    "ctranslate2, int8": ("engine=ctranslate2", "precision=int8"),
}


def main(directory: str, *settings: str) -> None:
    sources = list(open_run(directory, device="cpu").data().data["test"]["source"])
    with ExitStack() as servers:
        ports = {name: servers.enter_context(server(directory, *each, *settings)) for name, each in ENGINES.items()}
        for port in ports.values():
            measured(port, sources, 1, 0.0)
        print("| clients | engine | p50, ms | p99, ms | sentences/s |\n|---|---|---|---|---|")  # noqa: T201
        for clients, (name, port) in itertools.product(CLIENTS, ports.items()):
            times, seconds = measured(port, sources, clients, SECONDS)
            low, high = np.percentile(times, [50, 99])
            print(f"| {clients} | {name} | {low:.0f} | {high:.0f} | {len(times) / seconds:.0f} |", flush=True)  # noqa: T201


@contextmanager
def server(directory: str, *settings: str) -> Iterator[int]:
    """The port of a server, which ends with the context."""
    command = [sys.executable, "-m", "headcount", "serve", f"run='{directory}'", "port=0", "device=cpu", *settings]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield int(process.stderr.readline().split("127.0.0.1:")[1].split()[0])
        finally:
            process.terminate()


def measured(port: int, sources: list[str], clients: int, seconds: float) -> tuple[list[float], float]:
    """Milliseconds of each request, and the seconds of all. Each client sends 20 at least."""
    times: list[float] = []
    began = time.monotonic()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for sent in itertools.count():
            if sent >= 20 and time.monotonic() - began > seconds:
                return
            text = sources[(number * 37 + sent) % len(sources)]
            start = time.perf_counter()
            connection.request("POST", "/translate", json.dumps({"text": text}))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            times.append(1000 * (time.perf_counter() - start))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, time.monotonic() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
