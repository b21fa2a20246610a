"""One's own text: settings by the number of pairs, and the ten commands of docs/own_text.md."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from built import composed
from conftest import TINY, command
from test_readme import ROOT, lines_of, words_of

from headcount.run.resolvers import by_pairs

SMALL = (*TINY[2:], "steps=4")
OF_HEADS = ("valid=8", "cutting_sentences=8", "pairs=2", "permutations=2", "shapley_sentences=2", "bleu_sentences=2")


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> Path:
    """Files of 30 pairs each, in every format."""
    folder = tmp_path_factory.mktemp("counted")
    for name in ("a.en", "a.de", "a.tsv", "a.csv", "a.jsonl"):
        (folder / name).write_text('{"en": "x", "de": "y"}\n' * 30, encoding="utf-8")
    table = pa.table({"en": ["x"] * 30, "de": ["y"] * 30})
    pa.parquet.write_table(table, folder / "a.parquet")
    with pa.OSFile(str(folder / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return folder


@pytest.mark.parametrize(
    ("names", "most", "value"),
    [
        (["a.en", "a.de"], None, "some"),
        (["a.en", "a.de"], 29, "few"),
        ("a.tsv", None, "some"),
        (["a.csv", "a.csv"], None, "many"),
        (["a.jsonl"], 1000, "some"),
        (["a.parquet", "a.parquet"], None, "many"),
        ("a.arrow", None, "some"),
        (["none.en", "a.de"], None, "few"),  # training says what is wrong with it
        (None, None, "few"),
    ],
)
def test_a_value_by_the_number_of_pairs(counted, names, most, value):
    place = [str(counted / name) for name in names] if isinstance(names, list) else names and str(counted / names)
    assert by_pairs(place, most, {0: "few", 30: "some", 60: "many"}) == value


def test_few_pairs_get_few_subwords_and_updates(counted):
    files = f"data.train=[{counted / 'a.en'},{counted / 'a.de'}]"
    config = composed("train", "recipe=own_text", files)
    assert (config.tokenizer.vocab_size, config.steps, config.model.dropout) == (500, 1200, 0.3)
    assert composed("train", "data=files", files, "tokenizer.vocab_size=600").tokenizer.vocab_size == 600


@pytest.mark.slow
def test_ten_commands_from_two_files_to_a_page(text, tmp_path):
    page = (ROOT / "docs" / "own_text.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "settings" / "recipe").mkdir(parents=True)
    (tmp_path / "settings" / "recipe" / "mine.yaml").write_text(
        settings.replace("1000", "16") + "tokenizer:\n  vocab_size: 400\n", encoding="utf-8"
    )
    sides = [(text / f"train.{language}").read_text(encoding="utf-8") for language in ("en", "de")]
    for language, lines in zip(("en", "de"), sides, strict=True):
        for name in ("text", "new"):
            (tmp_path / f"{name}.{language}").write_text(lines, encoding="utf-8")
    rows = [("source", "right", "wrong", "phenomenon")]
    rows += [
        (source, target, f"{target} nicht", "not")
        for source, target in zip(*(lines.splitlines()[:24] for lines in sides), strict=True)
    ]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    lines = lines_of("docs/own_text.md")
    assert len(lines) == 10
    for line in lines:
        words = words_of(line)
        words += SMALL if words[0] == "train" else OF_HEADS if words[0] == "heads" else ()
        if "--multirun" in words:
            words += ["model.num_heads=1,2", "seed=1,2"]
        stdin = shlex.split(line)[1].encode() if line.startswith("echo ") else b""
        result = command(*words, stdin=stdin, cwd=tmp_path)
        assert result.code in ((0, 1) if words[0] == "doctor" else (0,)), (line, result.err)
    for made in ("runs/mine/heads/heads.html", "runs/heads_fixed_width_mine/report.html"):
        assert (tmp_path / made).exists()
