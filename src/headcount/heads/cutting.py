"""Cutting: the heads are switched off one after another, in orders chosen on validation and followed on test sentences.

Effects are those of gates at 0, which `prune` makes real: a pruned model computes what the masked one does.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.heads.ablation import effects
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.bleu import greedy_counts
from headcount.heads.evaluation_set import EvaluationSet, evaluation_set
from headcount.heads.examples import chosen
from headcount.heads.hard_concrete import closing_order
from headcount.heads.interface import Heads
from headcount.heads.likelihood import Progress
from headcount.heads.orders import ORDERS, STEPS, Choice, Order, choice_on, random_orders, split_of, without

POINTS = 24  # of a curve, beside that of all heads
COARSE = (0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)  # shares of heads left, on random orders
BLEU = (1 / 3, 1 / 2, 2 / 3, 3 / 4, 5 / 6, 11 / 12, 23 / 24, 1)  # shares of heads left, for BLEU


def cutting(analysis: Analysis, progress: Progress) -> Arrays:
    """Curves of cutting, in settings, one for each order and number of heads left.

    head: names. order [order, head]: numbers of heads, the first cut first; order_name [order], "random" for those
    drawn. setting_order, left [setting]: the number of the order, and the heads left. loss [setting, sentence]: nats of
    each reference; tokens [sentence]. right, wrong [setting, pair]: log-probabilities of right and wrong translations;
    row [pair]: its sentence; phenomenon, grade [pair]. test_row [sentence]: its row among the test sentences measured.
    bleu_setting [point]: the setting of a point of BLEU; bleu_counts [point, sentence, 10]: of the
    greedy translations, see `sentence_counts`. penalty [penalty], log_alpha [penalty, head]: hard concrete gates.
    """
    heads, settings = analysis.heads, analysis.settings
    rows = chosen(analysis.test, settings.cutting_sentences)
    test = evaluation_set(analysis.run, analysis.test.rows.select(rows))
    orders, log_alpha = chosen_orders(analysis, progress)
    drawn = random_orders(len(heads), settings.random_orders, settings.seed)
    fine = np.unique(np.linspace(0, len(heads), POINTS + 1).round().astype(np.int64))
    coarse = np.unique(np.round(np.array(COARSE) * len(heads)).astype(np.int64))
    lefts = [np.union1d(fine, coarse)] * len(orders) + [coarse] * len(drawn)
    all_orders = [*orders.values(), *drawn]
    setting_gates = torch.cat([without(heads, order, left) for order, left in zip(all_orders, lefts, strict=True)])
    number = np.repeat(np.arange(len(all_orders)), [len(left) for left in lefts])
    arrays = {
        "head": heads.labels,
        "order": np.array(all_orders),
        "order_name": np.array([*orders, *["random"] * len(drawn)]),
        "setting_order": number,
        "left": np.concatenate(lefts),
        "test_row": rows,
        **measured(heads, test, setting_gates, progress),
        **test.labels,
        "penalty": np.array(settings.gate_penalties, dtype=np.float64),
        "log_alpha": log_alpha,
    }
    return arrays | bleu_points(analysis, test, arrays, setting_gates, progress)


def chosen_orders(analysis: Analysis, progress: Progress) -> tuple[dict[str, Order], NDArray[np.float64]]:
    """The orders of `ORDERS` by name, and log alpha [penalty, head] of the gates."""
    settings = analysis.settings

    def choice(order: str) -> Choice:
        rows = analysis.splits[split_of(order)]
        return choice_on(analysis.run, order, rows, settings.order_sentences, settings.gates, progress)

    orders = {name: choose(choice(name)) for name, choose in ORDERS.items() if name != "hard_concrete"}
    log_alpha = choice("hard_concrete").log_alpha()
    return orders | {"hard_concrete": closing_order(log_alpha)}, log_alpha


def measured(heads: Heads, test: EvaluationSet, gates: torch.Tensor, progress: Progress) -> Arrays:
    """loss, tokens, right and wrong under gates [setting, head]; equal settings are measured once."""
    once, where = np.unique(gates.cpu().numpy(), axis=0, return_inverse=True)
    found = effects(heads, test, torch.from_numpy(once).to(gates), progress=progress)
    kept = {"loss": found.loss, "right": found.right, "wrong": found.wrong}
    where = where.reshape(-1)
    return {"tokens": found.lengths} | {name: each[where].astype(np.float32) for name, each in kept.items()}


def bleu_points(
    analysis: Analysis, test: EvaluationSet, arrays: Arrays, gates: torch.Tensor, progress: Progress
) -> Arrays:
    """bleu_setting and bleu_counts, of the orders that are not random."""
    heads = analysis.heads
    lefts = np.unique(np.round(np.array(BLEU) * len(heads)).astype(np.int64))
    named = arrays["order_name"][arrays["setting_order"]] != "random"
    settings = np.flatnonzero(named & np.isin(arrays["left"], lefts))
    counts = greedy_counts(analysis, test.rows, gates[settings], progress)
    return {"bleu_setting": settings, "bleu_counts": counts}


def steps(analysis: Analysis) -> int:
    """Sentences that the part works through, about."""
    heads, settings = len(analysis.heads), analysis.settings
    test = len(chosen(analysis.test, settings.cutting_sentences))
    valid = len(analysis.splits["valid"])
    choosing = min(settings.order_sentences or valid, valid) * (2 + 2 * min(STEPS, heads))
    gates = settings.gate_steps * len(settings.gate_penalties) * 30
    return choosing + gates + 2 * test + test * len(BLEU) * len(ORDERS)


CUTTING = Part(
    "cutting",
    "orders of cutting",
    cutting,
    steps=steps,
    settings=("cutting_sentences", "random_orders", "order_sentences", "gate_penalties", "gate_steps"),
    version=4,
)
