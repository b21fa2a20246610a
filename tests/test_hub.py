"""Data sets of the hub: real ones in folders of its layout, and a hub that fails."""

import json
import time
from pathlib import Path

import datasets
import pytest
from built import hub
from conftest import completed, failed, pairs_of
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from huggingface_hub.errors import RepositoryNotFoundError

from headcount.errors import InputError


def hub_folder(path, rows):
    for split in ("train", "validation", "test"):
        Dataset.from_dict(rows).to_parquet(path / "data" / f"{split}-00000-of-00001.parquet")
    return str(path)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    "rows",
    [
        {"en": ["one\ntwo", None], "de": ["eins", "zwei"], "id": [1, 2]},
        {"translation": [{"en": "one\ntwo", "de": "eins"}, {"en": None, "de": "zwei"}]},
    ],
    ids=["columns", "translation"],
)
def test_both_layouts_of_the_hub(tmp_path, rows):
    corpus = hub(hub_folder(tmp_path / "set", rows), "en", "de")
    data = corpus.load()
    assert list(data) == ["train", "valid", "test"]
    expected = [{"source": "one two", "target": "eins"}, {"source": "", "target": "zwei"}]
    assert pairs_of(data["test"], 1) == pairs_of(data["test"], 5) == expected
    before = corpus.fingerprint()
    hub_folder(tmp_path / "set", {"en": ["other"], "de": ["anderes"]})
    assert corpus.fingerprint() != before
    with pytest.raises(InputError, match=r"has no column cs; it has .*en, de.*: set data.source_field"):
        hub(corpus.path, "en", "cs").load()
    with pytest.raises(InputError, match=r"has no split dev; it has train, validation, test"):
        hub(corpus.path, "en", "de", splits={"train": "train", "valid": "dev", "test": "test"}).load()


def test_a_folder_is_the_same_text_wherever_it_lies(tmp_path):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "train.csv").write_text("en,de\na,b\n")
    here, there = (hub(str(tmp_path / place), "en", "de").fingerprint() for place in ("here", "there"))
    assert here == there
    (tmp_path / "there" / "train.csv").write_text("en,de\na,c\n")
    assert hub(str(tmp_path / "there"), "en", "de").fingerprint() != here


