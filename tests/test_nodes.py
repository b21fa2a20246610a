"""Training on two nodes, of which two launchers on the loopback take the place."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, completed
from processes import DDP, ENVIRONMENT, WAIT
from test_end_to_end import curves, distance, metrics

ANEW = ENVIRONMENT | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # see docs/scaling.md
NODE = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "2"]
# The second process ends itself when a step begins, once.
KILLED = """
import os, runpy, signal, sys
from pathlib import Path
from headcount.training.module import TranslationTask
step, script, *words = sys.argv[1:]
begin = TranslationTask.on_train_batch_start
def begin_or_end(task, batch, number):
    if number == int(step) and os.environ["RANK"] == "1" and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    begin(task, batch, number)
TranslationTask.on_train_batch_start = begin_or_end
sys.argv = [script, *words]
runpy.run_path(script, run_name="__main__")
"""


def two_nodes(folder: Path, *words: str) -> list[str]:
    """What two launchers that meet at a free port wrote; both must end well."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = f"localhost:{free.getsockname()[1]}"
    at = ["--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "test", "--local-addr", "localhost"]
    logs = [folder / f"node-{number}.log" for number in range(2)]
    nodes = []
    try:
        for log in logs:
            with log.open("w") as file:
                nodes.append(subprocess.Popen([*NODE, *at, *words], cwd=folder, env=ANEW, stderr=file))
        codes = [node.wait(2 * WAIT) for node in nodes]
    finally:
        for node in nodes:
            node.terminate()  # it ends its processes
    written = [log.read_text() for log in logs]
    assert codes == [0, 0], "\n".join(written)
    return written


@pytest.mark.slow
def test_two_nodes_of_which_a_process_is_killed_are_one_process_with_accumulation(tiny, tmp_path):
    """The launchers start all processes again, and the same command resumes its run."""
    # Without dropout, whose numbers are drawn for each process.
    options = (*tiny, "model.dropout=0", "averaging.kind=none", "checkpoint.every=2", "search.beam=1")
    completed("train", *options, "trainer.accumulate_grad_batches=2", "hydra.run.dir=one", cwd=tmp_path)
    (tmp_path / "killed.py").write_text(KILLED)
    logs = two_nodes(tmp_path, "killed.py", "5", str(SCRIPTS / "train.py"), *options, *DDP, "resume=auto")
    assert (tmp_path / "killed").exists()
    assert sum("resuming runs/" in log for log in logs) == 1
    one, two = tmp_path / "one", (tmp_path / "runs" / "latest").resolve()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted({two.name, "latest"})
    print(f"two nodes: weights differ by at most {distance(one, two):.1e}")  # noqa: T201
    assert distance(one, two) < 1e-6
    assert metrics(two)["train"]["steps"] == 8
    assert metrics(two)["train"]["tokens"] == metrics(one)["train"]["tokens"]
    assert metrics(two)["test"]["bleu"] == metrics(one)["test"]["bleu"]
    assert [row["step"] for row in curves(two) if row["train/loss"]] == [str(step) for step in range(8)]
    assert sum(log.count("translating the test split") for log in logs) == 1  # the first process alone
