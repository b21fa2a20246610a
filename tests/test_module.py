import itertools
import logging
import multiprocessing
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import built, cleaning, sentence_piece
from clauses import CLAUSES
from datasets import Dataset, DatasetDict
from filelock import FileLock
from processes import wait_until

from headcount.data.module import TranslationData
from headcount.data.subword_regularization import BpeDropout, SampledSegmentation
from headcount.data.tokenizer import PAD
from headcount.errors import InputError

PAIR = built("tokenizer/separate", vocab_size=300)
ON_CPU = SimpleNamespace(root_device=torch.device("cpu"))


class Toy:
    """A corpus that counts how often it is read."""

    source_language = "en"
    target_language = "de"

    def __init__(self, extra: str = "x") -> None:
        self.extra = extra
        self.loads = 0

    def load(self) -> DatasetDict:
        self.loads += 1
        long = [(" and ".join(["the dog"] * n), " und ".join(["der Hund"] * n)) for n in (30, 31)]
        valid = [*CLAUSES[150:165], ("  spaced  out ", " so  wie es war "), long[1]]
        splits = {"train": [*CLAUSES[:150], long[0]], "valid": valid, "test": CLAUSES[165:]}
        return DatasetDict({split: self._dataset(pairs) for split, pairs in splits.items()})

    def _dataset(self, pairs):
        source, target = zip(*pairs, strict=True)
        return Dataset.from_dict({"source": source, "target": target, "extra": [self.extra] * len(pairs)})

    def fingerprint(self) -> str:
        return self.extra


def module(directory, corpus=None, **settings):
    defaults = {"batch_tokens": 64, "max_length": 40, "seed": 1, "workers": 0, "accumulation": 1}
    defaults |= {"both_directions": False}
    defaults |= {"tokenizer": sentence_piece(320), "cleaning": cleaning(), "segmentation": None, "directory": directory}
    return TranslationData(corpus=corpus or Toy(), **defaults | settings)


def made(directory, corpus=None, **settings):
    """A module whose data is prepared."""
    data = module(directory, corpus, **settings)
    data.prepare_data()
    return data


def test_text_that_changes_while_it_is_prepared_is_not_taken_for_what_it_was(tmp_path):
    class Changing(Toy):
        def load(self) -> DatasetDict:
            self.extra = "y"
            return super().load()

    data = module(tmp_path, Changing())
    with pytest.raises(InputError, match="changed while it was prepared; start again"):
        data.prepare_data()
    assert not [path for path in (tmp_path / "prepared").iterdir() if path.is_dir()]
    data.prepare_data()
    assert [path.name for path in (tmp_path / "prepared").iterdir() if path.is_dir()] == [data.prepared.name]


@pytest.fixture
def prepared(tmp_path):
    return made(tmp_path)


def stream(data, count):
    return list(itertools.islice(data.train_dataloader(), count))


def test_prepared_splits(prepared):
    raw = Toy().load()
    data = prepared.data
    assert prepared.report.counts["train"]["too many pieces"] == 1
    assert prepared.report.counts["train"]["kept"] == data["train"].num_rows == 150
    assert prepared.report.counts["valid"]["too many pieces"] == 1
    for split in ("valid", "test"):
        assert data[split]["source"][:] == raw[split]["source"][:]
        assert data[split]["target"][:] == raw[split]["target"][:]
    assert data["train"]["extra"][:] == ["x"] * 150
    for split, pairs in data.items():
        for side, sentences in zip(("source", "target"), prepared._sentences[split], strict=True):
            assert [sentences.row(row) for row in range(len(pairs))] == prepared.tokenizer.encode(pairs[side][:])
    assert (prepared.source_language, prepared.target_language) == ("en", "de")


def test_a_second_start_reads_what_the_first_one_made(prepared, tmp_path, caplog):
    corpus = Toy()
    again = module(tmp_path, corpus)
    with caplog.at_level(logging.INFO):
        again.prepare_data()
        again.prepare_data()
        again.setup("fit")
    assert corpus.loads == 0
    assert again.prepared == prepared.prepared
    assert again.report == prepared.report
    assert "normalised" not in caplog.text  # the table of cleaning is of the first start
    assert equal(stream(again, 30), stream(prepared, 30))


def equal(one, other):
    return len(one) == len(other) and all(
        torch.equal(a.source, b.source) and torch.equal(a.target_out, b.target_out) and a.step_tokens == b.step_tokens
        for a, b in zip(one, other, strict=True)
    )


OTHER_DATA = {"corpus": Toy("y"), "tokenizer": sentence_piece(310), "cleaning": cleaning(max_words=9), "max_length": 39}
SAME_DATA = {"batch_tokens": 80, "seed": 2, "workers": 1, "both_directions": True}


