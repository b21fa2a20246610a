"""Kill campaign: trainings that are killed at random moments and started again end as those that were never killed.

    KILLS=1000 STOPS=200 python tests/reliability/kills.py [recipe ...]

KILLS: SIGKILLs. STOPS: SIGTERMs and SIGUSR1s. SEED: of the moments. JOBS: recipes at once. `DEFAULTS` are those.

Half of the moments are uniform over the life of a process, and half over a phase that is drawn first, since some last
milliseconds.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from watched import PHASES, Ended, Moment, Phases, instrumented, moments, process

COMMON = (
    "trainer=cpu",
    "threads=1",
    "data.train_size=240",
    "data.valid_size=16",
    "data.test_size=16",
    "tokenizer.vocab_size=320",
    "data.batch_tokens=300",
    "schedule.warmup_steps=4",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_feed_forward=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.1",
    "steps=30",
    "trainer.log_every_n_steps=1",
    "trainer.precision=32-true",
    "validation.every=7",
    "validation.samples=1",
    "checkpoint.every=4",
    "search=sample",
    "search.max_ratio=1",
    "search.max_extra=4",
    "logger=csv",
)
BF16, UNIGRAM = "trainer.precision=bf16-mixed", "tokenizer.model_type=unigram"
CLOCK_CHECKPOINTS = ("checkpoint.every=100", "checkpoint.every_minutes=0.002")
RECIPES = {
    "checkpoints": (BF16, "trainer.accumulate_grad_batches=2", "averaging.last=4", "averaging.share=0.5"),
    "ema": ("averaging.kind=ema", "segmentation.kind=bpe_dropout", "loss.kind=r_drop", "model.layer_dropout=0.2"),
    "best": (
        "averaging.kind=best",
        "averaging.metric=loss",
        "segmentation.kind=sampled",
        UNIGRAM,
        "loss.kind=simcut",
        "search=beam",
    ),
    "muon": ("optimizer=muon", "averaging.kind=none", "schedule.kind=cosine", "model.attention_dropout=0.1", BF16),
    "schedule_free": (
        "optimizer=schedule_free",
        "schedule.kind=constant",
        "averaging.kind=none",
        "model.head_dropout=0.2",
    ),
    "patience": ("averaging.kind=best", "averaging.metric=loss", "validation.patience=2", "model.positions=rotary"),
    "curves": ("logger=default", "checkpoint.keep=[0,9,20]", *CLOCK_CHECKPOINTS),
    "preparation": ("data.directory=data", "steps=8", "checkpoint.every=2"),
}
DEFAULTS = {"KILLS": 50, "STOPS": 20, "SEED": 1, "JOBS": 1}
STEPPING = ("steps", "validation", "checkpoint", "averaging")  # phases between the first step and the last
CLOCK = ("seconds", "tokens_per_second")  # of metrics.json, which differ in any case


def given() -> list[int]:
    """The numbers of `DEFAULTS`, as the environment gives them."""
    return [int(os.environ.get(name, default)) for name, default in DEFAULTS.items()]


@dataclass
class Report:
    """The result of a campaign: runs that were compared, signals by phase, seconds that stopped processes took to end,
    and all that was wrong."""

    runs: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    stops: dict[str, int] = field(default_factory=dict)
    slowest_stop: float = 0.0
    wrong: list[str] = field(default_factory=list)


def left(run: Path) -> dict[str, Any]:
    """All that must not depend on what happened to a run: its files by name, those that hold times without these."""
    import torch

    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.name == "metrics.json":
            figures = json.loads(path.read_text())
            figures["train"] = {key: value for key, value in figures["train"].items() if key not in CLOCK}
            found[name] = figures
        elif path.name == "config.yaml":
            lines = path.read_text().splitlines()
            found[name] = [line for line in lines if not line.startswith(("resume:", "if_exists:"))]
        elif path.suffix == ".ckpt":
            if path.name == "last.ckpt":
                state = torch.load(path, weights_only=True)
                found |= {f"{name} {key}": state[key] for key in ("global_step", "state_dict", "optimizer_states")}
        elif "tfevents" in path.name:
            found.setdefault("TensorBoard", {}).update(_curves(path))
        elif path.is_file() and path.name not in ("train.log", ".lock"):
            found[name] = path.read_bytes()
    return found


def _curves(events: Path) -> dict[tuple[str, int], float]:
    """The points in a file of TensorBoard's: the value by name and step."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return {
        (value.tag, event.step): value.tensor.float_val[0]
        for event in EventFileLoader(str(events)).Load()
        for value in event.summary.value
        if value.tensor.float_val
    }


