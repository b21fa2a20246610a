"""Tables of the results, for the screen and for a Markdown page."""

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from headcount.benchmark.workloads import SQUARE, UNITS, WORKS
from headcount.errors import InputError

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"  # around the part of a page that is replaced


def tables(rows: Sequence[Mapping[str, Any]], style: str) -> list[str]:
    """A titled table for each work, and for train and decode one for each model. style: of tabulate."""
    parts: list[str] = []
    for work, (_, title) in WORKS.items():
        of_work = [row for row in rows if row["work"] == work]
        models = dict.fromkeys(row["model"] if work in ("train", "decode") else "" for row in of_work)
        for model in models:
            cells = [_cells(row) for row in of_work if not model or row["model"] == model]
            titled = f"{title[0].upper()}{title[1:]}{f', {model}' if model else ''}"
            headers = [name for name in cells[0] if any(each[name] for each in cells)]
            body = [[each[name] for name in headers] for each in cells]
            align = ["left" if name in ("", "model", "precision") else "right" for name in headers]
            parts += [f"### {titled}\n" if style == "pipe" else f"\n{titled}\n"]
            parts += [tabulate(body, headers, style, colalign=align, disable_numparse=True), ""]
    return parts


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as text, by column title; columns that stay empty are left out later."""
    work, (name, _) = row["work"], WORKS[row["work"]]
    unit, scale = UNITS[name]
    who = {"ctranslate2": "ctranslate2 (anchor)"}.get(row["peer"], row["peer"])
    if work == "ceiling":
        who = f"linear layers of {row['model']}" if row["model"] else f"{SQUARE} x {SQUARE}"
    elif work == "together":
        who = "one" if row["peer"] == "headcount" else row["peer"]
    elif work == "lightning":
        who = "Lightning" if row["peer"] == "headcount" else row["peer"]
    elif work == "prepare":
        who = f"{row['pairs']:,} pairs"
    ratio = row.get("ratio") if row["peer"] != "headcount" else None
    shares = {"of ceiling": row.get("share_of_ceiling"), "of own shapes": row.get("share_of_own_shapes")}
    return {
        "": who,
        "model": str(row["model"]) if work in ("lightning", "together", "start", "quality") else "",
        "precision": row["precision"] if work != "prepare" else "",
        unit: number(row[name] / scale),
        "spread": " to ".join(number(value / scale) for value in row["spread"]),
        "headcount is": f"{ratio:.2f} x" if ratio else "",
        "headcount's, on average": f"{row['difference']:+.4f}" if row.get("difference") else "",
        **{title: f"{share:.0%}" if share else "" for title, share in shares.items()},
        "memory": f"{row['peak_memory'] / 2**20:,.0f} MiB",
        "slower": ", ".join(f"{other} {number(value)}" for other, value in row.get("other_precisions", {}).items()),
    }


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(value: float, figure: str) -> str:
    unit, scale = UNITS[figure]
    return f"{number(value / scale)} {unit}"


def page_parts(text: str) -> tuple[str, str]:
    """The text before and after the tables. Raises InputError for a page without markers."""
    begin, end = text.find(BEGIN), text.find(END)
    if not text.strip():
        return "# Performance\n\n", "\n"
    if begin < 0 or end < begin:
        raise InputError(f"the page has no lines {BEGIN} and {END}, between which the tables go")
    return text[:begin], text[end + len(END) :]


def page(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with new tables between the two markers; a new page if `text` is empty. Raises InputError."""
    before, after = page_parts(text)
    return f"{before}{BEGIN}\n\n{about(rows)}\n\n" + "\n".join(tables(rows, "pipe")) + f"\n{END}{after}"


def about(rows: Sequence[Mapping[str, Any]]) -> str:
    """The origin of the figures: commands, date, machine and versions."""
    first = rows[0]
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows))
    versions = {name: value for row in rows for name, value in row["versions"].items() if value}
    packages = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
    return (
        f"```bash\n{commands}\n```\n\n"
        f"gave this on {first['date']}, on {first['threads']} thread{'s'[: first['threads'] > 1]} of "
        f"{first['processor']}, with {packages}."
    )
