"""The command `heads`: measure the heads of a run, or of all runs of a sweep, and write the page."""

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import command
from headcount.errors import InputError
from headcount.files import show
from headcount.heads.analysis import Analysis, Settings
from headcount.heads.cutting_curves import free
from headcount.heads.measure import measure
from headcount.heads.page import run_page, study_page, write
from headcount.heads.results import Results, Study
from headcount.heads.statistics import Bounds
from headcount.report.read import read_sweep
from headcount.report.runs import Sweep
from headcount.run.opened import Run, open_from_config
from headcount.settings import check

logger = logging.getLogger(__name__)

ORDER = "greedy"  # the one that is recommended, whatever the test sentences say


def heads(config: DictConfig) -> str:
    """Measure the heads as conf/heads.yaml says, and write the page; returns the summary. Raises InputError."""
    values: Any = OmegaConf.to_container(config)
    settings = Settings(**{field.name: values[field.name] for field in fields(Settings)})
    bounds_of(config)  # before anything is measured
    given = None if values["output"] is None or values["model"] is not None else Path(values["output"])
    if values["sweep"] is None:
        results = measured(config, opened(config), settings)
        page, home, next_ = run_page(results, config.debug, given), results.directory, following(results)
    else:
        sweep = read_sweep(Path(values["sweep"]))
        page, home = study_page(measured_sweep(config, sweep, settings), config.debug), sweep.directory
        next_ = command("report", sweep=show(home))
    output = given or home / "heads"
    write(page, output)
    for flag in page.page.flags:
        logger.warning("%s", flag)
    place = show(output.absolute())
    lines = [f"- {finding}" for finding in page.findings] or ["- no effect beyond chance is shown"]
    lines += [f"page: {place}/heads.html   (heads.md, heads.csv, plots/)"]
    return "\n".join([*lines, *([f"next:  {next_}"] if values["model"] is None else []), ""])


def opened(config: DictConfig) -> Run:
    """The run, or the model that others trained. Raises InputError."""
    if config.model is None:
        return open_from_config(config, config.run)
    try:
        from headcount.heads.foreign_run import open_foreign  # with transformers, which takes seconds
    except ImportError as error:
        raise InputError(f'model= needs transformers ({error}): pip install "headcount[transformers]"') from error
    output = None if config.output is None else Path(config.output)
    return open_foreign(Path(config.model), list(config.input or []), output, config)


def measured(config: DictConfig, run: Run, settings: Settings) -> Results:
    """The results of one run, measured now where they are missing. Raises InputError."""
    analysis = Analysis(run, settings)
    _ = analysis.heads  # which refuses a model without heads, before its corpus is read
    found = measure(analysis, config.parts)
    name = run.directory.name if config.model is None else Path(config.model).resolve().name
    return Results(name, run.directory, run.languages, found, bounds_of(config), config.model is None)


def bounds_of(config: DictConfig) -> Bounds:
    """The node `bounds`. Raises InputError."""
    values: Any = OmegaConf.to_container(config.bounds)
    check(Bounds, values, "bounds.")
    return Bounds(**values)


def measured_sweep(config: DictConfig, sweep: Sweep, settings: Settings) -> Study:
    """The results of all finished runs of a sweep; a run without heads is left out, with a note. Raises InputError
    where none has heads."""
    results, notes = {}, list(sweep.notes)
    for number, run in enumerate(sweep.runs, start=1):
        logger.info("%d of %d runs: %s", number, len(sweep.runs), run.name)
        try:
            results[run.name] = measured(config, open_from_config(config, str(run.directory)), settings)
        except InputError as error:
            notes.append(f"{run.name} is left out: {error}")
            logger.warning("%s", notes[-1])
        else:
            write(run_page(results[run.name], config.debug), run.directory / "heads")
    if not results:
        raise InputError(f"sweep={sweep.directory}: {notes[-1]}")
    rows = {row.label: [results[run.name] for run in row.runs if run.name in results] for row in sweep.rows}
    rows = {label: found for label, found in rows.items() if found}
    return Study(sweep.directory, sweep.design.label or "condition", rows, sweep.unfinished, tuple(notes))


def following(results: Results) -> str:
    """The command that comes next: prune to as few heads as `ORDER` leaves within the bound of BLEU, since the best of
    the orders would be chosen by the sentences that rank them; where that was not measured, or leaves all, look at the
    run."""
    cutting, run = results.parts.get("cutting"), show(results.directory)
    cut = 0 if cutting is None else free(cutting, "bleu", results.bounds.bleu).get(ORDER, 0)
    if 0 < cut < len(results.heads):
        return command("heads", f"prune={len(results.heads) - cut}", f"order={ORDER}", run=run)
    return command("export", "format=page", run=run)
