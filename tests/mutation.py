"""Mutation testing: the code is changed in one place at a time, and tests must notice it (DeMillo et al. 1978).

`make mutation` draws mutants at random, equally many of each area, and runs for each the test files that import its
module, nearest first. cosmic-ray makes the changes, in a temporary copy of the tree. Results are kept as they come: the
same command again goes on. Mutants that no test can notice are listed, with the reason, in mutation_equivalent.yaml.
"""

import argparse
import ast
import contextlib
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.yaml")
AREAS = {
    "model": ("model/*.py",),
    "training": ("training/*.py",),
    "decoding": ("decoding/*.py",),
    "batch plans": ("data/plan.py", "data/batches.py"),
    "evaluation": ("evaluation/*.py",),
    "statistics": ("report/statistics/*.py",),
}
# Names of cosmic-ray. Of its replacements of an operator one or two that keep the type: any test notices a TypeError.
OPERATORS = (
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul")
    ),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Mod_FloorDiv", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE")),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("GtE_Gt", "GtE_Lt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
    ),
    *(f"ReplaceUnaryOperator_{pair}" for pair in ("Delete_USub", "Delete_Not", "Delete_Invert")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
# Imported once; each mutant's tests run in a fork.
PRELOADED = ("torch", "pytorch_lightning", "datasets", "hydra", "sacrebleu", "sentencepiece", "scipy.stats", "beartype")
WAIT = 20  # seconds by the clock for each of the processor, before tests that wait for ever are killed
MEMORY = 8 * 2**30  # bytes that the tests of a mutant can have
Position = tuple[int, int]  # line, from 1, and column, from 0
Key = tuple[str, str, str, int]  # file, old, new, occurrence


@dataclass(frozen=True)
class Mutant:
    """One change: `old` and `new` are the first line that differs, without its indentation; `occurrence` counts the
    lines before it that are the same as `old`."""

    area: str
    file: str
    line: int
    old: str
    new: str
    occurrence: int
    code: str  # the whole file, changed

    @property
    def key(self) -> Key:
        return self.file, self.old, self.new, self.occurrence


@dataclass(frozen=True)
class Outcome:
    """The end of a mutant: killed (by a test), timed out, or survived."""

    file: str
    line: int
    old: str
    new: str
    area: str
    outcome: str
    by: str = ""
    seconds: float = 0.0
    occurrence: int = 0

    @property
    def key(self) -> Key:
        return self.file, self.old, self.new, self.occurrence

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"{self.outcome}{by} ({self.seconds:.0f} s)\n  {self.file}:{self.line}\n  - {self.old}\n  + {self.new}\n"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# Mutants: where, and which.


def targets_of_conf() -> set[str]:
    """Classes and functions that conf/ builds: it gives every setting, so their defaults serve old runs alone."""
    pages = (path.read_text(encoding="utf-8") for path in (ROOT / "conf").rglob("*.yaml"))
    return {name.rpartition(".")[2] for page in pages for name in re.findall(r"_target_: *([\w.]+)", page)}


def is_message(node: ast.AST) -> bool:
    """Text of errors and logs."""
    logs = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "logger"
    )
    return logs or isinstance(node, ast.Raise)


def without_effect(tree: ast.Module) -> Iterator[ast.AST]:
    """Parts of a file of which no change is a mutant: annotations, messages, defaults of conf, and checks by zip."""
    targets = targets_of_conf()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns
        elif is_message(node):
            yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            yield from (keyword.value for keyword in node.keywords)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in targets:
            yield from defaults_of(node)


def defaults_of(built: ast.ClassDef | ast.FunctionDef) -> Iterator[ast.AST]:
    """Default values of a class (its fields, or the arguments of its constructor) or of a function."""
    if isinstance(built, ast.FunctionDef):
        yield from filter(None, (*built.args.defaults, *built.args.kw_defaults))
        return
    for node in built.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from defaults_of(node)
        elif isinstance(node, ast.AnnAssign) and node.value:
            yield node.value


def places(source: str) -> dict[tuple[Position, Position], list[tuple[str, int]]]:
    """The places of a file that can change, each with the operators of cosmic-ray and their counts of the place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    still = [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        for node in without_effect(ast.parse(source))
    ]
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[tuple[Position, Position], list[tuple[str, int]]] = {}
    for name in OPERATORS:
        operator = OperatorProvider()[name]()
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for count, (start, end) in enumerate(positions):
            if not any(first <= start < last for first, last in still):
                found.setdefault((start, end), []).append((name, count))
    return found


def mutant_of(area: str, path: Path, operator: str, count: int) -> Mutant | None:
    """A change of a file, or None where the file is no Python afterwards."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    source = path.read_text(encoding="utf-8")
    code = mutate_code(source, OperatorProvider()[operator](), count)
    with contextlib.suppress(SyntaxError):
        compile(code, path, "exec")
        before, after = ([line.strip() for line in text.splitlines()] for text in (source, code))
        line = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
        old, new, same = before[line], after[line], before[:line].count(before[line])
        return Mutant(area, str(path.relative_to(ROOT)), line + 1, old, new, same, code)
    return None


