"""Matrix products alone, with torch: the ceiling that no trainer can exceed on this machine."""

import statistics
import time

import torch
from measure import Job, Result, main

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@torch.inference_mode()
def ceiling(job: Job) -> Result:
    """Operations a second of the products [m, k] x [k, n]: the median of the passes over all of them."""
    shapes, dtype = job["shapes"], DTYPES[job["precision"]]
    pairs = [(torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)) for m, k, n in shapes]
    operations = sum(2 * m * k * n for m, k, n in shapes)
    rates: list[float] = []
    begin = time.perf_counter()
    while len(rates) < 4 or time.perf_counter() - begin < job["seconds"]:
        start = time.perf_counter()
        for left, right in pairs:
            torch.nn.functional.linear(left, right)
        rates.append(operations / (time.perf_counter() - start))
    return {"rate": statistics.median(rates[1:])}  # the first one warms up


if __name__ == "__main__":
    main({"ceiling": ceiling}, ("torch",))
