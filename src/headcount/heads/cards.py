"""Cards of heads: the figures of each, the translations that change without it, and its attention."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from headcount.heads.analysis import Arrays
from headcount.heads.results import Figures, Results

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
    figures: Sequence[tuple[str, str]]
    changes: Sequence[Change]
    same: int | None


def cards(results: Results, figures: Sequence[Figures]) -> list[Card]:
    """A card for each head, in the order of the model."""
    examples = results.get("examples")
    return [_card(head, [line for each in figures for line in each.get(head, ())], examples) for head in results.heads]


def _card(head: str, figures: Sequence[tuple[str, str]], examples: Arrays | None) -> Card:
    if examples is None:
        return Card(head, figures, (), None)
    without = examples["without"][examples["head"].tolist().index(head)].tolist()
    changes = [
        _change(examples, number, text) for number, text in enumerate(without) if text != examples["whole"][number]
    ]
    return Card(head, figures, changes, len(without) - len(changes))


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
    """The sentences of the part `attention` for the script of the page: source, translation, of each kind the tokens of
    queries and keys, and of each head its weights, a digit each (base 36), a text a query."""
    arrays = results.get("attention")
    if arrays is None:
        return []
    count = sum(name.endswith(".source") for name in arrays)
    return [_sentence(arrays, number) for number in range(count)]


def _sentence(arrays: Arrays, number: int) -> dict[str, Any]:
    weights, tokens = {}, {}
    for name, values in arrays.items():
        place, _, rest = name.partition(".")
        kind, _, layer = rest.partition(".")
        if place == str(number) and layer.isdigit():
            for head, each in enumerate(values, start=1):
                weights[f"{kind}{layer}.{head}"] = ["".join(map(_digit, row)) for row in each.tolist()]
        elif place == str(number) and layer in ("query", "key"):
            tokens[f"{kind}.{layer}"] = values.tolist()
    texts = {name: str(arrays[f"{number}.{name}"]) for name in ("source", "translation")}
    return {**texts, "tokens": tokens, "weights": weights}


def _digit(weight: float) -> str:
    return DIGITS[round(min(max(weight, 0), 1) * (len(DIGITS) - 1))]