def differing(one: Any, other: Any, name: str = "") -> list[str]:
    """Names of what differs, of nested values and tensors."""
    import torch

    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys(), key=str)
        return [each for key in keys for each in differing(one.get(key), other.get(key), f"{name} {key}".strip())]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [each for number, (a, b) in pairs for each in differing(a, b, f"{name} {number}")]
    same = (
        torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other
    )
    return [] if same else [f"{name} ({'missing' if other is None else 'too much' if one is None else 'other'})"]


class Campaign:
    """Kills and stops of runs of one recipe."""

    def __init__(self, phases: Phases, recipe: str, seed: int, folder: Path, report: Report) -> None:
        self.phases, self.report = phases, report
        self.rng = random.Random(f"{recipe} {seed}")
        self.recipe, self.folder = recipe, folder
        self.words = (*COMMON, f"data.directory={folder / 'data'}", *RECIPES[recipe])
        self.process(self._folder("prepare"), None, 0, "if_exists=resume", "hydra.run.dir=runs/run")
        self.whole = self.process(self._folder("whole"), None, 0, "if_exists=resume", "hydra.run.dir=runs/run")
        if self.whole.code:
            raise RuntimeError(self.whole.output)
        self.expected = left(folder / "whole" / "runs" / "run")
        self.moments = moments(self.rng, self.whole.phases)

    def process(self, folder: Path, moment: Moment | None, number: int, *words: str) -> Ended:
        return process(self.phases, (*self.words, *words), folder, moment, number)

    def run(self, numbers: tuple[int, ...], most: int) -> int:
        """One run, sent at most `most` signals of `numbers` and then left to end; how many were sent."""
        folder = self._folder(f"run{self.report.runs}")
        named = self.rng.random() < 0.5
        words = ("if_exists=resume", "hydra.run.dir=runs/run") if named else ("resume=auto",)
        count, sent, history = min(most, self.rng.randint(1, 4)), 0, []
        for _ in range(count):
            number, before = self.rng.choice(numbers), newest(folder)
            ended = self.process(folder, next(self.moments), number, *words)
            history.append(f"{signal.Signals(number).name} in {ended.phase}, code {ended.code}")
            if ended.phase is None:
                break
            sent += 1
            counts = self.report.kills if number == signal.SIGKILL else self.report.stops
            counts[ended.phase] = counts.get(ended.phase, 0) + 1
            self.check_end(number, ended, before, newest(folder), history)
            if any(is_finished(run) for run in runs_in(folder)):  # resume=auto would begin another
                break
        else:
            ended = self.process(folder, None, 0, *words)
        self.report.runs += 1
        self.compare(folder, ended, history)
        return sent

    def check_end(self, number: int, ended: Ended, before: int, after: int, history: list[str]) -> None:
        """A run keeps its newest checkpoint; one that was asked to stop did, saved the step in hand, and says so."""
        text, code = "; ".join(history), ended.code
        if after < before:
            self.wrong(f"{text}: its newest checkpoint was of step {before}, and is of step {after}", ended.output)
        if number == signal.SIGKILL:
            return
        self.report.slowest_stop = max(self.report.slowest_stop, ended.seconds)
        allowed = {128 + number: PHASES, -number: ("start-up", "end"), 0: ("scoring", "end")}
        if ended.phase not in allowed.get(code, ()):
            self.wrong(f"{text}: exit code {code}", ended.output)
        further = after - max(before, ended.steps, 0)
        if ended.phase in STEPPING and further > 2:
            self.wrong(f"{text}: {further} further steps", ended.output)
        if code == 128 + number and "stopped" not in ended.output:
            self.wrong(f"{text}: no line", ended.output)
        if after < ended.steps:
            self.wrong(f"{text}: {ended.steps} steps were done, and {after} are saved", ended.output)

    def compare(self, folder: Path, ended: Ended, history: list[str]) -> None:
        text, runs = "; ".join(history), runs_in(folder)
        if len(runs) != 1 or not is_finished(runs[0]):
            self.wrong(f"{text}: ended with code {ended.code}, {len(runs)} runs", ended.output)
        elif different := differing(self.expected, left(runs[0])):
            self.wrong(f"{text}: differs in {', '.join(different[:9])}", ended.output)
        else:
            shutil.rmtree(folder)

    def wrong(self, what: str, output: str) -> None:
        self.report.wrong.append(f"{self.recipe}: run {self.report.runs}: {what}\n{output[-2000:]}")
        sys.stderr.write(self.report.wrong[-1] + "\n")

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder


