"""Callbacks: the count of tokens and seconds, and the lines of progress."""

import logging
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


def test_a_line_of_progress_forty_times_a_run_once_a_step(clock, caplog):
    """Two batches a step, each of one second and 100 tokens on each of two processes, in a run that goes on."""
    progress, run = TrainingProgress(SkippedSteps(10)), trainer(max_steps=80, accumulation=2, processes=2)
    progress.load_state_dict({"tokens": 5000, "seconds": 9.0, "step_seconds": 8.0})
    progress.on_train_start(run, None)
    module = SimpleNamespace(recent_loss=lambda: 2.5, rate=0.001, device="cpu")
    with caplog.at_level(logging.INFO, "headcount"):
        for batch in range(12):
            clock.seconds += 1
            run.global_step = (batch + 1) // 2
            progress.on_train_batch_end(run, module, None, SimpleNamespace(tokens=100), batch)
    assert progress.tokens == 5000 + 12 * 200
    seconds_left = [78 * (8 + 4) / 2, 76 * (8 + 8) / 4, 74 * (8 + 12) / 6]
    lefts = ["{}:{:02}".format(*divmod(round(seconds), 60)) for seconds in seconds_left]
    assert [record.getMessage() for record in caplog.records] == [
        f"step {step} of 80  loss 2.500  lr 1.0e-03  200 tokens/s  {left} left"
        for step, left in zip((2, 4, 6), lefts, strict=True)
    ]