def test_settings_that_change_the_data_make_another_folder(tmp_path):
    def folder(**settings):
        return module(tmp_path, **settings)._folder()

    assert len({folder(), *(folder(**{name: value}) for name, value in OTHER_DATA.items())}) == 1 + len(OTHER_DATA)
    assert {folder(**{name: value}) for name, value in SAME_DATA.items()} == {folder()}


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_of_several_processes_one_builds_and_the_others_say_that_they_wait(tmp_path):
    reads, log = tmp_path / "reads", tmp_path / "log"

    class Noted(Toy):
        def load(self) -> DatasetDict:
            with reads.open("a") as file:
                file.write("x")
            return super().load()

    def prepare() -> None:
        logging.basicConfig(filename=log, level=logging.INFO, force=True)
        module(tmp_path, Noted()).prepare_data()

    lock = module(tmp_path)._folder().with_suffix(".lock")
    lock.parent.mkdir()
    several = [multiprocessing.get_context("fork").Process(target=prepare) for _ in range(3)]
    with FileLock(lock):  # as long as somebody else prepares it
        for process in several:
            process.start()
        said = "another process prepares this corpus; waiting"
        wait_until(lambda: log.exists() and log.read_text().count(said) == 3, seconds=60)
        assert not reads.exists()
    for process in several:
        process.join(60)
    assert [process.exitcode for process in several] == [0] * 3
    assert reads.read_text() == "x"


def test_files_of_a_killed_process_are_removed(prepared, tmp_path):
    left = prepared.prepared.with_name(f".{prepared.prepared.name}.0123456789abcdef.part")
    prepared.prepared.rename(left)
    assert made(tmp_path).report == prepared.report
    assert not left.exists()


def test_a_damaged_folder_is_named(prepared, tmp_path):
    (prepared.prepared / "report.json").write_text("{")
    with pytest.raises(InputError, match=rf"{prepared.prepared} is damaged .*delete this folder"):
        module(tmp_path).prepare_data()


def test_the_tokenizer_of_a_run(prepared, tmp_path):
    other = sentence_piece(310).train(Toy().load()["train"]["source"][:])
    given, used = module(tmp_path, tokenizer=other), module(tmp_path)
    used.use_tokenizer(other)
    for data in (given, used):
        data.prepare_data()
        assert data.tokenizer.vocab_size == 310
        assert data._sentences["test"][0].row(3) == other.encode(data.data["test"]["source"][3:4])[0]
    assert given.prepared == used.prepared != prepared.prepared


def test_a_stream_starts_at_any_step_and_an_epoch_has_every_row_once(tmp_path):
    data = made(tmp_path, accumulation=2)
    steps = data.epochs.steps_of(0)
    every = stream(data, 4 * (steps + 5))
    for start in (1, steps - 1, steps, steps + 3):
        data.start_step = start
        assert equal(stream(data, 6), every[2 * start : 2 * start + 6])
    assert (data.epoch_of(0), data.epoch_of(steps)) == (0, 1)
    assert 0 < data.epoch_of(steps // 2) < 1
    assert data.epochs.locate(steps + 2) == (1, 2)
    first = every[: 2 * steps]
    for epoch in (first, every[2 * steps : 2 * (steps + data.epochs.steps_of(1))]):
        assert sorted(torch.cat([batch.rows for batch in epoch]).tolist()) == list(range(150))
    for one, other in zip(first[::2], first[1::2], strict=True):
        assert one.step_tokens == other.step_tokens == len(one.real) + len(other.real)
    tokens = sum(batch.tokens for batch in first)
    padded = sum(batch.source.numel() + batch.target_out.numel() for batch in first)
    assert data.epochs.plan(0).tokens == tokens
    assert data.epochs.plan(0).padding == pytest.approx(1 - tokens / padded)


@pytest.mark.medium
def test_workers_keep_the_order(prepared, tmp_path):
    assert equal(stream(made(tmp_path, workers=2), 40), stream(prepared, 40))


@pytest.mark.parametrize("from_environment", [True, False])
@pytest.mark.parametrize("segmentation", [None, BpeDropout(probability=0.3, start_epoch=0)])
def test_two_processes_get_the_batches_of_one_that_accumulates(tmp_path, monkeypatch, segmentation, from_environment):
    alone = made(tmp_path, accumulation=2, segmentation=segmentation)
    shares = []
    for rank in range(2):
        data = made(tmp_path, segmentation=segmentation)
        if from_environment:
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", "2")
        else:
            data.trainer = type("Trainer", (), {"global_rank": rank, "world_size": 2, "strategy": ON_CPU})()
        shares.append(stream(data, 20))
    monkeypatch.undo()
    together = [batch for pair in zip(*shares, strict=True) for batch in pair]
    assert equal(together, stream(alone, 40))


def test_text_that_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"no pair of the train split is left: 151 read, .*relax data\.max_length"):
        module(tmp_path, max_length=2).prepare_data()
    assert not [path for path in (tmp_path / "prepared").iterdir() if path.suffix not in (".lock", ".part")]