def test_the_names_of_a_folder_s_files_are_part_of_it(tmp_path):
    for name, text in {"a-train": "en,de\na,b\n", "b-test": "en,de\nc,d\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    before = hub(str(tmp_path), "en", "de").fingerprint()
    (tmp_path / "a-train.csv").rename(tmp_path / "a-test.csv")  # the order of names and contents stays as it is
    (tmp_path / "b-test.csv").rename(tmp_path / "b-train.csv")
    assert hub(str(tmp_path), "en", "de").fingerprint() != before


def hub_answers(monkeypatch, error=None):
    """From now on the hub knows every data set or fails with `error`; returns the list of what it is asked for."""
    asked = []

    def dataset_info(self, path, revision, timeout):
        asked.append((path, revision))
        if error:
            raise error

    monkeypatch.setattr("headcount.data.corpora.hub.HfApi.dataset_info", dataset_info)
    return asked


def test_hub_that_answers(monkeypatch):
    asked = hub_answers(monkeypatch)

    def load_dataset(path, name, revision):
        assert not datasets.config.HF_HUB_OFFLINE
        asked.append((path, name, revision))
        pairs = Dataset.from_dict({"en": ["a"], "de": ["b"]})
        return DatasetDict({"train": pairs, "validation": pairs, "test": pairs})

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = hub("some/set", "de", "en", name="raw", revision="v1").load()
    assert asked == [("some/set", "v1"), ("some/set", "raw", "v1")]
    assert pairs_of(data["valid"]) == [{"source": "b", "target": "a"}]


@pytest.mark.usefixtures("own_cache")
def test_hub_out_of_reach_is_one_line_at_once_and_says_what_to_do(monkeypatch):
    hub_answers(monkeypatch, OSError("[Errno -2] Name or service not known\nand more"))
    offline = datasets.config.HF_HUB_OFFLINE
    start = time.perf_counter()
    with pytest.raises(InputError) as error:
        hub("nobody/nothing", "en", "de").load()
    assert time.perf_counter() - start < 5
    assert offline == datasets.config.HF_HUB_OFFLINE
    message = str(error.value)
    assert "\n" not in message
    for part in ("data.path=nobody/nothing", "Name or service", "data.root=DIR", "train.en, train.de", "data=files"):
        assert part in message


def test_a_data_set_that_the_hub_does_not_have(monkeypatch):
    class AbsentError(RepositoryNotFoundError):
        """Made without the answer of a server, whose type depends on the version of the hub's library."""

        def __init__(self):
            pass

    hub_answers(monkeypatch, AbsentError())
    line = r"data.path=nobody/nothing cannot .* \(it has no public data set of that name"
    with pytest.raises(InputError, match=line):
        hub("nobody/nothing", "en", "de").load()


def configured_folder(path: Path) -> str:
    """A data set as many are on the hub: configurations, declared in its card, with all splits or train alone."""
    rows = [{"de": f"satz {row}", "en": f"sentence {row}"} for row in range(600)]
    files = {"de-en": {"train": rows[:500], "validation": rows[500:540], "test": rows[540:]}, "books": {"train": rows}}
    card = ["---", "configs:"]
    for name, splits in files.items():
        card += [f"- config_name: {name}", "  data_files:"]
        for split, part in splits.items():
            card += [f"  - split: {split}", f"    path: {name}/{split}-*"]
            for shard, half in enumerate((part[: len(part) // 2], part[len(part) // 2 :])):
                file = path / name / f"{split}-0000{shard}-of-00002.parquet"
                Dataset.from_dict({"id": [*map(str, range(len(half)))], "translation": half}).to_parquet(file)
    (path / "README.md").write_text("\n".join([*card, "---", "A card."]), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        yield configured_folder(tmp_path_factory.mktemp("set"))


BOOKS = {"name": "books", "splits": {"train": "train", "valid": None, "test": None}}


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "de-en"},
        {"name": "de-en", "max_pairs": 70},
        {"name": "de-en", "tests": {"again": "test", "dev": "validation"}},
        {"name": "de-en", "held_out": {"test": 50}},
        {**BOOKS, "held_out": {"valid": 30, "test": 20}},
        {**BOOKS, "held_out": {"valid": 30, "test": 20}, "max_pairs": 80},
    ],
)
def test_a_stream_gives_the_same_as_a_stored_data_set(configured, settings):
    stored, streamed = (hub(configured, "de", "en", streaming=streaming, **settings) for streaming in (False, True))
    assert stored.fingerprint() == streamed.fingerprint()  # so what is prepared from one serves for the other
    whole, parts = stored.load(), streamed.load()
    assert list(whole) == list(parts)
    for split, pairs in whole.items():
        found = pairs_of(pairs, 33)
        assert found == pairs_of(parts[split], 33) == pairs_of(parts[split], 1000)
        assert pairs.num_rows == len(found)
        assert parts[split].num_rows in (None, len(found))
    sizes = {split: pairs.num_rows for split, pairs in whole.items()}
    if "books" in settings.values():
        read = settings.get("max_pairs", 600)
        assert sizes == {"train": read - 50, "valid": 30, "test": 20}
    else:
        read = settings.get("max_pairs", 500)
        assert sizes["train"] == read - settings.get("held_out", {}).get("test", 0)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": None}, r"^data.name: not given, and .* has several configurations: .*de-en"),
        ({"name": "fr-en"}, r"^data.name=fr-en: .* has no such configuration; it has .*de-en"),
        ({"name": "books"}, r"has no split validation, test; it has train: .*or data.held_out.valid=2000"),
        ({"name": "de-en", "tests": {"more": "test2017"}}, r"has no split test2017; .*: set data.tests.more$"),
        ({"name": "de-en", "target_field": "english"}, r"has no column english; it has de, en: set data.source_field"),
        ({"name": "de-en", "source_field": "translation"}, r"column translation holds struct<.*> and no text"),
        ({**BOOKS, "held_out": {"valid": 500, "test": 100}}, r"data.held_out.valid=500: too much for the train split"),
    ],
)
def test_wrong_choices_say_what_there_is(configured, settings, message, streaming):
    corpus = hub(configured, "de", "en", streaming=streaming, **settings)
    with pytest.raises(InputError, match=message) as error:
        [pairs_of(pairs, 100) for pairs in corpus.load().values()]
    assert "\n" not in str(error.value)


