"""Training on two nodes, of which two launchers on the loopback take the place."""

import csv
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, completed
from processes import DDP, ENVIRONMENT, WAIT
from safetensors.torch import load_file

ANEW = ENVIRONMENT | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # as docs/scaling.md says
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


# The second process reads two seconds after it has found the first.
LATE = """
import contextlib, os, time
from pathlib import Path
import torch.distributed as dist
from headcount.run import begin
rank, rendezvous = int(os.environ["RANK"]), begin.rendezvous
def late(url):
    for found in rendezvous(url):
        time.sleep(2 * rank)
        yield found
begin.rendezvous = late
with contextlib.ExitStack() as held:
    print(begin.shared_directory(Path(f"/of/{rank}"), held))
    dist.init_process_group("gloo")
    dist.barrier()
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        number: int = free.getsockname()[1]
    return number


@pytest.mark.medium
def test_a_late_process_gets_the_directory_of_the_first():
    place = ENVIRONMENT | {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", LATE], env=place | {"RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        for rank in reversed(ranks):  # without the late one, the first waits for ever
            assert rank.communicate(timeout=WAIT)[0] == b"/of/0\n"
    finally:
        for rank in ranks:
            rank.kill()


def two_nodes(folder: Path, *words: str) -> list[str]:
    """What two launchers that meet at a free port wrote; both must end well."""
    at = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "test"]
    at += ["--local-addr", "localhost"]
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
    two = (tmp_path / "runs" / "latest").resolve()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted({two.name, "latest"})
    one = tmp_path / "one"
    first, second = (load_file(run / "model.safetensors") for run in (one, two))
    assert max((first[name] - second[name]).abs().max().item() for name in first) < 1e-6
    figures, others = (json.loads((run / "metrics.json").read_text()) for run in (one, two))
    assert others["train"]["steps"] == 8
    assert others["train"]["tokens"] == figures["train"]["tokens"]
    assert others["test"]["bleu"] == figures["test"]["bleu"]
    with (two / "logs" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["train/loss"]] == [str(step) for step in range(8)]
    assert sum(log.count("translating the test split") for log in logs) == 1  # the first process alone
