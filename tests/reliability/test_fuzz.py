"""Bad data, drawn by Hypothesis: random settings and damaged bytes give one line each, or work.

FUZZ_CASES=20000 make test-reliability ARGS="-k fuzz"
"""

import os
import shutil
from functools import cache

import pytest
from built import composed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headcount.cli import _lines, is_wrong
from headcount.data.corpora.tables import read_table
from headcount.errors import InputError
from headcount.run.build import build_parts, without_other_kinds
from headcount.run.opened import open_run
from headcount.settings import flatten

CASES = int(os.environ.get("FUZZ_CASES", "2000"))
ODD = [
    *("\0", "\r\n", "\n", "\t", "\x85", "\u2028", "\ud800", "\ufeff", "\u202e", "\u2581", "<s>", '"', "'", ",", "{"),
    *("[", "${x}", "\x1b[31m", "für", "小狗", "👩‍👩‍👧‍👦", "x" * 1000, "../", "null", "1e400"),
]

odd_text = st.lists(st.sampled_from(ODD) | st.text(st.characters(), max_size=8), max_size=8).map("".join)
some_bytes = st.binary(max_size=60) | odd_text.map(lambda text: text.encode("utf-8", "surrogatepass"))
content = st.lists(some_bytes | st.sampled_from([b"\n", b"\r\n", b"en\tde\n"]), max_size=10).map(b"".join)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | odd_text
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars, max_size=3)


def fuzz(share: float, **strategies):
    """Draws so many of FUZZ_CASES cases; that all of them share a folder of pytest's is no matter."""
    health, count = list(HealthCheck), round(share * CASES)
    drawn = settings(max_examples=count, deadline=None, database=None, suppress_health_check=health)
    return lambda test: pytest.mark.reliability(drawn(given(**strategies)(test)))


def refusal(error: Exception, case: object) -> list[str]:
    """The lines of an error that a user can put right."""
    assert is_wrong(error), case
    lines = _lines(error, "train")
    assert all(line.isprintable() for line in lines), lines
    return lines


@fuzz(1, content=content, kind=st.sampled_from([".tsv", ".csv", ".jsonl", ".parquet"]))
def test_any_bytes_as_a_table_are_pairs_or_one_line(content, kind, tmp_path):
    path = tmp_path / f"table{kind}"
    path.write_bytes(content)
    try:
        found = read_table(path, ("en", "de"))
    except InputError as error:
        (line,) = refusal(error, content)
        named = line.startswith(str(path))
        assert named, line
    else:
        assert found.column_names == ["source", "target"]


@cache
def whole_config() -> DictConfig:
    places = [f"data.{split}=[x.en,x.de]" for split in ("train", "valid", "test")]
    words = ["data=files", "data.source=en", "data.target=de", *places, "trainer=cpu", "logger=csv"]
    return OmegaConf.create(OmegaConf.to_container(without_other_kinds(composed("train", *words)), resolve=True))


names = st.deferred(lambda: st.sampled_from(sorted(flatten(OmegaConf.to_container(whole_config())))))


@fuzz(0.25, changes=st.lists(st.tuples(names, values), min_size=1, max_size=3))
def test_any_values_of_settings_are_parts_or_lines_that_name_them(changes, tmp_path):
    config = whole_config().copy()
    try:
        for name, value in changes:
            OmegaConf.update(config, name, value, merge=False, force_add=True)
        OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, ValueError, KeyError, TypeError, AttributeError):
        return  # no config, to OmegaConf
    lines = []
    try:
        build_parts(without_other_kinds(config), tmp_path)
    except Exception as error:
        lines = refusal(error, changes)
    groups = [name.partition(".")[0] for name, _ in changes]
    assert all(any(group in line for group in groups) for line in lines), lines


files = st.sampled_from(["config.yaml", "tokenizer.model", "model.safetensors"])
places = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)


@fuzz(0.25, name=files, changes=places, cut=st.none() | st.integers(0, 2**16))
def test_a_run_with_damaged_bytes_is_opened_or_refused_in_one_line(name, changes, cut, home, tmp_path):
    run = shutil.copytree(home / "runs" / "second", tmp_path / "run", dirs_exist_ok=True)
    content = bytearray((run / name).read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    (run / name).write_bytes(content[: None if cut is None else cut % (len(content) + 1)])
    try:
        open_run(run).translator.translate(["the dog"])
    except InputError as error:
        refusal(error, changes)
