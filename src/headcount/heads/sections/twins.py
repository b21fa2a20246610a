"""Patching between twins: the heads that carry the cue, and the paths from head to head through which it goes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.heads.pictures import drawn, graph, share_map, signed
from headcount.heads.results import Results, Row, Subject
from headcount.heads.twin_shares import LEAST, Edge, Shares, circuits, encoder_limit, twin_shares
from headcount.report.blocks import Plots, Section
from headcount.report.table import Table

NOTE = (
    "The output of one head is replaced with its output for the twin, a sentence that differs in what decides the "
    "phenomenon. Normalised patching effect, in percent: how far the log-odds of the right and the wrong translation "
    "move to those of the twin. Heads in a row carry the same cue one after the other, so shares do not add up to "
    "100. Pale and hatched: the interval includes 0 (all cells at once)."
)
PATHS = (
    f"Direct paths with a share of at least {LEAST:.0%} whose interval excludes 0: the sender's output for the twin "
    "reaches this receiver alone. The wider an arrow, the larger the share."
)
LIMIT = (
    "Twins may differ in length. Then an encoder head has its output for the twin at aligned words alone; its share "
    'is too small: "encoder output" is the share of the encoder\'s whole output at those words.'
)
LARGE = 0.25  # the least share that a finding calls carrying


def subject(results: Results) -> Subject | None:
    """The map of shares, and the circuit of each phenomenon that has one."""
    arrays = results.get("twins")
    if arrays is None:
        return None
    shares = twin_shares(arrays)
    chosen = share_map("twins", "share", "Share of the way to the twin, in percent, by head", shares)
    blocks: list = [NOTE, drawn([chosen]), _layers(arrays)]
    rows = [*_rows(shares), *_rows(twin_shares(arrays, "layer"))]
    paths = results.get("paths")
    found = circuits(paths) if paths is not None else {}
    if paths is not None and any(found.values()):
        blocks.append(_paths(found, len(paths["base"])))
        rows += _path_rows(found)
    section = Section("Heads that carry the cue", tuple(blocks))
    return Subject(section, tuple(rows), tuple(_findings(shares)))


def _paths(found: Mapping[str, Sequence[Edge]], pairs: int) -> Section:
    plots = tuple(graph(f"circuit_{name}", name, paths) for name, paths in found.items() if paths)
    lines = tuple(
        (name, path.sender, path.receiver, f"{100 * path.share:z.0f}", _ends(path.low, path.high))
        for name, paths in found.items()
        for path in paths
    )
    headers = ("phenomenon", "sender", "receiver", "share, %", "95 % interval, %")
    note = f"{pairs} pairs, as many of each phenomenon. Feed-forward sublayers are part of a path."
    table = Table(headers, lines, note, frozenset({0, 1, 2}))
    return Section("Circuits", (PATHS, Plots(plots, small=True), table))


def _path_rows(found: Mapping[str, Sequence[Edge]]) -> Iterator[Row]:
    for name, paths in found.items():
        for path in paths:
            ends = f"{path.sender} > {path.receiver}"
            yield Row(ends, "paths.share", name, path.share, path.low, path.high, None, "clear", unit="share")


def _layers(arrays: Mapping[str, NDArray]) -> Table:
    """Shares of all heads of a layer together, and of the encoder's whole output."""
    each = (twin_shares(arrays, "layer"), encoder_limit(arrays))
    lines = [
        (name, *("–" if np.isnan(share) else signed(100 * share, 0) for share in row))
        for shares in each
        for name, row in zip(shares.rows, shares.share, strict=True)
    ]
    return Table(("all heads of, %", *each[0].phenomena), tuple(lines), LIMIT)


def _ends(low: float, high: float) -> str:
    return f"[{100 * low:z.0f}, {100 * high:z.0f}]"


def _rows(shares: Shares) -> Iterator[Row]:
    for row, column in np.ndindex(*shares.share.shape):
        estimate, low, high = (float(each[row, column]) for each in (shares.share, shares.low, shares.high))
        verdict = "clear" if shares.clear[row, column] else "undecided"
        names = shares.rows[row], "twins.share", shares.phenomena[column]
        yield Row(*names, estimate, low, high, verdict=verdict, unit="share")


def _findings(shares: Shares) -> Iterator[str]:
    clear = np.where(shares.clear, shares.share, -np.inf)
    if np.isfinite(clear).any():
        row, column = np.unravel_index(clear.argmax(), clear.shape)
        verb = "carries" if clear.max() >= LARGE else "has the largest share of"
        ends = _ends(shares.low[row, column], shares.high[row, column])
        yield (
            f"{shares.rows[row]} {verb} the cue of {shares.phenomena[column]}: its output for the twin alone goes "
            f"{100 * shares.share[row, column]:z.0f} % {ends} of the way to the twin."
        )
        led = [(name, each) for name, each in zip(shares.phenomena, clear.T, strict=True) if each.max() >= LARGE]
        best = [f"{name} {shares.rows[each.argmax()]} ({100 * each.max():.0f} %)" for name, each in led]
        yield f"The largest share of each cue, where it is {LARGE:.0%} or more: {', '.join(best) or 'none'}."
