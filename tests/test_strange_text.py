"""Text of real people: packed, in other encodings, with marks, without spaces, or with nothing that can be seen."""

import bz2
import gzip
import lzma
import unicodedata

import pyarrow as pa
import pytest
from conftest import completed, failed

from headcount.data.cleaning import Cleaning, Text
from headcount.data.corpora.text import read_lines
from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.evaluation import metrics

TEXT = 40 * "the dog sees the cat\n"
PACKED = [
    lzma.compress(TEXT.encode()),
    bz2.compress(TEXT.encode()),
    gzip.compress(gzip.compress(TEXT.encode(), mtime=0), mtime=0),
]


@pytest.mark.parametrize("content", PACKED, ids=["xz", "bz2", "gzip twice"])
def test_packed_text_is_named_as_that(tmp_path, content):
    (tmp_path / "t.en").write_bytes(content)
    with pytest.raises(InputError, match=r"^[^\n]*t.en, line 1: not valid UTF-8; unpack a packed file"):
        read_lines(tmp_path / "t.en")


ENCODED = {  # encoding, and a text that its beginning or its first odd line betrays
    "utf-16": "dog\ncat\n",
    "utf-16-le": "собака видит\nкот и пёс\n",
    "utf-32-be": "one line",
    "latin-1": "the dog\nder B\u00e4r\n",
    "gb18030": "dog\n小狗看见\n",
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_another_encoding_is_one_line_with_the_file_and_the_line(tmp_path, encoding):
    content = ENCODED[encoding].encode(encoding)
    what = f"line {1 if encoding.startswith('utf') else 2}: not valid UTF-8; .*"
    for packed in (content, gzip.compress(content)):
        (tmp_path / "t.en").write_bytes(packed)
        with pytest.raises(InputError, match=rf"t\.en, {what}iconv -f [A-Z0-9-]+ -t UTF-8$"):
            read_lines(tmp_path / "t.en")


INVISIBLE = ["\u200b", "\u200e\u200f", "\u00ad", "\ufeff", "\u2060 \u200b", "\ufe0f", "\u3164", "\x1c\u200b"]
SEEN = ["a\u200db", "नमस्\u200dते", "می\u200cخواهم", "👩\u200d💻\ufe0f", "\u200ba", "co\u00adop"]


def test_text_that_cannot_be_seen_is_empty_and_within_a_line_it_stays():
    assert [normalise(text) for text in INVISIBLE] == [""] * len(INVISIBLE)
    assert [normalise(text) for text in SEEN] == [unicodedata.normalize("NFC", text) for text in SEEN]
    cleaning = Cleaning(enabled=True, max_words=None, max_ratio=None, drop_duplicates=False, drop_leaks=False)
    pairs = Text(pa.array(INVISIBLE + SEEN), pa.array(["b"] * (len(INVISIBLE) + len(SEEN))))
    assert cleaning.check(pairs, None).reasons[:, 0].tolist() == [True] * len(INVISIBLE) + [False] * len(SEEN)


REFERENCES = {  # text, and whether BLEU by 13a takes its sentences for words
    "Chinese": ("老医生在花园里睡觉。|女孩读一本书。|没有可用的文件", True),
    "Chinese with spaces": ("老 医生 在 花园 里 睡觉 。|女孩 读 一 本 书 。|没有 可用 的 文件", False),
    "Thai": ("ฉันรักเธอมาก|แมวกินปลาในบ้านใหญ่ แม่อ่านหนังสือ", True),
    "German": ("Donaudampfschifffahrtsgesellschaft, sagte der Rechtsanwalt.|Rindfleischverordnung", False),
}


def test_the_text_says_whether_bleu_finds_words():
    for name, (text, without_spaces) in REFERENCES.items():
        assert metrics.counts_sentences("13a", text.split("|")) is without_spaces, name
        assert not metrics.counts_sentences("char", text.split("|"))


@pytest.mark.medium
def test_lines_that_cannot_be_seen_are_translated_as_empty_ones_and_what_is_no_text_is_not(home):
    lines = "\n".join([*INVISIBLE, "the dog sees the cat"]).encode()
    *empty, seen, _ = completed("translate", "run=runs/first", stdin=lines, cwd=home).out.split("\n")
    assert empty == [""] * len(INVISIBLE)
    assert seen
    for content in (PACKED[0], "a\nb".encode("utf-16-le")):
        (line,) = failed("translate", "run=runs/first", stdin=content, cwd=home)
        assert line.startswith("standard input, line 1: not valid UTF-8; ")
