"""Diagnosis: all checks of the doctor, and their results as a table and as JSON."""

from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any

import yaml
from tabulate import tabulate

from headcount.doctor import text, training, translations, vocabulary
from headcount.doctor.check import Check, Finding, Limit
from headcount.doctor.evidence import Evidence

MEASURES = {module.__name__.rpartition(".")[2]: module for module in (text, vocabulary, training, translations)}
OF_CORPUS = ("text", "vocabulary")  # subjects that need no run


def checks(subjects: Collection[str] = tuple(MEASURES)) -> list[Check]:
    """The checks of checks.yaml on these subjects."""
    table = yaml.safe_load(files(__package__).joinpath("checks.yaml").read_text(encoding="utf-8"))
    return [_check(name, **row) for subject in subjects for name, row in table[subject].items()]


def _check(name: str, measure: str, todo: str, because: str, unit: str = "", **limit: float) -> Check:
    module, _, function = measure.partition(".")
    ((bound, number),) = limit.items()
    return Check(name, getattr(MEASURES[module], function), Limit(number, unit, bound == "at_least"), because, todo)


def diagnose(evidence: Evidence) -> list[Finding]:
    """The findings of all checks; of a corpus without a run, those of the text."""
    chosen = checks() if evidence.config else checks(OF_CORPUS)
    return [Finding(check, check.measure(evidence)) for check in chosen]


def report(evidence: Evidence, findings: Sequence[Finding], name: str) -> str:
    """A line for each check, what to do for each warning, and a summary."""
    source, target = evidence.languages
    sizes = ", ".join(f"{len(pairs.source):,} pairs of {split}" for split, pairs in evidence.splits.items())
    heading = f"{name}: {source} to {target}" + (f"; {sizes}" if sizes else "")
    rows = [[each.check.name, _figure(each), str(each.check.limit), _verdict(each)] for each in findings]
    table = tabulate(rows, headers=["check", "measured", "allowed", "verdict"], disable_numparse=True)
    found = [each for each in findings if each.warning]
    todo = [f"{each.check.name}, {_figure(each)}: {each.check.todo}" for each in found]
    return "\n\n".join([heading, table, *evidence.notes, *todo, _summary(findings)]) + "\n"


def as_json(evidence: Evidence, findings: Sequence[Finding], name: str) -> dict[str, Any]:
    """The diagnosis for programs; `measured` is null where there was no evidence for a check."""
    checks = [
        {
            "check": each.check.name,
            "measured": each.measured and each.measured.value,
            "where": each.measured and each.measured.where,
            "allowed": {"at_least" if each.check.limit.least else "at_most": each.check.limit.number},
            "verdict": _verdict(each),
            "todo": each.check.todo if each.warning else None,
        }
        for each in findings
    ]
    return {
        "name": name,
        "warnings": sum(each.warning for each in findings),
        "notes": list(evidence.notes),
        "checks": checks,
    }


def _figure(finding: Finding) -> str:
    if finding.measured is None:
        return "-"
    shown = finding.check.limit.shown(finding.measured.value)
    return f"{shown} ({finding.measured.where})" if finding.measured.where else shown


def _verdict(finding: Finding) -> str:
    return "not measured" if finding.measured is None else "warning" if finding.warning else "OK"


def _summary(findings: Sequence[Finding]) -> str:
    missing = sum(finding.measured is None for finding in findings)
    found = sum(finding.warning for finding in findings)
    return f"{len(findings)} checks: {found} {'warning' if found == 1 else 'warnings'}, {missing} not measured"
