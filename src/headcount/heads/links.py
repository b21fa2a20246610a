"""Heads against gold structure: links between words, word alignment, and the roles claimed.

Sentences are those of the built-in corpus, or those of files (`headcount.evaluation.gold`): there words are what stands
between spaces; figures are those of the first, third, ... sentence, and what is chosen on validation sentences is
chosen on the others.

Links of the built-in corpus lead from a verb to its subject, from a pronoun to its antecedent, from an ambiguous noun
to its cue, from a verb to its conjunction; each is followed in both directions. Encoder heads are asked at the source
word. Decoder and cross heads are asked at the position that predicts the first target word surely aligned with it; keys
of the decoder are the target words aligned with the other end, if they are written by then. Without an alignment they
are not asked.

A head has a role if it attends along a link and its loss harms that phenomenon. Attention: the head's maximum is on the
other end of the link, by at least ten points more often than the best fixed offset is (chosen on the validation
sentences; Voita et al. 2019, section 5.2), than it would be on links whose offsets are shuffled, and than the maximum
of other words of the sentence is there: an untrained head prefers words of many pieces, whatever the query. Effect:
without the head, the margin of the right translation over the wrong one falls by at least a tenth on sentences about
the phenomenon that rests on the link. A relation that no measured phenomenon rests on can be followed, but is no role.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.grammar.corpus import words
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet, evaluation_set
from headcount.heads.interface import KINDS, Head, heads_named
from headcount.heads.likelihood import Progress
from headcount.heads.observed import VIEWS, Observed, When, between_words, in_order, observed, spelled_sides
from headcount.heads.roles import SIDES, positional_heads
from headcount.heads.spelling import Spelled
from headcount.heads.statistics import effect_table
from headcount.run.opened import weights_digest
from headcount.statistics.bootstrap import Floats
from headcount.statistics.max_t import ERROR, EffectTable, Ratio, Sample, compared, ratio

NONE = -1
DIRECTIONS = ("forward", "backward")  # from dependent to head, and back
PHENOMENA = {
    "subject": ("agreement",),
    "antecedent": ("pronoun",),
    "sense": ("ambiguity",),
    "conjunction": ("order", "punctuation"),
}
"""The phenomena that rest on each relation."""
WHENS: tuple[When, ...] = ("before", "after")
SHIFTS = tuple(range(-4, 5))
RULES = ("diagonal", *(f"{shift:+d}" for shift in SHIFTS))
"""Alignments without attention: to the source word at the same relative place, or at a fixed offset in words."""
BASELINES = ("fixed", "matched", "others")
GAIN = 0.1  # over all baselines
HARM = 0.1  # of the margin of the whole model
LEAST = 20  # links, or there is no figure
LEAST_MARGIN = 1e-6  # nats; of a model that prefers the wrong translation no share can be lost


class Link(NamedTuple):
    """A link of a sentence as a kind of head meets it: word indices of query and key, and the number of words that the
    query may attend to. NONE: this kind never meets it."""

    query: int
    key: int
    keys: int


ABSENT = Link(NONE, NONE, 0)


def gold(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention of each head to gold structure; and what baselines and choices need of the validation sentences.

    row, relation [link]: the sentence and the name. For each KIND of head: KIND.link [link, direction, 3], see `Link`;
    KIND.found [link, view, head, direction], the word with the largest share, ends left out; likewise KIND.others, the
    share of the other queries of the sentence whose largest share is on the right word. valid.relation and
    valid.KIND.link: of the validation sentences.
    Alignment: right [sentence, view, head, when], the target words whose largest share, ends left out, is on a source
    word that is aligned with them, once if it is only possible and twice if it is sure (which is possible, too); head
    is a cross head, when: "before", the position that predicts the word, or "after", which reads it. fixed [sentence,
    rule]: those that are right by each of `RULES`, without attention. targets, pairs [sentence]: target words, sure
    pairs; 0 where no alignment is known. valid.right and so on. Also head, the names of all heads, view,
    direction, when, rule; and weights, the digest by which `translate` knows whether they are its own.
    """
    test, valid = (_structure(analysis, each, progress) for each in sentences_of(analysis))
    needed = ["relation", "right", "fixed", "targets", "pairs", *(f"{kind}.link" for kind in KINDS)]
    names = {"view": VIEWS, "direction": DIRECTIONS, "when": WHENS, "rule": RULES}
    return {
        **test,
        **{f"valid.{name}": valid[name] for name in needed},
        **{name: np.array(values) for name, values in names.items()},
        "head": analysis.heads.labels,
        "weights": np.array(weights_digest(analysis.run.model, torch.bfloat16)),
    }


