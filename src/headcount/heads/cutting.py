"""Cutting: the heads are switched off one after another, in orders chosen on validation and followed on test sentences.

Effects are those of gates at 0, which `prune` makes real: a pruned model computes what the masked one does.
"""

import numpy as np

from headcount.heads.ablation import effects, gates_off
from headcount.heads.analysis import Analysis, Arrays, part
from headcount.heads.bleu import greedy_counts
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.hard_concrete import GateTraining, closing_order
from headcount.heads.likelihood import Progress
from headcount.heads.orders import ORDERS, Choice, choice_on, split_of

POINTS = 24  # of a curve, beside that of all heads
COARSE = (0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)  # shares of heads left, on random orders
BLEU = (1 / 3, 1 / 2, 2 / 3, 3 / 4, 5 / 6, 11 / 12, 23 / 24, 1)  # shares of heads left, for BLEU
SETTINGS = ("cutting_sentences", "random_orders", "order_sentences", "gate_penalties", "gate_steps")


@part("cutting", "pruning orders", settings=SETTINGS, version=4)
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
    training = GateTraining(tuple(settings.gate_penalties), settings.gate_steps, settings.seed)

    def choice(name: str) -> Choice:
        rows = analysis.splits[split_of(name)]
        return choice_on(analysis.run, name, rows, settings.order_sentences, training, progress)

    def shares(of: tuple[float, ...]) -> np.ndarray:
        return np.unique(np.round(np.array(of) * len(heads)).astype(np.int64))

    test_row = analysis.test.chosen(settings.cutting_sentences)
    test = evaluation_set(analysis.run, analysis.test.rows.select(test_row))
    orders = {name: choose(choice(name)) for name, choose in ORDERS.items() if name != "hard_concrete"}
    log_alpha = choice("hard_concrete").log_alpha()
    orders["hard_concrete"] = closing_order(log_alpha)
    random = np.random.default_rng(settings.seed)
    drawn = [random.permutation(len(heads)).tolist() for _ in range(settings.random_orders)]
    every, coarse = [*orders.values(), *drawn], shares(COARSE)
    fine = np.union1d(np.unique(np.linspace(0, len(heads), POINTS + 1).round().astype(np.int64)), coarse)
    points = [(n, left) for n in range(len(every)) for left in (fine if n < len(orders) else coarse).tolist()]
    setting_order, left = np.array(points).T
    gates = gates_off(heads, [every[number][: len(heads) - count] for number, count in points])
    _, first, where = np.unique(gates.cpu().numpy(), axis=0, return_index=True, return_inverse=True)
    found = effects(heads, test, gates[first], progress=progress)  # equal settings are measured once
    bleu_setting = np.flatnonzero((setting_order < len(orders)) & np.isin(left, shares(BLEU)))
    return {
        "head": heads.labels,
        "order": np.array(every),
        "order_name": np.array([*orders, *["random"] * len(drawn)]),
        "setting_order": setting_order,
        "left": left,
        "test_row": test_row,
        "tokens": found["lengths"],
        **{name: found[name][where.reshape(-1)].astype(np.float32) for name in ("loss", "right", "wrong")},
        **test.labels,
        "penalty": np.array(settings.gate_penalties, dtype=np.float64),
        "log_alpha": log_alpha,
        "bleu_setting": bleu_setting,
        "bleu_counts": greedy_counts(analysis, test.rows.select(test.own), gates[bleu_setting], progress),
    }
