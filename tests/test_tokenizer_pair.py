"""A vocabulary for each language."""

import pytest
from built import built, sentence_piece
from test_module import Toy

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


def test_only_the_targets_embeddings_are_tied_to_the_output():
    sizes = {"vocab_size": 40, "d_model": 8, "num_heads": 2, "d_feed_forward": 8}
    model, joint = built("model/nano", source_vocab_size=30, **sizes), built("model/nano", **sizes)
    assert model.source_embedding.weight.shape == (30, 8)
    assert model.output.weight is model.target_embedding.weight
    assert joint.output.weight is joint.source_embedding.weight is joint.target_embedding.weight
