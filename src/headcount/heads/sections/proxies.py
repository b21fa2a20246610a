"""Rank correlation of gradients with the effect of removing each head: of the loss, and of margins of phenomena."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from headcount.heads.importance import PROXIES, Guide, guide
from headcount.heads.interface import heads_named
from headcount.heads.results import SENTENCE, Results, Row, Subject
from headcount.heads.statistics import LOSS
from headcount.report.axes import plot, style_of
from headcount.report.blocks import Plots, Section
from headcount.report.plot import Plot
from headcount.report.table import Table

NAMES = {
    "loss_importance": "importance for the loss",
    "margin_importance": "importance for the phenomenon",
    "margin_first_order": "first-order estimate of the phenomenon",
    "integrated": "integrated gradients",
    "attribution_patching": "attribution patching",
}
NOTE = (
    "Importance for the loss: the mean absolute gradient of the loss of a sentence with respect to a head's gate "
    "(Michel et al. 2019), one figure a head, compared with the harm in every column. Importance for the phenomenon: "
    "the mean absolute gradient of the margin of its pairs, log p(right) − log p(wrong). First-order estimate of the "
    "phenomenon: the mean gradient of that margin, with its sign. Gradients are those of validation sentences. Truth: "
    "the harm of an output of 0, on test sentences."
)
RANKS = (
    "Spearman's rank correlation over heads. Reliability: of the order of heads by true harm, from halves of the test "
    "sentences or pairs (Spearman-Brown). It limits the correlation: a proxy without any error reaches about its "
    "square root, so a low correlation beside a low reliability says little about the proxy."
)


def subject(results: Results) -> Subject | None:
    """A plot of importance for the loss, and the rank correlations by column."""
    gradients, ablated = results.get("importance"), results.get("ablation")
    if gradients is None or ablated is None:
        return None
    found = guide(gradients, ablated)
    figures = [*found.rank, found.reliability]
    lines = tuple((name, *(_text(each[n]) for each in figures)) for n, name in enumerate(found.columns))
    table = Table(("harm to", *(NAMES[proxy] for proxy in PROXIES), "reliability of the harm"), lines, RANKS)
    section = Section("Is importance by gradient a good guide?", (NOTE, Plots((_plot(found),)), table))
    rows = tuple(row for row in _rows(found) if not np.isnan(row.estimate))
    return Subject(section, rows, tuple(_findings(found)))


def _text(rank: float) -> str:
    return "–" if np.isnan(rank) else f"{rank:z.2f}".replace("-", "−")


def _plot(found: Guide) -> Plot:
    values = found.proxies["loss_importance"][:, 0]

    def draw(axes: Axes) -> None:
        for index, kind in enumerate(("encoder", "decoder", "cross")):
            colour, marker = style_of(index)
            own = [number for number, head in enumerate(heads_named(found.heads)) if head.kind == kind]
            axes.plot(
                values[own], found.effect[own, 0], marker, color=colour, markersize=5, linestyle="none", label=kind
            )
        for number in np.argsort(-found.effect[:, 0])[:4]:
            axes.annotate(
                found.heads[number], (values[number], found.effect[number, 0]), (4, 3), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
        axes.set_xlabel(f"importance for the loss, {SENTENCE}")
        axes.set_ylabel(f"loss without the head, {SENTENCE}")
        axes.legend(loc="best")

    return plot("proxy_loss_importance", "importance of each head for the loss against its true effect on it", draw)


def _rows(found: Guide) -> Iterator[Row]:
    for column, name in enumerate(found.columns):
        for number, proxy in enumerate(PROXIES):
            yield Row("all heads", f"proxy.{proxy}.rank", name, found.rank[number, column], unit="rank correlation")
            if name == LOSS or proxy != "loss_importance":  # which has one figure a head
                for head, value in zip(found.heads, found.proxies[proxy][:, column].tolist(), strict=True):
                    yield Row(head, f"proxy.{proxy}", name, value, unit=SENTENCE)
        yield Row("all heads", "proxy.reliability", name, found.reliability[column], unit="rank correlation")


def _findings(found: Guide) -> Iterator[str]:
    loss, *others = found.rank[0]
    known = [rank for rank in others if not np.isnan(rank)]
    if np.isnan(loss):
        return
    text = f"Importance for the loss and true harm to the loss have a rank correlation over heads of {_text(loss)}"
    if not known:
        yield f"{text}."
        return
    least, most = _text(min(known)), _text(max(known))
    between = least if len(known) == 1 else f"{least} to {most}, by the phenomenon"
    yield f"{text}; importance for the loss and true harm to the margin of a phenomenon, of {between}."
