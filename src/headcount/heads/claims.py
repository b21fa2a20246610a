"""Claims about roles: a head has a role if it attends along a link of grammar and its loss harms that phenomenon.

Both are needed. Attention: the head's maximum is on the other end of the link, by at least ten points more often than
the best fixed offset is (chosen on the validation sentences; Voita et al. 2019, section 5.2), than it would be on links
whose offsets are shuffled, and than the maximum of other words of the sentence is there: an untrained head prefers
words of many pieces, whatever the query. Effect: without the head, the margin of the right translation over the
wrong one falls by at least a tenth on sentences about the phenomenon that rests on the link.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.heads.gold import DIRECTIONS, RELATIONS
from headcount.heads.interface import KINDS, heads_named
from headcount.heads.observed import VIEWS
from headcount.heads.roles import positional_heads
from headcount.heads.statistics import effect_table
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import ERROR, EffectTable, Sample, compared

PHENOMENA = {
    "subject": ("agreement",),
    "antecedent": ("pronoun",),
    "sense": ("ambiguity",),
    "conjunction": ("order", "punctuation"),
}
BASELINES = ("fixed", "matched", "others")
GAIN = 0.1  # over all baselines
HARM = 0.1  # of the margin of the whole model
LEAST = 20  # links, or there is no figure
LEAST_MARGIN = 1e-6  # nats; of a model that prefers the wrong translation no share can be lost
Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Followed:
    """The links of one relation in one direction, as the heads of a kind follow them.

    right [head, link]: the maximum is on the other end. fixed [link]: it is at the best fixed offset. matched [head,
    link]: the probability that the offset of a random link of the relation, of those that fit into this sentence, is
    that of the maximum. others [head, link]: the share of other words of the sentence with their maximum there.
    sentence [link].
    """

    right: Floats
    fixed: Floats
    matched: Floats
    others: Floats
    sentence: NDArray[np.int64]


@dataclass(frozen=True)
class Claim:
    """A head and a relation, in the direction and by the view with the surest gain.

    rate: share of links whose other end has the largest share of attention; fixed, matched, others: the baselines; gain
    over the largest one, and low, the lower end of its simultaneous interval. phenomenon: the one of the relation that
    suffers most without the head; harm: its loss of margin in nats; relative: as a share of the whole model's; p:
    corrected for all heads and phenomena. positional: the head is positional, see `positional_heads`.
    """

    head: str
    relation: str
    direction: str
    links: int
    rate: float
    fixed: float
    matched: float
    others: float
    gain: float
    low: float
    phenomenon: str
    harm: float
    relative: float
    p: float
    positional: bool

    @property
    def attends(self) -> bool:
        """Whether it follows the link beyond all baselines, and not by its position alone."""
        return self.low > 0 and self.gain >= GAIN and not self.positional

    @property
    def matters(self) -> bool:
        """Whether the phenomenon suffers without it."""
        return self.p <= ERROR and self.relative >= HARM

    @property
    def claimed(self) -> bool:
        return self.attends and self.matters


def claimed_roles(roles: Arrays, gold: Arrays, ablation: Arrays) -> list[Claim]:
    """Every head with every relation of which a phenomenon was measured, from the arrays of the parts roles, gold and
    ablation; `Claim.claimed` says which are roles. Gains are one family, effects (of zero ablation on margins) another.
    """
    effects = effect_table(ablation)
    positional = positional_heads(roles)
    claims = []
    for kind in KINDS:
        heads = tuple(str(head) for head in heads_named(gold["head"]) if head.kind == kind)
        cells = {
            (relation, direction, view): found
            for relation in RELATIONS
            for direction in DIRECTIONS
            for view in VIEWS
            if heads and len((found := followed(gold, kind, relation, direction, view)).sentence) >= LEAST
        }
        gains = gain_table(heads, cells) if cells else None
        for number, head in enumerate(heads):
            for relation in RELATIONS:
                own = [cell for cell in cells if cell[0] == relation]
                measured = set(PHENOMENA[relation]) & set(effects.columns)
                if gains is not None and own and measured:
                    surest = max(own, key=lambda cell: lowest(gains, number, cell))
                    claims.append(_claim(head, number, surest, cells[surest], gains, effects, head in positional))
    return claims


def _claim(
    head: str,
    number: int,
    cell: tuple[str, str, str],
    found: Followed,
    gains: EffectTable,
    effects: EffectTable,
    positional: bool,
) -> Claim:
    relation, direction, _ = cell
    rate = float(found.right[number].mean())
    baselines = {
        name: float(np.broadcast_to(getattr(found, name), found.right.shape)[number].mean()) for name in BASELINES
    }
    row = effects.rows.index(head)
    columns = [effects.columns.index(name) for name in PHENOMENA[relation] if name in effects.columns]
    column = max(columns, key=lambda column: effects.harm[row, column] / max(effects.whole[column], LEAST_MARGIN))
    harm, whole = float(effects.harm[row, column]), float(effects.whole[column])
    return Claim(
        head=head,
        relation=relation,
        direction=direction,
        links=len(found.sentence),
        rate=rate,
        **baselines,
        gain=rate - max(baselines.values()),
        low=lowest(gains, number, cell),
        phenomenon=effects.columns[column],
        harm=harm,
        relative=harm / whole if whole > 0 else 0.0,
        p=float(effects.p[row, column]) if harm > 0 else 1.0,
        positional=positional,
    )


def lowest(gains: EffectTable, head: int, cell: tuple[str, str, str]) -> float:
    """The lower end of a head's gain over all baselines."""
    return float(min(gains.low[head, gains.columns.index(" ".join((*cell, name)))] for name in BASELINES))


