import random
import sys

import pytest
from built import sentence_piece

from headcount.data.subword_regularization import BpeDropout, SampledSegmentation, sample_pieces
from headcount.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, normalise
from headcount.errors import InputError

COLOURS = ("red", "blue", "yellow", "purple", "orange")
ANIMALS = ("dog", "cat", "horse", "elephant", "butterfly")
VERBS = ("sees", "follows", "remembers", "questions")
TEXT = [f"the {c} {a} {v} {n} Bäume" for c in COLOURS for a in ANIMALS for v in VERBS for n in range(5)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model_type(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(model_type):
    return sentence_piece(300, model_type).train(TEXT)


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("", ""),
        (" \t\u00a0\u3000\u2028 ", ""),
        ("a\u0308  b\r\n", "ä b"),
        ("\u2581a\u2581\u2581b", "a b"),
        ("\ud800 \U0001f600", "\ufffd \U0001f600"),
        ("ﬁ ½ ①", "ﬁ ½ ①"),  # NFC, not NFKC: nothing is replaced by its like
    ],
)
def test_normalise(raw, normal):
    assert normalise(raw) == normal
    assert normalise(normal) == normal


def test_any_text_comes_back(tokenizer):
    draw = random.Random(0)
    texts = ["".join(chr(draw.randrange(sys.maxunicode + 1)) for _ in range(draw.randrange(40))) for _ in range(300)]
    texts += ["".join(chr(draw.randrange(256)) for _ in range(30)) for _ in range(100)]
    texts += ["", "a\x00b", "<s> </s> <unk> <pad> <0x41>", "\u2581\u2581", "👩‍👩‍👧 ß ẞ", "\ufeff x", *TEXT]
    ids = tokenizer.encode(texts)
    assert not {PAD, UNK, BOS, EOS} & {piece for sentence in ids for piece in sentence}
    assert max(piece for sentence in ids for piece in sentence) < tokenizer.vocab_size
    assert tokenizer.decode(ids) == [normalise(text) for text in texts]


def test_decode_stops_at_the_end_and_skips_special_pieces(tokenizer):
    (ids,) = tokenizer.encode(["the red dog"])
    decoded = tokenizer.decode([[BOS, *ids, EOS, *ids], [PAD, *ids, UNK, PAD], [], [EOS, 5]])
    assert decoded == ["the red dog", "the red dog", "", ""]


def test_training_twice_gives_the_same_bytes(tokenizer, model_type, tmp_path):
    tokenizer.save(tmp_path / "first")
    sentence_piece(300, model_type).train(iter(TEXT)).save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


def test_files_that_are_no_tokenizer(tmp_path):
    with pytest.raises(InputError, match=r"nothing.model: cannot be read"):
        Tokenizer.load(tmp_path / "nothing.model")
    for content in (b"", b"no model"):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.model: not a sentencepiece model"):
            Tokenizer.load(tmp_path / "bad.model")


def test_vocabulary_too_large_names_the_largest_that_works(model_type):
    with pytest.raises(InputError, match=r"tokenizer\.vocab_size=9000 .* the largest that works is \d+:") as error:
        sentence_piece(9000, model_type).train(TEXT)
    assert "\n" not in str(error.value)
    largest = int(str(error.value).split("largest that works is ")[1].split(":")[0])
    assert sentence_piece(largest, model_type).train(TEXT).vocab_size == largest
    with pytest.raises(InputError, match=f"is {largest}:"):
        sentence_piece(largest + 1, model_type).train(TEXT)


def test_vocabulary_too_small_for_the_characters(model_type):
    with pytest.raises(InputError, match=r"cannot train with tokenizer\.vocab_size=270: .*required_chars"):
        sentence_piece(270, model_type).train(TEXT)


@pytest.mark.parametrize(("letters", "space"), [("abcde", " "), ("abcde", ""), ("大象睡觉吗", "")])
def test_lines_of_any_length_are_learned_from(letters, space, model_type):
    draw = random.Random(1)
    words = ["".join(draw.choices(letters, k=4)) for _ in range(20)]
    long = [space.join(draw.choices(words, k=2000)) for _ in range(2)]
    tokenizer = sentence_piece(280, model_type).train(long)
    assert len(tokenizer.encode(long)[0]) < 0.7 * len(long[0])


def test_decoded_text_is_one_line(tokenizer):
    byte = {number: tokenizer._processor.piece_to_id(f"<0x{number:02X}>") for number in (0x41, 0x0A, 0x0D, 0x85, 0xC2)}
    spelled = [byte[number] for number in (0x41, 0x0A, 0x41, 0x0D, 0x41, 0xC2, 0x85, 0x41)]
    assert tokenizer.decode([spelled, [byte[0x0A]]]) == ["A A A A", ""]


SEGMENTATIONS = {
    "bpe": BpeDropout(probability=0.3, start_epoch=0),
    "unigram": SampledSegmentation(alpha=0.2, candidates=16, start_epoch=0),
}


def test_sampled_pieces_say_the_same_text_and_are_a_function_of_the_seed(tokenizer, model_type):
    segmentation = SEGMENTATIONS[model_type]
    cuts = [sample_pieces(tokenizer, TEXT, segmentation, (1, epoch)) for epoch in range(5)]
    for cut in cuts:
        assert tokenizer.decode(cut) == TEXT
    assert len({str(cut) for cut in cuts}) == len(cuts)
    assert sample_pieces(tokenizer, TEXT, segmentation, (1, 2)) == cuts[2]  # whatever was drawn before


def test_bpe_dropout_leaves_merges_out_as_often_as_asked():
    # Three letters and one merge, of two of them.
    tokenizer = sentence_piece(264, "bpe").train(["ab ab ab ab"])
    (whole,) = tokenizer.encode(["ab"])
    cuts = sample_pieces(tokenizer, ["ab"] * 4000, SEGMENTATIONS["bpe"], (1,))
    assert sum(len(cut) == len(whole) for cut in cuts) / 4000 == pytest.approx(1 - 0.3, abs=0.03)
