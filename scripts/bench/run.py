"""Speed of headcount beside other programs at the same work, in turn, round by round.

Each measurement is a process of its own. A peer is a script bench_NAME.py that names its requirements (PEP 723). It
runs in this environment where they are installed; otherwise `pipx run` makes one for it.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sacrebleu import corpus_bleu
from scipy import stats
from tabulate import tabulate

PEERS = {"train": ["torch_loop", "transformers"], "translate": ["ctranslate2", "transformers"], "rows": [], "start": []}
UNITS = {"train": "tokens/s", "translate": "sentences/s", "rows": "tokens/s", "start": "s"}
NEEDS = {"ctranslate2": ["ctranslate2"], "transformers": ["transformers", "accelerate"]}
MIXED = {"float32": "32-true", "bfloat16": "bf16-mixed"}  # precisions of training, as Lightning names them
HEADCOUNT = [sys.executable, "-m", "headcount"]
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
add, peers = PARSER.add_argument, ["torch_loop", "transformers", "ctranslate2"]
add("--work", nargs="+", choices=list(UNITS), default=["train", "translate", "start"], help="what is measured")
add("--peers", nargs="*", choices=peers, default=peers, help="beside headcount, if installed or with pipx")
add("--precision", nargs="+", choices=list(MIXED), default=list(MIXED), help="of the products")
add("--settings", default="model=tiny data.batch_tokens=4096 optimizer=adamw", help="of `headcount train`")
add("--rows", nargs="+", default=["model.num_heads=1", "model.num_heads=8"], help="more settings, of each row")
add("--run", type=Path, default=Path("runs/latest"), help="the trained run of translate and start")
add("--beam", type=int, default=5, help="hypotheses of each sentence")
add("--rounds", type=int, default=3, help="how often each is measured")
add("--steps", type=int, default=200, help="of each training, the first included")
add("--seconds", type=float, default=10, help="of translating, at least")
add("--threads", type=int, default=os.cpu_count(), help="of each")
add("--device", choices=["cpu", "cuda"], default="cpu", help="the processor, or a GPU")


@dataclass
class Bench:
    """The measurements of one command. folder: for files that nobody keeps. first: translations of the first system.
    memory: the most that the latest process held at once, in MiB."""

    options: argparse.Namespace
    folder: Path
    memory: int = 0
    first: list[str] = field(default_factory=list)

    def measured(self, work: str) -> list[dict[str, Any]]:
        """Each system `rounds` times, every second round backwards; prints a line of JSON each."""
        names = ["headcount", *(name for name in PEERS[work] if name in self.options.peers and launcher(name))]
        names = self.options.rows if work == "rows" else names
        precisions = self.options.precision[: 1 if work in ("rows", "start") else None]
        own = {"ctranslate2": ["float32", "int8"]}
        systems = [(name, precision) for name in names for precision in own.get(name, precisions)]
        lines = []
        for round_ in range(self.options.rounds):
            for name, precision in systems[:: -1 if round_ % 2 else 1]:
                line = {"system": name, "work": work, "precision": precision, "unit": UNITS[work], "round": round_}
                lines.append(line | self.measure(work, name, precision) | {"memory": self.memory})
                print(json.dumps(lines[-1]), flush=True)
        return lines

    def measure(self, work: str, name: str, precision: str) -> dict[str, Any]:
        """The figure of a measurement, and more."""
        if work == "start":
            begin = time.perf_counter()
            self.run([*HEADCOUNT, "translate", f"run='{self.options.run}'"], "A dog.\n")
            return {"figure": time.perf_counter() - begin}
        if work == "translate":
            return self.translate(name, precision)
        if name in PEERS["train"]:
            return self.script(name, work=work, precision=precision, inputs=self.inputs)
        metrics = self.trained(name if work == "rows" else "", self.options.steps, precision) / "metrics.json"
        return {"figure": json.loads(metrics.read_text(encoding="utf-8"))["train"]["tokens_per_second"]}

    def trained(self, row: str, steps: int, precision: str) -> Path:
        """A run that is stopped before it is scored."""
        run, given = self.folder / "run", self.options
        shutil.rmtree(run, ignore_errors=True)
        words = f"{given.settings} {row} steps={steps} threads={given.threads} trainer.precision={MIXED[precision]}"
        words += f" trainer.accelerator={given.device} validation.every=1000000 hydra.run.dir={run}"
        self.run([*HEADCOUNT, "train", *shlex.split(words)], until=run / "metrics.json")
        return run

    @cached_property
    def inputs(self) -> str:
        """The file with what a peer trains: pairs, and the size of the model."""
        file, run = self.folder / "inputs.json", self.trained("", 1, "float32")
        self.script("headcount", work="inputs", folder=run, inputs=file)
        return str(file)

    def translate(self, name: str, precision: str) -> dict[str, Any]:
        """Sentences a second, BLEU of the translations, and how many are those of the first system."""
        run, hypotheses = self.options.run, self.folder / "test.hyp"
        source, reference = (next(run.glob(f"test.{side}.*"), Path()) for side in ("src", "ref"))
        folder = run if name == "headcount" else self.folder / name
        if not folder.exists():
            form = "huggingface" if name == "transformers" else name
            self.run([*HEADCOUNT, "export", f"run='{run}'", f"format={form}", f"output={folder}"])
        files = {"folder": folder, "lines": source, "hypotheses": hypotheses}
        found = self.script(name, work="translate", precision=precision, **files)
        texts = [path.read_text(encoding="utf-8").splitlines() for path in (hypotheses, reference)]
        self.first = self.first or texts[0]
        same = sum(one == other for one, other in zip(texts[0], self.first, strict=True))
        return found | {"bleu": corpus_bleu(texts[0], texts[1:]).score, "same": same}

    def script(self, name: str, **job: Any) -> dict[str, Any]:
        """What bench_NAME.py reports."""
        text = json.dumps(vars(self.options) | job, default=str)
        return json.loads(self.run([*launcher(name), text]).splitlines()[-1])

    def run(self, command: Sequence[str], text: str = "", until: Path | None = None) -> str:
        """Run a command to its end, or until there is a file; returns its output."""
        environ = {**os.environ, "OMP_NUM_THREADS": str(self.options.threads)}
        given, out, log = (self.folder / name for name in ("given", "out", "log"))
        given.write_text(text)
        with given.open() as read, out.open("w") as written, log.open("w") as errors:
            process = subprocess.Popen(command, env=environ, stdin=read, stdout=written, stderr=errors)
        ended, complete = 0, False
        while not ended:
            if until and not complete and (complete := until.exists()):
                os.kill(process.pid, signal.SIGTERM)  # process.terminate() would take its end, and so its memory
            ended, status, usage = os.wait4(process.pid, os.WNOHANG if until else 0)
            time.sleep(0.1 if until else 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.memory = usage.ru_maxrss // (1024 if sys.platform == "linux" else 2**20)
        if process.returncode and not complete:
            raise SystemExit(f"{shlex.join(command)}\n{log.read_text()[-1000:]}")
        return out.read_text()


def launcher(name: str) -> list[str]:
    """How bench_NAME.py is started: by this Python if that has what it needs, or by pipx; empty if that is missing."""
    script = str(Path(__file__).with_name(f"bench_{name}.py"))
    if all(map(find_spec, NEEDS.get(name, []))):
        return [sys.executable, script]
    return ["pipx", "run", "--path", script] if shutil.which("pipx") else []


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The lines of a work as a Markdown table: a row for each system and precision, with the median of its rounds."""
    rates: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        rates.setdefault((line["system"], line["precision"]), []).append(line["figure"])
    last = {(line["system"], line["precision"]): line for line in lines}
    work, cells = lines[0]["work"], []
    best = max(statistics.median(each) for (name, _), each in rates.items() if name == "headcount" or work == "rows")
    for (name, precision), each in rates.items():
        row = {"": name, "precision": precision, lines[0]["unit"]: f"{statistics.median(each):,.1f}"}
        row["spread"] = f"{min(each):,.1f} to {max(each):,.1f}"
        row["memory, MiB"] = f"{last[name, precision]['memory']:,}"
        if work == "rows":
            row["time, first row 1"] = relative_time(next(iter(rates.values())), each)
        elif work != "start":
            row["headcount is"] = "" if name == "headcount" else f"{best / statistics.median(each):.2f} x"
        if work == "translate":
            row["BLEU"] = f"{last[name, precision]['bleu']:.2f}"
            row["translations as in the first row"] = last[name, precision]["same"]
        cells.append(row)
    return f"### {work}\n\n" + tabulate(cells, "keys", "pipe", disable_numparse=True)


def relative_time(first: Sequence[float], other: Sequence[float]) -> str:
    """The time of a row for the work that takes the first row 1, and its 95 % interval: the mean of the logarithms of
    the rounds' ratios, with Student's t."""
    ratios = [math.log(ours / theirs) for ours, theirs in zip(first, other, strict=True)]
    mean = math.exp(statistics.mean(ratios))
    if len(set(ratios)) == 1:
        return f"{mean:.3f}"  # the first row itself, or one round
    low, high = stats.ttest_1samp(ratios, 0).confidence_interval()
    return f"{mean:.3f} [{math.exp(low):.3f}, {math.exp(high):.3f}]"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(PARSER.parse_args(), Path(folder))
        print("", *[table(bench.measured(work)) for work in bench.options.work], sep="\n\n")


if __name__ == "__main__":
    main()
