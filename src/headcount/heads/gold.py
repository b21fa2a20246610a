"""Heads against the gold structure of the built-in corpus: links between words, and word alignment.

Links lead from a verb to its subject, from a pronoun to its antecedent, from an ambiguous noun to its cue, from a verb
to its conjunction; each is followed in both directions. Encoder heads are asked at the source word. Decoder and cross
heads are asked at the position that predicts the first target word aligned with it; keys of the decoder are the target
words aligned with the other end, if they are written by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.evaluation_set import EvaluationSet
from headcount.heads.interface import KINDS, Head, heads_named
from headcount.heads.likelihood import Progress
from headcount.heads.observed import VIEWS, Observed, When, lacks_source, observed
from headcount.heads.spelling import Spelled
from headcount.run.opened import weights_digest
from headcount.statistics.max_t import Ratio, ratio

NONE = -1
DIRECTIONS = ("forward", "backward")  # from dependent to head, and back
RELATIONS = ("subject", "antecedent", "sense", "conjunction")
WHENS: tuple[When, ...] = ("before", "after")
SHIFTS = tuple(range(-4, 5))
RULES = ("diagonal", *(f"{shift:+d}" for shift in SHIFTS))
"""Alignments without attention: to the source word at the same relative place, or at a fixed offset in words."""


class Link(NamedTuple):
    """A link of a sentence as a kind of head meets it: word indices of query and key, and the number of words that the
    query may attend to. NONE: this kind never meets it."""

    query: int
    key: int
    keys: int


ABSENT = Link(NONE, NONE, 0)


def gold(analysis: Analysis, progress: Progress) -> Arrays:
    """Attention of each head to gold structure, on test; and what baselines and choices need of the validation set.

    row, relation [link]: the sentence and the name. For each KIND of head: KIND.link [link, direction, 3], see `Link`;
    KIND.found [link, view, head, direction], the word with the largest share, ends left out; likewise KIND.others, the
    share of the other queries of the sentence whose largest share is on the right word. valid.relation and
    valid.KIND.link: of the validation sentences.
    Alignment: right [sentence, view, head, when], the target words whose largest share, ends left out, is on a source
    word that is aligned with them; head is a cross head, when: "before", the position that predicts the word, or
    "after", which reads it. fixed [sentence, rule]: those that are right by each of `RULES`, without attention.
    targets, pairs [sentence]: target words, gold pairs. valid.right and so on. Also head, the names of all heads, view,
    direction, when, rule; and weights, the digest by which `translate` knows whether they are its own.
    """
    test = structure(analysis, analysis.test, progress)
    valid = structure(analysis, analysis.valid, progress)
    needed = ["relation", "right", "fixed", "targets", "pairs", *(f"{kind}.link" for kind in KINDS)]
    names = {"head": list(map(str, analysis.heads.names)), "view": VIEWS, "direction": DIRECTIONS, "when": WHENS}
    names["rule"] = RULES
    return {
        **test,
        **{f"valid.{name}": valid[name] for name in needed},
        **{name: np.array(values) for name, values in names.items()},
        "weights": np.array(weights_digest(analysis.run.model, torch.bfloat16)),
    }


GOLD = Part(
    "gold",
    "attention of each head to gold links and alignment",
    gold,
    steps=lambda analysis: len(analysis.test) + len(analysis.valid),
    gold=True,
    lacks=lacks_source,
    version=3,
)


def structure(analysis: Analysis, sentences: EvaluationSet, progress: Progress) -> Arrays:
    """The arrays of `gold` for one split."""
    source, target = (
        Spelled(getattr(analysis.run.tokenizer, side), getattr(sentences, side), sentences.rows[side])
        for side in ("source", "target")
    )
    links, alignments = sentences.rows["links"], sentences.rows["alignment"]
    of_links: dict[str, list[Any]] = {}
    of_sentences: dict[int, dict[str, Any]] = {}
    for batch in observed(analysis.heads, sentences.source, sentences.target):
        shares = word_shares(batch, source, target)
        for place, row in enumerate(batch.rows.tolist()):
            sizes = len(source.words[row]), len(target.words[row])
            pairs = np.array([(pair["source"], pair["target"]) for pair in alignments[row]], dtype=np.int64)
            own = {name: each[:, place] for name, each in shares.items()}
            of_sentences[row] = aligned(own, pairs.reshape(-1, 2), *sizes)
            for link in links[row]:
                found = followed(own, link, first_target(pairs), *sizes)
                for name, value in (found | {"row": row, "relation": link["relation"]}).items():
                    of_links.setdefault(name, []).append(value)
        progress(len(batch.rows))
    ordered = [of_sentences[row] for row in sorted(of_sentences)]
    found = {name: np.array(values) for name, values in of_links.items()} or no_links(analysis.heads.names)
    return found | {name: np.array([each[name] for each in ordered]) for name in ordered[0]}


def no_links(heads: Sequence[Head]) -> Arrays:
    """The arrays of links for sentences without any."""
    found: Arrays = {"row": np.zeros(0, dtype=np.int64), "relation": np.zeros(0, dtype=np.str_)}
    for kind in KINDS:
        each = (0, len(VIEWS), sum(head.kind == kind for head in heads), len(DIRECTIONS))
        found[f"{kind}.link"] = np.zeros((0, len(DIRECTIONS), len(ABSENT)), dtype=np.int16)
        found |= {f"{kind}.found": np.zeros(each, dtype=np.int16), f"{kind}.others": np.zeros(each, dtype=np.float16)}
    return found


def word_shares(batch: Observed, source: Spelled, target: Spelled) -> dict[str, NDArray[np.float32]]:
    """Shares of attention between words, [view, batch, head, query, key]: by kind, of the position that predicts a
    target word; "after", of the cross heads, of the one that reads it."""
    of_source, of_target = (each.batch(batch.rows).to(batch.source.device) for each in (source, target))
    spelled = {"encoder": (of_source, of_source), "decoder": (of_target, of_target), "cross": (of_target, of_source)}
    found = {kind: batch.pieces(kind).words(*spelled[kind]) for kind in KINDS}
    found["after"] = batch.pieces("cross", "after").words(*spelled["cross"])
    return {name: attention.share.cpu().numpy() for name, attention in found.items()}


def first_target(pairs: NDArray[np.int64]) -> dict[int, int]:
    """The first target word that is aligned with each source word."""
    return {int(i): int(pairs[pairs[:, 0] == i, 1].min()) for i in np.unique(pairs[:, 0])}


def followed(
    shares: Mapping[str, NDArray[np.float32]],
    link: Mapping[str, Any],
    first: Mapping[int, int],
    sources: int,
    targets: int,
) -> Arrays:
    """KIND.link, KIND.found and KIND.others of `gold` for one link; shares [view, head, query, key]."""
    found: Arrays = {}
    for kind in KINDS:
        ways = [met(kind, *ends, first, sources) for ends in directed(link)]
        share = shares[kind][:, :, : sources if kind == "encoder" else targets]
        largest = share.argmax(axis=-1)
        found[f"{kind}.link"] = np.array(ways, dtype=np.int16)
        found[f"{kind}.found"] = np.stack([largest[:, :, way.query] for way in ways], axis=-1).astype(np.int16)
        found[f"{kind}.others"] = np.stack([others(largest, way, kind) for way in ways], axis=-1).astype(np.float16)
    return found


def others(largest: NDArray[np.int64], way: Link, kind: str) -> NDArray[np.float64]:
    """Share of the other queries of a sentence whose largest share is on the key of a link, [view, head]; of the
    decoder those that may attend to it. largest [view, head, query]."""
    queries = np.arange(largest.shape[-1])
    asked = (queries != way.query) & ((kind != "decoder") | (queries > way.key))
    same: NDArray[np.float64] = (largest[:, :, asked] == way.key).sum(axis=-1) / max(asked.sum(), 1)
    return same


def directed(link: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The words at both ends of a link in each of `DIRECTIONS`."""
    return [(link["dependent"], link["head"]), (link["head"], link["dependent"])]


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
    shares: Mapping[str, NDArray[np.float32]], pairs: NDArray[np.int64], sources: int, targets: int
) -> dict[str, Any]:
    """right, fixed, targets and pairs of `gold` for one sentence."""
    linked = np.zeros((targets, sources), dtype=bool)
    linked[pairs[:, 1], pairs[:, 0]] = True
    words = np.arange(targets)
    found = [shares[name][:, :, :targets, :sources].argmax(axis=-1) for name in ("cross", "after")]
    right = np.stack([linked[words, each].sum(axis=-1) for each in found], axis=-1)
    diagonal = ((words + 0.5) * sources / targets).astype(int)
    shifted = [(words + shift).clip(0, sources - 1) for shift in SHIFTS]
    return {
        "right": right.astype(np.int16),
        "fixed": linked[words, np.stack([diagonal, *shifted])].sum(axis=-1).astype(np.int16),
        "targets": targets,
        "pairs": len(pairs),
    }


