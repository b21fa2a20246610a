"""Benchmark: operations, settings, measuring, rows and tables."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from built import built
from conftest import SCRIPTS, command, completed, failed, refused
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headcount.benchmark import bench, environments, inputs
from headcount.benchmark.bench import Bench
from headcount.benchmark.environments import PeerError, environment, watch
from headcount.benchmark.inputs import repeated
from headcount.benchmark.peers.measure import ENDED, Meter
from headcount.benchmark.results import BEGIN, END, best, page_with_tables
from headcount.benchmark.settings import as_lists, rows_of
from headcount.benchmark.turns import in_turn, relative_time
from headcount.benchmark.workloads import UNITS
from headcount.machine import multiplies_bf16
from headcount.run.place import CONF

SIZE = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "d_feed_forward": 24, "num_heads": 2}
VOCABULARY = 40
SMALL_CORPUS = ("data.train_size=1000", "data.valid_size=8", "data.test_size=16")


def test_operations_are_those_that_torch_counts():
    sentences, source_length, target_length = 3, 7, 5
    model = built("model/nano", vocab_size=VOCABULARY, **SIZE).eval()
    source = torch.ones(sentences, source_length, dtype=torch.long)
    target = torch.ones(sentences, target_length, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.output(model(source, torch.ones_like(source, dtype=torch.bool), target))
    lengths = np.full(sentences, source_length), np.full(sentences, target_length)
    assert 3 * counter.get_total_flops() == inputs.training_operations(SIZE, VOCABULARY, *lengths)


def test_operations_of_decoding_are_those_of_one_forward_pass_without_the_masked_positions():
    steps, lengths = 6, np.array([4, 9])
    decoding = inputs.decoding_operations(SIZE, VOCABULARY, lengths, 1, steps)
    forward = inputs.training_operations(SIZE, VOCABULARY, lengths, np.full(2, steps)) / 3
    masked = 2 * len(lengths) * SIZE["decoder_layers"] * 2 * SIZE["d_model"] * (steps**2 - steps * (steps + 1) / 2)
    assert decoding == forward - masked
    one_more = inputs.decoding_operations(SIZE, VOCABULARY, lengths, 3, steps) - decoding
    assert one_more == inputs.decoding_operations(SIZE, VOCABULARY, lengths, 2, steps) * 2 - decoding * 2


def test_own_shapes_are_the_linear_layers_of_one_forward_pass():
    products = inputs.own_shapes(SIZE, VOCABULARY, 5)
    lengths = np.ones(5)  # so short that attention is 2 d operations a token and layer, which is subtracted
    attention = 2 * 5 * 2 * SIZE["d_model"] * (SIZE["encoder_layers"] + 2 * SIZE["decoder_layers"])
    forward = inputs.training_operations(SIZE, VOCABULARY, lengths, lengths) / 3
    assert sum(2 * m * k * n for m, k, n in products) == forward - attention


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("work=train,decode", "work=[train,decode]"),
        ("work=[train]", "work=[train]"),
        ("model=tiny", "models=[tiny]"),
        ("models=tiny,base", "models=[tiny,base]"),
        ("peers=[]", "peers=[]"),
        ("peers=", "peers=[]"),
        ("'peers=a'", "'peers=a'"),
        ("data=multi30k", "data=multi30k"),
        ("--help", "--help"),
    ],
)
def test_lists_need_no_brackets(given, meant):
    assert as_lists([given]) == [meant]


OF_A_RUN = "data: {}\ntokenizer: {}\nmodel: {}\nsearch: {}\n"  # a config.yaml
WORK = "train, decode, search, ceiling, lightning, together, rows, crowded, profile, start, prepare, plan, quality"
MODELS = "base, big, deep_shallow, nano, rnn, rnn_bahdanau, rnn_graves, rnn_luong, tiny"
STUDIES = ", ".join(sorted(path.stem for path in (CONF / "study").glob("*.yaml")))
MARKERS = f"{BEGIN} and {END}"
WRONG_SETTINGS = [
    {
        "work=trian": f"work=trian: there are {WORK}",
        "model=huge": f"models=huge: there are {MODELS}",
        "peers=fairseq": "peers=fairseq: there are transformers, joeynmt, torch_loop, ctranslate2",
        "seconds=x": "seconds=x: must be a number",
        "rounds=0": "rounds=0: must be 1 or more",
        "pairs=1.5": "pairs=1.5: must be a whole number",
        "device=tpu": "device=tpu: must be cpu or cuda",
        "threads=0": "threads=0: must be 1 or more and at most 1,024, or null for as many as there are",
        "runs=0": "runs=0: must be 1 or more, or null for one on each thread",
        "out=.": "out=.: is a folder; give a file",
        "table=no.md": f"table=no.md: the page has no lines {MARKERS}, between which the tables go",
        "pythons.joeynmt=nowhere": "pythons.joeynmt=nowhere: no such program",
    },
    {
        "seconds=nan": "seconds=nan: must be 0 or more",
        "warmup=inf": "warmup=inf: must be 0 or more",
        "beam=9000": "beam=9000: must be 1 or more and at most 4,096",
        "threads=5000": "threads=5000: must be 1 or more and at most 1,024, or null for as many as there are",
        "shortlist=null": "shortlist=None: must be {frequent:N,per_piece:K}",
    },
    {"work=": f"work=[]: nothing to do; there are {WORK}"},
    {"table=1": "table=1: must be a path"},
    {
        "shortlist={frequent:0}": "shortlist={frequent:0,per_piece:20}: must be whole numbers "
        "{frequent:N,per_piece:K} with N from 1 and K from 0 to 100"
    },
    {
        "work=rows": "",
        "rows=heads": "rows=heads: must be a list of two settings or more, such as "
        f'["model.num_heads=1","model.num_heads=8"] with its quotes, or a study: {STUDIES}',
    },
    {"work=search": "run=None: work=search translates with a trained run; give its directory"},
    {"work=search,train": "", "run=no": "no is not a run directory: train one with `headcount train`"},
]


@pytest.mark.parametrize("wrong", WRONG_SETTINGS)
def test_wrong_settings_are_reported_together(wrong, tmp_path):
    (tmp_path / "no.md").write_text("# No markers\n")
    assert sorted(refused("bench", *wrong, cwd=tmp_path)) == sorted(filter(None, wrong.values()))


def test_rows_are_those_of_a_study_or_a_list():
    assert list(rows_of("optimizers")) == ["adamw", "muon", "soap", "schedule_free"]
    assert rows_of("optimizers")["soap"] == ["study=optimizers", "study/optimizer=soap"]
    assert rows_of("heads_fixed_width")["8"] == ["study=heads_fixed_width", "model.num_heads=8"]
    assert len(rows_of("heads_by_width")) == 15
    assert rows_of(["model.num_heads=1", "a=1 b=2"])["a=1 b=2"] == ["a=1", "b=2"]


@pytest.mark.medium
def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(tmp_path):
    (line,) = failed("bench", "vocab_size=50", *SMALL_CORPUS, "data.vocab_size=600", cwd=tmp_path)
    assert line.startswith("vocab_size=50: must be 600 or more")


def test_a_window_begins_after_the_warm_up_and_ends_with_a_step(monkeypatch):
    clock = iter([10.0, 11.0, 12.0, 13.0, 14.5, 16.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = Meter({"warmup": 1.5, "seconds": 2})
    done = []
    for amount in (100, 100, 100, 7, 8, 9):
        meter.step(amount)
        done.append(meter.done)
    assert done == [False, False, False, False, False, True]  # three steps at least, though 2 seconds were over before
    assert meter.result() == {"rate": (7 + 8 + 9) / 4, "seconds": 4.0, "steps": 3, "per_step": 8}


def test_without_a_warm_up_two_steps_are_left_out(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = Meter({"warmup": 0, "seconds": 0})
    steps = 0
    while not meter.done:
        meter.step(1)
        steps += 1
    assert (steps, meter.result()["steps"]) == (5, 3)


def test_windows_of_runs_at_once_begin_when_all_are_warm_and_end_when_all_are_done(tmp_path, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    job = {"warmup": 0, "seconds": 0, "least": (1, 2)}
    first, second = (Meter({**job, "company": (str(tmp_path), 3, run)}) for run in range(2))
    (tmp_path / f"{ENDED}2").touch()  # one that failed, for which nobody waits

    def steps(meter: Meter, number: int) -> bool:
        for _ in range(number):
            meter.step(1)
        return meter.done

    assert not steps(first, 5)
    assert first.first is None  # only one is warm
    assert not steps(second, 1)
    assert second.first == 0
    assert not steps(first, 4)
    assert first.first == 5
    assert not first.done  # the other is still measured
    assert steps(second, 2)
    assert first.done
    assert first.result()["steps"] == 3


def results(**rates: list[float]) -> dict:
    return {
        tuple(name.split("_")): [{"rate": rate, "requested": name.split("_")[1], "keep": False} for rate in measured]
        for name, measured in rates.items()
    }


def test_the_best_precision_is_the_one_that_was_measured_longest():
    assert best(results(a_fp32=[1, 2, 2], a_bf16=[9], b_fp32=[7]), "a")[0]["requested"] == "fp32"
    assert best(results(a_fp32=[1], a_bf16=[9]), "a")[0]["requested"] == "bf16"
    assert best(results(a_fp32=[1]), "c") == []


@pytest.fixture
def with_bf16(monkeypatch):
    """A processor that multiplies bf16 natively, whatever this one does."""
    monkeypatch.setattr(bench, "multiplies_bf16", lambda: True)


@pytest.fixture
def rows(tmp_path, monkeypatch, with_bf16) -> list[dict]:
    """The rows of a command whose measurements are made up."""
    figures = {"headcount": [100.0, 120.0, 110.0], "torch": [4e10], "fp32": [50.0, 40.0, 60.0], "bf16": [30.0]}
    taken = dict.fromkeys(figures, 0)

    def run_job(self, system, round_=1):
        if system.name == "transformers":
            raise PeerError("no such thing")
        key = system.requested if system.name == "torch_loop" else system.name
        rate = figures[key][taken[key] % len(figures[key])]
        taken[key] += 1
        precision = {"auto": "32-true"}.get(system.requested, system.requested)
        return {"rate": rate, "precision": precision, "peak_memory": 2**20, "per_step": 9, "versions": {"torch": "1"}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bench, "run_job", run_job)
    monkeypatch.setattr(bench, "environment", lambda peer, requirements: sys.executable)
    arguments = ["work=train,decode", "model=nano", "peers=transformers,torch_loop", *SMALL_CORPUS]
    arguments += ["data.vocab_size=600", "out=new/folder/rows.json", "table=new/page.md"]
    completed("bench", *arguments)
    return json.loads((tmp_path / "new" / "folder" / "rows.json").read_text())


def test_rows_hold_medians_spreads_and_ratios(rows, tmp_path, capsys):
    assert [(row["work"], row["peer"], row["precision"]) for row in rows] == [
        ("train", "headcount", "32-true"),
        ("train", "torch_loop", "fp32"),
        ("decode", "headcount", "bfloat16"),
        ("decode", "torch_loop", "fp32"),
    ]
    ours, loop = rows[:2]
    assert (ours["tokens_per_second"], ours["spread"], ours["rounds"]) == (110, [100, 120], 3)
    assert (loop["tokens_per_second"], loop["spread"], loop["ratio"]) == (50, [40, 60], 110 / 50)
    assert loop["other_precisions"] == {"bf16": 30}
    assert ours["share_of_ceiling"] == pytest.approx(loop["share_of_ceiling"] * 110 / 50)
    assert "sentences_per_second" in rows[2]
    assert all(row["model"] == "nano" and row["peak_memory"] == 2**20 and row["processor"] for row in rows)
    page = (tmp_path / "new" / "page.md").read_text()
    assert page.startswith("# Performance\n\n<!-- bench: begin -->")
    assert "### Training, nano" in page
    assert " 2.20 x |" in page


@pytest.mark.medium
def test_on_a_gpu_everybody_is_measured_in_bf16(tmp_path, monkeypatch):
    asked = []

    def run_job(self, system, round_=1):
        asked.append((system.job["work"], system.name, system.requested))
        return {"rate": 1e12, "precision": "bf16", "peak_memory": 1, "per_step": 1, "versions": {"torch": "1"}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bench, "run_job", run_job)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    arguments = ["preset=gpu", "model=nano", f"pythons.transformers={sys.executable}", "data.vocab_size=600"]
    completed("bench", *arguments, "table=page.md", *SMALL_CORPUS)
    ceilings = [("ceiling", "torch", "bf16")] * 2
    trained = [("train", name, precision) for name, precision in BF16]
    decoded = [("decode", "headcount", "bfloat16"), ("decode", "transformers", "bf16")]
    assert asked == [*ceilings, *trained, *decoded, ("train", "headcount", "auto"), ("train", "8 at once", "auto")]
    assert ", on Some GPU and " in (tmp_path / "page.md").read_text()


@pytest.mark.medium
@pytest.mark.parametrize("native", [True, False])
def test_searches_of_a_run_take_turns_with_one_thread_and_with_all(native, tmp_path, monkeypatch):
    asked = []

    def run_job(self, system, round_=1):
        asked.append((system.name, system.requested))
        assert system.job["run"] == str(tmp_path / "some")
        assert ("shortlist" in system.job["search"]) == ("shortlist" in system.name)
        assert system.job["search"].get("horizon") == (2 if "horizon" in system.name else None)
        assert system.job["engine"] == system.name.split(",")[0]
        return {"rate": 5.0, "bleu": 31.41, "precision": system.requested, "peak_memory": 1, "versions": {}}

    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "config.yaml").write_text(OF_A_RUN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bench, "run_job", run_job)
    monkeypatch.setattr(bench, "multiplies_bf16", lambda: native)
    arguments = ["work=search", "run=some", "rounds=2", "threads=2", "peers=[ctranslate2]", "data.vocab_size=600"]
    completed("bench", *arguments, "out=rows.json", "table=page.md", *SMALL_CORPUS)
    ways = [("headcount", "float32"), ("headcount", "bfloat16")][: 1 + native]
    names = ("headcount", "headcount, shortlist", "headcount, shortlist and horizon")
    ways = [(name, precision) for name in names for _, precision in ways]
    ways += [("ctranslate2", "float32"), ("ctranslate2", "int8")]
    turns = [(f"{name}, {threads}", each) for threads in ("1 thread", "2 threads") for name, each in ways]
    assert asked == turns * 2
    assert ("| headcount, shortlist and horizon, 2 threads | bfloat16" in (tmp_path / "page.md").read_text()) == native
    assert " 31.41 |" in (tmp_path / "page.md").read_text()


BF16 = [("headcount", "auto"), ("torch_loop", "bf16"), ("transformers", "bf16")]


@pytest.mark.medium
@pytest.mark.usefixtures("with_bf16")
def test_an_interrupted_command_keeps_what_it_has_measured(tmp_path, monkeypatch):
    def run_job(self, system, round_=1):
        if system.requested == "bf16" and system.name != "torch":
            raise KeyboardInterrupt
        return {"rate": 1.0, "precision": system.requested, "peak_memory": 1, "per_step": 1, "versions": {}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bench, "run_job", run_job)
    arguments = ["work=[train]", "models=[nano]", "peers=[torch_loop]", "data.vocab_size=600", "out=rows.json"]
    assert command("bench", *arguments, *SMALL_CORPUS).code == 130
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["peer"], row["precision"]) for row in rows] == [("headcount", "auto"), ("torch_loop", "fp32")]


@pytest.mark.medium
@pytest.mark.parametrize("work", ["decode", "rows", "profile"])
def test_a_command_interrupted_before_its_first_figure_has_none(work, tmp_path, monkeypatch, caplog):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bench, "run_job", interrupted)
    monkeypatch.setattr(bench, "Turn", interrupted)
    ended = command("bench", f"work=[{work}]", "models=[nano]", "peers=[]", "data.vocab_size=600", *SMALL_CORPUS)
    assert ended.code == 130
    assert "stopped; nothing measured" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the processes of a process")
def test_sigterm_ends_the_processes_that_measure(tmp_path):
    small = ["work=[together]", "runs=2", "models=[nano]", "peers=[]", "seconds=100", "vocab_size=600"]
    code = [sys.executable, str(SCRIPTS / "bench.py"), *small, "data.vocab_size=600", *SMALL_CORPUS]
    deadline = time.monotonic() + 60
    with subprocess.Popen(code, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as measuring:
        started = []  # of threads of that process
        while not started and time.monotonic() < deadline:
            time.sleep(0.1)
            for task in Path(f"/proc/{measuring.pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):  # a thread that has ended since
                    started += task.read_text().split()
        measuring.terminate()
        assert measuring.wait(timeout=20) == 143
    assert started
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


@pytest.mark.medium
def test_tables_are_made_again_from_what_was_written(rows, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nof last year\n{END}\nafter\n")
    completed("bench", "read=new/folder/rows.json", "table=page.md", cwd=tmp_path)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "last year" not in text
    assert "Translating, nano" in text
    assert page_with_tables(text, rows) == text


def test_a_peer_that_cannot_be_installed_gets_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(environments.venv, "create", lambda folder, with_pip: folder.mkdir())
    with pytest.raises(PeerError, match="cannot be installed"):  # there is no python in it
        environment("joeynmt", ["joeynmt"])
    assert not list(tmp_path.iterdir())


def test_text_to_prepare_has_no_pair_twice():
    lines = list(repeated(["a", "b", "c"], 8))
    assert lines == ["a", "b", "c", "a 1", "b 1", "c 1", "a 2", "b 2"]


@pytest.mark.medium
def test_memory_is_that_of_the_children_too(tmp_path):
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("only Linux has it")
    child = "b = bytearray(b'x') * 50_000_000; import time; time.sleep(1)"
    code = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]))"
    with (tmp_path / "out").open("wb") as out:
        ended, peak = watch([sys.executable, "-c", code], os.environ, out, out, with_children=True, running=[])
    assert ended == 0
    assert peak > 50_000_000


@pytest.mark.parametrize(
    "text", ["[]", "{}", "[1]", '[{"rate": 1}]', '[{"work": 1}]', '[{"work": []}]', '[{"work": "train"}]', "rows"]
)
def test_a_file_without_figures_is_one_line(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    lines = failed("bench", "read=x.json", "table=page.md", cwd=tmp_path)
    assert len(lines) == 1
    assert lines[0].startswith("read=x.json: not a file of figures")
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("work", ["rows", "search"])
def test_what_a_work_needs_is_said_before_anything_is_measured(tmp_path, monkeypatch, work):
    (tmp_path / "config.yaml").write_text(OF_A_RUN)
    monkeypatch.setattr("headcount.errors.find_spec", lambda package: None)
    lines = failed("bench", f"work={work}", "run=.", cwd=tmp_path)
    assert lines == ['ctranslate2 and scipy are not installed: pip install "headcount[bench]"']


@pytest.mark.medium
def test_the_threads_of_openmp_may_be_a_list_of_levels(tmp_path, monkeypatch):
    def run_job(self, system, round_=1):
        return {"rate": 1.0, "precision": "32-true", "peak_memory": 1, "per_step": 1, "versions": {}}

    monkeypatch.setattr(Bench, "run_job", run_job)
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    arguments = ["work=start", "model=nano", "peers=[]", "rounds=1", "data.vocab_size=600", *SMALL_CORPUS]
    completed("bench", *arguments, cwd=tmp_path)
    rows = json.loads((tmp_path / "data" / "bench.json").read_text())
    assert [row["threads"] for row in rows] == [torch.get_num_threads()]


def bench_process(tmp_path: Path, *arguments: str) -> list[dict]:
    small = ["model=nano", "seconds=0", "warmup=0", "rounds=1", "threads=1", "vocab_size=600", "data.vocab_size=600"]
    small += ["batch_tokens=256", "sentences=8", "decode_batch=4", "new_tokens=3", "out=rows.json", *SMALL_CORPUS]
    code = [sys.executable, str(SCRIPTS / "bench.py"), *arguments, *small]
    result = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "next:  headcount bench read=rows.json" in result.stdout
    return json.loads((tmp_path / "rows.json").read_text())


PARTS = {
    "products of linear layers",
    "products of attention",
    "softmax",
    "layer norms",
    "dropout masks",
    "copies and casts",
    "operations by element",
    "optimizer and clipping",
    "other operators",
    "Python and autograd, between operators",
}
MAY_BE_NOTHING = {"dropout masks"}  # the model has none


class FakeTurn:
    """Steps take `seconds` each; `log` gets who made how many."""

    def __init__(self, name: str, seconds: float, log: list) -> None:
        self.name, self.seconds, self.log = name, seconds, log

    def steps(self, count: int) -> dict:
        self.log.append((self.name, count))
        return {"seconds": count * self.seconds}


def test_turns_are_of_equal_steps_and_go_backwards_every_second_round():
    log: list = []
    turns = [FakeTurn("a", 0.1, log), FakeTurn("b", 0.2, log)]
    order = [index for index, _ in in_turn(turns, rounds=2, seconds=1, warmup=2)]
    assert order == [0, 1, 1, 0]
    assert log[-6:] == [("a", 20), ("b", 20), ("a", 10), ("b", 10), ("b", 10), ("a", 10)]


def test_the_relative_time_is_of_rounds_so_a_slow_machine_does_not_matter():
    rates = np.array([100.0, 20, 55, 80])
    mean, low, high = relative_time(rates, rates / [1.1, 1.2, 1.1, 1.2])
    assert mean == pytest.approx((1.1 * 1.2) ** 0.5)
    assert 1.05 < low < 1.1 < 1.2 < high < 1.25
    assert relative_time(rates, rates) == pytest.approx([1, 1, 1])
    assert relative_time([2.0], [1.0]) == [2, None, None]


@pytest.mark.slow
def test_a_row_that_cannot_be_trained_is_one_line(tmp_path):
    arguments = ["work=rows", "model=nano", "rounds=1", 'rows=["model.num_heads=1","model.num_heads=3"]']
    code = [sys.executable, str(SCRIPTS / "bench.py"), *arguments, "data.vocab_size=600", *SMALL_CORPUS]
    result = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "does not divide" in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_everything_that_needs_no_installation_runs(tmp_path):
    peers = {"train": {"headcount", "torch_loop"}, "decode": {"headcount", "torch_loop"}, "ceiling": {"torch"}}
    peers |= {
        "lightning": {"headcount", "bare loop"},
        "start": {"headcount"},
        "prepare": {"headcount"},
        "plan": {"headcount"},
    }
    peers["rows"] = {"adamw", "muon", "soap", "schedule_free"}
    peers["profile"] = {*PARTS, "whole step"}
    peers["together"] = {"headcount", "2 at once"}
    peers["crowded"] = {who + beside for who in ("headcount", "spinning", "one thread") for beside in ("", ", beside")}
    rows = bench_process(
        tmp_path, f"work={','.join(peers)}", "rows=optimizers", "runs=2", "peers=[torch_loop]", "pairs=500"
    )
    assert {(row["work"], row["peer"]) for row in rows} == {(work, peer) for work in peers for peer in peers[work]}
    for row in rows:
        (figure,) = [row[name] for name in UNITS if name in row]
        assert row["peer"] in MAY_BE_NOTHING or row["spread"][0] > 0
        assert row["spread"][0] <= figure <= row["spread"][1]
        assert row["peak_memory"] > 2**20
    times = {row["peer"]: row["milliseconds"] for row in rows if row["work"] == "profile"}
    assert sum(times.values()) == pytest.approx(2 * times["whole step"])
    assert times["products of linear layers"] > times["layer norms"] > 0


@pytest.mark.slow
def test_a_trained_run_is_searched_with_and_without_a_shortlist(home, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(home / "runs" / "first", run)
    listed = "shortlist={frequent:320,per_piece:1}"
    rows = bench_process(tmp_path, "work=search", f"run={run}", "peers=[ctranslate2]", listed)
    ours = [row for row in rows if row["peer"].startswith("headcount")]
    precisions = 1 + multiplies_bf16()
    assert len(rows) == 3 * precisions + 2
    assert len(ours) == 3 * precisions
    exact = [row for row in ours if row["precision"] == "float32" and "horizon" not in row["peer"]]
    assert len({row["bleu"] for row in exact}) == 1
