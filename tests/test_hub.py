"""Data sets of the hub: real ones in folders of its layout, and a hub that fails."""

import time
from pathlib import Path

import datasets
import pytest
from conftest import command, pairs_of
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

from headcount.data.cleaning import Cleaning
from headcount.data.corpora import HubCorpus
from headcount.data.module import TranslationData
from headcount.data.tokenizer import SentencePiece
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
    corpus = HubCorpus(hub_folder(tmp_path / "set", rows), "en", "de")
    data = corpus.load()
    assert list(data) == ["train", "valid", "test"]
    expected = [{"source": "one two", "target": "eins"}, {"source": "", "target": "zwei"}]
    assert pairs_of(data["test"], 1) == pairs_of(data["test"], 5) == expected
    before = corpus.fingerprint()
    hub_folder(tmp_path / "set", {"en": ["other"], "de": ["anderes"]})
    assert corpus.fingerprint() != before
    with pytest.raises(InputError, match=r"has no column cs; it has .*en, de.*: set data.source_field"):
        HubCorpus(corpus.path, "en", "cs").load()
    with pytest.raises(InputError, match=r"has no split dev; it has train, validation, test"):
        HubCorpus(corpus.path, "en", "de", splits={"train": "train", "valid": "dev", "test": "test"}).load()


def test_hub_that_answers(monkeypatch):
    asked = []

    class Answers:
        def dataset_info(self, path, revision, timeout):
            asked.append((path, revision))

    def load_dataset(path, name, revision):
        assert not datasets.config.HF_HUB_OFFLINE
        asked.append((path, name, revision))
        pairs = Dataset.from_dict({"en": ["a"], "de": ["b"]})
        return DatasetDict({"train": pairs, "validation": pairs, "test": pairs})

    monkeypatch.setattr("headcount.data.corpora.hub.HfApi", Answers)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = HubCorpus("some/set", "de", "en", name="raw", revision="v1").load()
    assert asked == [("some/set", "v1"), ("some/set", "raw", "v1")]
    assert pairs_of(data["valid"]) == [{"source": "b", "target": "a"}]


@pytest.mark.usefixtures("own_cache")
def test_hub_out_of_reach_is_one_line_at_once_and_says_what_to_do(monkeypatch):
    class Silent:
        def dataset_info(self, path, revision, timeout):
            raise OSError("[Errno -2] Name or service not known\nand more")

    monkeypatch.setattr("headcount.data.corpora.hub.HfApi", Silent)
    offline = datasets.config.HF_HUB_OFFLINE
    start = time.perf_counter()
    with pytest.raises(InputError) as error:
        HubCorpus("nobody/nothing", "en", "de").load()
    assert time.perf_counter() - start < 5
    assert offline == datasets.config.HF_HUB_OFFLINE
    message = str(error.value)
    assert "\n" not in message
    for part in (
        "data.path=nobody/nothing",
        "Name or service",
        "data.root=DIR",
        "train.en, train.de",
        "data=files",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "en", "target": "en"}, r"data.source=en and data.target=en"),
        ({"source": "en", "target": "de", "splits": {"train": "train"}}, r"data.splits"),
    ],
)
def test_settings_are_checked_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        HubCorpus("some/set", **settings)