def gain_table(heads: tuple[str, ...], cells: Mapping[tuple[str, str, str], Followed]) -> EffectTable:
    """Gains of the heads of one kind over all baselines, one column for each cell and baseline; the three kinds share
    the error of the family."""
    columns = [
        Sample(
            " ".join((*cell, name)),
            found.right - getattr(found, name),
            found.sentence,
            0,
            -1,
            0,
            1 / len(found.sentence),
        )
        for cell, found in cells.items()
        for name in BASELINES
    ]
    return compared(heads, columns, error=ERROR / len(KINDS))


def followed(gold: Arrays, kind: str, relation: str, direction: str, view: str) -> Followed:
    """How the heads of a kind follow the links of a relation, from the arrays of `gold`."""
    way, look = DIRECTIONS.index(direction), VIEWS.index(view)
    own = (gold["relation"] == relation) & (gold[f"{kind}.link"][:, way, 2] > 0)
    query, key, keys = gold[f"{kind}.link"][own, way].astype(np.int64).T
    found = gold[f"{kind}.found"][own, look, :, way].astype(np.int64).T
    fixed = best_offset(gold[f"valid.{kind}.link"][gold["valid.relation"] == relation, way])
    return Followed(
        (found == key).astype(np.float64),
        (key - query == fixed).astype(np.float64),
        matched(key - query, found - query, -query, keys - query),
        gold[f"{kind}.others"][own, look, :, way].astype(np.float64).T,
        gold["row"][own].astype(np.int64),
    )


def best_offset(links: NDArray) -> int | None:
    """The most frequent offset from query to key of links [link, 3]; None without links."""
    query, key, keys = links.astype(np.int64).T
    offsets, counts = np.unique((key - query)[keys > 0], return_counts=True)
    return int(offsets[counts.argmax()]) if len(offsets) else None


def matched(offsets: NDArray, found: NDArray, low: NDArray, high: NDArray) -> Floats:
    """Probability that a random one of `offsets` [link], of those from low [link] to below high [link], is the one that
    each head found, [head, link]."""
    if not len(offsets):
        return np.zeros(found.shape)
    shift = int(max(abs(offsets).max(), abs(found).max(), abs(low).max(), abs(high).max()))
    counts = np.bincount(offsets + shift, minlength=2 * shift + 1)
    below = np.concatenate([[0], np.cumsum(counts)])  # links with a smaller offset
    return counts[found + shift] / (below[high + shift] - below[low + shift])