def test_fields_may_be_called_otherwise_than_the_languages(configured):
    corpus = hub(configured, "deu", "eng", name="de-en", source_field="de", target_field="en")
    plain = hub(configured, "de", "en", name="de-en")
    assert pairs_of(corpus.load()["test"]) == pairs_of(plain.load()["test"])
    assert corpus.source_language == "deu"
    turned = hub(configured, "deu", "eng", name="de-en", source_field="en", target_field="de")
    assert turned.fingerprint() != corpus.fingerprint()


def breaking_after(count, monkeypatch):
    """From now on the hub answers, but its stream of train breaks off."""

    def rows(most):
        for row in range(600):
            if row == most:
                raise ConnectionResetError("connection reset by peer\nand more")
            yield {"de": f"satz {row}", "en": f"sentence {row}"}

    def load_dataset(path, name, revision, streaming):
        assert streaming
        splits = {"train": count, "validation": 600, "test": 600}
        stream = IterableDataset.from_generator
        return IterableDatasetDict({split: stream(rows, gen_kwargs={"most": n}) for split, n in splits.items()})

    hub_answers(monkeypatch)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


def test_a_stream_that_breaks_off_says_after_how_many_pairs(monkeypatch):
    breaking_after(250, monkeypatch)
    corpus = hub("some/set", "de", "en", streaming=True)
    with pytest.raises(InputError) as error:
        pairs_of(corpus.load()["train"], 100)
    assert "the stream of the split train broke off after 200 pairs (connection reset by peer);" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(pairs_of(hub("some/set", "de", "en", streaming=True, max_pairs=200).load()["train"], 100)) == 200
    held_out = hub("some/set", "de", "en", streaming=True, held_out={"test": 10})
    with pytest.raises(InputError, match="broke off after 0 pairs"):
        held_out.load()


@pytest.mark.medium
def test_nothing_half_written_is_left_of_a_broken_stream(tiny, tmp_path, monkeypatch):
    breaking_after(250, monkeypatch)
    options = ("data=hub", "data.path=some/set", "data.source=de", "data.target=en", "data.streaming=true")
    own = [option for option in tiny if not option.startswith(("data=", "data.root=", "data.directory="))]
    (line,) = failed("train", *options, *own, "data.directory=prepared", cwd=tmp_path)
    assert line.startswith("some/set: the stream of the split train broke off after ")
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


@pytest.mark.medium
def test_trained_from_a_stream(tiny, configured, tmp_path):
    """With valid and test held out, since the corpus is train alone."""
    own = [option for option in tiny if not option.startswith(("data=", "data.root=", "data.directory=", "tokenizer."))]
    options = (f"data.path={configured}", "data.name=books", "data.streaming=true", "data.max_pairs=400")
    sizes = ("data.held_out={valid:10,test:20}", "data.directory=prepared", "tokenizer.vocab_size=290")
    completed("train", "data=hub", "data.source=de", "data.target=en", *options, *sizes, *own, cwd=tmp_path)
    (report,) = tmp_path.glob("prepared/prepared/*/report.json")
    counts = json.loads(report.read_text())["counts"]
    assert {split: count["read"] for split, count in counts.items()} == {"train": 370, "valid": 10, "test": 20}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "en", "target": "en"}, r"data.source=en and data.target=en"),
        ({"source": "en", "target": "de", "splits": {"train": "train"}}, r"data.splits"),
        ({"source": "en", "target": None}, r"^data.target: not given"),
        ({"source": "en", "target": "de", "splits": BOOKS["splits"]}, r"data.splits.valid: not given; .*data.held_out"),
        ({"source": "en", "target": "de", "tests": {"model": "test"}}, r"data.tests.model: cannot be the name"),
        ({"source": "en", "target": "de", "tests": {"more": 2017}}, r"data.tests.more=2017: must be two files"),
    ],
)
def test_settings_are_checked_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        hub("some/set", **settings)
