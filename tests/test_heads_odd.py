"""Models with odd heads: layers of different sizes or without any, shared keys and values; each part measures them, and
the page has no section that failed."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import planted
import pytest
import torch
from built import BOUNDS, ONE_LAYER, built
from datasets import Dataset

from headcount.data.tokenizer import EOS
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads
from headcount.heads.measure import PARTS
from headcount.heads.page import run_page
from headcount.heads.results import Results
from headcount.report.page import markdown

TRANSLATING = {"floor", "bleu", "cutting", "training", "examples", "attention"}
TWO_LAYERS = {**ONE_LAYER, "encoder_layers": 2, "decoder_layers": 2, "positions": "learned", "max_positions": 18}
MODELS = {
    "uneven": {"encoder_heads": [1, 4], "decoder_heads": [2, 0], "cross_heads": [0, 3], "head_size": 4},
    "the last cross-attention is empty": {"cross_heads": [2, 0], "head_size": 8},
    "a single head": {"encoder_heads": 0, "decoder_heads": 0, "cross_heads": [0, 1], "head_size": 8},
    "no cross-attention": {"encoder_heads": [0, 1], "decoder_heads": 1, "cross_heads": 0, "head_size": 8},
    "shared keys": {"num_heads": 4, "kv_heads": 2, "positions": "rotary"},
}
QUICK = ("a single head", "no cross-attention")


def twinned(count: int, seed: int) -> Dataset:
    """Sentences of `planted` with a twin and a wrong translation, each with one other word."""
    random = np.random.default_rng(seed)
    rows = []
    for number, row in enumerate(planted.sentences(count, seed)):
        words = row["source"].split()
        twin, contrast = [*words[:2], "othera", *words[3:]], [*words[:-1], str(random.choice(planted.NOUNS))]
        labels = {"phenomenon": ("agreement", "order")[number % 2], "grade": "easy"}
        rows.append({**row, **labels, "twin": " ".join(twin), "contrast": " ".join(contrast)})
    return Dataset.from_list(rows)


@pytest.mark.medium
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "model", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_part_measures_a_model_with_odd_heads(model, undrawn):
    torch.manual_seed(0)
    made = built("model/nano", **{**TWO_LAYERS, **MODELS[model]}, vocab_size=EOS + 2 + len(planted.WORDS)).eval()
    tokenizer = planted.WordTokenizer()
    translator = SimpleNamespace(encode=tokenizer.encode)
    run = SimpleNamespace(model=made, tokenizer=tokenizer, translator=translator)
    splits = {name: twinned(24, seed) for seed, name in enumerate(("train", "valid", "test"))}
    settings = {"seed": 1, "pairs": 6, "pair_sentences": 8, "permutations": 4, "shapley_sentences": 4}
    given = SimpleNamespace(
        run=run,
        heads=Heads(made),
        splits=splits,
        gold=None,
        settings=SimpleNamespace(**settings, path_pairs=8, path_senders=4),
        **{f"{own}{name}": evaluation_set(run, splits[name]) for name in ("valid", "test") for own in ("", "own_")},
    )
    parts = {part.name: part.measure(given, lambda done: None) for part in PARTS if part.name not in TRANSLATING}
    page = run_page(Results("a run", Path("runs/a"), ("en", "de"), parts, BOUNDS), debug=True)
    assert markdown(page.page)
    assert all(view.spec for view in page.page.views)
    assert np.isfinite(page.table[~page.table["endpoint"].str.startswith("twins")]["estimate"]).all()
