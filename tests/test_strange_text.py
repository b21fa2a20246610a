"""Text of real people: packed, in other encodings, with marks, without spaces, or with nothing that can be seen."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import tarfile
import unicodedata
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import TINY, command, completed, failed
from sacrebleu.metrics.bleu import BLEU

from headcount.commands.translate import shown_lines
from headcount.data.cleaning import Cleaning
from headcount.data.corpora.tables import TableFile
from headcount.data.corpora.text import read_lines
from headcount.data.tokenizer import normalise
from headcount.decoding.search import Translation
from headcount.errors import InputError
from headcount.evaluation import metrics

TEXT = "".join(f"the dog sees cat number {number}\n" for number in range(40))


def archive(kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as zipped:
            zipped.writestr("train.en", TEXT)
    else:
        with tarfile.open(fileobj=file, mode=f"w:{kind}") as tar:
            entry = tarfile.TarInfo("train.en")
            entry.size = len(TEXT)
            tar.addfile(entry, io.BytesIO(TEXT.encode()))
    return file.getvalue()


PACKED = {
    "unxz": lzma.compress(TEXT.encode()),
    "bunzip2": bz2.compress(TEXT.encode()),
    "unzstd": b"\x28\xb5\x2f\xfd" + TEXT.encode(),
    "unzip": archive("zip"),
    "p7zip": b"7z\xbc\xaf\x27\x1c" + TEXT.encode(),
    "unrar": b"Rar!\x1a\x07\x01\x00" + TEXT.encode(),
    "unlz4": b"\x04\x22\x4d\x18" + TEXT.encode(),
    "tar": archive(""),
    "tar within gzip": archive("gz"),
    "gunzip within gzip": gzip.compress(gzip.compress(TEXT.encode())),
}


@pytest.mark.parametrize("name", ["t.en", "t.tsv", "t.csv", "t.jsonl"])
@pytest.mark.parametrize("packer", PACKED)
def test_packed_text_is_named_as_that(tmp_path, packer, name):
    (tmp_path / name).write_bytes(PACKED[packer])
    read = read_lines if name == "t.en" else lambda path: TableFile(path, "en", "de").pairs()
    with pytest.raises(InputError, match=rf"^[^\n]*{name}, line 1: is packed; unpack it, as with {packer.split()[0]}$"):
        read(tmp_path / name)


ENCODED = {  # encoding: whether the beginning tells which it is
    "utf-16": True,
    "utf-16-le": True,
    "utf-16-be": True,
    "utf-32": True,
    "utf-32-le": True,
    "utf-32-be": True,
    "latin-1": False,
    "windows-1251": False,
    "gb18030": False,
}
SCRIPTS = {"latin-1": "the dog\nder B\u00e4r\n", "windows-1251": "dog\nсобака видит\n", "gb18030": "dog\n小狗看见\n"}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("packed", [False, True])
def test_another_encoding_is_one_line_with_the_file_and_the_line(tmp_path, encoding, packed):
    for text in [SCRIPTS[encoding]] if encoding in SCRIPTS else ["dog\ncat\n", "one line", "собака видит\nкот и пёс\n"]:
        content = text.encode(encoding)
        (tmp_path / "t.en").write_bytes(gzip.compress(content) if packed else content)
        what = "line 1: is in UTF-16 or UTF-32; .*" if ENCODED[encoding] else "line 2: not valid UTF-8; .*"
        with pytest.raises(InputError, match=rf"t\.en, {what}iconv -f [A-Z0-9-]+ -t UTF-8$"):
            read_lines(tmp_path / "t.en")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (codecs.BOM_UTF8 + b"a\n" + codecs.BOM_UTF8 + b"b\n", ["a", "b"]),  # two files that were joined
        (codecs.BOM_UTF8 * 2 + b"a\n", ["a"]),
        ("a\ufeffb\n".encode(), ["a\ufeffb"]),
        (b"a\x00b\nc\n", ["a\x00b", "c"]),
        (b"a\n\x00\nb\n", ["a", "\x00", "b"]),
        (b"BZ is a town\nPK, too\n", ["BZ is a town", "PK, too"]),
        (b"a\rb\nc\n", ["a\rb", "c"]),
        (b"a\r", ["a"]),
    ],
)
def test_marks_and_odd_characters_that_are_text(tmp_path, content, lines):
    (tmp_path / "t.en").write_bytes(content)
    assert read_lines(tmp_path / "t.en") == lines


def test_lines_that_carriage_returns_alone_end_are_refused(tmp_path):
    for content in (b"one\rtwo\rthree\r", b"one\rtwo", b"one\rtwo\rthree\n"):
        (tmp_path / "t.en").write_bytes(content)
        with pytest.raises(InputError, match=r"t\.en, line 1: its lines end with carriage returns alone; .* tr '"):
            read_lines(tmp_path / "t.en")


TABLES = {  # name: content, and what is read, or the error
    "mark before the header.csv": ("\ufeffen,de\na,b\n", [("a", "b")]),
    "mark before the header.tsv": ("\ufeffen\tde\na\tb\n", [("a", "b")]),
    "mark before an object.jsonl": (
        '\ufeff{"en": "a", "de": "b"}\n\ufeff{"en": "c", "de": "d"}\n',
        [("a", "b"), ("c", "d")],
    ),
    "quoted header.csv": ('"en","de"\na,b\n', [("a", "b")]),
    "spaces around names.csv": ("en , de\na,b\n", [("a", "b")]),
    "spaces around names.tsv": ("id\ten \t de\n1\ta\tb\n", [("a", "b")]),
    "trailing delimiter.csv": ("en,de,\na,b,\n", [("a", "b")]),
    "ends of Windows.csv": ('en,de\r\n"a\r\nb",c\r\n', [("a b", "c")]),
    "blank lines.tsv": ("\nen\tde\n\na\tb\n\n", [("a", "b")]),
    "header alone.csv": ("en,de\n", []),
    "other case.csv": ("EN,DE\na,b\n", r"has no column en; line 1 names EN, DE: set data\.source_column"),
    "two of one name.csv": ("en,de,en\na,b,c\n", r"has several columns en; line 1 names en, de, en: "),
    "two of one name.tsv": ("de\ten\tde\na\tb\tc\n", r"has several columns de; line 1 names de, en, de: "),
    "semicolons.csv": ("en;de\na;b\n", r"has no column en; line 1 names en;de: .* a comma in \.csv\)$"),
    "no header.tsv": (
        "a\tb\nc\td\n",
        r"has no column en; line 1 names a, b: .*numbers, from 1, where there is no header",
    ),
    "trailing delimiter in a row.csv": ("en,de\na,b,\n", r"line 2: 3 columns, where line 1 has 2"),
    "open quotation mark.csv": (
        'en,de\na,b\n"c,d\n' + "e,f\n" * 50_000,
        r"line 3: not valid CSV \(unexpected end of data\)",
    ),
    "arrays.jsonl": ('["a", "b"]\n', r"line 1: not a JSON object"),
    "one array.jsonl": ('[{"en": "a", "de": "b"},\n{"en": "a", "de": "b"}]\n', r"line 1: not valid JSON"),
    "number.jsonl": ('{"en": "a", "de": "b"}\n{"en": NaN, "de": "b"}\n', r"line 2: the field en must be text"),
}


@pytest.mark.parametrize("name", TABLES)
def test_odd_tables_are_read_or_named(tmp_path, name):
    content, expected = TABLES[name]
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    table = TableFile(tmp_path / name, "en", "de")
    if isinstance(expected, list):
        rows = [tuple(row.values()) for part in table.pairs().iter(10) for row in part.to_pylist()]
        assert rows == expected
    else:
        with pytest.raises(InputError, match=expected) as error:
            table.pairs()
        assert "\n" not in str(error.value)


def test_two_columns_of_one_name_in_parquet(tmp_path):
    columns = [pa.array(["a"])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["en", "de", "de"]), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet has several columns de; it has en, de, de: "):
        TableFile(tmp_path / "t.parquet", "en", "de").pairs()


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_a_field_may_have_any_length(tmp_path, name):
    word = "ä" * 5_000_000  # 10 MB
    lines = {
        "t.csv": f'en,de\n"{word}",b\n',
        "t.tsv": f"en\tde\n{word}\tb\n",
        "t.jsonl": json.dumps({"en": word, "de": "b"}),
    }
    (tmp_path / name).write_text(lines[name], encoding="utf-8")
    before = csv.field_size_limit(1000)  # any other module may set it
    try:
        (table,) = TableFile(tmp_path / name, "en", "de").pairs().iter(10)
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)
    assert len(table["source"][0].as_py()) == len(word)


INVISIBLE = [
    "\u200b",
    "\u200e\u200f",
    "\u00ad",
    "\ufeff",
    "\u2060 \u200b",
    "\ufe0f",
    "\U000e0100",
    "\u061c",
    "\u180e",
    "\u3164",
    "\x1c\u200b",
]
SEEN = ["a\u200db", "नमस्\u200dते", "می\u200cخواهم", "👩\u200d💻\ufe0f", "\u200ba", "co\u00adop"]


def test_text_that_cannot_be_seen_is_empty_and_within_a_line_it_stays():
    assert [normalise(text) for text in INVISIBLE] == [""] * len(INVISIBLE)
    assert [normalise(text) for text in SEEN] == [unicodedata.normalize("NFC", text) for text in SEEN]
    cleaning = Cleaning(enabled=True, max_words=None, max_ratio=None, drop_duplicates=False, drop_leaks=False)
    result = cleaning.check(pa.array(INVISIBLE + SEEN), pa.array(["b"] * (len(INVISIBLE) + len(SEEN))), None)
    assert result.reasons[:, 0].tolist() == [True] * len(INVISIBLE) + [False] * len(SEEN)


REFERENCES = {  # text, and whether BLEU by 13a takes its sentences for words
    "Chinese": ("老医生在花园里睡觉。|女孩读一本书。|没有可用的文件", True),
    "Chinese with spaces": ("老 医生 在 花园 里 睡觉 。|女孩 读 一 本 书 。|没有 可用 的 文件", False),
    "Japanese": ("医者は庭で寝ています。|女の子はコンピューターで読む", True),
    "Japanese with spaces": ("医者 は 庭 で 寝て い ます|女の子 は コンピューター で 読む", False),
    "Korean": ("늙은 의사가 정원에서 잔다|소녀가 책을 읽는다", False),
    "Korean without spaces": ("늙은의사가정원에서잔다|소녀가책을열심히읽는다", True),
    "Thai": ("ฉันรักเธอมาก|แมวกินปลาในบ้านใหญ่ แม่อ่านหนังสือ", True),
    "Thai with spaces": ("ฉัน รัก เธอ มาก|แมว กิน ปลา ใน บ้าน ใหญ่ แม่ อ่าน หนังสือ", False),
    "Lao": ("ຂ້ອຍຮັກເຈົ້າ|ແມວກິນປາຢູ່ເຮືອນ", True),
    "Khmer": ("ខ្ញុំស្រឡាញ់អ្នក|ឆ្មាស៊ីត្រីនៅផ្ទះ", True),
    "Burmese": ("ငါမင်းကိုချစ်တယ်|ကျောင်းသားများ စာဖတ်နေကြသည်။", True),
    "Burmese with spaces": ("ငါ မင်း ကို ချစ် တယ်|ကျောင်းသား စာအုပ် ဖတ် နေ သည်", False),
    "Tibetan": ("ང་ཁྱེད་རང་ལ་དགའ།|ཁྱེད་རང་ག་པར་ཕེབས་གས།", True),
    "English": ("The old doctor sleeps in the garden.|OK|Settings", False),
    "English without spaces": ("theolddoctorsleepsinthegarden|thegirlreadsaverylongbook", True),
    "German": ("Donaudampfschifffahrtsgesellschaft, sagte der Rechtsanwalt.|Rindfleischverordnung", False),
    "Hindi": ("बूढ़ा डॉक्टर बगीचे में सोता है|लड़की किताब पढ़ती है", False),
    "nothing": ("||12 3", False),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_text_says_whether_bleu_finds_words(name):
    text, without_spaces = REFERENCES[name]
    assert metrics.counts_sentences("13a", text.split("|")) is without_spaces
    assert not metrics.counts_sentences("char", text.split("|"))


DECOMPOSED = [
    "cafe\u0301 u\u0308ber alles hier",
    "hier ist ein Z\u00fcrich",
    "\u1112\u1161\u11ab\u1100\u116e\u11a8 ein zwei drei",
]


def test_a_signature_says_where_references_were_composed():
    composed = [unicodedata.normalize("NFC", line) for line in DECOMPOSED]
    for metric in metrics.METRICS.values():
        plain, other = (metric.score(composed, lines, "13a") for lines in (composed, DECOMPOSED))
        assert plain.value == other.value == pytest.approx(100)
        assert other.signature == f"{plain.signature}|norm:nfc"


@pytest.fixture(scope="module")
def decomposed(text, tmp_path_factory):
    """A folder with a run on references in NFD, whose translations may have two pieces."""
    folder = tmp_path_factory.mktemp("decomposed")
    for path in text.iterdir():
        lines = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(unicodedata.normalize("NFD", lines), encoding="utf-8")
        (folder / path.name.replace("valid", "more")).write_text(unicodedata.normalize("NFD", lines), encoding="utf-8")
    settings = (f"data.root={folder}", f"data.directory={folder / 'data'}", "data.tests={more: more}")
    completed("train", *TINY, *settings, "search.max_ratio=0", "hydra.run.dir=run", cwd=folder)
    return folder


@pytest.mark.medium
def test_the_files_of_a_run_give_its_figures(decomposed, tmp_path):
    folder, run = decomposed, decomposed / "run"
    kept = json.loads((run / "metrics.json").read_text())
    translations = composed_lines(run / "test.ref.de")  # of a perfect model
    for split in ("valid", "test", "more"):
        paths = [run / f"{split}.{kind}.de" for kind in ("hyp", "ref")]
        ours, references = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
        assert BLEU(tokenize="13a").corpus_score(ours, [references]).score == pytest.approx(kept[split]["bleu"])
        assert references == composed_lines(folder / f"{split}.de") != read_lines(folder / f"{split}.de")
    assert translations == read_lines(run / "test.ref.de")
    given = (f"input={folder / 'test.en'}", f"reference={folder / 'test.de'}", f"output={tmp_path / 'out.de'}")
    assert "tok:13a|smooth:exp" in (out := completed("evaluate", "run=run", *given, cwd=folder).out)
    assert out.count("|norm:nfc") == 2


def composed_lines(path):
    return [unicodedata.normalize("NFC", line) for line in read_lines(path)]


@pytest.mark.medium
def test_references_longer_than_translations_may_be_are_counted_before_training_and_after(decomposed):
    said = (decomposed / "run" / "train.log").read_text()
    longer = "100.00% of the references have more pieces than search.max_ratio=0 and search.max_extra=2 allow"
    for split in ("valid", "test", "more"):
        assert f"{split}: {longer}" in said[: said.index("step 1 ")]
    assert f"test: {longer}" in command("evaluate", "run=run", cwd=decomposed).out
    wide = ("search.max_ratio=3", "search.max_extra=50")
    assert "max_ratio" not in completed("evaluate", "run=run", "split=valid", *wide, cwd=decomposed).out


@pytest.mark.medium
def test_training_says_that_bleu_takes_sentences_for_words(chinese, tmp_path):
    for path in chinese.iterdir():
        (tmp_path / path.name.replace(".zh", ".cn")).write_bytes(path.read_bytes())
    settings = ("data.source=en", "data.target=cn", f"data.root={tmp_path}", f"data.directory={tmp_path / 'data'}")
    completed("train", *TINY, *settings, "steps=1", "hydra.run.dir=run", cwd=tmp_path)
    said = (tmp_path / "run" / "train.log").read_text()
    line = "test: BLEU by 13a takes sentences for words; give bleu_tokenizer=char (Chinese: zh)"
    assert line in said[: said.index("step 1 ")]
    found = command("doctor", "run=run", cwd=tmp_path).out
    assert [line.split()[-1] for line in found.splitlines() if line.startswith("tokenizer of BLEU unfit  ")] == [
        "warning"
    ]


@pytest.mark.medium
def test_lines_that_cannot_be_seen_are_translated_as_empty_ones(home):
    lines = "\n".join([*INVISIBLE, "the dog sees the cat"]).encode()
    out = completed("translate", "run=runs/first", stdin=lines, cwd=home).out
    assert out.split("\n")[: len(INVISIBLE)] == [""] * len(INVISIBLE)
    assert out.split("\n")[len(INVISIBLE)]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("content", "why"), [(PACKED["unxz"], "is packed"), ("a\nb".encode("utf-16-le"), "is in UTF-16")]
)
def test_what_is_no_text_is_not_translated(home, content, why):
    (line,) = failed("translate", "run=runs/first", stdin=content, cwd=home)
    assert line.startswith(f"standard input, line 1: {why}")


@pytest.mark.medium
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_line_that_memory_does_not_suffice_for_is_named(home, tmp_path, monkeypatch, side):
    for name in ("source", "target"):
        (tmp_path / name).write_text("the dog\n" + "the dog " * (2000 if name == side else 1) + "\n")
    given = ("run=runs/first", f"input={tmp_path / 'source'}", f"hypotheses={tmp_path / 'target'}")
    (line,) = failed("evaluate", *given, cwd=home)
    assert line.startswith(f"{tmp_path / side}, line 2: ")
    assert line.endswith("pieces, more than 1,000; cut it into sentences")

    def refuse(*_):
        raise torch.OutOfMemoryError("out of memory")

    (tmp_path / side).write_text("the dog\nthe dog sees the cat\n")
    monkeypatch.setattr("headcount.evaluation.likelihood.TargetScorer._losses", refuse)
    (line,) = failed("evaluate", *given, cwd=home)
    assert line.startswith(f"{tmp_path / 'source'}, line 2: not enough memory for ")
    (line,) = failed("evaluate", "run=runs/first", "other_text=true", cwd=home)
    assert line.startswith("test, line ")
    assert "accumulate_grad_batches" not in line


def test_an_nbest_list_escapes_its_own_sign():
    rows = shown_lines(["a"], [[Translation("b ||| c", -1.0)]], 0, 1, None, None)
    assert rows == ["0 ||| b &#124;&#124;&#124; c ||| -1.000000"]
    assert shown_lines(["a"], [[Translation("b ||| c", -1.0)]], 0, None, None, None) == ["b ||| c"]
