"""Word alignment of translations: by the attention of one head, or of the last layer, between the words of both."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built
from clauses import CLAUSES
from conftest import command, completed, refused

from headcount.errors import InputError
from headcount.report.attention_maps import attention_maps
from headcount.run.alignment import aligner, alignment_head, pharaoh
from headcount.run.arrays import write_arrays
from headcount.run.opened import open_run, weights_digest

PAIRS = [("the dog sees the cat", "der Hund sieht den Kater"), ("the dog", "den Hund"), *CLAUSES[::9]]


def align(run, sources, targets):
    return aligner(run)(sources, targets)


@pytest.fixture
def run(home):
    return open_run(home / "runs" / "first", device="cpu")


def expected_links(run, source: str, target: str, heads: slice):
    """Word by word, from the map of one sentence: the pieces of each word are found by spelling it."""
    (layer,) = [each for each in attention_maps(run, source, target).layers if each.kind == "cross"]
    weights = layer.weights[heads].mean(dim=0)

    def places(tokens, text):
        words = text.split()
        whole = "".join(f"▁{word}" for word in words)
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        found, at = [], 0
        for token in tokens:
            found.append(int(np.searchsorted(starts, at, side="right")) - 1)
            size = len(token)
            assert whole[at : at + size] == token
            at += size
        return found

    of_source, of_target = places(layer.keys[:-1], source), places(layer.queries[1:], target)
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
    names = {"view": ["weight"], "when": ["before"], "head": ["cross1.1", "cross1.2"]}
    names |= {"valid.right": arrays, "valid.targets": [10], "weights": weights_digest(run.model, torch.bfloat16)}
    write_arrays(folder / "heads" / "gold.npz", names | other)
    return open_run(folder, device="cpu")


def test_each_target_word_is_linked_to_the_word_with_most_attention(run):
    found = align(run, *zip(*PAIRS, strict=True))
    assert found == [expected_links(run, *pair, slice(None)) for pair in PAIRS]


@pytest.mark.medium
@pytest.mark.parametrize(("right", "head"), [([9, 1], 0), ([1, 9], 1)])
def test_the_head_that_aligns_best_is_asked(right, head, run, tmp_path):
    run = with_gold(run, tmp_path / "run", right)
    found = align(run, *zip(*PAIRS, strict=True))
    assert found == [expected_links(run, *pair, slice(head, head + 1)) for pair in PAIRS]


@pytest.mark.medium
def test_a_head_measured_with_the_weights_is_known_in_either_precision(run, tmp_path):
    with_gold(run, tmp_path / "run", [9, 1])
    opened = open_run(tmp_path / "run", device="cpu", precision="bfloat16")
    assert str(alignment_head(opened)) == "cross1.1"


@pytest.mark.medium
def test_a_head_measured_with_other_weights_is_not_asked(run, tmp_path, caplog):
    measured = with_gold(run, tmp_path / "run", [9, 1])
    with torch.no_grad():
        measured.model.output.weight[0, 0] += 1
    old = with_gold(run, tmp_path / "old", [9, 1], weights="")
    for each in (measured, old):
        caplog.clear()
        assert alignment_head(each) is None
        assert "has other weights or an older form; heads parts=[gold] measures it again" in caplog.text


def model_of(run, cross_heads):
    sizes = ONE_LAYER | {"decoder_layers": 2, "head_size": 8, "cross_heads": cross_heads}
    return built("model/nano", vocab_size=run.tokenizer.vocab_size, **sizes)


def test_a_last_layer_without_cross_heads_leaves_alignment_to_the_one_before(run):
    """As if the layer with no heads were not there."""
    torch.manual_seed(1)
    model = model_of(run, [2, 0]).eval()
    found = align(replace(run, model=model), *zip(*PAIRS, strict=True))
    del model.decoder[1]
    assert found == align(replace(run, model=model), *zip(*PAIRS, strict=True))
    assert {source for links in found for source, _ in links} != {0}


def test_a_model_whose_layers_have_no_cross_heads_has_no_alignment(run):
    model = model_of(run, 0)
    with pytest.raises(InputError, match="has no attention to the source"):
        align(replace(run, model=model), [], [])


def test_words_are_those_between_spaces_and_an_empty_side_has_no_links(run):
    (whole,) = align(run, ["the 小狗 dog"], ["Hund 狗 x"])
    assert [target for _, target in whole] == [0, 1, 2]
    assert all(0 <= source < 3 for source, _ in whole)
    assert align(run, ["", "dog"], ["Hund", ""]) == [[], []]
    assert pharaoh([(0, 0), (2, 1)]) == "0-0 2-1"


@pytest.mark.medium
def test_a_model_without_attention_to_the_source_has_no_alignment(run):
    model = built("model/rnn", vocab_size=run.tokenizer.vocab_size, d_model=ONE_LAYER["d_model"])
    with pytest.raises(InputError, match="has no attention to the source, so its words cannot be aligned"):
        align(replace(run, model=model), [], [])


SOURCE = "the dog sees the cat\n\nthe bear likes the wolf\n"


def translated(home, *settings):
    return completed("translate", "run=runs/first", *settings, stdin=SOURCE.encode(), cwd=home).out.splitlines()


@pytest.mark.medium
def test_translate_writes_alignments_behind_translations_or_into_a_file(home, run, tmp_path):
    plain = translated(home)
    links = [pharaoh(each) for each in align(run, SOURCE.split("\n")[:-1], plain)]
    assert links[1] == ""
    assert translated(home, "alignments=true") == [f"{a} ||| {b}" for a, b in zip(plain, links, strict=True)]
    assert translated(home, f"alignments={tmp_path / 'links'}") == plain
    assert (tmp_path / "links").read_text().split("\n") == [*links, ""]


@pytest.mark.medium
def test_alignments_of_an_nbest_list_are_its_last_column(home):
    plain, aligned = translated(home, "nbest=2"), translated(home, "nbest=2", "alignments=true")
    assert [line.rsplit(" ||| ", 1)[0] for line in aligned] == plain
    for line in aligned:
        _, text, _, links = line.split(" ||| ")
        assert [int(link.split("-")[1]) for link in links.split()] == list(range(len(text.split())))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("alignments=5", "alignments=5: must be true, false or a file"),
        ("alignments=nowhere/file", "alignments=nowhere/file: can't be written to (No such file or directory); name"),
    ],
)
def test_wrong_alignments(setting, line, home):
    (found,) = refused("translate", "run=runs/first", setting, stdin=SOURCE.encode(), cwd=home)
    assert found.startswith(line)


@pytest.mark.medium
def test_alignments_at_a_prompt_are_refused_and_leave_the_file_alone(home, tmp_path, monkeypatch):
    (tmp_path / "links").write_text("0-0\n", encoding="utf-8")
    monkeypatch.setattr(io, "TextIOWrapper", type("Prompt", (io.TextIOWrapper,), {"isatty": lambda self: True}))
    (line,) = refused("translate", "run=runs/first", f"alignments={tmp_path / 'links'}", stdin=b"", cwd=home)
    assert line == f"alignments={tmp_path / 'links'}: not at a prompt; give the lines with < FILE"
    assert (tmp_path / "links").read_text() == "0-0\n"


@pytest.mark.medium
def test_lines_before_a_wrong_one_are_aligned(home):
    bad = command(
        "translate", "run=runs/first", "alignments=true", stdin=b"the dog sees the cat\n\xff\nthe cat\n", cwd=home
    )
    assert bad.code == 2
    assert len(bad.out.splitlines()) == 1


def test_long_sentences_are_aligned_few_at_a_time(run, monkeypatch):
    expected = align(run, *zip(*PAIRS, strict=True))
    monkeypatch.setattr("headcount.run.alignment.MOST_WEIGHTS", 1)
    assert align(run, *zip(*PAIRS, strict=True)) == expected
