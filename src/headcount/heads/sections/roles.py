"""Role and effect side by side: the attention of each head, and the phenomenon that suffers most without it."""

from collections.abc import Iterator, Sequence

import numpy as np

from headcount.heads.links import WHENS, Alignment, Claim, alignment
from headcount.heads.observed import VIEWS
from headcount.heads.results import SENTENCE, Results, Row, Subject
from headcount.heads.roles import POSITIONAL, WINDOW, RoleFigures, role_figures
from headcount.heads.statistics import LOSS
from headcount.report.blocks import Section
from headcount.report.table import Table, interval
from headcount.statistics.max_t import EffectTable, Ratio

NOTE = (
    "Offset: the fixed offset with the most maxima on validation sentences, and the share of test queries whose "
    f"maximum is there. Positional: 90 % or more at one offset from −{WINDOW} to {WINDOW}, for heads of all kinds; "
    "Voita et al. 2019 define it for heads of the encoder, where it is −1 or +1 in practice. Effective keys: "
    "exp(entropy), as many keys with equal weights have the same entropy. Confidence: mean of the largest weight. "
    "End: share of attention on ends of sentences. Suffers most: the phenomenon whose margin falls most without the "
    "head, if it differs."
)
CLAIMS = (
    "A role is claimed only if the head's maximum is on the other end of a gold link at least ten points more often "
    "than each baseline, and the margin of the phenomenon that rests on the link falls by a tenth or more without it. "
    "Baselines: the best fixed offset; links with shuffled offsets; other words of the sentence that attend to the "
    "same word. Lower ends of gains hold for all heads and links at once."
)
ALIGNED = (
    "Alignment error rate against the gold alignment (Och and Ney 2003): each target word is linked to the source word "
    "with the largest weight, or norm-weighted attention (Kobayashi et al. 2020), at the position before it, which "
    "predicts it, or after it, which reads it. Baseline: the best rule without attention, the same relative place in "
    "the sentence or a fixed offset. The best head and the baseline are chosen on validation sentences; intervals (95 "
    "%) are each for itself. Marian and CTranslate2 take the first head of the last layer by default, in models that "
    "were trained with guided alignment, as this one was not."
)
UNITS = {"distance": "tokens", "entropy": "nats"}  # all others are shares
VIEW = {"weight": "weight", "norm": "norm-weighted attention"}
Cell = tuple[int, int, int]
"""View, head, when: of the arrays of `Alignment`."""


def subject(results: Results) -> Subject | None:
    """Roles of all heads, the roles that are claimed, and the alignment error of each cross head."""
    arrays = results.get("roles")
    if arrays is None:
        return None
    found, effects = role_figures(arrays), results.effects("zero", "margin")
    claims = results.claims()
    held = [claim for claim in claims if claim.claimed]
    blocks: list = [NOTE, _table(found, effects, held)]
    if claims:
        blocks.append(Section("Links that heads follow", (CLAIMS, *_claims(claims))))
    aligned = _aligned(results)
    if aligned:
        blocks.append(aligned[0])
    findings = (*([_claimed(held)] if claims else []), *(aligned[1] if aligned else ()))
    section = Section("Role and effect", tuple(blocks))
    return Subject(section, tuple(_rows(found)), findings)


def _table(found: RoleFigures, effects: EffectTable | None, held: Sequence[Claim]) -> Table:
    lines = []
    for row, head in enumerate(found.heads):
        figures = {name: ratio.value[row] for name, ratio in found.figures.items()}
        roles = ", ".join(sorted({claim.relation for claim in held if claim.head == head})) or "–"
        lines.append(
            (
                head,
                f"{found.offset[row]:+d}: {figures['positional']:.0%}"
                + " *" * int(figures["positional"] >= POSITIONAL),
                f"{figures['distance']:.1f}",
                f"{np.exp(figures['entropy']):.1f}",
                f"{figures['confidence']:.2f}",
                f"{figures['rest']:.0%}",
                f"{figures['rare']:.0%}",
                f"{figures['punctuation']:.0%}",
                _suffers(effects, head),
                roles,
            )
        )
    headers = (
        "head", "offset", "distance, tokens", "effective keys", "confidence", "end", "rare words", "punctuation",
        "suffers most", "role",
    )  # fmt: skip
    return Table(headers, tuple(lines), "* positional", frozenset({0, 8, 9}))


