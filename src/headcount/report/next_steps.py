"""What to do next: runs that are missing, more sentences or more seeds, and the command for it."""

import math
import re
import shlex
from collections.abc import Sequence

from headcount.report.endpoint import Endpoint
from headcount.report.statistics.comparison import Comparison
from headcount.report.statistics.planning import Plan, plans
from headcount.report.study import Sweep, at

MOST_SEEDS = 20  # a row that a reader is asked to train
MOST_TIMES = 10  # the sentences that a reader is asked to score
TRAIN = ("python", "scripts/train.py", "--multirun")
Step = tuple[str, str]  # what to do, and the command


def next_steps(sweep: Sweep, endpoint: Endpoint, effect: float, within: float) -> tuple[Step, ...]:
    """effect: the BLEU difference that one would like to see. within: the margin of equality."""
    again = ("Then write this report again:", shlex.join(["python", "scripts/report.py", f"sweep={sweep.directory}"]))
    steps = []
    if sweep.unfinished and sweep.overrides:
        steps.append(("Finish the runs that are missing; those that are finished stay:", _train(sweep.overrides)))
    if more := _more(sweep, endpoint, effect, within):
        steps.append(more)
    return (*steps, again) if steps else ()


def _more(sweep: Sweep, endpoint: Endpoint, effect: float, within: float) -> Step | None:
    """More of what is missing where a pair is undecided: sentences, where their draw makes most of the error of a
    difference, and else seeds."""
    bleu, have = endpoint.comparison, max(endpoint.comparison.counts)
    if len(bleu.counts) < 2:
        return None
    known = plans(bleu)
    if known is None:
        return "Train more seeds, without which nothing is known of their spread:", _seeds(sweep, 3)
    plan, _, _ = known
    if plan.seeds_needed(effect) <= have or not _undecided(bleu, within):
        return None
    if endpoint.sentences and plan.share(have) > 0.5:
        return _sentences(sweep, endpoint, plan, effect)
    number = plan.seeds_needed(effect)
    if number <= MOST_SEEDS:
        return f"Train {number:g} seeds a row, to see differences of {effect:g} BLEU:", _seeds(sweep, int(number))
    gain = f"to see differences of {plan.detectable(2 * have):.1f} BLEU instead of {plan.detectable(have):.1f}"
    return f"Train {2 * have} seeds a row, {gain}:", _seeds(sweep, 2 * have)


def _undecided(comparison: Comparison, within: float) -> bool:
    return any(difference.verdict(within) == "undecided" for difference in comparison.differences)


def _sentences(sweep: Sweep, endpoint: Endpoint, plan: Plan, effect: float) -> Step:
    have = max(endpoint.comparison.counts)
    times = plan.sentences_needed(effect, have)
    if times <= MOST_TIMES:
        gain = f"to see differences of {effect:g} BLEU"
    else:
        times = MOST_TIMES
        seen = plan.with_sentences(times).detectable(have), plan.detectable(have)
        gain = f"to see differences of {seen[0]:.1f} BLEU instead of {seen[1]:.1f}"
    wanted = math.ceil(times * endpoint.sentences / 100) * 100
    percent = round(100 * plan.share(have))
    part = "nearly all" if percent >= 99 else f"{percent} %"
    what = (
        f"Score more sentences: their draw makes {part} of the error variance of a difference. "
        f"{times:g} times as many, {wanted:,} instead of {endpoint.sentences:,}, would be enough {gain}"
    )
    if at(sweep.runs[0].config, "data.corpus.test_size"):
        source = "The built-in corpus makes as many as are asked for"
        override = f"data.corpus.test_size={wanted - endpoint.sentences + len(sweep.references['test'])}"
    else:
        source = "All test sets of the runs count"
        override = "data.tests={NAME:{source:FILE,target:FILE}}"
    return f"{what}. {source}; each run is trained anew:", _again(sweep, override)


def _seeds(sweep: Sweep, number: int) -> str:
    """The command that began the sweep, with so many seeds, those there are among them."""
    have = sorted({run.seed for run in sweep.runs})
    fresh = [seed for seed in range(1, number + len(have) + 1) if seed not in have]
    return _again(sweep, "seed=" + ",".join(map(str, [*have, *fresh][: max(number, len(have))])))


def _again(sweep: Sweep, override: str) -> str:
    """The command that began the sweep, with another value of one setting; dots for what is not known of it."""
    name = re.escape(override.partition("=")[0])
    others = [other for other in sweep.overrides if not re.match(rf"\+*{name}=", other)]
    return _train([*others, override]) if sweep.overrides else f"{shlex.join(TRAIN)} ... {shlex.quote(override)}"


def _train(overrides: Sequence[str]) -> str:
    return shlex.join([*TRAIN, *overrides])
