"""Matrix products alone, with torch: the ceiling that no trainer can exceed on this machine."""

import statistics
import time

import torch
from measure import Job, Result, main, waiting

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@torch.inference_mode()
def ceiling(job: Job) -> Result:
    """Operations a second of the products [m, k] x [k, n]: the median of the passes over all of them."""
    shapes, kind = job["shapes"], {"dtype": DTYPES[job["precision"]], "device": job["device"]}
    wait = waiting(job["device"])
    pairs = [(torch.randn(m, k, **kind), torch.randn(n, k, **kind)) for m, k, n in shapes]
    repeats = 1 if job["device"] == "cpu" else 10  # of which a GPU has a queue, as in training
    operations = sum(2 * m * k * n for m, k, n in shapes)
    rates: list[float] = []
    begin = time.perf_counter()
    while len(rates) < 4 or time.perf_counter() - begin < job["seconds"]:
        start = time.perf_counter()
        for left, right in pairs * repeats:
            torch.nn.functional.linear(left, right)
        if wait:
            wait()
        rates.append(repeats * operations / (time.perf_counter() - start))
    return {"rate": statistics.median(rates[1:])}  # the first one warms up


if __name__ == "__main__":
    main({"ceiling": ceiling}, ("torch",))
