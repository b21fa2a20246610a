"""Results of the benchmark: measurements, the rows made of them, and tables for the screen and for a Markdown page."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from headcount.benchmark.inputs import Inputs
from headcount.benchmark.turns import relative_time
from headcount.benchmark.workloads import FIRST_MODEL_ONLY, OF_PAIRS, SQUARES, UNITS, WITH_PEERS, WORKS, Case
from headcount.errors import InputError

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"  # around the part of a page that is replaced
# Of every row; besides these, a row has the figure of its work.
FIELDS = (
    *("command", "date", "model", "peak_memory", "peer", "precision"),
    *("processor", "spread", "threads", "versions"),
)
Measurement = dict[str, Any]  # what a script reports, with `requested`, the precision, and `keep`
Measurements = dict[tuple[str, str], list[Measurement]]  # by system and precision; one each round


class Results:
    """The measurements of one command, by case.

    common: what every row says of the machine and the command.
    """

    def __init__(self, inputs: Inputs, common: Mapping[str, Any]) -> None:
        self.inputs = inputs
        self.common = common
        self.cases: dict[Case, Measurements] = {}

    def ceiling(self, model: str | None, precision: str) -> float | None:
        """Operations a second of matrix products in that precision; None where they were not measured."""
        products = self.cases.get(Case("ceiling", model), {})
        measured = products.get(("torch", ceiling_precision(precision) or ""))
        return statistics.median(rates(measured)) if measured else None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each figure of the works that were asked for."""
        chosen = [work for work in WORKS if work in self.inputs.config.work]
        return [row for work in chosen for case in self.cases if case.work == work for row in self._rows(case)]

    def _rows(self, case: Case) -> Iterator[dict[str, Any]]:
        """A row for each system, in its best precision (or in all, where it keeps all); of a profile, for each part."""
        measurements = self.cases[case]
        if not measurements:
            return  # stopped before the first was made
        if case.work == "profile":
            yield from self._parts(case, measurements)
            return
        first = next(name for name, _ in measurements)
        ours = best(measurements, first if case.work == "rows" else "headcount")
        for (name, precision), measured in measurements.items():
            if not measured[0]["keep"] and measured is not best(measurements, name):
                continue
            median = statistics.median(rates(measured))
            row = {
                "work": case.work,
                "peer": name,
                "model": case.model,
                "precision": precision,
                WORKS[case.work].figure: median,
                "spread": [min(rates(measured)), max(rates(measured))],
                "peak_memory": max(each["peak_memory"] for each in measured),
                "rounds": len(measured),
                "versions": measured[0]["versions"],
            }
            if case.work in ("train", "decode", "lightning", "together", "crowded") and ours:
                row["ratio"] = statistics.median(rates(ours)) / median  # headcount's speed over this one's
            if case.work == "rows":
                row["time"] = relative_time(rates(ours), rates(measured))
            if case.work in ("train", "decode"):
                row |= self._shares(case, precision, median)
                row["per_step"] = statistics.median(each["per_step"] for each in measured)
                row["other_precisions"] = {
                    other: statistics.median(rates(each))
                    for (system, other), each in measurements.items()
                    if system == name and other != precision and not each[0]["keep"]
                }
            if case.work == "prepare":
                row |= {"pairs": self.inputs.config.pairs, "pairs_kept": measured[0]["kept"]}
            if case.work == "plan":
                row |= {"pairs": self.inputs.config.pairs, "growth": max(each["growth"] for each in measured)}
            if case.work == "search":
                row["bleu"] = measured[0]["bleu"]
            if case.work == "quality" and ours:
                pairs = zip(rates(ours), rates(measured), strict=False)  # the last round may not be complete
                row["difference"] = statistics.mean(our_loss - loss for our_loss, loss in pairs)
            yield {**row, **self.common}

    def _parts(self, case: Case, measurements: Measurements) -> Iterator[dict[str, Any]]:
        """A row for each part of a training step, the largest first, and one for the whole step."""
        ((_, precision), measured) = next(iter(measurements.items()))
        whole = statistics.median(rates(measured))
        parts = {name: [each["parts"][name] for each in measured] for name in measured[0]["parts"]}
        figures = sorted(parts.items(), key=lambda part: -statistics.median(part[1]))
        for name, times in [*figures, ("whole step", rates(measured))]:
            median = statistics.median(times)
            yield {
                "work": case.work,
                "peer": name,
                "model": case.model,
                "precision": precision,
                "milliseconds": median,
                "share_of_step": median / whole,
                "spread": [min(times), max(times)],
                "peak_memory": max(each["peak_memory"] for each in measured),
                "rounds": len(measured),
                "versions": measured[0]["versions"],
                **self.common,
            }

    def _shares(self, case: Case, precision: str, rate: float) -> dict[str, float | None]:
        """The share reached of the rate of matrix products: of a large square, and of the model's own shapes."""
        operations, whole = self.inputs.operations(case)
        if case.work == "train":
            whole += float(self.inputs.source_lengths.sum())
        ceilings = {"ceiling": self.ceiling(None, precision), "own_shapes": self.ceiling(case.model, precision)}
        reached = rate * operations / whole
        return {f"share_of_{name}": reached / ceiling if ceiling else None for name, ceiling in ceilings.items()}


