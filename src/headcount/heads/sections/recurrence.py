"""Recurrence over seeds: how many runs have a head for a phenomenon, in which layer, and over how many heads it is
spread."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from headcount.heads.analysis import Arrays
from headcount.heads.pictures import DEEPEST, GAIN, HARM, HeadMap, MapCell, picture, signed
from headcount.heads.recurrence import SHARE, Match, Recurrence, Specialist, Spread, recurrence
from headcount.heads.results import Row, Study, Subject
from headcount.heads.statistics import LOSS
from headcount.report.axes import Scale, plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot
from headcount.report.table import Table, interval, p_value

FOUND = (
    f"A run has a head for a phenomenon if the removal of one head costs {SHARE:.0%} or more of the margin and "
    "differs from 0 within the run. Intervals (95 %) of the share of runs are exact (Clopper and Pearson 1934); a "
    "run is one observation."
)
SPREAD = (
    "Participation ratio of the harm over heads: 1 if one head does it all, the number of heads if all do the same. "
    "Means over runs with 95 % t intervals. Noise of small effects raises it."
)
MATCHED = (
    "Heads of the runs of a row, matched by their effects within each layer (Hungarian algorithm): mean share of the "
    "margin that is lost without the head, in percent. Similarity 1: the runs have the same profiles; beside it, that "
    "of effects dealt to heads at random."
)


def subject(study: Study) -> Subject | None:
    """Tables and pictures over the runs whose ablation was measured."""
    rows: Mapping[str, Sequence[Arrays]] = {
        label: [arrays for run in runs if (arrays := run.get("ablation")) is not None]
        for label, runs in study.rows.items()
    }
    if not any(rows.values()):
        return None
    found = recurrence(rows)
    blocks: list = []
    if found.phenomena:
        blocks += [FOUND, _specialists(found, study.label)]
    parts = [Section("Spread", (SPREAD, Plots((_spread_plot(found, study.label),)), _spreads(found, study.label)))]
    if found.matches:
        drawn = tuple(_matched(match, found.phenomena, study.label) for match in found.matches)
        parts.append(Section("Matched heads", (MATCHED, _similar(found.matches, study.label), Plots(drawn))))
    section = Section("How often is there such a head?", (*blocks, *parts))
    return Subject(section, tuple(_rows(found)), tuple(_findings(found, study.label)))


def _specialists(found: Recurrence, label: str) -> Table:
    labels = list(dict.fromkeys(each.row for each in found.specialists))
    cells = {(each.row, each.phenomenon): each for each in found.specialists}
    lines = tuple((name, *(_count(cells[row, name]) for row in labels)) for name in found.phenomena)
    return Table(("phenomenon", *(f"{label} {row}" for row in labels)), lines, "", frozenset(range(1 + len(labels))))


def _count(each: Specialist) -> str:
    layers = ", ".join(f"{layer} {runs}" for layer, runs in each.layers.items())
    return f"{each.found} of {each.runs} {interval((each.low, each.high))}{f': {layers}' if layers else ''}"


def _spreads(found: Recurrence, label: str) -> Table:
    labels = list(dict.fromkeys(each.row for each in found.spreads))
    cells = {(each.row, each.column): each for each in found.spreads}
    lines = tuple((name, *(_ratio(cells[row, name]) for row in labels)) for name in (LOSS, *found.phenomena))
    return Table(("column", *(f"{label} {row}" for row in labels)), lines)


def _ratio(each: Spread) -> str:
    ends = f" {interval((each.low, each.high), 1)}" if each.runs > 1 else ""
    return f"{each.heads:.1f}{ends} ({each.share:.0%})"


def _spread_plot(found: Recurrence, label: str) -> Plot:
    labels = list(dict.fromkeys(each.row for each in found.spreads))
    scale = Scale([int(row) if row.isdigit() else row for row in labels], labels, label)

    def draw(axes: Axes) -> None:
        for index, name in enumerate((LOSS, *found.phenomena)):
            colour, marker = style_of(index)
            values = [each.heads for each in found.spreads if each.column == name]
            axes.plot(scale.at, values, marker=marker, color=colour, markersize=4, linestyle=scale.line, label=name)
        scale.apply(axes)
        axes.set_ylabel("heads (participation ratio)")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    return plot("spread", f"number of heads that a function is spread over, by {label}", draw, (5.6, 3.1))


def _similar(matches: Sequence[Match], label: str) -> Table:
    lines = tuple(
        (each.row, str(each.runs), f"{each.similarity:.2f}", f"{each.null:.2f}", p_value(each.p)) for each in matches
    )
    return Table((label, "runs", "similarity", "at random", "p"), lines)


def _matched(match: Match, phenomena: Sequence[str], label: str) -> Plot:
    def cell(head: int, column: int) -> MapCell:
        share = float(match.profile[head, column])
        title = f"{match.reference[head]}, {phenomena[column]}: {100 * share:.0f} %"
        return MapCell(
            signed(-100 * share, 0), title, True, HARM if share > 0 else GAIN, DEEPEST * min(abs(share), 1) ** 0.6
        )

    cells = [[cell(head, column) for column in range(len(phenomena))] for head in range(len(match.reference))]
    title = f"{label} {match.row}: margin lost without matched heads, mean of {match.runs} runs"
    return picture(HeadMap(f"matched_{match.row}", "share", title, match.reference, phenomena, (), cells))


def _rows(found: Recurrence) -> Iterator[Row]:
    for each in found.specialists:
        share = each.found / each.runs
        yield Row(each.row, "recurrence", each.phenomenon, share, each.low, each.high)
    for spread in found.spreads:
        yield Row(spread.row, "spread", spread.column, spread.heads, spread.low, spread.high)


def _findings(found: Recurrence, label: str) -> Iterator[str]:
    most = max((each.runs for each in found.specialists), default=0)
    often = sorted(found.specialists, key=lambda each: (-each.found / each.runs, -each.runs))
    for each in [each for each in often if each.found and each.runs == most][:2]:
        layer, runs = max(each.layers.items(), key=lambda item: item[1])
        yield (
            f"{label} {each.row}: {each.found} of {each.runs} runs {interval((each.low, each.high))} have a head for "
            f"{each.phenomenon}; in {layer} in {runs} of them."
        )
    for match in found.matches[:1]:
        yield (
            f"{label} {match.row}: heads matched over {match.runs} seeds have a similarity of {match.similarity:.2f}, "
            f"at random {match.null:.2f} (p {p_value(match.p)})."
        )
