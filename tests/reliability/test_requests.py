"""The server under hostile requests, oversized, broken and slow: REQUESTS of them (10,000), and none ends it."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from hostile_requests import TIMEOUT, campaign, served, translation

from headcount.run.opened import open_run

pytestmark = pytest.mark.reliability

REQUESTS = int(os.environ.get("REQUESTS", "10000"))
MOST_GROWTH = 150e6  # bytes of memory


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hostile_requests_end_nothing(home):
    translator = open_run(home / "runs" / "first", device="cpu").translator
    expected = translator.translate(["the dog sees the cat"])
    with served(translator) as address:
        # First the memory that is needed once: torch keeps products of hundreds of shapes, on some processors 0.5 GB.
        campaign(address, REQUESTS, first=10**9)
        before, began = resident(), time.monotonic()
        found = campaign(address, REQUESTS)
        seconds, grown = time.monotonic() - began, resident() - before
        assert translation(address) == expected
        time.sleep(4 * TIMEOUT)
        files = len(os.listdir("/proc/self/fd"))
    by_status = Counter(status for (_, status), times in found.items() for _ in range(times))
    kinds = len({kind for kind, _ in found})
    print(f"\n{found.total():,} hostile requests of {kinds} kinds in {seconds:.0f} s: answers {dict(by_status)}")  # noqa: T201
    print(f"memory grew by {grown / 1e6:.0f} MB; {files} files open at the end")  # noqa: T201
    assert grown < MOST_GROWTH
    assert files < 100