def newest(folder: Path) -> int:
    """The optimizer step of the newest checkpoint of the run in `folder`, -1 for none. It must be readable."""
    from headcount.run.resume import newest_checkpoint

    steps = [newest_checkpoint(run)[1] for run in runs_in(folder) if list(run.glob("checkpoints/last*.ckpt"))]
    return max(steps, default=-1)


def runs_in(folder: Path) -> list[Path]:
    """The runs that were begun in a folder."""
    return [path.parent for path in (folder / "runs").glob("*/config.yaml") if not path.parent.is_symlink()]


def is_finished(run: Path) -> bool:
    """Whether a run has the mark of a finished one."""
    return (run / "metrics.json").exists() and "config_hash" in (run / "metrics.json").read_text()


def campaign(phases: Phases, recipe: str, kills: int, stops: int, seed: int) -> Report:
    """Kill and stop runs of a recipe that often."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        try:
            one = Campaign(phases, recipe, seed, Path(folder), report)
            for number, numbers in ((kills, (signal.SIGKILL,)), (stops, (signal.SIGTERM, signal.SIGUSR1))):
                while number > 0:
                    number -= one.run(numbers, number)
        except Exception:
            report.wrong.append(f"{recipe}: run {report.runs}: {traceback.format_exc()}")
            sys.stderr.write(report.wrong[-1] + "\n")
    return report


def campaigns(recipes: list[str], kills: int, stops: int, seed: int, jobs: int) -> dict[str, Report]:
    """Campaigns of the recipes, `jobs` at once; all together have that many kills and stops."""
    shares = {
        recipe: [count // len(recipes) + (number < count % len(recipes)) for count in (kills, stops)]
        for number, recipe in enumerate(recipes)
    }
    lines = [
        [
            sys.executable,
            __file__,
            "--shares",
            json.dumps({name: shares[name] for name in recipes[job::jobs]}),
            str(seed),
        ]
        for job in range(min(jobs, len(recipes)))
    ]
    processes = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
    answers = [process.communicate()[0] for process in processes]
    reports = {}
    for answer in answers:
        reports |= {name: Report(**fields) for name, fields in json.loads(answer).items()}
    return {recipe: reports[recipe] for recipe in recipes}


def share(shares: dict[str, list[int]], seed: int) -> dict[str, Report]:
    """The campaigns of one process, with kills and stops by recipe."""
    phases, reports = instrumented(), {}
    for recipe, (kills, stops) in shares.items():
        begin = time.monotonic()
        reports[recipe] = report = campaign(phases, recipe, kills, stops, seed)
        sys.stderr.write(f"{recipe}: {report.runs} runs, {len(report.wrong)} wrong, {time.monotonic() - begin:.0f} s\n")
    return reports


def table(reports: dict[str, Report]) -> str:
    """The figures of a campaign."""
    lines = [f"{'recipe':15} {'runs':>5} {'kills':>6} {'stops':>6} {'wrong':>6}"]
    for name, each in reports.items():
        numbers = (each.runs, sum(each.kills.values()), sum(each.stops.values()), len(each.wrong))
        lines.append(f"{name:15} {numbers[0]:5} {numbers[1]:6} {numbers[2]:6} {numbers[3]:6}")
    for what in ("kills", "stops"):
        by_phase = {phase: sum(getattr(each, what).get(phase, 0) for each in reports.values()) for phase in PHASES}
        lines.append(f"{what} by phase: " + ", ".join(f"{phase} {count}" for phase, count in by_phase.items()))
    total = [sum(sum(getattr(each, what).values()) for each in reports.values()) for what in ("kills", "stops")]
    runs, wrong = (
        sum(each.runs for each in reports.values()),
        [line for each in reports.values() for line in each.wrong],
    )
    slowest = max(each.slowest_stop for each in reports.values())
    lines.append(
        f"{total[0]} kills and {total[1]} stops in {runs} runs, {len(wrong)} wrong; "
        f"a process that was asked to stop ended within {slowest:.1f} s"
    )
    return "\n".join(["", *wrong, *lines])


def main() -> None:
    if sys.argv[1:2] == ["--shares"]:
        reports = share(json.loads(sys.argv[2]), int(sys.argv[3]))
        sys.stdout.write(json.dumps({name: asdict(each) for name, each in reports.items()}))
        return
    reports = campaigns(sys.argv[1:] or list(RECIPES), *given())
    sys.stdout.write(table(reports) + "\n")
    sys.exit(any(each.wrong for each in reports.values()))


if __name__ == "__main__":
    main()