def drawn(area: str, number: int, seed: int, only: str) -> Iterator[Mutant]:
    """Mutants of an area at random, at most one a place; a larger number begins with those of a smaller one."""
    paths = [path for pattern in AREAS[area] for path in sorted((ROOT / "src" / "headcount").glob(pattern))]
    choices = [
        (path, ways)
        for path in paths
        if only in str(path.relative_to(ROOT))
        for ways in places(path.read_text(encoding="utf-8")).values()
    ]
    generator = random.Random(f"{area} {seed}")
    generator.shuffle(choices)
    mutants = (mutant_of(area, path, *generator.choice(ways)) for path, ways in choices)
    yield from islice(filter(None, mutants), number)


def equivalents() -> dict[Key, str]:
    """Mutants that no test can notice, with the reasons."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    return {
        (entry["file"], entry["old"], entry["new"], entry.get("occurrence", 0)): entry["reason"] for entry in entries
    }


# Tests: which files, in what order.


def modules() -> dict[str, Path]:
    """Modules of the package and of the tests, by the names they are imported by."""
    package = {path: path.relative_to(ROOT / "src").with_suffix("").parts for path in (ROOT / "src").rglob("*.py")}
    named = {".".join(parts).removesuffix(".__init__"): path for path, parts in package.items()}
    return named | {path.stem: path for path in (ROOT / "tests").glob("*.py")}


def imports_of(path: Path) -> set[str]:
    """Names that a file imports; of `from a import b` both a and a.b, since b may be a module."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def distances(module: str, graph: dict[str, set[str]]) -> dict[str, int]:
    """How many imports lead from each module to this one, by the shortest way."""
    found, queue = {module: 0}, deque([module])
    while queue:
        last = queue.popleft()
        for name, imported in graph.items():
            if last in imported and name not in found:
                found[name] = found[last] + 1
                queue.append(name)
    return found


def nearest_tests(file: str, graph: dict[str, set[str]]) -> list[tuple[int, str]]:
    """Test files that import a module, with the number of imports between: nearest first, then by name and size."""
    module = ".".join(Path(file).with_suffix("").parts[1:])
    near = {name: far for name, far in distances(module, graph).items() if name.startswith("test_")}
    stem = Path(file).stem
    near |= {name: 1 for name in graph if name == f"test_{stem}"}  # what conf/ builds is imported by name
    size = {name: (ROOT / "tests" / f"{name}.py").stat().st_size for name in near}
    return sorted(
        ((far, name) for name, far in near.items()),
        key=lambda pair: (pair[0], stem.rstrip("s") not in pair[1], size[pair[1]]),
    )


# Runs: the tests in a fork.


class Failures:
    """A pytest plugin that sends the name of the first test that fails."""

    def __init__(self, end: Connection) -> None:
        self.end = end

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.end.send(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.end.send(f"{report.nodeid} (import)")


def in_fork(copy: Path, tests: list[str], end: Connection, seconds: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(copy / "src"))
    sys.argv = ["pytest"]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    options = f"-x -q -n 0 -p no:cacheprovider --rootdir={copy} --basetemp={copy.parent / 'tmp'}".split()
    os._exit(pytest.main([*options, *tests], plugins=[Failures(end)]))


def failing(copy: Path, tests: list[str], seconds: int) -> str:
    """The first test that fails, "" if all pass, "timeout" if they compute for more than `seconds`, or wait for long.

    Seconds of the processor, so that a machine with other work changes nothing.
    """
    mine, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=in_fork, args=(copy, tests, theirs, seconds))
    process.start()
    theirs.close()
    process.join(WAIT * seconds)
    hung = process.is_alive()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    with contextlib.suppress(EOFError):  # none failed
        return mine.recv()
    if hung or process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    # 5: all tests are slow ones.
    return "" if process.exitcode in (0, 5) else f"{tests[0]} (exit code {process.exitcode})"


