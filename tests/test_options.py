"""Options of training: each trains and translates, and is resumed as if it had never been stopped."""

import json

import pytest
from conftest import completed

from headcount.run.opened import open_run

OPTIONS = (
    "segmentation.kind=bpe_dropout loss.kind=r_drop averaging.kind=ema schedule.kind=cosine schedule.warmup_steps=2",
    "tokenizer.vocab_size=300 tokenizer.model_type=unigram segmentation.kind=sampled averaging.kind=best "
    "schedule.kind=constant search=diverse",
    "optimizer=nadamw schedule.kind=trapezoid schedule.warmup_steps=2 model.positions=rotary model.feed_forward=swiglu "
    "model.kv_heads=1 model.head_gate=head",
    "optimizer=muon schedule.kind=linear schedule.warmup_steps=2 model.qk_norm=learned model.logit_cap=20 "
    "model.init=zero_output model.embedding_scale=1 model.embedding_std=0.5",
    "optimizer=adamw optimizer.lr=1 optimizer.other_lr=1 validation.patience=1 validation.metric=bleu "
    "validation.every=1 schedule.kind=noam search=mbr search.samples=3",
    "model=deep_shallow model.encoder_layers=4 model.feed_forward=gelu model.layer_dropout=0.5 search=sample",
    "loss.kind=simcut model.head_dropout=0.5 model.embedding_dropout=0.2 tokenizer.kind=separate "
    "tokenizer.target_vocab_size=300",
)


@pytest.mark.medium
@pytest.mark.parametrize("options", OPTIONS)
def test_options_train_and_translate(options, tiny, tmp_path):
    completed("train", *tiny, *options.split(), "hydra.run.dir=run", "search.max_ratio=1", cwd=tmp_path)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert 1 <= metrics["train"]["steps"] <= 8
    assert metrics["test"]["signature"]["bleu"]
    assert len(open_run(tmp_path / "run").translator.translate(["the dog sees the cat", ""])) == 2


RESUMED = {
    "segmentation.kind=bpe_dropout model.layer_dropout=0.3 loss.kind=r_drop model.qk_norm=learned "
    "model.head_gate=element": 4,
    "model.head_dropout=0.3 loss.kind=simcut loss.start=4": 6,
    "data.both_directions=true loss.kind=simcut": 4,
    "data.batch_tokens=800 trainer.accumulate_grad_batches=2": 3,
    "data.batch_tokens=800 segmentation.kind=bpe_dropout segmentation.start_epoch=1 validation.every=8": 2,
}
SLOW = list(RESUMED)[2:]


@pytest.mark.medium
@pytest.mark.parametrize(
    "options", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in RESUMED]
)
def test_what_is_resumed_ends_as_if_never_stopped(options, tiny, tmp_path):
    words = (*tiny, "averaging.kind=ema", *options.split())
    completed("train", *words, "hydra.run.dir=whole", cwd=tmp_path)
    completed("train", *words, f"steps={RESUMED[options]}", "hydra.run.dir=half", cwd=tmp_path)
    completed("train", "resume=half", "steps=8", cwd=tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half")]
    assert weights[0] == weights[1]
