"""Figures of docs/doctor.md: python tests/doctor_figures.py FILE.json ... prints, for each check, the least and the
greatest figure in files of `headcount doctor json=FILE.json`."""

import json
import sys
from pathlib import Path

from headcount.doctor.diagnosis import checks


def main(paths: list[str]) -> None:
    kept = [each for path in paths for each in json.loads(Path(path).read_text(encoding="utf-8"))["checks"]]
    for check in checks():
        figures = [each["measured"] for each in kept if each["check"] == check.name and each["measured"] is not None]
        if figures:
            low, high = (check.limit.shown(value) for value in (min(figures), max(figures)))
            print(f"| {check.name} | {low if low == high else f'{low} to {high}'} | {check.limit} |")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
