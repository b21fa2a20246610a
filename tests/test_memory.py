"""Peak memory of a run: translating and scoring the held-out text against training."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ENVIRONMENT, SCRIPTS

TRAIN, HELD_OUT = 4000, 800


def write_text(folder: Path) -> list[str]:
    """English-like and Chinese-like sentences, which share no words: each word is one or two of 3,000 characters.

    The options of a run on them.
    """
    rng = random.Random(1)
    options = ["data.source=en", "data.target=zh"]
    for split, size in {"train": TRAIN, "valid": HELD_OUT, "test": HELD_OUT}.items():
        sides: dict[str, list[str]] = {"source": [], "target": []}
        for _ in range(size):
            words = [int(rng.paretovariate(0.7)) % 3000 for _ in range(rng.randint(5, 30))]
            sides["source"].append(" ".join(f"w{word:x}" for word in words))
            sides["target"].append("".join(chr(0x4E00 + word) * (1 + word % 2) for word in words) + "。")
        for side, lines in sides.items():
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        options.append(f"data.{split}=[{folder / split}.source,{folder / split}.target]")
    return options


def resident(process: subprocess.Popen) -> int:
    """Resident memory of a process in KiB, 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read a process's memory from")
def test_evaluation_takes_at_most_half_more_memory_than_training(tmp_path):
    # After 20 steps translations are as long as the search allows: the worst case of memory.
    options = (*write_text(tmp_path), "data=files", "model=tiny", "tokenizer.vocab_size=5000", "steps=20")
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
