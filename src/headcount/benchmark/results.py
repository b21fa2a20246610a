"""Results: every measurement of a command, and the rows that are made of them."""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headcount.benchmark.inputs import Inputs
from headcount.benchmark.workloads import WORKS, Group

Measurement = dict[str, Any]  # what a script reports, with `requested`, the precision, and `keep`
Measurements = dict[tuple[str, str], list[Measurement]]  # by system and precision; one each round


class Results:
    """The measurements of one command, by group.

    common: what every row says of the machine and the command.
    """

    def __init__(self, inputs: Inputs, common: Mapping[str, Any]) -> None:
        self.inputs = inputs
        self.common = common
        self.groups: dict[Group, Measurements] = {}

    def ceiling(self, model: str | None, precision: str) -> float | None:
        """Operations a second of matrix products in that precision; None where they were not measured."""
        products = self.groups.get(Group("ceiling", model), {})
        measured = products.get(("torch", ceiling_precision(precision) or ""))
        return statistics.median(rates(measured)) if measured else None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each figure of the works that were asked for."""
        chosen = [work for work in WORKS if work in self.inputs.config.work]
        return [row for work in chosen for group in self.groups if group.work == work for row in self._rows(group)]

    def _rows(self, group: Group) -> Iterator[dict[str, Any]]:
        """A row for each system, in its best precision (or in all, where it keeps all)."""
        measurements = self.groups[group]
        ours = best(measurements, "headcount")
        for (name, precision), measured in measurements.items():
            if not measured[0]["keep"] and measured is not best(measurements, name):
                continue
            median = statistics.median(rates(measured))
            row = {
                "work": group.work,
                "peer": name,
                "model": group.model,
                "precision": precision,
                WORKS[group.work].figure: median,
                "spread": [min(rates(measured)), max(rates(measured))],
                "peak_memory": max(each["peak_memory"] for each in measured),
                "rounds": len(measured),
                "versions": measured[0]["versions"],
            }
            if group.work in ("train", "decode", "lightning", "together") and ours:
                row["ratio"] = statistics.median(rates(ours)) / median  # headcount's speed over this one's
            if group.work in ("train", "decode"):
                row |= self._shares(group, precision, median)
                row["per_step"] = statistics.median(each["per_step"] for each in measured)
                row["other_precisions"] = {
                    other: statistics.median(rates(each))
                    for (system, other), each in measurements.items()
                    if system == name and other != precision and not each[0]["keep"]
                }
            if group.work == "prepare":
                row |= {"pairs": self.inputs.config.pairs, "pairs_kept": measured[0]["kept"]}
            if group.work == "quality" and ours:
                pairs = zip(rates(ours), rates(measured), strict=False)  # the last round may not be complete
                row["difference"] = statistics.mean(our_loss - loss for our_loss, loss in pairs)
            yield {**row, **self.common}

    def _shares(self, group: Group, precision: str, rate: float) -> dict[str, float | None]:
        """The share reached of the rate of matrix products: of a large square, and of the model's own shapes."""
        operations, whole = self.inputs.operations(group)
        if group.work == "train":
            whole += float(self.inputs.source_lengths.sum())
        ceilings = {"ceiling": self.ceiling(None, precision), "own_shapes": self.ceiling(group.model, precision)}
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
