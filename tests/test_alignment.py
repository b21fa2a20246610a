"""Word alignment of translations: by the attention of one head, or of the last layer, between the words of both."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from clauses import CLAUSES
from conftest import completed

from headcount.commands.translate import aligner
from headcount.errors import InputError
from headcount.heads.attention import attention_arrays
from headcount.heads.effects import write_parts
from headcount.run.opened import open_run, weights_digest

PAIRS = [("the dog sees the cat", "der Hund sieht den Kater"), ("the dog", "den Hund"), *CLAUSES[::9]]
SIDES = tuple(zip(*PAIRS, strict=True))


@pytest.fixture
def run(home):
    return open_run(home / "runs" / "first", device="cpu")


def expected_links(run, source: str, target: str, heads: slice):
    """Word by word, from the map of one sentence: the pieces of each word are found by spelling it."""
    arrays = attention_arrays(run, [source], [target])
    weights = arrays["cross_1"][0, heads].mean(axis=0)

    def places(tokens, text):
        words = text.split()
        whole = "".join(f"▁{word}" for word in words)
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        found, at = [], 0
        for token in tokens:
            found.append(int(np.searchsorted(starts, at, side="right")) - 1)
            assert whole[at : at + len(token)] == token
            at += len(token)
        return found

    of_source, of_target = (
        places(arrays["source_pieces"][0, :-1], source),
        places(arrays["target_pieces"][0, 1:], target),
    )
    links = []
    for word in range(len(target.split())):
        sums = np.zeros(len(source.split()))
        for row in [row for row, each in enumerate(of_target) if each == word]:
            for column, each in enumerate(of_source):
                sums[each] += float(weights[row, column])
        links.append((int(sums.argmax()), word))
    return links


def with_gold(run, folder, right, **other):
    shutil.copytree(run.directory, folder)
    (folder / "heads").mkdir()
    arrays = np.array(right, dtype=np.int16).reshape(1, 1, -1, 1)
    names = {"view": ["weight"], "when": ["before"], "head": ["cross1.1", "cross1.2"], "valid.right": arrays}
    names |= {"weights": weights_digest(run.model, torch.bfloat16)}
    write_parts(
        folder / "heads" / "effects.nc", {"gold": {name: np.asarray(each) for name, each in (names | other).items()}}
    )


@pytest.mark.medium
def test_each_target_word_is_linked_to_the_word_with_most_attention(run, monkeypatch):
    expected = [expected_links(run, *pair, slice(None)) for pair in PAIRS]
    assert aligner(run)(*SIDES) == expected
    monkeypatch.setattr("headcount.commands.translate.MOST_WEIGHTS", 1)  # long sentences: few at a time
    assert aligner(run)(*SIDES) == expected
    (whole,) = aligner(run)(["the 小狗 dog"], ["Hund 狗 x"])
    assert [target for _, target in whole] == [0, 1, 2]
    assert aligner(run)(["", "dog"], ["Hund", ""]) == [[], []]


@pytest.mark.medium
@pytest.mark.parametrize(("right", "head"), [([9, 1], 0), ([1, 9], 1)])
def test_the_head_that_aligns_best_is_asked_where_these_weights_were_measured(right, head, run, tmp_path, caplog):
    with_gold(run, tmp_path / "run", right)
    measured = open_run(tmp_path / "run", device="cpu")
    assert aligner(measured)(*SIDES) == [expected_links(run, *pair, slice(head, head + 1)) for pair in PAIRS]
    half = open_run(tmp_path / "run", device="cpu", precision="bfloat16")
    assert aligner(half).args[2] == slice(head, head + 1)
    with_gold(run, tmp_path / "old", right, weights="")
    assert aligner(open_run(tmp_path / "old", device="cpu"))(*SIDES) == aligner(run)(*SIDES)
    assert "is of other weights; heads parts=[gold] measures which head aligns best" in caplog.text


def test_a_last_layer_without_cross_heads_leaves_alignment_to_the_one_before(run):
    """As if the layer with no heads were not there."""
    torch.manual_seed(1)
    sizes = ONE_LAYER | {"decoder_layers": 2, "head_size": 8, "vocab_size": run.tokenizer.vocab_size}
    model = built("model/nano", **sizes, cross_heads=[2, 0]).eval()
    found = aligner(replace(run, model=model))(*SIDES)
    del model.decoder[1]
    assert found == aligner(replace(run, model=model))(*SIDES)
    assert {source for links in found for source, _ in links} != {0}
    rnn = built("model/rnn", vocab_size=run.tokenizer.vocab_size, d_model=16)
    for without in (built("model/nano", **sizes, cross_heads=0), rnn):
        with pytest.raises(InputError, match="has no attention to the source, so its words cannot be aligned"):
            aligner(replace(run, model=without))


SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


def translated(home, *settings):
    return completed("translate", "run=runs/first", *settings, stdin=SOURCE.encode(), cwd=home).out.splitlines()


@pytest.mark.medium
def test_translate_writes_alignments_behind_translations(home, run):
    plain = translated(home)
    found = aligner(run)(SOURCE.split("\n")[:-1], plain)
    links = [" ".join(f"{source}-{target}" for source, target in each) for each in found]
    assert links[1] == ""
    assert translated(home, "alignments=true") == [f"{a} ||| {b}" for a, b in zip(plain, links, strict=True)]
    nbest, aligned = translated(home, "nbest=2"), translated(home, "nbest=2", "alignments=true")
    assert [line.rsplit(" ||| ", 1)[0] for line in aligned] == nbest
