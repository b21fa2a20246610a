"""The page of findings: made again from kept runs, and a contrast recomputed by an outsider."""

import re
from pathlib import Path

import findings
import numpy as np
import pandas as pd
import positions
import pyarrow.parquet as pq
import pytest
import sacrebleu

ROOT = Path(__file__).parents[1]


@pytest.mark.medium
def test_the_measured_figures_of_the_page_and_its_pictures_come_from_kept_runs():
    for path, content in findings.written().items():
        assert path.read_text(encoding="utf-8") == content, path
    drawn = findings.widths().groupby("corpus")["BLEU"].agg(["min", "max"])
    assert drawn.loc[findings.BUILT_IN].tolist() == [80.78, 94.67]


@pytest.mark.medium
def test_an_outsider_finds_the_difference_between_one_wide_and_one_narrow_head():
    """From the Parquet files alone, by sacrebleu and means."""
    means = {}
    for study, name in (("heads_fixed_parameters_grammar", ""), ("heads_by_width_grammar", "model.d_model=128,")):
        table = pq.read_table(ROOT / "docs" / "results" / study / "runs.parquet").to_pandas()
        scores = []
        for seed in (1, 2, 3):
            of_seed = table[table["run"].str.endswith(f"seed={seed}")]
            own = of_seed[of_seed["run"] == f"{name}model.num_heads=1,seed={seed}"].sort_values("line")
            lines = {}
            for split in ("valid", "test"):
                hypotheses = own[own["file"] == f"{split}.hyp.de"]["text"].tolist()
                all_references = of_seed[of_seed["file"] == f"{split}.ref.de"].sort_values("line")
                one = all_references["run"].iloc[0]
                references = all_references[all_references["run"] == one]["text"].tolist()
                lines[split] = (hypotheses, references)
            hypotheses, references = (lines["valid"][side] + lines["test"][side] for side in (0, 1))
            pairs = [pair for pair in zip(hypotheses, references, strict=True) if pair != ("", "")]  # ends of files
            scores.append(sacrebleu.corpus_bleu([a for a, _ in pairs], [[b for _, b in pairs]]).score)
        means[study] = np.mean(scores)
    apart = means["heads_by_width_grammar"] - means["heads_fixed_parameters_grammar"]
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"On the built-in corpus .* one head of 128 beats one of 16 by (\S+)", text)
    assert f"{apart:.2f}" == shown


def mean_bleu(table: pd.DataFrame, runs: str, seeds: int = 5) -> float:
    """Mean over seeds of corpus BLEU, from summed counts: Papineni et al. 2002, equation 3."""
    scores = []
    for _, own in table[table["run"].str.fullmatch(runs)].groupby("run"):
        sums = own.drop(columns="run").sum().astype(float)
        precisions = [sums[f"matches{order}"] / sums[f"total{order}"] for order in (1, 2, 3, 4)]
        brevity = min(0, 1 - sums["reference"] / sums["length"])
        scores.append(100 * np.exp(np.log(precisions).mean() + brevity))
    assert len(scores) == seeds
    return float(np.mean(scores))


@pytest.mark.medium
def test_an_outsider_finds_the_planned_contrast_of_width():
    """One head of 128 less one of 16 after 1,500 steps, from the n-gram counts alone."""
    table = pd.read_parquet(ROOT / "docs" / "results" / "width_or_number" / "counts.parquet")
    wide, narrow = (mean_bleu(table, rf"model.num_heads=1,model.head_size={size},.*") for size in (128, 16))
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"one head with d_head 128 beats one with d_head 16 by (\S+) \S+ \S+ BLEU on Multi30k", text)
    assert f"{wide - narrow:.2f}" == shown


@pytest.mark.medium
def test_an_outsider_finds_the_difference_between_two_heads_and_one_over_ten_seeds():
    table = pd.read_parquet(ROOT / "docs" / "results" / "equal_heads_multi30k" / "counts.parquet")
    two, one = (mean_bleu(table, rf"model.num_heads={heads},seed=\d+", seeds=10) for heads in (2, 1))
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| 2 heads less 1 |"))
    assert row.split(" | ")[2].startswith(f"{two - one:.2f} ")


@pytest.mark.medium
@pytest.mark.parametrize("heads", ["4", "8"])
def test_an_outsider_counts_the_runs_with_a_head_for_negation_alone(heads):
    """The head that costs negation most on one half of the pairs: over 20 points on the other, all else at most 10."""
    table = pd.read_parquet(ROOT / "docs" / "results" / "heads" / "effects.parquet").query("condition == @heads")
    found = []
    for _, own in table.groupby("run"):
        chosen, there = (
            own[own["half"] == half].pivot(index="head", columns="phenomenon", values="points") for half in (0, 1)
        )
        points = there.loc[chosen["negation"].idxmax()]
        found.append(points["negation"] > 20 and points.drop("negation").max() <= 10)
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| negation |")).split(" | ")
    assert f"{sum(found)} of {len(found)}" in row[{"4": 1, "8": 2}[heads]]


def test_a_difference_of_differences_is_that_of_means_and_shares_the_error_of_its_family():
    random = np.random.default_rng(0)
    counts = {}
    for number in range(4):
        matches = random.binomial(10, 0.5 + 0.1 * number, (3, 60, 4))
        own = np.concatenate([matches, np.full((3, 60, 4), 10), np.full((3, 60, 2), 12)], axis=2)
        counts[number, 8, "rotary"] = own.astype(float)
    a, b, c, d = counts
    means = [positions.bleu_of(own.sum(axis=1)).mean() for own in counts.values()]
    (alone,) = positions.contrasts(counts, {"both": ((a, d), (b, c))})
    assert alone.value == pytest.approx(means[0] + means[3] - means[1] - means[2])
    assert alone.interval[0] < alone.value < alone.interval[1]
    family = positions.contrasts(counts, {"both": ((a, d), (b, c)), "single": ((d,), (a,))})
    assert family[0].value == alone.value
    assert family[0].interval[0] < alone.interval[0]
    assert family[1].value == pytest.approx(means[3] - means[0])
    assert family[1].interval[0] > 0


def test_a_difference_is_read_in_both_directions(monkeypatch):
    pairs = pd.DataFrame({"pair": ["1 \u2212 2"], "difference": ["-1.00"], "95 % interval": ["[-1.50, -0.25]"]})
    monkeypatch.setattr(findings, "table", lambda study, number: pairs)
    assert findings.less("x", 1, 2) == "\u22121.00 [\u22121.50, \u22120.25]"
    assert findings.less("x", 2, 1) == "1.00 [0.25, 1.50]"
    with pytest.raises(KeyError):
        findings.less("x", 1, 4)
