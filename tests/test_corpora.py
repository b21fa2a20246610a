import gzip
import lzma

import pytest
from built import files, hub

from headcount.data.corpora.text import read_lines, read_pairs
from headcount.errors import InputError

SPLITS = {"train": 3, "valid": 2, "test": 1}


@pytest.fixture
def folder(tmp_path):
    for split, count in SPLITS.items():
        (tmp_path / f"{split}.en").write_text("".join(f"{split} {i}\n" for i in range(count)), encoding="utf-8")
        packed = gzip.compress("".join(f"{split} {i} für\n" for i in range(count)).encode(), mtime=0)
        (tmp_path / f"{split}.de.gz").write_bytes(packed)
    return tmp_path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"\n\n", ["", ""]),
        ("one\u2028line\x0b\x0c\x85still\n".encode(), ["one\u2028line\x0b\x0c\x85still"]),
        (b"\xef\xbb\xbfmark\n\xef\xbb\xbf", ["mark"]),
        (gzip.compress("für\nzwei\n".encode(), mtime=0), ["für", "zwei"]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path, content, lines):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert read_lines(path) == lines


TEXT = 40 * b"the dog sees the cat\n"
NO_TEXT = {  # and the first line that betrays it
    "broken": (b"good\nbad \xff\n", 2),
    "xz": (lzma.compress(TEXT), 1),
    "utf-16": ("dog\ncat\n".encode("utf-16"), 1),
    "utf-16 without a mark": ("a\nb".encode("utf-16-le"), 1),
    "latin-1": ("the dog\nder B\u00e4r\n".encode("latin-1"), 2),
}


@pytest.mark.parametrize("kind", NO_TEXT)
def test_what_is_no_utf_8_is_one_line_with_the_file_and_the_line(tmp_path, kind):
    content, line = NO_TEXT[kind]
    for packed in (content, gzip.compress(content)):
        (tmp_path / "t.en").write_bytes(packed)
        message = rf"^[^\n]*t\.en, line {line}: not valid UTF-8; unpack a packed file, .*iconv -f UTF-16 -t UTF-8$"
        with pytest.raises(InputError, match=message):
            read_lines(tmp_path / "t.en")


PACKED = gzip.compress(TEXT, mtime=0)


@pytest.mark.parametrize("content", [PACKED[:-9], PACKED[:10] + 20 * b"\xff", b"\x1f\x8bnot gzip at all"])
def test_a_damaged_file_is_one_line(tmp_path, content):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(InputError, match=r"^[^\n]*text: cannot be read [^\n]*$"):
        read_lines(tmp_path / "text")


def test_missing_file_and_folder_instead_of_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: there is no such file"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"cannot be read"):
        read_lines(tmp_path)


def test_unequal_line_counts_name_both_files_and_counts(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(InputError, match=r"/a has 3 lines and .*/b has 2;"):
        read_pairs(tmp_path / "a", tmp_path / "b")


def test_folder_with_plain_and_packed_files(folder):
    data = hub("anything", "en", "de", root=folder).load()
    assert {split: len(pairs) for split, pairs in data.items()} == SPLITS
    assert data["valid"].to_list()[1] == {"source": "valid 1", "target": "valid 1 für"}
    turned = hub("anything", "de", "en", root=folder)
    assert (turned.source_language, turned.target_language) == ("de", "en")
    assert turned.load()["valid"].to_list()[1] == {"source": "valid 1 für", "target": "valid 1"}


def test_folder_that_lacks_a_file(folder):
    with pytest.raises(InputError, match=r"has no train\.cs or train\.cs\.gz; give train\.en, train\.cs, "):
        hub("anything", "en", "cs", root=folder).load()
    with pytest.raises(InputError, match=r"data.root=.*nowhere has no train\.en or train\.en\.gz; give train\.en, "):
        hub("anything", "en", "de", root=folder / "nowhere").load()


def test_folder_with_further_test_sets_and_a_split_held_out(folder):
    (folder / "valid.en").unlink()
    for language in ("en", "de"):
        (folder / f"test_2017_flickr.{language}").write_text(f"2017 {language}\n", encoding="utf-8")
        (folder / f"own.{language}").write_text(f"own {language}\n", encoding="utf-8")
    own = [str(folder / "own.en"), str(folder / "own.de")]
    settings = {"held_out": {"valid": 1}, "tests": {"test2017": "test_2017_flickr", "mine": own}}
    corpus = hub("anything", "en", "de", root=folder, **settings)
    data = corpus.load()
    assert set(data) == {"train", "valid", "test", "test2017", "mine"}
    assert data["test2017"].to_list() == [{"source": "2017 en", "target": "2017 de"}]
    assert data["mine"].to_list() == [{"source": "own en", "target": "own de"}]
    assert sorted(pair["source"] for split in ("train", "valid") for pair in data[split]) == [
        f"train {row}" for row in range(3)
    ]
    before = corpus.fingerprint()
    (folder / "own.de").write_text("other\n", encoding="utf-8")
    assert corpus.fingerprint() != before


def test_own_files(folder):
    paths = {split: [str(folder / f"{split}.en"), str(folder / f"{split}.de.gz")] for split in SPLITS}
    corpus = files("en", "de", **paths)
    train = corpus.load()["train"]
    assert train.to_list()[2] == {"source": "train 2", "target": "train 2 für"}
    assert corpus.fingerprint() == hub("anything", "en", "de", root=folder).fingerprint()
    with pytest.raises(ValueError, match=r"data.test: give the text of the test split in one way"):
        files("en", "de", **{**paths, "test": None})
