"""Data sets of the hub: real ones in folders of its layout, and a hub that fails."""

from pathlib import Path

import datasets
import pytest
from built import hub
from datasets import Dataset, DatasetDict

from headcount.errors import InputError


def hub_folder(path, rows):
    for split in ("train", "validation", "test"):
        Dataset.from_dict(rows).to_parquet(path / "data" / f"{split}-00000-of-00001.parquet")
    return str(path)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("own_cache")
def test_a_folder_with_a_column_for_each_language(tmp_path):
    rows = {"en": ["one\ntwo", None], "de": ["eins", "zwei"], "id": [1, 2]}
    corpus = hub(hub_folder(tmp_path / "set", rows), "en", "de")
    data = corpus.load()
    assert list(data) == ["train", "valid", "test"]
    expected = [{"source": "one\ntwo", "target": "eins"}, {"source": None, "target": "zwei"}]
    assert data["test"].to_list() == expected
    assert not (tmp_path / "cache").exists()  # a folder is read as it is, and leaves nothing
    before = corpus.fingerprint()
    hub_folder(tmp_path / "set", {"en": ["other"], "de": ["anderes"]})
    assert corpus.fingerprint() != before


def test_the_names_of_a_folder_s_files_are_part_of_it(tmp_path):
    for name, text in {"a-train": "en,de\na,b\n", "b-test": "en,de\nc,d\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    before = hub(str(tmp_path), "en", "de").fingerprint()
    (tmp_path / "a-train.csv").rename(tmp_path / "a-test.csv")  # the order of names and contents stays as it is
    (tmp_path / "b-test.csv").rename(tmp_path / "b-train.csv")
    assert hub(str(tmp_path), "en", "de").fingerprint() != before


def test_hub_that_answers(monkeypatch):
    asked = []

    def load_dataset(path, name, revision):
        asked.append((path, name, revision))
        pairs = Dataset.from_dict({"en": ["a"], "de": ["b"]})
        return DatasetDict({"train": pairs, "validation": pairs, "test": pairs})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = hub("some/set", "de", "en", name="raw", revision="v1").load()
    assert asked == [("some/set", "raw", "v1")]
    assert data["valid"].to_list() == [{"source": "b", "target": "a"}]


@pytest.mark.usefixtures("own_cache")
def test_hub_out_of_reach_is_one_line_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as error:
        hub("nobody/nothing", "en", "de").load()
    message = str(error.value)
    assert "\n" not in message
    for part in ("data.path=nobody/nothing", "nobody/nothing", "data.root=DIR", "train.en, train.de", "data=files"):
        assert part in message


def configured_folder(path: Path) -> str:
    """A data set as many are on the hub: configurations, declared in its card, with all splits or train alone."""
    rows = [{"de": f"satz {row}", "en": f"sentence {row}"} for row in range(600)]
    files = {"de-en": {"train": rows[:500], "validation": rows[500:540], "test": rows[540:]}, "books": {"train": rows}}
    card = ["---", "configs:"]
    for name, splits in files.items():
        card += [f"- config_name: {name}", "  data_files:"]
        for split, part in splits.items():
            card += [f"  - split: {split}", f"    path: {name}/{split}-*"]
            Dataset.from_dict({"translation": part}).to_parquet(path / name / f"{split}-00000-of-00001.parquet")
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
        {"name": "de-en", "max_pairs": 70, "tests": {"again": "test", "dev": "validation"}},
        {"name": "de-en", "held_out": {"test": 50}},
        {**BOOKS, "held_out": {"valid": 30, "test": 20}, "max_pairs": 80},
    ],
)
def test_splits_of_a_configuration(configured, settings):
    sizes = {split: len(pairs) for split, pairs in hub(configured, "de", "en", **settings).load().items()}
    if "books" in settings.values():
        assert sizes == {"train": settings.get("max_pairs", 600) - 50, "valid": 30, "test": 20}
    else:
        assert sizes["train"] == settings.get("max_pairs", 500) - settings.get("held_out", {}).get("test", 0)
        assert {"train", "valid", "test", *settings.get("tests", ())} == sizes.keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": None}, r"cannot be loaded .*Config name is missing.*check data.name"),
        ({"name": "fr-en"}, r"cannot be loaded .*'fr-en' not found"),
        ({"name": "books"}, r"has no split validation, test; it has train: .*or data.held_out.valid=2000"),
        ({"name": "de-en", "tests": {"more": "test2017"}}, r"has no split test2017; .*: set data.tests.more$"),
        ({"name": "de-en", "target_field": "english"}, r"has no column english.* it has de, en: set data.source_field"),
        ({"name": "de-en", "source_field": "translation"}, r"column translation"),
    ],
)
def test_wrong_choices_say_what_there_is(configured, settings, message):
    with pytest.raises(InputError, match=message) as error:
        hub(configured, "de", "en", **settings).load()
    assert "\n" not in str(error.value)


def test_fields_may_be_called_otherwise_than_the_languages(configured):
    corpus = hub(configured, "deu", "eng", name="de-en", source_field="de", target_field="en")
    plain = hub(configured, "de", "en", name="de-en")
    assert corpus.load()["test"].to_list() == plain.load()["test"].to_list()
    assert corpus.source_language == "deu"
    turned = hub(configured, "deu", "eng", name="de-en", source_field="en", target_field="de")
    assert turned.fingerprint() != corpus.fingerprint()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "en", "target": None}, r"^data.target: not given"),
        ({"source": "en", "target": "de", "splits": BOOKS["splits"]}, r"data.splits.valid: not given; .*data.held_out"),
        ({"source": "en", "target": "de", "tests": {"more": 2017}}, r"data.tests.more=2017: must be two files"),
    ],
)
def test_settings_are_checked_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        hub("some/set", **settings)