def _suffers(effects: EffectTable | None, head: str) -> str:
    if effects is None or head not in effects.rows:
        return "–"
    row = effects.rows.index(head)
    sure = effects.verdict[row] == "differs"
    columns = [column for column, name in enumerate(effects.columns) if name != LOSS and sure[column]]
    worst = max(columns, key=lambda column: effects.harm[row, column], default=None)
    if worst is None or effects.harm[row, worst] <= 0:
        return "–"
    return f"{effects.columns[worst]} {effects.estimate[row, worst]:+z.2f} {SENTENCE}".replace("-", "−")


def _claims(claims: Sequence[Claim]) -> list[str | Table]:
    followed = [claim for claim in claims if claim.attends]
    if not followed:
        return ["No head is shown to follow a link beyond all baselines."]
    lines = tuple(
        (
            claim.head,
            f"{claim.relation}, {claim.direction}",
            f"{claim.rate:.0%} of {claim.links}",
            f"{claim.fixed:.0%}, {claim.matched:.0%}, {claim.others:.0%}",
            f"{100 * claim.gain:.0f} [at least {100 * claim.low:.0f}]",
            claim.phenomenon,
            f"{-claim.harm:z.2f} ({-claim.relative:z.0%})".replace("-", "−"),
            "yes" if claim.claimed else "no",
        )
        for claim in followed
    )
    headers = (
        "head", "link", "followed", "fixed, shuffled, other words", "gain, points", "phenomenon",
        f"margin without it, {SENTENCE}", "role",
    )  # fmt: skip
    return [Table(headers, lines, "", frozenset({0, 1, 5, 7}))]


def _claimed(held: Sequence[Claim]) -> str:
    if not held:
        return "No head is shown to follow a gold link beyond all baselines and to matter for its phenomenon."
    each = sorted({f"{claim.head} ({claim.relation})" for claim in held})
    return f"{len(each)} roles are claimed: {', '.join(each)}." if len(each) > 1 else f"One role is claimed: {each[0]}."


def _aligned(results: Results) -> tuple[Section, list[str]] | None:
    arrays = results.get("gold")
    if arrays is None or "right" not in arrays or not arrays["right"].shape[2]:  # no cross head
        return None
    found = alignment(arrays)
    every = [(VIEWS.index("weight"), head, WHENS.index("before")) for head in range(len(found.heads))]
    cells = sorted({*every, found.best}, key=lambda cell: (cell[1], cell))
    rule = "the same relative place" if found.rule == "diagonal" else f"offset {found.rule}"
    lines = (*(_line(found, cell) for cell in cells), (rule, "", "", *_percent(found.baseline), "", "", "baseline"))
    headers = (
        "head", "weights", "position", "error, %", "95 % interval, %", "less the baseline, points",
        "95 % interval, points", "",
    )  # fmt: skip
    table = Table(headers, lines, ALIGNED, frozenset({0, 1, 2, 7}))
    best = f"{_error(found, found.best)}: the best cross head, chosen on validation sentences"
    if found.best == found.marian:
        heads = f"{best}, and the first head of the last layer."
    else:
        heads = f"{best}. {_error(found, found.marian)}: the first head of the last layer."
    text = f"{heads} Without attention, {rule} has an error rate of {' '.join(_percent(found.baseline))} %."
    return Section("Which cross head aligns", (text, table)), [text]


def _line(found: Alignment, cell: Cell) -> tuple[str, ...]:
    view, head, when = cell
    marks = {"best": found.best, "first of the last layer": found.marian}
    return (
        found.heads[head],
        VIEW[VIEWS[view]],
        f"{WHENS[when]} the word",
        *_percent(found.errors, cell),
        *_percent(found.excess, cell, "+"),
        ", ".join(mark for mark, marked in marks.items() if marked == cell),
    )


def _error(found: Alignment, cell: Cell) -> str:
    view, head, when = cell
    return (
        f"{found.heads[head]}, by {VIEW[VIEWS[view]]} {WHENS[when]} the word, has an alignment error rate of "
        f"{' '.join(_percent(found.errors, cell))} %, {' '.join(_percent(found.excess, cell, '+'))} points from the "
        "best rule without attention"
    )


def _percent(found: Ratio, cell: tuple[int, ...] = (), sign: str = "") -> tuple[str, str]:
    """A cell and its interval, in percent."""
    value, low, high = (100 * float(each[cell]) for each in (found.value, found.low, found.high))
    return f"{value:{sign}z.1f}".replace("-", "−"), interval((low, high), 1)


def _rows(found: RoleFigures) -> Iterator[Row]:
    for name, ratio in found.figures.items():
        for row, head in enumerate(found.heads):
            estimate, low, high = (float(each[row]) for each in (ratio.value, ratio.low, ratio.high))
            if np.isfinite(estimate):
                yield Row(head, "role", name, estimate, low, high, unit=UNITS.get(name, "share"))