def sentences_of(analysis: Analysis) -> tuple[EvaluationSet, EvaluationSet]:
    """The sentences to measure, and those to choose on."""
    if analysis.gold is None:
        return analysis.own_test, analysis.own_valid
    settings, rows = analysis.settings, np.arange(len(analysis.gold))
    measured, choosing = (analysis.gold.select(rows[start::2]) for start in (0, 1))
    return evaluation_set(analysis.run, measured, settings.test), evaluation_set(analysis.run, choosing, settings.valid)


def lacks_structure(analysis: Analysis) -> str | None:
    """Why heads cannot be asked for gold structure: nothing is known."""
    known = analysis.gold is not None or "links" in analysis.own_test.rows.column_names
    return None if known else "needs gold=FILE.tsv, or a corpus with links and alignment, such as the built-in one"


GOLD = Part(
    "gold",
    "attention of each head to gold links and alignment",
    gold,
    steps=lambda analysis: sum(map(len, sentences_of(analysis))),
    lacks=lacks_structure,
    version=4,
)


def _structure(analysis: Analysis, sentences: EvaluationSet, progress: Progress) -> Arrays:
    """The arrays of `gold` for one split."""
    spelled, parts = spelled_sides(analysis, sentences, words if analysis.gold is None else str.split), []
    links, alignments = sentences.rows["links"], sentences.rows["alignment"]
    of_links: dict[str, list[Any]] = {name: [] for name in ("row", "relation")}
    of_links |= {f"{kind}.{name}": [] for kind in KINDS for name in ("link", "found", "others")}
    for batch in observed(analysis.heads, sentences.source, sentences.target):
        largest, of_sentences = _largest(batch, spelled), []
        for place, row in enumerate(batch.rows.tolist()):
            sizes = {side: len(each.words[row]) for side, each in spelled.items()}
            pairs, sure = pairs_of(alignments[row])
            own = {
                name: found[:, place, :, : sizes[SIDES.get(name, SIDES["cross"])[0]]] for name, found in largest.items()
            }
            of_sentences.append(aligned(own, pairs, sure, sizes["source"], sizes["target"]))
            for link in links[row]:
                found = _followed(own, link, first_target(pairs[sure]), sizes["source"])
                for name, value in (found | {"row": row, "relation": link["relation"]}).items():
                    of_links[name].append(value)
        names = of_sentences[0]
        parts.append((batch.rows, {name: np.array([each[name] for each in of_sentences]) for name in names}))
        progress(len(batch.rows))
    arrays = in_order(parts)
    count = len(of_links["row"])
    for name, values in of_links.items():  # which are empty where no sentence has a link
        kind, _, what = name.partition(".")
        heads = sum(head.kind == kind for head in analysis.heads.names)
        whole = (count, len(VIEWS), heads, len(DIRECTIONS))
        shape = {"": (count,), "link": (count, len(DIRECTIONS), len(ABSENT))}.get(what, whole)
        types = {"row": np.int64, "relation": np.str_, "others": np.float16}
        arrays[name] = np.array(values, dtype=types.get(what or name, np.int16)).reshape(shape)
    return arrays


def _largest(batch: Observed, spelled: Mapping[str, Spelled]) -> dict[str, NDArray[np.int64]]:
    """The word with the largest share of attention, [view, batch, head, query]: by kind, of the position that predicts
    a target word; "after", of the cross heads, of the one that reads it."""
    sides = {side: each.batch(batch.rows).to(batch.source.device) for side, each in spelled.items()}
    found = {}
    for name in (*KINDS, "after"):
        kind, when = ("cross", WHENS[1]) if name == "after" else (name, WHENS[0])
        shares = between_words(batch.pieces(kind, when), *(sides[side] for side in SIDES[kind]))
        found[name] = shares.cpu().numpy().argmax(axis=-1)
    return found


