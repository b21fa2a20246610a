"""Several test sets: tables and files of one's own, one with accents apart, validation held out of train."""

import json
import shutil
import unicodedata

import pytest
from conftest import command, completed, refused

TESTS = ("test", "test2017", "other")


@pytest.fixture(scope="module")
def trained(tiny, text, tmp_path_factory):
    """A folder with a run on train.tsv, of which 10 pairs are valid, test.en and test.de, and two more test sets, of
    which one repeats 20 pairs of train. Also what training said."""
    home = tmp_path_factory.mktemp("sets")
    lines = {name: (text / name).read_text(encoding="utf-8").splitlines() for name in ("train.en", "train.de")}
    pairs = list(zip(lines["train.en"], lines["train.de"], strict=True))
    (home / "train.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs), encoding="utf-8")
    (home / "other.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs[:20]), encoding="utf-8")
    for language in ("en", "de"):
        shutil.copy(text / f"test.{language}", home)
        decomposed = unicodedata.normalize("NFD", (text / f"valid.{language}").read_text("utf-8"))
        (home / f"2017.{language}").write_text(decomposed, encoding="utf-8")
    own = [option for option in tiny if not option.startswith(("data=", "data.root=", "data.directory="))]
    options = (
        "data=files",
        "data.source=en",
        "data.target=de",
        "data.train=train.tsv",
        "data.source_column=1",
        "data.target_column=2",
        "data.held_out.valid=10",
        "data.test=[test.en,test.de]",
        "data.tests={test2017:[2017.en,2017.de],other:other.tsv}",
        "hydra.run.dir=runs/first",
    )
    result = completed("train", *options, *own, cwd=home)
    shutil.copytree(home / "runs" / "first", home / "runs" / "second")
    return home, result.out


@pytest.mark.medium
def test_each_has_its_row_its_figures_and_its_text(trained, text):
    home, said = trained
    run = home / "runs" / "first"
    rows = [line.split()[0] for line in said.splitlines() if line]
    assert rows[2 : 2 + 4] == ["valid", *TESTS]
    figures = json.loads((run / "metrics.json").read_text())
    for split in ("valid", *TESTS):
        assert {"bleu", "chrf", "loss", "ppl", "signature", "search"} <= set(figures[split])
    # Accents apart are composed before they are scored, which the signature says.
    references = (run / "test2017.ref.de").read_text("utf-8")
    assert references == (text / "valid.de").read_text("utf-8") != (home / "2017.de").read_text("utf-8")
    assert [split for split in TESTS if "|norm:nfc" in figures[split]["signature"]["bleu"]] == ["test2017"]
    assert len((run / "test2017.hyp.de").read_text().splitlines()) == 10
    assert len((run / "valid.ref.de").read_text().splitlines()) == 10


@pytest.mark.medium
def test_one_evaluation_of_several(trained):
    home, _ = trained
    before = json.loads((home / "runs" / "first" / "metrics.json").read_text())
    result = completed("evaluate", "run=runs/first", "split=[test,test2017,other]", cwd=home)
    rows = {line.split()[0]: line.split()[1:] for line in result.out.splitlines() if line}
    for split in TESTS:
        assert rows[split][0:3:2] == [f"{before[split]['bleu']:.2f}", f"{before[split]['chrf']:.2f}"]
    assert json.loads((home / "runs" / "first" / "metrics.json").read_text()) == before
    alone = command("evaluate", "run=runs/first", "split=test2017", cwd=home).out
    assert alone.count("|norm:nfc") == 2
    assert alone.splitlines()[2].split() == ["runs/first", *rows["test2017"]]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("test2018", "split=test2018: runs/first has valid, test, test2017, other"),
        ("[test,train]", "split=['test', 'train']: must be test or valid, or the name of a further test set"),
        ("[]", "split=[]: must be test or valid"),
    ],
)
def test_no_such_split(trained, split, message):
    (line,) = refused("evaluate", "run=runs/first", f"split={split}", cwd=trained[0])
    assert line.startswith(message)
