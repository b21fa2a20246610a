"""Peak memory of a run: translating and scoring the held-out text against training."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ENVIRONMENT, SCRIPTS

TRAIN, HELD_OUT = 4000, 800


def write_text(folder: Path) -> tuple[str, ...]:
    """Lines of 3,000 characters, which the two languages share, and the options of a run on them."""
    rng = random.Random(1)
    for split, size in {"train": TRAIN, "valid": HELD_OUT, "test": HELD_OUT}.items():
        for language in ("en", "zh"):
            lengths = (rng.randint(5, 30) for _ in range(size))
            lines = ["".join(chr(0x4E00 + int(rng.paretovariate(0.7)) % 3000) for _ in range(n)) for n in lengths]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "data=multi30k", f"data.root={folder}", "data.source=en", "data.target=zh"


def resident(process: subprocess.Popen) -> int:
    """Resident memory of a process in pages, 0 when it has ended."""
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    except OSError:
        return 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read a process's memory from")
def test_evaluation_takes_at_most_half_more_memory_than_training(tmp_path):
    # After 20 steps translations are as long as the search allows: the worst case of memory.
    options = (*write_text(tmp_path), "model=tiny", "tokenizer.vocab_size=5000", "steps=20")
    options += ("schedule.warmup_steps=10", "validation.every=20", "logger=none", "threads=2")
    environment = ENVIRONMENT | {"OMP_NUM_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, SCRIPTS / "train.py", *options], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    peak = {"training": 0, "evaluation": 0}
    try:
        while process.poll() is None:
            phase = "evaluation" if list(tmp_path.glob("runs/*/model.safetensors")) else "training"
            peak[phase] = max(peak[phase], resident(process))
            time.sleep(0.02)
    finally:
        process.kill()
    assert process.returncode == 0
    assert peak["evaluation"] <= 1.5 * peak["training"], peak