@pytest.mark.medium
def test_sampled_pieces_say_the_same_text_and_each_epoch_cuts_anew(tmp_path):
    data = made(tmp_path, tokenizer=PAIR, segmentation=BpeDropout(probability=0.5, start_epoch=0))
    whole = stream(data, data.epochs.steps_of(0) + 5)
    assert sorted(torch.cat([batch.rows for batch in whole[: data.epochs.steps_of(0)]]).tolist()) == list(range(150))
    for batch in whole:
        rows = data.data["train"][batch.rows]
        assert data.tokenizer.source.decode(batch.source.tolist()) == rows["source"]
        assert data.tokenizer.target.decode(batch.target_out.tolist()) == rows["target"]
        assert batch.tokens == int((batch.source != PAD).sum() + (batch.target_out != PAD).sum())
    by_row = {int(row): ids for batch in whole[: data.epochs.steps_of(0)] for row, ids in each_row(batch)}
    again = {int(row): ids for batch in whole[data.epochs.steps_of(0) :] for row, ids in each_row(batch)}
    assert any(by_row[row] != again[row] for row in again)


@pytest.mark.medium
def test_epochs_before_the_start_of_sampling_are_those_without_it(tmp_path):
    def late():
        return made(tmp_path, segmentation=BpeDropout(probability=0.5, start_epoch=2))

    data, without = late(), made(tmp_path)
    before = sum(without.epochs.plan(epoch).steps for epoch in (0, 1))
    at_once = made(tmp_path, segmentation=BpeDropout(probability=0.5, start_epoch=0))
    third = sum(at_once.epochs.plan(epoch).steps for epoch in (0, 1))
    batches = stream(data, before + 5)
    assert equal(batches[:before], stream(without, before))
    assert equal(batches[before:], stream(at_once, third + 5)[third:])
    for start in (before - 3, before, before + 2):
        resumed = late()
        resumed.start_step = start
        assert equal(stream(resumed, 3), batches[start : start + 3])


@pytest.mark.parametrize(
    "segmentation",
    [
        BpeDropout(probability=0.1, start_epoch=0),
        BpeDropout(probability=0.9, start_epoch=0),
        SampledSegmentation(alpha=0.2, candidates=64, start_epoch=0),
    ],
)
def test_no_drawn_batch_exceeds_the_budget(tmp_path, segmentation):
    sizes = {"accumulation": 2, "batch_tokens": 200, "max_length": 18}
    data = made(tmp_path, tokenizer=sentence_piece(310, segmentation.model_type), segmentation=segmentation, **sizes)
    batches = stream(data, 2 * data.epochs.steps_of(0))
    assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == list(range(150))
    largest = [max(batch.source.numel(), batch.target_out.numel()) for batch in batches]
    assert max(largest) <= 200
    assert np.mean(largest) > 100  # and no smaller than they need be
    assert max(max(batch.source.shape[1], batch.target_out.shape[1]) for batch in batches) <= 18 + 1
    real = sum(int((batch.target_out != PAD).sum()) for batch in batches)
    assert sum(batch.step_tokens for batch in batches[::2]) == pytest.approx(real, rel=0.1)
    assert data.epochs.plan(0).tokens == pytest.approx(sum(batch.tokens for batch in batches), 0.1)


def each_row(batch):
    return zip(batch.rows, ([piece for piece in ids if piece != PAD] for ids in batch.source.tolist()), strict=True)


@pytest.mark.medium
@pytest.mark.parametrize("settings", [{}, {"both_directions": True}])
@pytest.mark.parametrize("segmentation", [None, BpeDropout(probability=0.5, start_epoch=0)])
def test_another_process_gets_the_same_batches_without_a_copy_of_the_text(tmp_path, segmentation, settings):
    data = made(tmp_path, Toy("a long column " * 1000), segmentation=segmentation, **settings)
    here = data.train_dataloader().dataset
    sent = pickle.dumps(here)
    assert len(sent) < (data.prepared / "train.arrow").stat().st_size / 10
    there = itertools.islice(pickle.loads(sent), 20)
    assert equal(list(there), list(itertools.islice(here, 20)))


@pytest.mark.parametrize("segmentation", [None, BpeDropout(probability=0.5, start_epoch=0)])
def test_both_directions_are_one_corpus(tmp_path, segmentation):
    one, both = made(tmp_path), made(tmp_path, both_directions=True, segmentation=segmentation)
    assert one.prepared == both.prepared
    batches = stream(both, both.epochs.steps_of(0))
    assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == list(range(300))
    pairs = one.data["train"]
    for batch in batches:
        sides = [both.tokenizer.decode(ids.tolist()) for ids in (batch.source, batch.target_out)]
        for row, *read in zip(batch.rows.tolist(), *sides, strict=True):
            there = [pairs[row % 150][side] for side in ("source", "target")]
            assert read == (there if row < 150 else there[::-1])
    for split in ("valid", "test"):
        twice = split == "valid"
        given, pairs = both.data[split], one.data[split]
        assert given["source"][:] == pairs["source"][:] + (pairs["target"][:] if twice else [])
        assert given["target"][:] == pairs["target"][:] + (pairs["source"][:] if twice else [])
        assert "extra" in given.column_names or twice  # of one direction, and may be wrong in the other
    rows = torch.cat([batch.rows for batch in both.val_dataloader()]).tolist()
    assert sorted(rows) == list(range(len(both.data["valid"])))
