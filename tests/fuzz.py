"""Bad data, drawn by Hypothesis: text, files and settings, and the properties that hold for all of them.

Each property gives a right answer, compared with a plain reference, or one InputError that names the file and, where
there is one, the line.
"""

import contextlib
import csv
import gzip
import io
import json
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import regex
import torch
from built import built, sentence_piece
from clauses import CLAUSES
from conftest import command
from hydra import compose, initialize_config_dir
from hypothesis import strategies as st
from limits import seconds
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.cli import _lines, is_wrong
from headcount.commands.translate import translate_stream
from headcount.data.corpora.tables import TableFile
from headcount.data.corpora.text import ParallelText, no_text, read_lines, read_parallel
from headcount.data.tokenizer import Tokenizer, normalise
from headcount.decoding.translator import Translator
from headcount.errors import InputError
from headcount.evaluation.metrics import score
from headcount.run.build import build_parts
from headcount.run.opened import make_translator
from headcount.run.resolvers import CONF, register_resolvers
from headcount.settings import flatten

SECONDS = 120  # in which every case must end, on a crowded machine too
ODD = [
    *("\0", "\r", "\r\n", "\n", "\t", " ", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\xa0", "\u3000"),
    *("\ud800", "\udfff", "\ufeff", "\ufffd", "\uffff", "\u200f", "\u202e", "\u2067", "\u200d", "\u0301", "\u1160"),
    *("\u2581", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "|||", '"', "'", ",", "\\", "{", "[", "${x}", "\x1b[31m"),
    *(
        "der Hund",
        "the dog sees the cat",
        "für",
        "fu\u0308r",
        "小狗",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "مرحبا",
        "क्षि",
        "ﷺ",
        "x" * 1000,
    ),
]
LONG = ["x" * 100_000, "小" * 100_000, "ab " * 33_334, "\u0301" * 100_000, " " * 100_000, "\0" * 100_000]

odd_text = st.lists(st.sampled_from(ODD) | st.text(st.characters(), max_size=8), max_size=8).map("".join)
any_text = st.integers(0, 199).flatmap(lambda n: st.sampled_from(LONG) if n == 0 else odd_text)
utf8_text = any_text.map(lambda text: text.encode("utf-8", "replace").decode("utf-8"))
line = utf8_text.map(lambda text: text.replace("\n", " "))
some_bytes = st.binary(max_size=60) | any_text.map(lambda text: text.encode("utf-8", "surrogatepass"))
content = st.lists(some_bytes | st.sampled_from([b"\n", b"\r\n", b"\xef\xbb\xbf"]), max_size=10).map(b"".join)


def packed(text: bytes, cut: int) -> bytes:
    """The bytes as gzip, without the last `cut` of these."""
    whole = gzip.compress(text, mtime=0)
    return whole[: len(whole) - cut]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder. Raises Late where the block takes more than `SECONDS`."""
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        with seconds(SECONDS):
            yield place
    finally:
        shutil.rmtree(place)


def one_line_of(error: InputError, *words: object) -> None:
    """The message is one line, which names all of `words`."""
    assert len(_lines(error, "train")) == 1, str(error)
    assert _lines(error, "train")[0].isprintable()
    assert all(str(word) in str(error) for word in words), str(error)


def reference_lines(text: bytes) -> list[str] | int:
    """The lines of a text, or the number of the first that is not UTF-8."""
    lines = text.split(b"\n")
    found = []
    for number, each in enumerate(lines if lines[-1].replace(b"\xef\xbb\xbf", b"") else lines[:-1], 1):
        try:
            found.append(each.decode().lstrip("\ufeff").rstrip("\r"))
        except UnicodeDecodeError:
            return number
    return found


def reads_text(text: bytes, pack: bool, cut: int) -> None:
    """Plain and gzip text."""
    if text.startswith(b"\x1f\x8b"):
        return
    with folder() as place:
        path = place / "text"
        path.write_bytes(packed(text, cut) if pack else text)
        expected = 1 if no_text(text) else reference_lines(text)
        try:
            found = read_lines(path)
        except InputError as error:
            cut_off = pack and cut > 0
            one_line_of(error, path, *([] if cut_off else [f"line {expected}:"]))
        else:
            assert found == expected
            assert not (pack and cut)


def reference_pair_line(text: str) -> str:
    return re.sub("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]", " ", text)


def pairs_in(pairs: Any) -> list[tuple[str, str]]:
    return [tuple(pair.values()) for table in pairs.iter(3) for pair in table.to_pylist()]


def reads_parallel(source: list[str], target: list[str], end: str) -> None:
    """Two files of lines."""
    with folder() as place:
        paths = place / "a", place / "b"
        for path, lines in zip(paths, (source, target), strict=True):
            path.write_bytes("".join(each + end for each in lines).encode())
        try:
            found = pairs_in(ParallelText(*paths).pairs())
        except InputError as error:
            if not any(no_text(path.read_bytes()) for path in paths):
                assert len(source) != len(target)
                one_line_of(error, *paths, f"{len(source)} lines", f"has {len(target)}")
        else:
            plain = [
                [reference_pair_line(each.lstrip("\ufeff").rstrip("\r")) for each in side] for side in (source, target)
            ]
            assert found == list(zip(*plain, strict=True))


def written(pairs: list[tuple[str, str]], kind: str) -> bytes:
    """A table of the columns en and de."""
    if kind == ".jsonl":
        return "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs).encode()
    if kind == ".parquet":
        sink = io.BytesIO()
        columns = {name: pa.array(side, pa.string()) for name, side in zip(("en", "de"), sides(pairs), strict=True)}
        pq.write_table(pa.table(columns), sink)
        return sink.getvalue()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("en", "de"), *pairs])
    return text.getvalue().encode()


def sides(pairs: list[tuple[str, str]]) -> list[list[str]]:
    return [[pair[side] for pair in pairs] for side in (0, 1)]


def reads_tables(pairs: list[tuple[str, str]], kind: str) -> None:
    """Whole tables, written by others, give their pairs."""
    if kind in (".csv", ".tsv"):  # a mark at the beginning of a line is none of the text
        pairs = [tuple(side.replace("\ufeff", "") for side in pair) for pair in pairs]
    if kind == ".csv":  # a lone carriage return is left to no reader of lines: they do not agree on it
        pairs = [tuple(side.replace("\r", "") for side in pair) for pair in pairs]
    if kind == ".tsv":
        pairs = [tuple(re.sub(r"[\t\r]", "", side) for side in pair) for pair in pairs]
    with folder() as place:
        path = place / f"table{kind}"
        if kind == ".tsv":
            path.write_bytes("".join(f"{en}\t{de}\n" for en, de in [("en", "de"), *pairs]).encode())
        else:
            path.write_bytes(written(pairs, kind))
        if kind != ".parquet" and no_text(path.read_bytes()):
            return
        found = pairs_in(TableFile(path, "en", "de").pairs())
        assert found == [tuple(map(reference_pair_line, pair)) for pair in pairs]


def damaged(text: bytes, changes: list[tuple[int, int]], cut: int | None) -> bytes:
    """The bytes with some changed, and cut."""
    other = bytearray(text)
    for place, value in changes:
        if other:
            other[place % len(other)] = value
    return bytes(other[: None if cut is None else cut % (len(other) + 1)])


def reads_damaged(pairs: list[tuple[str, str]], kind: str, changes: list[tuple[int, int]], cut: int | None) -> None:
    """Tables with changed bytes, or bytes that are none: pairs, or a line."""
    whole = written([tuple(map(str, pair)) for pair in pairs], kind)
    reads_anything(damaged(whole, changes, cut), kind)


def reads_anything(text: bytes, kind: str) -> None:
    """Any bytes as a table: pairs of text without line ends, or a line."""
    with folder() as place:
        path = place / f"table{kind}"
        path.write_bytes(text)
        try:
            found = pairs_in(TableFile(path, "en", "de").pairs())
        except InputError as error:
            one_line_of(error, path)
        else:
            assert all(len(f"{source}{target}".splitlines()) <= 1 for source, target in found)
            "".join(map("".join, found)).encode()


@cache
def toy_tokenizer() -> Tokenizer:
    return sentence_piece(320).train([word for pair in CLAUSES for word in pair])


def reference_normal(text: str) -> str:
    text = "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in join_surrogates(text))
    text = " ".join(unicodedata.normalize("NFC", text).replace("\u2581", " ").split())
    return text if regex.search(r"[^ \p{Cf}\p{Default_Ignorable_Code_Point}]", text) else ""


def join_surrogates(text: str) -> str:
    return re.sub(
        "[\ud800-\udbff][\udc00-\udfff]", lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )


def spells_text(text: str) -> None:
    """Text to pieces and back is the normalised text."""
    tokenizer = toy_tokenizer()
    normal = normalise(text)
    assert normal == reference_normal(text)
    (ids,) = tokenizer.encode([text])
    assert all(4 <= number < tokenizer.vocab_size for number in ids)
    assert tokenizer.decode([ids]) == [normal]
    assert "".join(tokenizer.pieces(text)).count("\n") == 0


@cache
def toy_translator() -> Translator:
    torch.manual_seed(1)
    tokenizer = toy_tokenizer()
    sizes = {"d_model": 16, "d_feed_forward": 16, "encoder_layers": 1, "decoder_layers": 1, "num_heads": 2}
    model = built("model/nano", vocab_size=tokenizer.vocab_size, **sizes).eval()
    return make_translator(model, tokenizer, built("search/greedy", max_ratio=0.1, max_extra=2), False)


def translates(text: bytes, nbest: int | None) -> None:
    """Standard input: a line for each, or a line for each before the one that is named."""
    sink, lines = io.StringIO(), text.split(b"\n")
    count = len(lines) - (not lines[-1])
    with folder():
        try:
            translate_stream(SimpleNamespace(translator=toy_translator()), io.BytesIO(text), sink, nbest)  # type: ignore[arg-type]
        except InputError as error:
            one_line_of(error, "standard input, line ")
            wrong = int(re.search(r"line (\d+)", str(error))[1])
            assert 1 <= wrong <= count
            assert refusable(lines[wrong - 1]) or no_text(text)
            count = wrong - 1
    assert sink.getvalue().count("\n") == len(sink.getvalue().splitlines()) == count
    sink.getvalue().encode()


def refusable(text: bytes) -> bool:
    """Whether a line is not UTF-8, or has more pieces than search.max_source."""
    try:
        return len(toy_tokenizer().encode([text.decode()])[0]) > 1000
    except UnicodeDecodeError:
        return True


def evaluates(sources: list[str], references: list[str]) -> None:
    """input= and reference=: a score for any text, or both files with their counts."""
    with folder() as place:
        paths = place / "a", place / "b"
        for path, lines in zip(paths, (sources, references), strict=True):
            path.write_bytes("".join(f"{each}\n" for each in lines).encode())
        try:
            read, others = read_parallel(*paths)
            hypotheses = toy_translator().translate(read)
        except InputError as error:
            one_line_of(error, *([] if hasattr(error, "line") else paths))
            assert len(sources) != len(references) or any(map(refusable, (each.encode() for each in sources)))
        else:
            assert len(hypotheses) == len(others) == len(sources)
            if hypotheses:
                assert all(0 <= each.value <= 100.001 for each in score(hypotheses, others, "13a").values())


@cache
def whole_config() -> DictConfig:
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        files = [f"data.{split}_{side}=x" for split in ("train", "valid", "test") for side in ("source", "target")]
        config = compose(
            "train", ["data=files", "data.source=en", "data.target=de", *files, "trainer=cpu", "logger=csv"]
        )
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True))


def setting_names() -> list[str]:
    return sorted(name for name in flatten(OmegaConf.to_container(whole_config())) if not name.startswith("hydra"))


numbers = st.integers() | st.floats() | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**30, 1e-320])
scalars = st.none() | st.booleans() | numbers | odd_text
values = st.recursive(
    scalars, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3), max_leaves=4
)


def takes_settings(changes: list[tuple[str, Any]]) -> None:
    """A config with any values: parts, or a line for each setting that is wrong, which names it."""
    config = whole_config().copy()
    with folder() as place:
        try:
            for name, value in changes:
                OmegaConf.update(config, name, value, merge=False, force_add=True)
            OmegaConf.to_container(config, resolve=True)
        except (OmegaConfBaseException, ValueError, KeyError, TypeError, AttributeError):
            return  # no config, to OmegaConf
        try:
            build_parts(config, place)
        except Exception as error:
            if not is_wrong(error):
                raise
            named = [part for name, _ in changes for part in (name, name.partition(".")[0])]
            for each in _lines(error, "train"):
                assert each.isprintable(), each
                assert any(name in each for name in named), each


def parses_overrides(text: str) -> None:
    """Any text on the command line of a script: one line, of the text or of the run that is not there."""
    with folder() as place:
        result = command("evaluate", text, cwd=place)
    assert (result.code, result.out) == (2, "")
    (said,) = result.errors
    assert said.startswith("error: ")
    assert said.isprintable()


kinds = st.sampled_from([".tsv", ".csv", ".jsonl", ".parquet"])
lines_of = st.lists(line, max_size=6)
table_pairs = st.lists(st.tuples(line, line), max_size=6)
changes = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)
cuts = st.none() | st.integers(0, 2**16)
words = st.tuples(st.sampled_from(["", "run=", "search.beam=", "+new=", "~"]), any_text).map("".join)
overrides = words.filter(lambda text: not text.startswith("-"))  # which is argparse's
# Each property: the share of the cases, and what is drawn for its arguments.
PROPERTIES: dict[Callable[..., None], tuple[float, tuple[st.SearchStrategy, ...]]] = {
    reads_text: (0.15, (content, st.booleans(), st.integers(0, 12))),
    reads_parallel: (0.10, (lines_of, lines_of, st.sampled_from(["\n", "\r\n"]))),
    reads_tables: (0.10, (table_pairs, kinds)),
    reads_damaged: (0.15, (table_pairs, kinds, changes, cuts)),
    reads_anything: (0.10, (content, kinds)),
    spells_text: (0.15, (any_text,)),
    translates: (0.12, (content, st.sampled_from([None, 1]))),
    evaluates: (0.05, (lines_of, lines_of)),
    takes_settings: (
        0.02,
        (st.lists(st.tuples(st.deferred(lambda: st.sampled_from(setting_names())), values), min_size=1, max_size=3),),
    ),
    parses_overrides: (0.06, (overrides,)),
}
