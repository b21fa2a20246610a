"""Callbacks: the count of tokens and seconds, and the lines of progress."""

from types import SimpleNamespace

import pytest

from headcount.training import callbacks
from headcount.training.callbacks import SkippedSteps, StopOnInterrupt, TrainingProgress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now.seconds)
    return now


def trainer(max_steps: int, accumulation: int = 1, processes: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        max_steps=max_steps,
        accumulate_grad_batches=accumulation,
        world_size=processes,
        strategy=SimpleNamespace(reduce=lambda tokens, reduce_op: tokens * processes),
        is_global_zero=True,
        global_step=0,
    )


def test_seconds_of_steps_leave_out_validation(clock):
    progress, run = TrainingProgress(SkippedSteps(10)), trainer(max_steps=10)
    module = SimpleNamespace(recent_loss=lambda: 2.5, rate=0.001, device="cpu")
    for seconds, happens in (
        (0, lambda: progress.on_train_start(run, None)),
        (2, lambda: progress.on_train_batch_end(run, module, None, SimpleNamespace(tokens=30), 0)),
        (1, lambda: progress.on_validation_start(run, None)),
        (4, lambda: progress.on_validation_end(run, None)),
        (2, lambda: progress.on_train_batch_end(run, module, None, SimpleNamespace(tokens=20), 1)),
        (8, lambda: progress.on_train_end(run, None)),
    ):
        clock.seconds += seconds
        run.global_step = 1
        happens()
    assert (progress.seconds, progress.step_seconds, progress.tokens) == (17, 5, 50)


def test_a_signal_during_the_agreement_of_processes_acts_after_the_next_step():
    stop, run = StopOnInterrupt(), trainer(max_steps=10, processes=2)
    run.should_stop = False

    def agreed(here, all):
        decision, stop.exit_code = here, 143  # the signal comes after this process has given its answer
        return decision

    run.strategy = SimpleNamespace(reduce_boolean_decision=agreed)
    run.val_check_batch = 2
    stop.on_train_batch_end(run, None, None, None, 0)
    assert not run.should_stop
    stop.on_train_batch_end(run, None, None, None, 1)
    assert run.should_stop
    assert stop.exit_code == 143
