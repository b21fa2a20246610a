"""Tables with one sentence pair a row, in every format."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from built import files

from headcount.data.corpora.tables import read_table
from headcount.errors import InputError

PAIRS = [("one", "eins"), ('he said "yes", twice', "er sagte „ja“"), ("NA", "für\u2028alle"), ("two\x85", "17")]
EXPECTED = [{"source": source, "target": target} for source, target in PAIRS]


def write(path, pairs=PAIRS):
    """A table of three columns, in the format that its name says."""
    rows = [{"id": str(row), "en": en, "de": de} for row, (en, de) in enumerate(pairs)]
    table, kind = pa.Table.from_pylist(rows), path.name.split(".")[1]
    with pa.output_stream(path) as file:  # packed if the name ends in .gz
        if kind == "parquet":
            pq.write_table(table, file, row_group_size=3)
        elif kind == "csv":
            pa.csv.write_csv(table, file)
        elif kind == "arrow":
            with (pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file)(file, table.schema) as writer:
                writer.write_table(table)
        else:
            of_tsv = ["\t".join(row) for row in (rows[0], *map(dict.values, rows))]
            lines = of_tsv if kind == "tsv" else [json.dumps(row, ensure_ascii=row["id"] == "1") for row in rows]
            file.write("".join(f"{line}\n" for line in lines).encode())
    return path


NAMES = ("t.tsv", "t.tsv.gz", "t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet", "stream.arrow", "file.arrow")


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_pairs(tmp_path, name):
    assert read_table(write(tmp_path / name), ("en", "de")).to_list() == EXPECTED


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("t.tsv", 'a "b\tc\n\nd\t"\n', (1, 2), [('a "b', "c"), ("d", '"')]),
        ("t.tsv", "x\ta\r\ny\tb", (2, 1), [("a", "x"), ("b", "y")]),
        ("t.csv", '"a\nb","c,d"\n\ne,f\n', (1, 2), [("a\nb", "c,d"), ("e", "f")]),
        ("t.csv", "\ufeffen,de\na,b\n", ("en", "de"), [("a", "b")]),
        (
            "t.jsonl",
            '{"en": "a\\nb", "de": null}\n\n{"en": "c", "de": "d"}',
            ("en", "de"),
            [("a\nb", None), ("c", "d")],
        ),
        ("t.jsonl", '{"translation": {"en": "a", "de": "2020-01-01"}}', ("en", "de"), [("a", "2020-01-01")]),
        ("t.jsonl", '{"en": "a", "de": "b", "x": 1}\n{"en": "c", "x": "y"}', ("en", "de"), [("a", "b"), ("c", None)]),
        ("t.jsonl", '\ufeff{"en": "\\ud83d\\ude00", "de": "b"}', ("en", "de"), [("😀", "b")]),
    ],
)
def test_peculiarities_of_each_format(tmp_path, name, content, columns, expected):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert [tuple(pair.values()) for pair in read_table(tmp_path / name, columns).to_list()] == expected


def test_nested_and_other_columns_of_parquet(tmp_path):
    records = [{"en": "a\nb", "de": None}, {"en": "c", "de": "d"}]
    columns = {"translation": records, "number": [1, 2], "fr": pa.array(["x", "y"]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    pairs = read_table(tmp_path / "t.parquet", ("en", "de")).to_list()
    assert pairs == [{"source": "a\nb", "target": None}, {"source": "c", "target": "d"}]
    pq.write_table(pa.table({"en": columns["fr"], "de": columns["fr"], "number": [1, 2]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", ("en", "de"))["target"][:] == ["x", "y"]
    with pytest.raises(InputError, match="column number holds int64 and no text"):
        read_table(tmp_path / "t.parquet", ("en", "number"))
    pq.write_table(pa.table({"en": pa.array([b"\xff"]).view(pa.string()), "de": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t.parquet: cannot be read \(.*Invalid UTF8"):
        read_table(tmp_path / "t.parquet", ("en", "de"))


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("t.tsv", b"en\tde\na\tb\na\n", ("en", "de"), r"t.tsv: cannot be read \(.*Expected 2 columns, got 1"),
        ("t.tsv", b"en\tfr\na\tb\n", ("en", "de"), r"t.tsv has no column de.* it has en, fr: set data.source_col"),
        ("t.tsv", b"a\tb\n", (1, 3), r"t.tsv has no column 3.* it has 1, 2: set"),
        ("t.tsv", b"a\tb\n", (1, 0), r"t.tsv has no column 0"),
        ("t.tsv", b"en\tde\na\tb\n", (1, "de"), r"t.tsv has no column 1.* it has en, de: set"),
        ("t.jsonl", b'{"en": "a", "de": "b"}\n', (1, 2), r"t.jsonl has no column 1.* it has en, de: set"),
        ("t.tsv", b"en\tde\na\t\xff\n", ("en", "de"), r"t.tsv: cannot be read \(.*UTF8"),
        ("t.csv", b'en,de\n"a\nb",c\nd\n', ("en", "de"), r"t.csv: cannot be read \(.*Expected 2 columns, got 1"),
        ("t.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a"\n', ("en", "de"), r"t.jsonl, line 2: no JSON object"),
        ("t.jsonl", b'{"en": "a"}\n{"en": "\xff"}\n', ("en", "de"), r"t.jsonl, line 2: not valid UTF-8"),
        ("t.jsonl", b'\n["a", "b"]\n', ("en", "de"), r"t.jsonl, line 2: no JSON object"),
        ("t.jsonl", b'{"en": "a", "de": 5}\n', ("en", "de"), r"column de holds int64 and no text"),
        ("t.jsonl", b'{"en": "a", "de": "\\ud83d"}\n', ("en", "de"), r"t.jsonl: cannot be read \(.*surrogate"),
        ("t.parquet", b"PAR1 or not", ("en", "de"), r"t.parquet: cannot be read"),
        ("t.arrow", b"ARROW1 or not", ("en", "de"), r"t.arrow: cannot be read"),
        ("u.tsv", b"", ("en", "de"), r"t.tsv: there is no such file"),
        ("u.arrow", b"", ("en", "de"), r"t.arrow: there is no such file"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, name, content, columns, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_table(tmp_path / f"t{name[1:]}", columns)
    assert "\n" not in str(error.value)


def corpus(folder, **settings):
    return files("en", "de", **{"train": str(folder / "train.tsv"), "valid": str(folder / "valid.jsonl"), **settings})


def test_a_split_may_be_tables_or_two_files(tmp_path):
    for name in ("train.tsv", "more.tsv", "valid.jsonl", "other.parquet"):
        write(tmp_path / name)
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("eins\n")
    test, other = [str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "other.parquet")
    tests = {"test2017": test, "other": other}
    splits = corpus(tmp_path, test=test, tests=tests).load()
    assert list(splits) == ["train", "valid", "test", "test2017", "other"]
    assert splits["train"].to_list() == splits["valid"].to_list() == splits["other"].to_list() == EXPECTED
    assert splits["test"].to_list() == splits["test2017"].to_list() == EXPECTED[:1]
    both = [str(tmp_path / name) for name in ("train.tsv", "more.tsv")]
    assert corpus(tmp_path, train=both, test=other).load()["train"].to_list() == EXPECTED * 2
    assert corpus(tmp_path, train=both, test=other, max_pairs=5).load()["train"].to_list() == EXPECTED + EXPECTED[:1]
    (tmp_path / "more.tsv").write_text("en\tde\n")
    assert corpus(tmp_path, train=both, test=other).load()["train"].to_list() == EXPECTED


def test_every_setting_that_changes_the_text_changes_the_fingerprint(tmp_path):
    for name in ("train.tsv", "valid.jsonl", "other.parquet"):
        write(tmp_path / name)
    test = str(tmp_path / "other.parquet")
    corpora = [
        corpus(tmp_path, test=test),
        corpus(tmp_path, test=test, train=[str(tmp_path / "train.tsv")] * 2),
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
        ({"test": "t.txt"}, r"data.test=t.txt: must be two files of text.* or tables that end in one of .tsv, "),
        ({"test": ["t.tsv", "t.csv"]}, r"data.test=.*: must be two files of text"),
        ({}, r"^data.test: give the text of the test split in one way: .*data.held_out.test=2000"),
        ({"test": "t.tsv", "train": None}, r"data.train: give the text of the train split in one way"),
        ({"test": "t.tsv", "held_out": {"test": 5}}, r"data.test: give the text of the test split in one way"),
        ({"test": "t.tsv", "tests": {"a b": "x.tsv"}}, r"data.tests.a b: cannot be the name"),
        ({"test": "t.tsv", "tests": {"valid": "x.tsv"}}, r"data.tests.valid: cannot be the name"),
        ({"test": "t.tsv", "tests": {"more": ["x"]}}, r"data.tests.more=.*: must be two files"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ValueError, match=message):
        files("en", "de", **{"train": "train.tsv", "valid": "valid.jsonl"} | settings)