class Trial:
    """A copy of the tree, and the test files that each mutant meets."""

    def __init__(self, copy: Path, whole_suite: bool, depth: int, timeout: int) -> None:
        self.copy, self.whole_suite, self.depth, self.timeout = copy, whole_suite, depth, timeout
        self.graph = {name: imports_of(path) for name, path in modules().items()}
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.splitlines()):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)

    def tests(self, file: str) -> list[str]:
        """Test files that import the module, the nearest first; then, in a whole suite, all others."""
        near = [name for far, name in nearest_tests(file, self.graph) if far <= self.depth]
        rest = sorted({name for name in self.graph if name.startswith("test_")} - set(near))
        return [f"tests/{name}.py" for name in (*near, *(rest if self.whole_suite else ()))]

    @contextlib.contextmanager
    def changed(self, mutant: Mutant, number: int) -> Iterator[None]:
        path = self.copy / mutant.file
        before, modified = path.read_text(encoding="utf-8"), path.stat().st_mtime
        path.write_text(mutant.code, encoding="utf-8")
        os.utime(path, (number, number))  # bytecode is taken for that of a file of this time
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, (modified, modified))

    def first_failure(self, mutant: Mutant, number: int) -> str:
        """The first failure of the test files, one file at a time, as the limit is of a file.

        A timeout counts only where that file passes on the code as it is, in a fifth of the limit.
        """
        for file in self.tests(mutant.file):
            with self.changed(mutant, number):
                by = failing(self.copy, [file], self.timeout)
            if by and not (by == "timeout" and failing(self.copy, [file], self.timeout // 5)):
                return by
        return ""

    def outcome(self, mutant: Mutant, number: int) -> Outcome:
        start = time.monotonic()
        by = self.first_failure(mutant, number)
        kind = "timed out" if by == "timeout" else "killed" if by else "survived"
        seconds = round(time.monotonic() - start, 1)
        place = (mutant.file, mutant.line, mutant.old, mutant.new, mutant.area)
        return Outcome(*place, kind, by if kind == "killed" else "", seconds, mutant.occurrence)

    def check(self, outcomes: list[Outcome]) -> list[str]:
        """Tests that killed a mutant, and fail on the code as it is as well."""
        names = sorted({outcome.by for outcome in outcomes if outcome.by.startswith("tests/")})
        return [*filter(None, (self.failing_now(file, list(by)) for file, by in groupby(names, file_of)))]

    def failing_now(self, file: str, names: list[str]) -> str:
        """The first failure on the code as it is, of named tests of a file, or of all where the file itself failed."""
        whole = not all("::" in name for name in names)
        by = failing(self.copy, [file] if whole else names, self.timeout)
        if by.endswith("(exit code 4)"):  # a test has another name since
            by = failing(self.copy, [file], self.timeout)
        return f"{file} (timeout)" if by == "timeout" else by


def file_of(test: str) -> str:
    """The file of a test, or of `tests/test_x.py (import)`."""
    return re.split("::| [(]", test)[0]


# Results.


def read(path: Path) -> dict[Key, Outcome]:
    """Outcomes of before; of a mutant that ran twice the last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    return {outcome.key: outcome for outcome in outcomes}


def share(killed: int, number: int) -> str:
    """A share with its 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(killed, number).proportion_ci()
    return f"{killed / number:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def table(outcomes: list[Outcome], equal: Counter[str]) -> str:
    from tabulate import tabulate

    rows = []
    for area in [*AREAS, "all"]:
        kinds = Counter(outcome.outcome for outcome in outcomes if area in ("all", outcome.area))
        noticed, number = kinds["killed"] + kinds["timed out"], kinds.total()
        none = equal.total() if area == "all" else equal[area]
        shown = share(noticed, number) if number else ""
        rows.append((area, number, kinds["killed"], kinds["timed out"], kinds["survived"], shown, none))
    heads = ["area", "mutants", "killed", "timed out", "survived", "killed or timed out (95 %)", "equivalent, left out"]
    return tabulate(rows, heads, tablefmt="github")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=60, help="how many, all areas together (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--files", default="", help="only files with this in their path")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutation.jsonl", help="where results are kept")
    parser.add_argument("--again", action="store_true", help="run mutants again that survived or timed out before")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument(
        "--depth", type=int, default=3, help="longest chain of imports from test file to module (default 3)"
    )
    parser.add_argument(
        "--whole-suite", action="store_true", help="survivors of those meet all other quick and medium tests, too"
    )
    parser.add_argument(
        "--timeout", type=int, default=300, help="seconds of the processor for one test file (default 300)"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    each = -(-options.mutants // len(AREAS))
    known, before = equivalents(), read(options.results)
    chosen = [mutant for area in AREAS for mutant in drawn(area, each, options.seed, options.files)]
    mutants = [mutant for mutant in chosen if mutant.key not in known]
    random.Random(options.seed).shuffle(mutants)  # stopped early, there are some of each area
    equal = Counter(mutant.area for mutant in chosen if mutant.key in known)
    if options.list:
        say("\n".join(f"{mutant.file}:{mutant.line}\n  - {mutant.old}\n  + {mutant.new}" for mutant in mutants))
        return
    for name in PRELOADED:
        importlib.import_module(name)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, options.results.open("a", encoding="utf-8") as kept:
        trial = Trial(Path(folder, "tree"), options.whole_suite, options.depth, options.timeout)
        for number, mutant in enumerate(mutants, 1):
            done = before.get(mutant.key)
            if done is None or (options.again and done.outcome != "killed"):
                before[mutant.key] = trial.outcome(mutant, number)
                kept.write(json.dumps(asdict(before[mutant.key])) + "\n")
                kept.flush()
                say(f"{number}/{len(mutants)} {before[mutant.key]}")
        outcomes = [before[mutant.key] for mutant in mutants]
        survivors = [str(outcome) for outcome in outcomes if outcome.outcome != "killed"]
        say("\n".join([*survivors, table(outcomes, equal)]))
        if failures := trial.check(outcomes):
            lines = (f"error: {by}: not on a mutant, but on the code as it is" for by in failures)
            raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
