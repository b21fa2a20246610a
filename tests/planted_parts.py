"""Arrays of the parts of an analysis of three heads, written by hand: without the last head, order is at chance."""

from pathlib import Path

import numpy as np
from built import BOUNDS

from headcount.heads.results import Results

HEADS = ("encoder1.1", "encoder1.2", "cross1.1")
HOSTILE = "<script>alert('&')</script>|`x`"


def ablated(pairs: int = 120, gold: bool = True) -> dict[str, np.ndarray]:
    """Arrays of `ablation` of three heads: without the last, order is at chance, and nothing else changes."""
    random = np.random.default_rng(0)
    reference = np.repeat(random.normal(-0.2, 0.01, (1, pairs * 3)), 1 + len(HEADS), axis=0)
    reference[3] -= random.uniform(0.5, 1.5, pairs * 3)
    labels = np.array(["order", "case"] * (pairs // 2)) if gold else np.array([], dtype=str)
    rows = np.arange(len(labels))
    right = np.repeat(random.normal(-1, 0.1, (1, len(rows))), 1 + len(HEADS), axis=0)
    wrong = np.repeat(random.normal(-5, 0.1, (1, len(rows))), 1 + len(HEADS), axis=0)
    wrong[3, labels == "order"] = right[3, labels == "order"] + random.normal(0, 1, (labels == "order").sum())
    one = {"reference": reference, "lengths": np.full(pairs, 3), "right": right, "wrong": wrong}
    arrays = {f"{kind}.{name}": value for kind in ("zero", "mean", "resample") for name, value in one.items()}
    twin = {"zero.twin_right": wrong.copy(), "zero.twin_wrong": right.copy()}
    # The first layer with either head alone is as bad as without the last head.
    arrays |= {f"only.{name}": value[[3, 3, 0]] if value.ndim > 1 else value for name, value in one.items()}
    return arrays | twin | {"head": np.array(HEADS), "row": rows, "phenomenon": labels, "grade": labels}


def translated() -> dict[str, np.ndarray]:
    whole = np.array([f"der Hund {HOSTILE} schläft", "die Katze sieht ihn"])
    without = np.stack([whole, whole, np.array([f"ein Hund {HOSTILE} schläft", whole[1]])])
    texts = {"source": [f"the dog {HOSTILE} sleeps", "the cat sees him"], "reference": whole}
    labels = {name: np.array(["order", "case"]) for name in ("phenomenon", "grade")}
    return {"head": np.array(HEADS), "whole": whole, "without": without, **labels} | {
        name: np.array(text) for name, text in texts.items()
    }


def attended() -> dict[str, np.ndarray]:
    """Arrays of `attention`: a sentence of one piece and its end, a longer one behind it in length."""
    weights = np.zeros((1, 2, 3, 3), np.float16)
    weights[0, :, :2, :2] = [[1.0, 0.0], [0.5, 0.5]]
    pieces = {f"{side}_pieces": np.array([["</s>", HOSTILE, ""]]) for side in ("source", "target")}
    texts = {"source": np.array([HOSTILE]), "target": np.array(["der Hund"])}
    return {"head": np.array(HEADS), **texts, **pieces, "encoder_1": weights, "cross_1": weights[:, :1]}


def translated_without() -> dict[str, np.ndarray]:
    """Arrays of `bleu`: without the last head, a fifth of the words are others; without the second, one word is."""
    counts = np.repeat(np.array([[[10, 9, 8, 7, 10, 9, 8, 7, 10, 10]]]), 100, axis=1).repeat(1 + len(HEADS), axis=0)
    counts[3, ::2, :4] -= 4
    counts[2, 0, :4] -= 1
    return {"head": np.array(HEADS), "counts": counts, "test_row": np.arange(100)}


def imported() -> dict[str, np.ndarray]:
    """Arrays of `importance`: the last head matters most."""
    random = np.random.default_rng(1)
    labels = np.array(["order", "case"] * 60)
    gradients = {name: random.normal([0.1, 0.2, 3.0], 0.05, (120, len(HEADS))) for name in ("loss", "margin")}
    return {"head": np.array(HEADS), "row": np.arange(120), "phenomenon": labels, "grade": labels, **gradients}


def twinned() -> dict[str, np.ndarray]:
    """Arrays of `twins`: the last head carries the cue of order half of the way."""
    random = np.random.default_rng(2)
    labels = np.array(["order", "case"] * 60)
    base = random.normal(4, 0.1, 120)
    patched = base + np.array([0, 0, -4.0])[:, None] * (labels == "order") + random.normal(0, 0.05, (3, 120))
    layers = {"layer": np.array(["encoder1", "cross1"]), "layers": patched[1:], "memory": base - 8}
    heads = {"head": np.array(HEADS), "base": base, "twin": base - 8, "patched": patched, "phenomenon": labels}
    return heads | layers


def sent() -> dict[str, np.ndarray]:
    """Arrays of `paths`: from the first head to the last one, and from there to the output."""
    twins = twinned()
    base, moved = twins["base"], twins["patched"][2:]
    ends = {"path_sender": np.array(["encoder1.1"]), "path_receiver": np.array(["cross1.1"])}
    sender = np.array(["encoder1.1", "cross1.1", "source"])
    direct = np.stack([base, moved[0], base])
    shared = {name: twins[name] for name in ("base", "twin", "phenomenon")}
    return {**shared, **ends, "sender": sender, "direct": direct, "total": direct, "path": moved}


def trained() -> dict[str, np.ndarray]:
    """Arrays of `training`: accuracy rises from chance to 100 %, and with it the effect of the last head on order."""
    random = np.random.default_rng(3)
    right, wrong = np.zeros((3, 1 + len(HEADS), 120)), random.normal(0, 1, (3, 1 + len(HEADS), 120))
    wrong[1:] -= np.array([5, 10])[:, None, None]
    labels = np.array(["order", "case"] * 60)
    wrong[1:, 3, labels == "order"] = 0
    labelled = {"head": np.array(HEADS), "row": np.arange(120), "phenomenon": labels, "grade": labels}
    return labelled | {"step": np.array([0, 100, 1000]), "right": right, "wrong": wrong, "loss": wrong}


def paired() -> dict[str, np.ndarray]:
    """Arrays of `pairs`: the first two heads replace each other."""
    ablated_ = ablated()
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    arrays = {}
    for name in ("reference", "right", "wrong"):
        single = ablated_[f"zero.{name}"]
        arrays[f"zero.{name}"] = np.concatenate([single, single[[0, 3, 3]]])
    arrays["zero.reference"][4] -= np.random.default_rng(4).uniform(1, 2, 360)
    rest = {name: ablated_[name] for name in ("head", "row", "phenomenon", "grade")}
    return {**arrays, **rest, "zero.lengths": ablated_["zero.lengths"], "pair": pairs}


def dealt() -> dict[str, np.ndarray]:
    """Arrays of `shapley`."""
    marginal = np.random.default_rng(5).normal([0, 0.1, 2], 0.1, (6, len(HEADS)))
    return {"head": np.array(HEADS), "marginal": marginal, "empty": np.array(9.0), "full": np.array(1.0)}


def cut() -> dict[str, np.ndarray]:
    """Arrays of `cutting`: an order and two at random, 0 to 3 heads left; without the last head, order is at chance."""
    random = np.random.default_rng(6)
    labels = np.array(["order", "case"] * 40)
    order = np.array([[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    left, number = np.tile(np.arange(4), 3), np.repeat(np.arange(3), 4)
    gone = np.array([2 in order[n, : 3 - kept] for n, kept in zip(number, left, strict=True)])
    right, wrong = np.zeros((12, 80)), random.normal(-5, 0.1, (12, 80))
    wrong[np.ix_(gone, labels == "order")] = random.normal(0, 1, (gone.sum(), 40))
    loss = random.uniform(1, 1.1, 80) + 2.0 * gone[:, None]
    counts = np.array([8, 7, 6, 5, 8, 7, 6, 5, 8, 8]) - 4 * np.outer(gone[:4], [1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    return {
        "head": np.array(HEADS), "order": order, "order_name": np.array(["greedy", "random", "random"]), "left": left,
        "setting_order": number, "loss": loss, "tokens": np.full(80, 4), "right": right, "wrong": wrong,
        "row": np.arange(80), "phenomenon": labels, "grade": labels, "bleu_setting": np.arange(4),
        "bleu_counts": np.repeat(counts[:, None], 20, axis=1), "penalty": np.array([0.01, 1]),
        "log_alpha": np.array([[8, -8, 8], [-8, -8, 8]]),
    }  # fmt: skip


def results(**parts) -> Results:
    return Results("a run", Path("runs/a"), ("en", "de"), parts, BOUNDS)