@dataclass(frozen=True)
class Alignment:
    """Alignment error rates of cross heads, 0 to 1 (Och and Ney 2003, with all gold links sure).

    heads: their names. errors: `Ratio` of arrays [view, head, when]. best: (view, head, when) with the least error on
    the validation sentences. marian: the first head of the last layer, by weight and before the word, which Marian and
    CTranslate2 take by default, in models trained with guided alignment. rule: the one of `RULES` with the least error
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
    """From the arrays of `gold`: error = 1 - 2 right / (predicted + gold links), summed over sentences; a head, and a
    rule, predicts one link for each target word."""
    cross = [head for head in heads_named(arrays["head"]) if head.kind == "cross"]
    links = (arrays["targets"] + arrays["pairs"])[:, None, None, None]
    wrong = links - 2 * arrays["right"]
    in_valid = arrays["valid.right"].sum(axis=0)
    view, head, when = (int(i) for i in np.unravel_index(in_valid.argmax(), in_valid.shape))
    marian = VIEWS.index("weight"), cross.index(Head(*cross[-1].place, 1)), WHENS.index("before")
    rule = int(arrays["valid.fixed"].sum(axis=0).argmax())
    fixed = links - 2 * arrays["fixed"][:, rule, None, None, None]
    return Alignment(
        tuple(map(str, cross)),
        ratio(wrong, links),
        (view, head, when),
        marian,
        str(arrays["rule"][rule]),
        ratio(fixed[:, 0, 0, 0], links[:, 0, 0, 0]),
        ratio(wrong - fixed, links),
    )
