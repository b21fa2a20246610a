"""Parts that were measured, and the time that each took."""

from headcount.heads.measure import PARTS
from headcount.heads.results import Results, Subject
from headcount.report.blocks import Section
from headcount.report.table import Table

NOTE = "Seconds as they passed while the part was measured; other work on the machine counts, too."


def subject(results: Results) -> Subject | None:
    """A line for each part, with its share of the time of all."""
    seconds = {name: float(arrays["seconds"]) for name, arrays in results.parts.items() if "seconds" in arrays}
    if not seconds:
        return None
    whole = sum(seconds.values())
    measured = [(part.name, part.about, seconds[part.name]) for part in PARTS if part.name in seconds]
    lines = tuple((name, about, f"{own:.0f}", f"{own / whole:.0%}") for name, about, own in measured)
    lines += (("all", "", f"{whole:.0f}", ""),)
    table = Table(("part", "measures", "seconds", "share"), lines, NOTE, frozenset({0, 1}))
    return Subject(Section("Parts and their cost", (table,)))
