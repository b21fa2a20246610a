"""Scores against sacrebleu's own command line, significance on known cases, and contrastive accuracy by hand."""

import subprocess
import sys

import pytest
import torch

from headcount.data.tokenizer import BOS, EOS
from headcount.evaluation.contrastive import Accuracy, TargetScorer, contrastive_accuracy
from headcount.evaluation.scoring import compare, score
from headcount.model.transformer import Transformer

REFERENCES = [
    "Ein Hund schläft auf dem alten Sofa.",
    "Zwei Männer gehen, weil es regnet, schnell nach Hause.",
    "Das Kind liest ein Buch.",
    "Niemand sieht die Katze im Garten.",
]
GOOD = [
    REFERENCES[0],
    "Zwei Männer gehen schnell nach Hause, weil es regnet.",
    REFERENCES[2],
    "niemand sieht die Katze.",
]
BAD = ["Ein Hund.", "Zwei Hunde gehen nach Hause.", "das Kind liest ein Buch", "Niemand."]


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_the_sacrebleu_command(tmp_path, lowercase):
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    reference.write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    hypothesis.write_text("\n".join(GOOD) + "\n", encoding="utf-8")
    flags = ["--lowercase"] if lowercase else []
    scores = score(GOOD, REFERENCES, lowercase)
    for metric, flag in {"bleu": [], "chrf": ["--chrf-lowercase"] if lowercase else []}.items():
        command = [
            sys.executable,
            "-m",
            "sacrebleu",
            str(reference),
            "-i",
            str(hypothesis),
            "-m",
            metric,
            "-b",
            "-w",
            "6",
        ]
        printed = subprocess.run([*command, *(flags if metric == "bleu" else flag)], capture_output=True, check=True)
        assert float(printed.stdout) == pytest.approx(scores[metric].value, abs=1e-6)
    assert f"case:{'lc' if lowercase else 'mixed'}" in scores["bleu"].signature
    assert "tok:13a" in scores["bleu"].signature


def test_a_perfect_translation_scores_100_and_an_empty_one_0():
    assert score(REFERENCES, REFERENCES)["bleu"].value == pytest.approx(100)
    assert score([""] * 4, REFERENCES)["bleu"].value == 0


def test_bootstrap_tells_a_better_system_and_not_an_equal_one():
    references, good, bad = REFERENCES * 10, GOOD * 10, BAD * 10
    comparisons, signatures = compare({"good": good, "same": list(good), "bad": bad}, references)
    assert comparisons["good"]["bleu"].p_value is None
    assert comparisons["same"]["bleu"].p_value == 1
    assert comparisons["bad"]["bleu"].p_value < 0.01
    assert comparisons["bad"]["chrf"].score == pytest.approx(score(bad, references)["chrf"].value)
    assert "bs:1000" in signatures["bleu"]
    assert comparisons["good"]["bleu"].interval > 0


def test_contrastive_accuracy_counts_by_group_and_a_tie_is_wrong():
    accuracy = contrastive_accuracy(
        [-1.0, -2.0, -1.0, -2.0],
        [-2.0, -1.0, -2.0, -2.0],
        [("order", "easy"), ("order", "easy"), ("order", "hard"), ("case", "hard")],
    )
    assert accuracy == {
        ("order", "easy"): Accuracy(1, 2),
        ("order", "hard"): Accuracy(1, 1),
        ("case", "hard"): Accuracy(0, 1),
    }
    assert accuracy["order", "easy"].percent == 50


def test_target_scores_are_sums_of_stepwise_log_probabilities():
    torch.manual_seed(2)
    model = Transformer(20, d_model=16, encoder_layers=1, decoder_layers=1, d_feed_forward=16, num_heads=2).eval()

    def encode(lines: list[str]) -> list[list[int]]:
        return [[4 + ord(letter) - ord("a") for letter in line] for line in lines]

    sources, targets = ["abc", "b", "cdefg", ""], ["cab", "", "hgf", "a"]
    scorer = TargetScorer(model, encode, encode, batch_tokens=12)
    log_probs, tokens = scorer.score(sources, targets)
    assert tokens == 3 + 0 + 3 + 1 + 4
    with torch.no_grad():
        for source, target, log_prob in zip(encode(sources), encode(targets), log_probs, strict=True):
            ids = torch.tensor([[*source, EOS]])
            state, total, previous = model.start(ids, torch.ones_like(ids, dtype=torch.bool)), 0.0, BOS
            for token in [*target, EOS]:
                step, state = model.step(torch.tensor([previous]), state)
                total += step[0, token].item()
                previous = token
            assert log_prob == pytest.approx(total, abs=1e-4)


def test_target_scores_never_hold_the_logits_of_a_whole_batch(monkeypatch):
    model = Transformer(20, d_model=16, encoder_layers=1, decoder_layers=1, d_feed_forward=16, num_heads=2).eval()
    seen = []
    model.output.register_forward_hook(lambda layer, given, logits: seen.append(logits.shape.numel() // 20))
    lines = ["abc" * 20] * 30
    TargetScorer(model, lambda texts: [[5] * len(text) for text in texts], lambda texts: [[6] * 60] * 30).score(
        lines, lines
    )
    assert sum(seen) >= 30 * 61
    assert max(seen) <= 512
