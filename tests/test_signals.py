"""Signals to stop: one that comes twice within a second counts once; in the scoring it ends the process with a line."""

import signal
from types import SimpleNamespace

import pytest
from conftest import command
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector

from headcount import signals
from headcount.run.train import stoppable
from headcount.signals import signals_to


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds that the clock shows, to be set."""
    now = [100.0]
    monkeypatch.setattr(signals, "AGAIN", 1.0)
    monkeypatch.setattr(signals, "_came", {})
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


def test_a_signal_that_comes_again_within_a_second_is_the_same_one_whoever_listens(clock):
    outer, inner, before = [], [], {number: signal.getsignal(number) for number in signals.STOP}
    term, usr1 = signal.SIGTERM, signal.SIGUSR1
    with signals_to(outer.append):
        with signals_to(inner.append):
            for clock[0], number in ((100, term), (100.9, term), (100.95, usr1), (101, term)):
                signal.raise_signal(number)
        assert inner == [term, usr1, term]
        clock[0] = 101.5
        signal.raise_signal(term)
        assert outer == []
        clock[0] = 103
        signal.raise_signal(term)
        assert outer == [term]
        clock[0] = 105
    assert {number: signal.getsignal(number) for number in signals.STOP} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_splits_are_scored_ends_the_process_with_a_line(tmp_path, caplog, number):
    before = signal.getsignal(number)
    run = SimpleNamespace(directory=tmp_path / "run", config=SimpleNamespace(extensions=["mine"]))
    with caplog.at_level("INFO", "headcount"), pytest.raises(SystemExit) as ended, stoppable(run):
        signal.raise_signal(number)
    assert ended.value.code == 128 + number
    assert caplog.messages[0] == "stopped before all splits were scored. Score them with:"
    assert caplog.messages[1].endswith(f"headcount train resume={tmp_path / 'run'} 'extensions=[mine]'")
    assert signal.getsignal(number) is before


@pytest.mark.medium
def test_a_signal_after_lightning_has_put_its_handlers_away_ends_the_process_with_a_line(tiny, tmp_path, monkeypatch):
    teardown, before = _SignalConnector.teardown, signal.getsignal(signal.SIGTERM)

    def signalled(self):
        teardown(self)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_SignalConnector, "teardown", signalled)
    monkeypatch.setattr(signals, "_came", {})
    ended = command("train", *tiny, "steps=2", "hydra.run.dir=run", cwd=tmp_path)
    assert ended.code == 128 + signal.SIGTERM
    assert "stopped at step 2; the model so far can be used" in (tmp_path / "run" / "train.log").read_text()
    assert signal.getsignal(signal.SIGTERM) is before
