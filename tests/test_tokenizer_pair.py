"""A vocabulary for each language, from preparation to a finished run."""

import pytest
import torch
from built import built, sentence_piece
from conftest import completed
from test_module import Toy, module, stream

import headcount
from headcount.data.tokenizer import TokenizerPair, load_tokenizer, save_tokenizer

SOURCES, TARGETS = (Toy().load()["train"][side][:] for side in ("source", "target"))


@pytest.mark.medium
def test_each_language_has_its_own(tmp_path):
    pair = built("tokenizer/separate", vocab_size=300, target_vocab_size=310).train(SOURCES, TARGETS)
    assert pair.source.fingerprint() == sentence_piece(300).train(SOURCES).fingerprint()
    assert pair.target.fingerprint() == sentence_piece(310).train(TARGETS).fingerprint()
    assert pair.vocab_size == 310
    assert pair.encode(SOURCES[:3]) == pair.source.encode(SOURCES[:3])
    assert pair.decode(pair.target.encode(TARGETS[:3])) == TARGETS[:3]
    save_tokenizer(pair, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.model", "target.model"]
    assert load_tokenizer(tmp_path).fingerprint() == pair.fingerprint()
    assert TokenizerPair(pair.target, pair.source).fingerprint() != pair.fingerprint()


def test_prepared_data_is_in_the_pieces_of_its_side(tmp_path):
    data = module(tmp_path, tokenizer=built("tokenizer/separate", vocab_size=300, target_vocab_size=310))
    data.prepare_data()
    for batch in stream(data, 3):
        rows = data.data["train"][batch.rows]
        assert data.tokenizer.source.decode(batch.source.tolist()) == rows["source"]
        assert data.tokenizer.target.decode(batch.target_out.tolist()) == rows["target"]


def test_only_the_targets_embeddings_are_tied_to_the_output():
    model = built("model/nano", vocab_size=40, d_model=8, num_heads=2, d_feed_forward=8, source_vocab_size=30)
    assert model.source_embedding.weight.shape == (30, 8)
    assert model.output.weight is model.target_embedding.weight
    assert model.output.weight.shape == (40, 8)
    joint = built("model/nano", vocab_size=40, d_model=8, num_heads=2, d_feed_forward=8)
    assert joint.output.weight is joint.source_embedding.weight is joint.target_embedding.weight
    source = torch.full((2, 3), 29)
    assert model(source, torch.ones(2, 3, dtype=torch.bool), torch.full((2, 4), 39)).shape == (2, 4, 8)


@pytest.mark.medium
def test_a_run_with_two_vocabularies(tiny, tmp_path):
    options = (*tiny, "tokenizer.kind=separate", "tokenizer.target_vocab_size=300", "segmentation.kind=bpe_dropout")
    completed("train", *options, "hydra.run.dir=run", cwd=tmp_path)
    assert "320 and 300 subwords" in (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "source.model").exists()
    assert not (tmp_path / "run" / "tokenizer.model").exists()
    assert len(headcount.load(tmp_path / "run").translate(["the dog", ""])) == 2
    completed("evaluate", "run=run", cwd=tmp_path)
