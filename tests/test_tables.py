"""Tables with one sentence pair a row, in every format."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from built import files
from conftest import pairs_of

from headcount.data.corpora.tables import TableFile
from headcount.errors import InputError

ONE_LINE = str.maketrans("\u2028\x85", "  ")
PAIRS = [("one", "eins"), ('he said "yes", twice', "er sagte „ja“"), ("", "für\u2028alle"), ("two\x85", "zwei")]
EXPECTED = [{"source": source.translate(ONE_LINE), "target": target.translate(ONE_LINE)} for source, target in PAIRS]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def write(path, pairs=PAIRS):
    """A table of three columns, in the format that its name says."""
    rows = [{"id": str(row), "en": en, "de": de} for row, (en, de) in enumerate(pairs)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
        return path
    text = {
        ".tsv": lambda: [f"{i}\t{en}\t{de}" for i, en, de in [("id", "en", "de"), *(r.values() for r in rows)]],
        ".csv": lambda: ["id,en,de", *(f"{r['id']},{quoted(r['en'])},{quoted(r['de'])}" for r in rows)],
        ".jsonl": lambda: [json.dumps(r, ensure_ascii=r["id"] == "1") for r in rows],
    }
    lines = text[path.with_name(path.name.removesuffix(".gz")).suffix]()
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["t.tsv", "t.tsv.gz", "t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet"])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_every_format_gives_the_same_pairs(tmp_path, name, at_once):
    pairs = TableFile(write(tmp_path / name), "en", "de").pairs()
    assert pairs.num_rows == len(PAIRS)
    assert pairs_of(pairs, at_once) == pairs_of(pairs, at_once) == EXPECTED
    assert all(table.num_rows <= at_once for table in pairs.iter(at_once))


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("t.tsv", 'a "b\tc\n\nd\t"\n', (1, 2), [('a "b', "c"), ("d", '"')]),
        ("t.tsv", "x\ta\r\ny\tb", (2, 1), [("a", "x"), ("b", "y")]),
        ("t.csv", '"a\nb","c,d"\n\ne,f\n', (1, 2), [("a b", "c,d"), ("e", "f")]),
        ("t.csv", "\ufeffen,de\na,b\n", ("en", "de"), [("a", "b")]),
        ("t.jsonl", '{"en": "a\\nb", "de": null}\n\n', ("en", "de"), [("a b", "")]),
        ("t.jsonl", '{"translation": {"en": "a", "de": "2020-01-01"}}', ("en", "de"), [("a", "2020-01-01")]),
        ("t.jsonl", '{"en": "\\ud83d\\ude00", "de": "b"}', ("en", "de"), [("😀", "b")]),
    ],
)
def test_peculiarities_of_each_format(tmp_path, name, content, columns, expected):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    pairs = TableFile(tmp_path / name, *columns).pairs()
    assert [tuple(pair.values()) for pair in pairs_of(pairs)] == expected


def test_nested_and_other_columns_of_parquet(tmp_path):
    records = [{"en": "a\nb", "de": None}, {"en": "c", "de": "d"}]
    columns = {"translation": records, "number": [1, 2], "de": pa.array(["x", "y"]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    pairs = pairs_of(TableFile(tmp_path / "t.parquet", "en", "de").pairs())
    assert pairs == [{"source": "a b", "target": "x"}, {"source": "c", "target": "y"}]
    with pytest.raises(InputError, match="column number holds int64 and no text"):
        TableFile(tmp_path / "t.parquet", "en", "number").pairs()


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("t.tsv", b"en\tde\na\tb\na\n", ("en", "de"), r"t.tsv, line 3: 1 columns, where line 1 has 2"),
        ("t.tsv", b"a\tb\na\tb\tc\n", (1, 2), r"t.tsv, line 2: 3 columns, where line 1 has 2"),
        ("t.tsv", b"en\tfr\na\tb\n", ("en", "de"), r"t.tsv has no column de; line 1 names en, fr: set data.source_col"),
        ("t.tsv", b"a\tb\n", (1, 3), r"t.tsv has no column 3; line 1 has 2"),
        ("t.tsv", b"en\tde\na\t\xff\n", ("en", "de"), r"t.tsv, line 2: not valid UTF-8"),
        ("t.csv", b'en,de\n"a\nb",c\nd,"e"f\n', ("en", "de"), r"t.csv, line 4: not valid CSV"),
        ("t.csv", b'en,de\na,b\nc,"d\ne,f\n', ("en", "de"), r"t.csv, line 3: not valid CSV \(unexpected end"),
        ("t.csv", b'en,de\n"a\nb",c\nd\n', ("en", "de"), r"t.csv, line 4: 1 columns, where line 1 has 2"),
        ("t.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a"\n', ("en", "de"), r"t.jsonl, line 2: not valid JSON"),
        ("t.jsonl", b'\n["a", "b"]\n', ("en", "de"), r"t.jsonl, line 2: not a JSON object"),
        ("t.jsonl", b'{"en": "a", "fr": "b"}\n', ("en", "de"), r"t.jsonl, line 1: no field de; it has en, fr"),
        ("t.jsonl", b'{"en": "a", "de": 5}\n', ("en", "de"), r"t.jsonl, line 1: the field de must be text, but is 5"),
        ("t.jsonl", b'{"en": "a", "de": "\\ud83d"}\n', ("en", "de"), r"t.jsonl, line 1: half a surrogate pair"),
        ("t.parquet", b"PAR1 or not", ("en", "de"), r"t.parquet: cannot be read"),
        ("u.tsv", b"", ("en", "de"), r"t.tsv: there is no such file"),
        ("u.parquet", b"", ("en", "de"), r"t.parquet: there is no such file"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, name, content, columns, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        TableFile(tmp_path / f"t{name[1:]}", *columns).pairs()
    assert "\n" not in str(error.value)


def test_damaged_parquet_says_how_far_it_could_be_read(tmp_path):
    path = tmp_path / "t.parquet"
    pairs = [(f"source {row} {row * 7919}", f"target {row} {row * 104729}") for row in range(5000)]
    texts = {"en": [en for en, _ in pairs], "de": [de for _, de in pairs]}
    pq.write_table(pa.table(texts), path, row_group_size=1000, compression="zstd")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = b"x" * 2000
    path.write_bytes(content)
    pairs = TableFile(path, "en", "de").pairs()
    with pytest.raises(InputError, match=r"t.parquet: cannot be read after row \d+"):
        pairs_of(pairs, 500)


def corpus(folder, **settings):
    return files("en", "de", **{"train": folder / "train.tsv", "valid": folder / "valid.jsonl", **settings})


def test_a_split_may_be_a_table_or_two_files(tmp_path):
    for name in ("train.tsv", "valid.jsonl", "other.parquet"):
        write(tmp_path / name)
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("eins\n")
    tests = {"test2017": {"source": tmp_path / "a", "target": tmp_path / "b"}, "other": tmp_path / "other.parquet"}
    whole = corpus(tmp_path, test_source=tmp_path / "a", test_target=tmp_path / "b", tests=tests)
    splits = whole.load()
    assert list(splits) == ["train", "valid", "test", "test2017", "other"]
    assert pairs_of(splits["train"]) == pairs_of(splits["valid"]) == pairs_of(splits["other"]) == EXPECTED
    assert pairs_of(splits["test"]) == pairs_of(splits["test2017"]) == EXPECTED[:1]
    short = corpus(tmp_path, test=tmp_path / "other.parquet", max_pairs=3).load()["train"]
    assert pairs_of(short, 2) == pairs_of(short, 10) == EXPECTED[:3]
    assert short.num_rows == 3


def test_every_setting_that_changes_the_text_changes_the_fingerprint(tmp_path):
    for name in ("train.tsv", "valid.jsonl", "other.parquet"):
        write(tmp_path / name)
    test = tmp_path / "other.parquet"
    corpora = [
        corpus(tmp_path, test=test),
        corpus(tmp_path, test=test, source_column="de", target_column="en"),
        corpus(tmp_path, test=test, max_pairs=2),
        corpus(tmp_path, test=test, tests={"more": test}),
        corpus(tmp_path, test=test, tests={"even_more": test}),
        corpus(tmp_path, held_out={"test": 1}),
        corpus(tmp_path, held_out={"test": 2}),
        corpus(tmp_path, held_out={"test": 1, "seed": 2}),
    ]
    assert len({corpus.fingerprint() for corpus in corpora}) == len(corpora)
    assert corpus(tmp_path, test=test, held_out={"test": None, "seed": 2}).fingerprint() == corpora[0].fingerprint()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test": "t.txt"}, r"data.test=t.txt: a file with both sides must end in .tsv, "),
        ({}, r"^data.test_source, data.test_target: not given; "),
        ({"test": "t.tsv", "train_source": "x"}, r"data.train and data.train_source: both give the text"),
        ({"test": "t.tsv", "held_out": {"test": 5}}, r"data.test and data.held_out.test: both give the text"),
        ({"test": "t.tsv", "source_column": 1}, r"data.source_column=1 and data.target_column=de do not fit train.tsv"),
        ({"test": "t.tsv", "source_column": 0, "target_column": 1}, r"data.source_column=0"),
        ({"test": "t.tsv", "source_column": 2, "target_column": 1}, r"do not fit valid.jsonl"),
        ({"test": "t.tsv", "tests": {"a b": "x.tsv"}}, r"data.tests.a b: cannot be the name"),
        ({"test": "t.tsv", "tests": {"valid": "x.tsv"}}, r"data.tests.valid: cannot be the name"),
        ({"test": "t.tsv", "tests": {"more": {"source": "x"}}}, r"data.tests.more=.*: must be two files, "),
        ({"test": "t.tsv", "max_pairs": 0}, r"data.max_pairs=0"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ValueError, match=message):
        files("en", "de", train="train.tsv", valid="valid.jsonl", **settings)


@pytest.mark.parametrize("content", ["", "en\tde\n"])
def test_a_file_without_pairs(tmp_path, content):
    write(tmp_path / "train.tsv")
    write(tmp_path / "valid.jsonl")
    (tmp_path / "test.tsv").write_text(content)
    with pytest.raises(InputError, match=r"test.tsv: holds no pairs; the test split needs at least one"):
        corpus(tmp_path, test=tmp_path / "test.tsv").load()