def pairs_of(alignment: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Source and target word of each pair [pair, 2], and whether it is sure [pair]; all of the built-in corpus are."""
    pairs = np.array([(pair["source"], pair["target"]) for pair in alignment], dtype=np.int64).reshape(-1, 2)
    return pairs, np.array([pair.get("sure", True) for pair in alignment], dtype=bool)


def first_target(pairs: NDArray[np.int64]) -> dict[int, int]:
    """The first target word that is aligned with each source word."""
    return {int(i): int(pairs[pairs[:, 0] == i, 1].min()) for i in np.unique(pairs[:, 0])}


def _followed(
    largest: Mapping[str, NDArray], link: Mapping[str, Any], first: Mapping[int, int], sources: int
) -> Arrays:
    """KIND.link, KIND.found and KIND.others of `gold` for one link; largest [view, head, query]."""
    found: Arrays = {}
    for kind in KINDS:
        ends = link["dependent"], link["head"]
        ways = [met(kind, *each, first, sources) for each in (ends, ends[::-1])]
        found[f"{kind}.link"] = np.array(ways)
        found[f"{kind}.found"] = np.stack([largest[kind][:, :, way.query] for way in ways], axis=-1)
        found[f"{kind}.others"] = np.stack([others(largest[kind], way, kind) for way in ways], axis=-1)
    return found


def others(largest: NDArray[np.int64], way: Link, kind: str) -> NDArray[np.float64]:
    """Share of the other queries of a sentence whose largest share is on the key of a link, [view, head]; of the
    decoder those that may attend to it. largest [view, head, query]."""
    queries = np.arange(largest.shape[-1])
    asked = (queries != way.query) & ((kind != "decoder") | (queries > way.key))
    same: NDArray[np.float64] = (largest[:, :, asked] == way.key).sum(axis=-1) / max(asked.sum(), 1)
    return same


def met(kind: str, query: int, key: int, first: Mapping[int, int], sources: int) -> Link:
    """A link from one source word to another as a kind of head meets it."""
    if kind == "encoder":
        return Link(query, key, sources)
    asked = first.get(query, NONE)
    if kind == "cross":
        return Link(asked, key, sources) if asked != NONE else ABSENT
    wanted = first.get(key, NONE)
    return Link(asked, wanted, asked) if NONE < wanted < asked else ABSENT


def aligned(
    largest: Mapping[str, NDArray], pairs: NDArray[np.int64], sure: NDArray[np.bool_], sources: int, targets: int
) -> dict[str, Any]:
    """right, fixed, targets and pairs of `gold` for one sentence; largest [view, head, target], see `pairs_of`."""
    linked = np.zeros((targets, sources), dtype=np.int64)
    linked[pairs[:, 1], pairs[:, 0]] = 1 + sure
    places = np.arange(targets)
    right = [linked[places, largest[name]].sum(axis=-1) for name in ("cross", "after")]
    rules = [((places + 0.5) * sources / targets).astype(int)]
    rules += [(places + shift).clip(0, sources - 1) for shift in SHIFTS]
    return {
        "right": np.stack(right, axis=-1).astype(np.int16),
        "fixed": linked[places, np.stack(rules)].sum(axis=-1).astype(np.int16),
        "targets": targets if len(pairs) else 0,
        "pairs": int(sure.sum()),
    }


def aligns(arrays: Mapping[str, NDArray]) -> bool:
    """Whether there are cross heads and an alignment to compare them with."""
    return bool(arrays["right"].shape[2] and arrays["targets"].any())


@dataclass(frozen=True)
class Alignment:
    """Alignment error rates of cross heads, 0 to 1 (Och and Ney 2003).

    heads: their names. errors: `Ratio` of arrays [view, head, when]. best: the head with the least error on the
    validation sentences by weight and before the word, as `translate` writes alignments, (view, head, when). marian:
    likewise the first head of the last layer, which Marian and CTranslate2 take by default, in models trained with
    guided alignment. rule: the one of `RULES` with the least error
    on the validation sentences; baseline: its error. excess: `errors` less the baseline.
    """

    heads: tuple[str, ...]
    errors: Ratio
    best: tuple[int, int, int]
    marian: tuple[int, int, int]
    rule: str
    baseline: Ratio
    excess: Ratio


def alignment(arrays: Mapping[str, NDArray]) -> Alignment:
    """From the arrays of `gold`: error = 1 - (predicted and sure + predicted and possible) / (predicted + sure links),
    each summed over sentences; a head, and a rule, predicts one link for each target word."""
    cross = [head for head in heads_named(arrays["head"]) if head.kind == "cross"]
    links = (arrays["targets"] + arrays["pairs"])[:, None, None, None]
    wrong = links - arrays["right"]
    view, when = VIEWS.index("weight"), WHENS.index("before")
    best = view, int(arrays["valid.right"][:, view, :, when].sum(axis=0).argmax()), when
    marian = view, cross.index(Head(*cross[-1].place, 1)), when
    rule = int(arrays["valid.fixed"].sum(axis=0).argmax())
    fixed = links - arrays["fixed"][:, rule, None, None, None]
    baseline = ratio(fixed[:, 0, 0, 0], links[:, 0, 0, 0])
    names, of_rule = tuple(map(str, cross)), str(arrays["rule"][rule])
    return Alignment(names, ratio(wrong, links), best, marian, of_rule, baseline, ratio(wrong - fixed, links))


@dataclass(frozen=True)
class Claim:
    """A head and a relation, in the direction and by the view with the surest gain.

    rate: share of links whose other end has the largest share of attention; fixed, matched, others: the baselines, see
    `followed`; gain over the largest one, and low, the lower end of its simultaneous interval. phenomenon: the one of
    the relation that suffers most without the head, "" where none was measured; relative: its loss of margin as a share
    of the whole model's; p: corrected for all heads and phenomena. positional: the head is
    positional, see `positional_heads`.
    """

    head: str
    relation: str
    direction: str
    rate: float
    fixed: float
    matched: float
    others: float
    gain: float
    low: float
    phenomenon: str
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


def claimed_roles(
    roles: Mapping[str, NDArray], gold: Mapping[str, NDArray], ablation: Mapping[str, NDArray]
) -> list[Claim]:
    """Every head with every relation, from the arrays of the parts roles, gold and ablation; `Claim.claimed` says which
    are roles. Gains are one family, effects (of zero ablation on margins) another.
    """
    effects, positional, claims = effect_table(ablation), positional_heads(roles), []
    relations = [*PHENOMENA, *sorted(set(gold["relation"].tolist()) - PHENOMENA.keys())]
    for kind in KINDS:
        heads = [str(head) for head in heads_named(gold["head"]) if head.kind == kind]
        cells = {
            (relation, direction, view): links
            for relation in relations
            for direction in DIRECTIONS
            for view in VIEWS
            if heads and len((links := followed(gold, kind, relation, direction, view))["sentence"]) >= LEAST
        }
        low = _lowest(heads, cells)
        for (number, head), relation in product(enumerate(heads), relations):
            own = [cell for cell in cells if cell[0] == relation]
            columns = [effects.columns.index(name) for name in PHENOMENA.get(relation, ()) if name in effects.columns]
            if own:
                cell = max(own, key=lambda cell: low[cell][number])
                found, rest = cells[cell], _effect(effects, head, columns)
                rest |= {name: float(found[name][number].mean()) for name in BASELINES}
                rest |= {"rate": float(found["right"][number].mean()), "low": float(low[cell][number])}
                rest |= {"gain": rest["rate"] - max(rest[name] for name in BASELINES), "positional": head in positional}
                claims.append(Claim(head, relation, cell[1], **rest))
    return claims


def _effect(effects: EffectTable, head: str, columns: list[int]) -> dict[str, Any]:
    """phenomenon, harm, relative and p of a `Claim`: of the column that suffers most."""
    if not columns:
        return {"phenomenon": "", "relative": 0.0, "p": 1.0}
    row = effects.rows.index(head)
    column = max(columns, key=lambda column: effects.harm[row, column] / max(effects.whole[column], LEAST_MARGIN))
    harm, whole = float(effects.harm[row, column]), float(effects.whole[column])
    return {
        "phenomenon": effects.columns[column],
        "relative": harm / whole if whole > 0 else 0.0,
        "p": float(effects.p[row, column]) if harm > 0 else 1.0,
    }


def _lowest(heads: list[str], cells: Mapping[tuple[str, str, str], Mapping[str, NDArray]]) -> dict[Any, Floats]:
    """The lower end of each head's gain over all baselines, [head], by cell. The heads of a kind and the cells are one
    family; the three kinds share its error."""
    columns = [
        Sample("", found["right"] - found[name], found["sentence"], 0, -1, 0, 1 / len(found["sentence"]))
        for found in cells.values()
        for name in BASELINES
    ]
    if not columns:
        return {}
    low = compared(heads, columns, error=ERROR / len(KINDS)).low.reshape(len(heads), -1, len(BASELINES))
    return dict(zip(cells, low.min(axis=2).T, strict=True))


def followed(gold: Mapping[str, NDArray], kind: str, relation: str, direction: str, view: str) -> dict[str, NDArray]:
    """How the heads of a kind follow the links of a relation in a direction, from the arrays of `gold`.

    right [head, link]: the maximum is on the other end. fixed [head, link]: it is at the best fixed offset. matched
    [head, link]: the probability that the offset of a random link of the relation, of those that fit into this
    sentence, is that of the maximum. others [head, link]: the share of other words of the sentence with their maximum
    there. sentence [link].
    """
    way, look = DIRECTIONS.index(direction), VIEWS.index(view)
    own = (gold["relation"] == relation) & (gold[f"{kind}.link"][:, way, 2] > 0)
    query, key, keys = gold[f"{kind}.link"][own, way].astype(np.int64).T
    found = gold[f"{kind}.found"][own, look, :, way].astype(np.int64).T
    fixed = best_offset(gold[f"valid.{kind}.link"][gold["valid.relation"] == relation, way])
    return {
        "right": (found == key).astype(np.float64),
        "fixed": np.broadcast_to(key - query == fixed, found.shape).astype(np.float64),
        "matched": matched(key - query, found - query, -query, keys - query),
        "others": gold[f"{kind}.others"][own, look, :, way].astype(np.float64).T,
        "sentence": gold["row"][own].astype(np.int64),
    }


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
