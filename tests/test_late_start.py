"""Regularisers that begin late: nothing differs before their start, and a run resumes across it."""

import json

import pytest
import torch
from conftest import completed

PLAIN = ("averaging.kind=ema", "schedule.kind=constant", "model.dropout=0.1")


def weights(folder) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one | other)


@pytest.mark.medium
@pytest.mark.parametrize("loss", ["simcut", pytest.param("r_drop", marks=pytest.mark.slow)])
def test_a_loss_that_begins_late(loss, tiny, tmp_path):
    late = (*tiny, *PLAIN, f"loss={loss}", "loss.start=4")
    completed("train", *tiny, *PLAIN, "steps=4", "hydra.run.dir=without", cwd=tmp_path)
    completed("train", *late, "steps=4", "hydra.run.dir=run", cwd=tmp_path)
    assert same(weights(tmp_path / "without"), weights(tmp_path / "run"))
    completed("train", "resume=run", "steps=8", cwd=tmp_path)
    completed("train", "resume=without", "steps=8", cwd=tmp_path)
    completed("train", *late, "hydra.run.dir=whole", cwd=tmp_path)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "run"))
    assert not same(weights(tmp_path / "without"), weights(tmp_path / "run"))
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "run/model.safetensors").read_bytes()


@pytest.mark.slow
def test_subword_sampling_that_begins_late(tiny, tmp_path):
    plain = (*tiny, *PLAIN, "data.batch_tokens=800", "validation.every=8")
    late = (*plain, "segmentation.kind=bpe_dropout", "segmentation.start_epoch=1")
    completed("train", *plain, "steps=2", "hydra.run.dir=without", cwd=tmp_path)
    completed("train", *late, "steps=2", "hydra.run.dir=run", cwd=tmp_path)
    assert same(weights(tmp_path / "without"), weights(tmp_path / "run"))
    completed("train", "resume=run", "steps=8", cwd=tmp_path)
    completed("train", "resume=without", "steps=8", cwd=tmp_path)
    completed("train", *late, "hydra.run.dir=whole", cwd=tmp_path)
    epochs = json.loads((tmp_path / "run/metrics.json").read_text(encoding="utf-8"))["train"]["epochs"]
    assert epochs > 1.2
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "run"))
    assert not same(weights(tmp_path / "without"), weights(tmp_path / "run"))
