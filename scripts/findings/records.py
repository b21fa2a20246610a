"""Time to quality: seconds from raw text to trained weights, over seeds, and whether their BLEU is above a mark.

    python scripts/findings/records.py NAME --mark 90 threads=2

Each seed is one `headcount train` that prepares its text anew. Its time ends when the weights are written, its score is
BLEU on validation by the run's search. A record stands if a one-sided t test over seeds finds the mean above the mark
(p < 0.01). Beside it stands the time in which a plain PyTorch loop trains on as many tokens, on the same machine.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import RESULTS, rendered
from omegaconf import OmegaConf
from scipy import stats

from headcount import open_run

RECORDS = RESULTS / "records"
ERROR, SEEDS = 0.01, 5
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("name", help="of the folder of the record in docs/results/records")
PARSER.add_argument("settings", nargs="*", help="of `headcount train`")
PARSER.add_argument("--mark", type=float, required=True, help="BLEU on validation that the mean must be above")
PARSER.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="five or more, to hand in a record")


def trained(seed: int, settings: list[str], record: Path) -> dict[str, Any]:
    """Train one seed, text prepared anew, in runs/records/NAME/SEED: its seconds, tokens and BLEU."""
    run = Path("runs", "records", record.name, str(seed))
    shutil.rmtree(run, ignore_errors=True)
    words = [*settings, f"seed={seed}", f"data.directory={run / 'data'}", f"hydra.run.dir={run}"]
    begin = time.time()
    subprocess.run([sys.executable, "-m", "headcount", "train", *words], check=True)
    seconds = (run / "model.safetensors").stat().st_mtime - begin
    shutil.copy(run / "config.yaml", record / "config.yaml")
    shutil.copy(run / "train.log", record / f"seed_{seed}.log")
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    found = {"seed": seed, "seconds": round(seconds, 1), "tokens": metrics["train"]["tokens"]}
    found |= {"bleu": metrics["valid"]["bleu"], "signature": metrics["valid"]["signature"]["bleu"]}
    found |= {"machine": metrics["hardware"], "versions": metrics["versions"]}
    return found | {"languages": open_run(run).languages}


def plain_rate(settings: list[str], machine: dict[str, Any]) -> float:
    """Tokens a second of the plain loop, in its faster precision, on a model of this size and on these batches."""
    bench = [sys.executable, "scripts/bench/run.py", "--work", "train", "--peers", "torch_loop"]
    device = "cuda" if machine["gpu"] else "cpu"
    words = [*bench, "--threads", str(machine["threads"]), "--device", device, "--settings", " ".join(settings)]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    rounds: dict[str, list[float]] = {}
    for line in (json.loads(each) for each in out.splitlines() if each.startswith("{")):
        if line["system"] == "torch_loop":
            rounds.setdefault(line["precision"], []).append(line["figure"])
    return max(sorted(each)[len(each) // 2] for each in rounds.values())


def judged(mark: float, runs: list[dict[str, Any]], plain: float) -> dict[str, Any]:
    """The record of these runs. plain: the tokens a second of the plain loop."""
    scores = [run["bleu"] for run in runs]
    mean = {name: sum(run[name] for run in runs) / len(runs) for name in ("seconds", "bleu", "tokens")}
    p = float(stats.ttest_1samp(scores, mark, alternative="greater").pvalue)
    seeds = len({run["seed"] for run in runs})
    found = {"mark": mark, "stands": seeds >= SEEDS and p < ERROR, "p": p, "bleu": round(mean["bleu"], 2)}
    plain_seconds = mean["tokens"] / plain
    found |= {"seconds": round(mean["seconds"], 1), "plain_seconds": round(plain_seconds, 1)}
    return found | {"ratio": round(mean["seconds"] / plain_seconds, 3), "runs": runs}


def page() -> str:
    """docs/records.md, from the kept records: tasks in order of their names, the fastest record of each first."""
    records = []
    for file in RECORDS.glob("*/record.json"):
        data = OmegaConf.load(file.with_name("config.yaml")).data
        found = json.loads(file.read_text(encoding="utf-8")) | {"name": file.parent.name}
        corpus = "built-in corpus" if data.kind == "grammar" else data.path
        task = f"{corpus}, {' to '.join(found['runs'][0]['languages'])}, {found['mark']:g} BLEU"
        records.append(found | {"task": task})
    records.sort(key=lambda each: (each["task"], not each["stands"], each["ratio"]))
    return rendered("records.md.jinja", records=records)


def main() -> None:
    given = PARSER.parse_intermixed_args()
    record = RECORDS / given.name
    record.mkdir(parents=True)
    described = ["git", "describe", "--always", "--abbrev=40", "--dirty"]
    commit = subprocess.run(described, check=True, capture_output=True, text=True).stdout.strip()
    runs = [trained(seed, given.settings, record) for seed in given.seeds]
    plain = plain_rate(given.settings, runs[0]["machine"])
    found = {"settings": given.settings, "commit": commit, **judged(given.mark, runs, plain)}
    (record / "record.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    words = "stands" if found["stands"] else "does not stand"
    sys.stdout.write(
        f"{given.name} {words}: {found['bleu']} BLEU after {found['seconds']} s, p {found['p']:.4f}\n"
        f"next:  make findings   # writes docs/records.md\n"
    )


if __name__ == "__main__":
    main()
