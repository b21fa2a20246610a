"""Speed of headcount beside other programs at the same work, in turn, round by round.

Each measurement is a process of its own. A peer is a script bench_NAME.py that names its requirements (PEP 723). It
runs in this environment where they are installed; otherwise `pipx run` makes one for it.
"""

import argparse
import itertools
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sacrebleu import corpus_bleu
from tabulate import tabulate

PEERS = {"train": ("torch_loop", "transformers"), "translate": ("ctranslate2", "transformers"), "rows": (), "start": ()}
UNITS = {"train": "tokens/s", "translate": "sentences/s", "rows": "tokens/s", "start": "s"}
NEEDS = {"ctranslate2": ("ctranslate2",), "transformers": ("transformers", "accelerate")}
FORMATS = {"ctranslate2": "ctranslate2", "transformers": "huggingface"}  # of `headcount export`
MIXED = {"float32": "32-true", "bfloat16": "bf16-mixed"}  # precisions of training, as Lightning names them
HEADCOUNT = [sys.executable, "-m", "headcount"]
SCRIPTS = Path(__file__).parent

Line = dict[str, Any]  # a measurement: system, work, precision, figure, unit, and more


class FailedError(Exception):
    """A process ended without a figure; the message is the last line that it wrote."""


def options() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add, peers = parser.add_argument, ["torch_loop", "transformers", "ctranslate2"]
    add("--work", nargs="+", choices=list(UNITS), default=["train", "translate", "start"], help="what is measured")
    add("--peers", nargs="*", choices=peers, default=peers, help="measured beside headcount")
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
    return parser


class Bench:
    """The measurements of one command. folder: for files that nobody keeps."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.numbers = itertools.count()

    def measured(self, work: str) -> list[Line]:
        """Each system `rounds` times, every second round backwards; prints a line of JSON each.

        Raises FailedError where headcount fails; a peer is left out.
        """
        systems, lines = self.systems(work), []
        for round_ in range(self.options.rounds):
            for name, precision in systems[:: -1 if round_ % 2 else 1]:
                line: Line = {"system": name, "work": work, "precision": precision, "unit": UNITS[work]}
                try:
                    line |= self.measure(line)
                except FailedError as error:
                    if name not in PEERS[work]:
                        raise
                    print(f"{name} in {precision} is left out: {error}", file=sys.stderr)
                    systems.remove((name, precision))
                    continue
                line |= {"round": round_, "date": date.today().isoformat(), "command": shlex.join(sys.argv)}
                print(json.dumps(line), flush=True)
                lines.append(line)
        return lines

    def systems(self, work: str) -> list[tuple[str, str]]:
        """The names of those that do a work, each with each of its precisions; headcount, or the first row, first."""
        precisions = self.options.precision
        if work in ("rows", "start"):
            return [(name, precisions[0]) for name in (self.options.rows if work == "rows" else ["headcount"])]
        names = ["headcount", *(name for name in self.options.peers if name in PEERS[work])]
        own = {"ctranslate2": ["float32", "int8"]}
        return [(name, precision) for name in names for precision in own.get(name, precisions)]

    def measure(self, line: Line) -> Line:
        """The rest of a measurement's line."""
        name, work = line["system"], line["work"]
        if work == "start":
            begin = time.perf_counter()
            self.run([*HEADCOUNT, "translate", f"run='{self.options.run}'"], "A dog.\n")
            return {"figure": time.perf_counter() - begin}
        if work == "rows" or (work == "train" and name == "headcount"):
            return self.train(name if work == "rows" else "", line["precision"])
        return self.script(name, line)

    def train(self, row: str, precision: str) -> Line:
        """Tokens a second of `headcount train`."""
        run = self.trained(row, self.options.steps, precision)
        figures = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        shutil.rmtree(run)
        return {"figure": figures["train"]["tokens_per_second"], "versions": figures["versions"]}

    def trained(self, row: str, steps: int, precision: str) -> Path:
        """A run that is stopped before it is scored."""
        run = self.folder / f"run_{next(self.numbers)}"
        settings = [
            f"steps={steps}",
            f"trainer.precision={MIXED[precision]}",
            f"trainer.accelerator={'cpu' if self.options.device == 'cpu' else 'gpu'}",
            f"validation.every={10**6}",
            f"threads={self.options.threads}",
            f"hydra.run.dir={run}",
        ]
        given = shlex.split(f"{self.options.settings} {row}")
        self.run([*HEADCOUNT, "train", *given, *settings], until=run / "metrics.json")
        return run

    def script(self, name: str, line: Line, **job: str) -> Line:
        """What bench_NAME.py reports, and of translations their BLEU."""
        file, hypotheses = self.folder / "job.json", self.folder / "test.hyp"
        source, reference = (next(self.options.run.glob(f"test.{side}.*"), Path()) for side in ("src", "ref"))
        if line["work"] == "translate":
            folder = self.options.run if name == "headcount" else self.exported(name)
            job = {"folder": str(folder), "lines": str(source), "hypotheses": str(hypotheses)}
        shape = self.pairs if line["work"] == "train" else {}
        options = {each: getattr(self.options, each) for each in ("threads", "device", "steps", "seconds", "beam")}
        file.write_text(json.dumps({**line, **job, **shape, **options}), encoding="utf-8")
        found = json.loads(self.run([*launcher(name), str(file)]).splitlines()[-1])
        if line["work"] == "translate":
            texts = [path.read_text(encoding="utf-8").splitlines() for path in (hypotheses, reference)]
            found["bleu"] = corpus_bleu(texts[0], texts[1:]).score
        return found

    @cached_property
    def pairs(self) -> Line:
        """What a peer trains: the file of the training pairs, and the model's size."""
        pairs, size = self.folder / "pairs.npz", self.folder / "size.json"
        line = {"work": "inputs", "system": "headcount", "precision": "", "unit": "pairs"}
        self.script("headcount", line, folder=str(self.trained("", 1, "float32")), pairs=str(pairs), size=str(size))
        return {"pairs": str(pairs), **json.loads(size.read_text(encoding="utf-8"))}

    def exported(self, name: str) -> Path:
        """The run in the format of a peer."""
        folder = self.folder / name
        if not folder.exists():
            words = [f"run='{self.options.run}'", f"format={FORMATS[name]}", f"output={folder}"]
            self.run([*HEADCOUNT, "export", *words])
        return folder

    def run(self, command: Sequence[str], text: str = "", until: Path | None = None) -> str:
        """Run a command to its end, or until there is a file; returns its output. Raises FailedError."""
        environ = {**os.environ, "OMP_NUM_THREADS": str(self.options.threads)}
        with (self.folder / "log").open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
            while until and process.poll() is None and not until.exists():
                time.sleep(0.1)
            if until:
                process.terminate()
            out, _ = process.communicate(text)
            log.seek(0)
            if process.returncode and not (until and until.exists()):
                raise FailedError((log.read().strip() or f"exit code {process.returncode}").splitlines()[-1])
        return out


