"""Every option of training: some steps are trained, and the result translates."""

import json

import pytest
import torch
from conftest import completed
from safetensors.torch import load_file

from headcount.run.opened import open_run

OPTIONS = {
    "drawn pieces, R-Drop, moving average, cosine": (
        "segmentation.kind=bpe_dropout",
        "loss.kind=r_drop",
        "averaging.kind=ema",
        "schedule.kind=cosine",
        "schedule.warmup_steps=2",
    ),
    "unigram sampling, best checkpoint, constant rate": (
        "tokenizer.vocab_size=300",
        "tokenizer.model_type=unigram",
        "segmentation.kind=sampled",
        "averaging.kind=best",
        "schedule.kind=constant",
    ),
    "AdamW with Nesterov momentum, trapezoid": (
        "optimizer=nadamw",
        "schedule.kind=trapezoid",
        "schedule.warmup_steps=2",
    ),
    "Muon, linear": ("optimizer=muon", "schedule.kind=linear", "schedule.warmup_steps=2"),
    "stopped by BLEU, Noam": (
        "validation.patience=1",
        "validation.metric=bleu",
        "validation.every=1",
        "schedule.kind=noam",
    ),
    "rotary positions, SwiGLU, one head of keys and values": (
        "model.positions=rotary",
        "model.feed_forward=swiglu",
        "model.kv_heads=1",
    ),
    "QK-norm, logit cap, initial zeros, embeddings": (
        "model.qk_norm=learned",
        "model.logit_cap=20",
        "model.init=zero_output",
        "model.embedding_scale=1",
        "model.embedding_std=0.5",
    ),
    "GELU, layer dropout, deep encoder and shallow decoder": (
        "model=deep_shallow",
        "model.encoder_layers=4",
        "model.feed_forward=gelu",
        "model.layer_dropout=0.5",
    ),
    "SimCut, DropHead": ("loss.kind=simcut", "model.head_dropout=0.5", "model.embedding_dropout=0.2"),
    "two vocabularies": ("tokenizer.kind=separate", "tokenizer.target_vocab_size=300"),
    "sampling": ("search=sample", "search.max_ratio=1"),
    "minimum Bayes risk": ("search=mbr", "search.samples=3", "search.max_ratio=1"),
    "diverse beams": ("search=diverse", "search.max_ratio=1"),
}
SCORED = ("valid", "test")


@pytest.mark.medium
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_option_trains_and_translates(options, tiny, tmp_path):
    completed("train", *tiny, *options, "hydra.run.dir=run", cwd=tmp_path)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert 1 <= metrics["train"]["steps"] <= 8
    assert metrics["test"]["signature"]["bleu"]
    run = open_run(tmp_path / "run")
    assert len(run.translator.translate(["the dog sees the cat", ""])) == 2


@pytest.mark.slow
def test_both_directions_are_trained_then_one(tiny, text, tmp_path):
    both = (*tiny, "data.both_directions=true", "loss.kind=simcut", "averaging.kind=none")
    completed("train", *both, "hydra.run.dir=whole", cwd=tmp_path)
    completed("train", *both, "steps=4", "hydra.run.dir=half", cwd=tmp_path)
    completed("train", "resume=half", "steps=8", cwd=tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half")]
    assert weights[0] == weights[1]
    hypotheses = {split: len((tmp_path / "whole" / f"{split}.hyp.de").read_text().splitlines()) for split in SCORED}
    references = {split: len((text / f"{split}.de").read_text().splitlines()) for split in SCORED}
    assert hypotheses == {"valid": 2 * references["valid"], "test": references["test"]}
    given = [option for option in tiny if not option.startswith("tokenizer.vocab_size")]  # the run brings its own
    completed("train", *given, "init_from=whole", "hydra.run.dir=one", cwd=tmp_path)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "one"))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "whole/tokenizer.model").read_bytes() == (tmp_path / "one/tokenizer.model").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_batch_ramp_resumes_in_its_midst(accumulation, tiny, tmp_path):
    plain = (*tiny, "averaging.kind=ema", "data.batch_tokens=800", f"trainer.accumulate_grad_batches={accumulation}")
    ramp = (*plain, "data.batch_ramp=6")
    completed("train", *ramp, "hydra.run.dir=whole", cwd=tmp_path)
    completed("train", *ramp, "steps=3", "hydra.run.dir=half", cwd=tmp_path)
    completed("train", "resume=half", "steps=8", cwd=tmp_path)
    completed("train", *plain, "data.batch_ramp=0", "hydra.run.dir=off", cwd=tmp_path)
    whole, half, off = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half", "off"))
    assert whole == half != off
    logged = (tmp_path / "whole" / "train.log").read_text(encoding="utf-8")
    assert "; ramp: from 0.25 of a batch over 6 steps (figures of the first epoch)" in logged
    assert "; ramp: " not in (tmp_path / "off" / "train.log").read_text(encoding="utf-8")


DROPPED = {"layers, pieces, R-Drop": ("segmentation.kind=bpe_dropout", "model.layer_dropout=0.3", "loss.kind=r_drop")}
DROPPED["layers, pieces, R-Drop"] += ("model.qk_norm=learned", "model.logit_cap=20", "model.init=zero_output")
DROPPED["layers, pieces, R-Drop"] += ("model.embedding_std=0.5",)
DROPPED["heads, tokens"] = ("model.head_dropout=0.3", "loss.kind=simcut")


@pytest.mark.medium
@pytest.mark.parametrize(
    "dropped",
    [pytest.param(given, marks=pytest.mark.slow if "heads" in name else ()) for name, given in DROPPED.items()],
    ids=DROPPED,
)
def test_what_is_dropped_at_random_resumes_as_if_never_stopped(dropped, tiny, tmp_path):
    options = (*tiny, "averaging.kind=ema", *dropped)
    completed("train", *options, "hydra.run.dir=whole", cwd=tmp_path)
    completed("train", *options, "steps=4", "hydra.run.dir=half", cwd=tmp_path)
    completed("train", "resume=half", "steps=8", cwd=tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half")]
    assert weights[0] == weights[1]