def rates(measured: Iterable[Measurement]) -> list[float]:
    """The figures of several measurements."""
    return [each["rate"] for each in measured]


def best(measurements: Measurements, name: str) -> list[Measurement]:
    """A system's measurements in the precision that was measured most often: the fastest of the first round."""
    of_system = [measured for (system, _), measured in measurements.items() if system == name]
    return max(of_system, key=lambda measured: (len(measured), statistics.median(rates(measured))), default=[])


def ceiling_precision(precision: str) -> str | None:
    """The precision of the matrix products that a precision is compared with: fp32, bf16, or None for others."""
    if "bf16" in precision or "bfloat16" in precision:
        return "bf16"
    return "fp32" if "32" in precision else None


def tables(rows: Sequence[Mapping[str, Any]], style: str) -> list[str]:
    """A titled table for each work, and for train, decode and profile one for each model. style: of tabulate."""
    parts: list[str] = []
    for work, (_, title) in WORKS.items():
        of_work = [row for row in rows if row["work"] == work]
        models = dict.fromkeys(row["model"] if work in ("train", "decode", "profile") else "" for row in of_work)
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
        square = SQUARES["cuda" if row.get("gpu") else "cpu"]
        who = f"linear layers of {row['model']}" if row["model"] else f"{square} x {square}"
    elif work == "together":
        who = "one" if row["peer"] == "headcount" else row["peer"]
    elif work == "crowded":
        who = row["peer"].replace(", beside", ", beside busy programs")
    elif work == "lightning":
        who = "Lightning" if row["peer"] == "headcount" else row["peer"]
    elif work in OF_PAIRS:
        who = f"{row['pairs']:,} pairs"
    ratio = row.get("ratio") if row["peer"] != "headcount" else None
    shares = {"of ceiling": row.get("share_of_ceiling"), "of own shapes": row.get("share_of_own_shapes")}
    return {
        "": who,
        "model": str(row["model"]) if work in FIRST_MODEL_ONLY else "",
        "precision": row["precision"] if work not in OF_PAIRS else "",
        unit: number(row[name] / scale),
        "of the step": f"{row['share_of_step']:.0%}" if "share_of_step" in row else "",
        "spread": " to ".join(number(value / scale) for value in row["spread"]),
        "BLEU": f"{row['bleu']:.2f}" if "bleu" in row else "",
        "headcount is" if work in WITH_PEERS else "first row is": f"{ratio:.2f} x" if ratio else "",
        "time, first row 1": _relative(*row["time"]) if "time" in row else "",
        "headcount's, on average": f"{row['difference']:+.4f}" if row.get("difference") else "",
        **{title: f"{share:.0%}" if share else "" for title, share in shares.items()},
        "memory": f"{row['peak_memory'] / 2**20:,.0f} MiB" if work != "profile" else "",
        "of which planning": f"{row['growth'] / 2**20:,.0f} MiB" if "growth" in row else "",
        "slower": ", ".join(f"{other} {number(value)}" for other, value in row.get("other_precisions", {}).items()),
    }


def _relative(time: float, low: float | None, high: float | None) -> str:
    return f"{time:.3f}" if low is None else f"{time:.3f} [{low:.3f}, {high:.3f}]"


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


def page_with_tables(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with new tables between the two markers; a new page if `text` is empty. Raises InputError."""
    before, after = page_parts(text)
    return f"{before}{BEGIN}\n\n{about(rows)}\n\n" + "\n".join(tables(rows, "pipe")) + f"\n{END}{after}"


def is_complete(row: Mapping[str, Any]) -> bool:
    """Whether a row has all that every table and its origin need."""
    work = row.get("work")
    pairs = {"pairs"} if work in OF_PAIRS else set()
    return work in list(WORKS) and {*FIELDS, WORKS[work].figure, *pairs} <= row.keys()


def about(rows: Sequence[Mapping[str, Any]]) -> str:
    """The origin of the figures: commands, dates, machines and versions."""
    commands = "\n".join(dict.fromkeys(row["command"] for row in rows))
    versions = {name: value for row in rows for name, value in row["versions"].items() if value}
    packages = ", ".join(f"{name} {value}" for name, value in sorted(versions.items()))
    dates = " and ".join(sorted({row["date"] for row in rows}))
    machines = " and ".join(dict.fromkeys(_machine(row) for row in rows))
    return f"```bash\n{commands}\n```\n\ngave this on {dates}, on {machines}, with {packages}."


def _machine(row: Mapping[str, Any]) -> str:
    machine = f"{row['threads']} thread{'s'[: row['threads'] > 1]} of {row['processor']}"
    return f"{row['gpu']} and {machine}; memory is that of the GPU" if row.get("gpu") else machine