def launcher(name: str) -> list[str]:
    """How bench_NAME.py is started: by this Python if that has what it needs, otherwise by pipx. Raises FailedError."""
    script = str(SCRIPTS / f"bench_{name}.py")
    if all(map(find_spec, NEEDS.get(name, ()))):
        return [sys.executable, script]
    if shutil.which("pipx"):
        return ["pipx", "run", "--path", script]
    raise FailedError(f"not installed; install pipx, which makes an environment for it, or {', '.join(NEEDS[name])}")


def table(lines: Sequence[Line]) -> str:
    """The lines of a work as a Markdown table: a row for each system and precision, with the median of its rounds."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["round"]):
        groups.setdefault((line["system"], line["precision"]), []).append(line)
    work, unit = lines[0]["work"], lines[0]["unit"]
    rates = {key: [line["figure"] for line in group] for key, group in groups.items()}
    best = max(statistics.median(each) for (name, _), each in rates.items() if name == "headcount" or work == "rows")
    cells = []
    for (name, precision), each in rates.items():
        group = groups[name, precision]
        row = {"": name, "precision": precision, unit: number(statistics.median(each))}
        row["spread"] = f"{number(min(each))} to {number(max(each))}"
        if work == "rows":
            row["time, first row 1"] = relative_time(next(iter(rates.values())), each)
        elif work != "start":
            row["headcount is"] = "" if name == "headcount" else f"{best / statistics.median(each):.2f} x"
        if "bleu" in group[0]:
            row["BLEU"] = f"{group[0]['bleu']:.2f}"
        cells.append(row)
    align = ["left" if name in ("", "precision") else "right" for name in cells[0]]
    return f"### {work}\n\n" + tabulate(cells, "keys", "pipe", colalign=align, disable_numparse=True)


def relative_time(first: Sequence[float], other: Sequence[float]) -> str:
    """The time of a row for the work that takes the first row 1, and its 95 % interval: the mean of the logarithms of
    the rounds' ratios, with Student's t."""
    from scipy import stats  # of the extra `report`; only rows need it

    ratios = [math.log(ours / theirs) for ours, theirs in zip(first, other, strict=True)]
    mean = math.exp(statistics.mean(ratios))
    if len(set(ratios)) == 1:
        return f"{mean:.3f}"  # the first row itself, or one round
    low, high = stats.ttest_1samp(ratios, 0).confidence_interval()
    return f"{mean:.3f} [{math.exp(low):.3f}, {math.exp(high):.3f}]"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = options()
    given = parser.parse_args()
    if {"translate", "start"} & set(given.work) and not (given.run / "model.safetensors").is_file():
        parser.error(f"--run {given.run}: not a trained run; train one, or give --work train")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given, Path(folder))
        try:
            lines = [bench.measured(work) for work in given.work]
            print("", *map(table, lines), sep="\n\n")
        except FailedError as error:
            raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
