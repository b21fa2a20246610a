"""Patching between twins: the heads that carry the cue, and the paths from head to head through which it goes."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from headcount.heads.pictures import drawn, graph, share_map
from headcount.heads.results import Figures, Results, Row, Subject
from headcount.heads.twin_shares import LEAST, Edge, Shares, edges, twin_shares
from headcount.report.blocks import Plots, Section
from headcount.report.drawing import Plot

NOTE = (
    "The output of one head is replaced with its output for the twin, a sentence that differs in what decides the "
    "phenomenon. In percent: how far the log-odds of the right and the wrong translation move to those of the twin. "
    "Heads in a row carry the same cue one after the other, so shares do not add up to 100. Pale and hatched: the "
    "interval includes 0 (all cells at once)."
)
PATHS = (
    f"Direct paths with a share of at least {LEAST:.0%} whose interval excludes 0: the sender's output for the twin "
    "reaches this receiver alone. The wider an arrow, the larger the share."
)


def subject(results: Results) -> Subject | None:
    """The map of shares, and the circuit of each phenomenon that has one."""
    arrays = results.get("twins")
    if arrays is None:
        return None
    shares = twin_shares(arrays)
    chosen = share_map("twins", "share", "Share of the way to the twin, in percent, by head", shares)
    blocks: list = [NOTE, drawn([chosen])]
    paths = results.get("paths")
    plots = tuple(_circuits(paths)) if paths is not None else ()
    if plots:
        blocks += [Section("Circuits", (PATHS, Plots(plots, small=True)))]
    section = Section("Heads that carry the cue", tuple(blocks))
    return Subject(section, tuple(_rows(shares)), tuple(_findings(shares)), _figures(shares))


def _circuits(arrays: Mapping[str, NDArray]) -> Iterator[Plot]:
    ends, shares = edges(arrays)
    figures = (shares.share, shares.low, shares.high)
    for column, name in enumerate(shares.phenomena):
        kept = np.flatnonzero(shares.clear[:, column] & (abs(shares.share[:, column]) >= LEAST))
        found = [Edge(*ends[row], *(float(figure[row, column]) for figure in figures)) for row in kept]
        if found:
            yield graph(f"circuit_{name}", name, found)


def _rows(shares: Shares) -> Iterator[Row]:
    for row, column in np.ndindex(*shares.share.shape):
        estimate, low, high = (float(each[row, column]) for each in (shares.share, shares.low, shares.high))
        verdict = "clear" if shares.clear[row, column] else "undecided"
        yield Row(shares.rows[row], "twins.share", shares.phenomena[column], estimate, low, high, None, verdict)


def _findings(shares: Shares) -> Iterator[str]:
    clear = np.where(shares.clear, shares.share, -np.inf)
    if np.isfinite(clear).any():
        row, column = np.unravel_index(clear.argmax(), clear.shape)
        ends = f"[{100 * shares.low[row, column]:.0f}, {100 * shares.high[row, column]:.0f}]"
        yield (
            f"{shares.rows[row]} carries the cue of {shares.phenomena[column]}: its output for the twin alone goes "
            f"{100 * shares.share[row, column]:.0f} % {ends} of the way to the twin."
        )


def _figures(shares: Shares) -> Figures:
    figures: Figures = {}
    for row, column in np.argwhere(shares.clear):
        ends = f"[{100 * shares.low[row, column]:.0f}, {100 * shares.high[row, column]:.0f}]"
        line = (f"twin, {shares.phenomena[column]}", f"{100 * shares.share[row, column]:.0f} % of the way {ends}")
        figures.setdefault(shares.rows[row], []).append(line)
    return figures
