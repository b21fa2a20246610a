"""Cards of heads: the translations that change without each, and its attention."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from headcount.heads.analysis import Arrays
from headcount.heads.interface import heads_named
from headcount.heads.results import Results
from headcount.heads.roles import SIDES

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # a weight from 0 to 1 as one of 36


@dataclass(frozen=True)
class Change:
    """A sentence whose translation changes without a head; words that differ are marked."""

    label: str
    source: str
    whole: Markup
    without: Markup


@dataclass(frozen=True)
class Card:
    """A head. same: the translations that stay the same without it; None if none was tried."""

    head: str
    changes: Sequence[Change] = ()
    same: int | None = None


def cards(results: Results) -> list[Card]:
    """A card for each head, in the order of the model."""
    examples = results.get("examples")
    return [Card(head) if examples is None else _card(head, examples) for head in results.heads]


def _card(head: str, examples: Arrays) -> Card:
    without = examples["without"][examples["head"].tolist().index(head)].tolist()
    changes = [
        _change(examples, number, text) for number, text in enumerate(without) if text != examples["whole"][number]
    ]
    return Card(head, changes, len(without) - len(changes))


def _change(examples: Arrays, number: int, without: str) -> Change:
    before, after = marked(str(examples["whole"][number]), without)
    label = ", ".join(filter(None, (str(examples[name][number]) for name in ("phenomenon", "grade"))))
    return Change(label, str(examples["source"][number]), before, after)


def marked(before: str, after: str) -> tuple[Markup, Markup]:
    """Two texts with the words that differ marked."""
    first, second = before.split(), after.split()
    sides: tuple[list[Markup], list[Markup]] = ([], [])
    for what, *places in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        for side, words in zip(sides, (first[places[0] : places[1]], second[places[2] : places[3]]), strict=True):
            if words:
                text = " ".join(words)
                side.append(Markup("{}" if what == "equal" else "<mark>{}</mark>").format(text))
    return Markup(" ").join(sides[0]), Markup(" ").join(sides[1])


def attention(results: Results) -> list[dict[str, Any]]:
    """The sentences of the part `attention` for the script of the page: source, the tokens of queries and keys of each
    kind, and of each head its weights, a digit each (base 36), a text a query."""
    arrays = results.get("attention")
    return [] if arrays is None else [_sentence(arrays, number) for number in range(len(arrays["source"]))]


def _sentence(arrays: Arrays, number: int) -> dict[str, Any]:
    pieces = {side: [piece for piece in arrays[f"{side}_pieces"][number].tolist() if piece] for side in SIDES["cross"]}
    tokens = {kind: [pieces[side] for side in sides] for kind, sides in SIDES.items()}
    weights = {}
    for head in heads_named(arrays["head"]):
        queries, keys = map(len, tokens[head.kind])
        own = arrays[f"{head.kind}_{head.layer}"][number, head.head - 1, :queries, :keys].astype(float)
        digits = np.rint(own.clip(0, 1) * (len(DIGITS) - 1)).astype(int)
        weights[str(head)] = ["".join(DIGITS[digit] for digit in row) for row in digits.tolist()]
    return {"source": str(arrays["source"][number]), "tokens": tokens, "weights": weights}
