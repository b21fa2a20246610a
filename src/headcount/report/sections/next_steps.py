"""Next steps: missing runs, more sentences or more seeds, and the command for each."""

import re
from collections.abc import Sequence

from headcount.command_lines import command
from headcount.report.blocks import Code, Section
from headcount.report.endpoint import Endpoint
from headcount.report.runs import Sweep
from headcount.report.study import Study
from headcount.settings import at
from headcount.statistics.planning import plans

MOST_SEEDS = 20  # per row: no advice for more
Step = tuple[str, str]  # advice, and its command


def section(study: Study) -> Section | None:
    steps = next_steps(study)
    blocks = tuple(block for advice, command in steps for block in (advice, Code(command, "bash")))
    return Section("What to type next", blocks) if steps else None


def next_steps(study: Study) -> list[Step]:
    """Advice and commands, none if the study is complete and decided."""
    sweep, steps = study.sweep, []
    if sweep.unfinished and sweep.overrides:
        steps.append(("Train the missing runs; finished runs stay as they are:", _train(sweep.overrides)))
    if more := _more(study):
        steps.append(more)
    if steps and sweep.directory.is_dir():
        steps.append(("Then write this report again:", study.command()))
    return steps


def _more(study: Study) -> Step | None:
    """If a pair is undecided: more sentences where most of the error of a difference stays with any number of
    seeds, else more seeds."""
    sweep, effect, bleu = study.sweep, study.effect, study.endpoint.comparison
    seeds = max(bleu.counts)
    if len(bleu.counts) < 2:
        return None
    known = plans(bleu)
    if known is None:
        return "Train more seeds; with one per row, the spread between seeds is unknown:", _seeds(sweep, 3)
    plan, _, _ = known
    undecided = any(pair.verdict(study.margins.bleu) == "undecided" for pair in bleu.differences)
    if plan.seeds_needed(effect) <= seeds or not undecided:
        return None
    if study.endpoint.sentences and (share := plan.share(seeds)) > 0.5:
        return _sentences(sweep, study.endpoint, share)
    number = plan.seeds_needed(effect)
    if number <= MOST_SEEDS:
        return f"Train {number:g} seeds a row, to detect differences of {effect:g} BLEU:", _seeds(sweep, int(number))
    return f"Train {2 * seeds} seeds a row:", _seeds(sweep, 2 * seeds)


def _sentences(sweep: Sweep, endpoint: Endpoint, share: float) -> Step:
    wanted = 2 * endpoint.sentences
    advice = (
        f"Score more sentences: their draw makes {100 * share:.0f} % of the error variance of a difference, which no "
        f"number of seeds takes away. Twice as many, {wanted:,}, halve that"
    )
    if at(sweep.runs[0].config, "data.test_size"):
        source = "The built-in corpus generates as many as you ask for"
        override = f"data.test_size={wanted - endpoint.sentences + len(sweep.references['test'])}"
    else:
        source = "All test sets of the runs count"
        override = "data.tests={NAME:{source:FILE,target:FILE}}"
    return f"{advice}. {source}; each run is trained anew:", _again(sweep, override)


def _seeds(sweep: Sweep, number: int) -> str:
    """The command of the sweep with `number` seeds, those it has among them."""
    have = sorted({run.seed for run in sweep.runs})
    fresh = [seed for seed in range(1, number + len(have) + 1) if seed not in have]
    return _again(sweep, "seed=" + ",".join(map(str, [*have, *fresh][: max(number, len(have))])))


def _again(sweep: Sweep, override: str) -> str:
    """The command of the sweep with another value of one setting; dots for what is unknown of it."""
    name = re.escape(override.partition("=")[0])
    others = [other for other in sweep.overrides if not re.match(rf"\+*{name}=", other)]
    return _train([*others, override]) if sweep.overrides else _train(["...", override])


def _train(overrides: Sequence[str]) -> str:
    return command("train", "--multirun", *overrides)
