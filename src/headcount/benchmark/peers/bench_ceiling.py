"""Matrix products alone, with torch: the ceiling that no trainer can exceed on this machine."""

import statistics
import time
from typing import Any

import torch
from measure import read_job, report

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def rate(shapes: list[tuple[int, int, int]], dtype: torch.dtype, seconds: float) -> list[float]:
    """Operations a second of the products [m, k] x [k, n], one figure for each pass over all of them."""
    pairs = [(torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)) for m, k, n in shapes]
    operations = sum(2 * m * k * n for m, k, n in shapes)
    rates: list[float] = []
    begin = time.perf_counter()
    while len(rates) < 4 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for left, right in pairs:
            torch.nn.functional.linear(left, right)
        rates.append(operations / (time.perf_counter() - start))
    return rates[1:]  # the first one warms up


if __name__ == "__main__":
    job: dict[str, Any] = read_job()
    torch.set_num_threads(job["threads"])
    with torch.inference_mode():
        rates = rate(job["shapes"], DTYPES[job["precision"]], job["seconds"])
    report({"rate": statistics.median(rates)}, job["precision"], ("torch",))
