"""Mutation testing: which places change, which tests a mutant meets, and the list of equivalent mutants."""

import json
import subprocess
from dataclasses import asdict

import pytest
from mutation import (
    ROOT,
    Mutant,
    Outcome,
    Trial,
    drawn,
    equivalents,
    failing,
    imports_of,
    modules,
    mutant_of,
    nearest_tests,
    places,
    read,
)

SOURCE = '''
def doubled(x: int = 3, *, n: "a | b" = 1) -> "c + d":
    """2 * x."""
    logger.info("%d", 4 + x)
    pairs = zip(x, n, strict=True)
    if x < 5:
        raise InputError(f"{x + 6}")
    return -x * 7
'''


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {name: imports_of(path) for name, path in modules().items()}


def changed() -> set[str]:
    lines = SOURCE.splitlines()
    return {lines[line - 1][start:end] for (line, start), (_, end) in places(SOURCE)}


def test_text_annotations_and_checks_do_not_change():
    pytest.importorskip("cosmic_ray")
    assert changed() == {"3", "1", "x < 5", "<", "5", "-", "*", "7"}


def test_defaults_of_what_conf_builds_do_not_change(monkeypatch):
    pytest.importorskip("cosmic_ray")
    monkeypatch.setattr("mutation.targets_of_conf", lambda: {"doubled"})
    assert changed() == {"x < 5", "<", "5", "-", "*", "7"}


def test_a_larger_draw_begins_with_a_smaller_one():
    pytest.importorskip("cosmic_ray")
    few, more = ([mutant.key for mutant in drawn("evaluation", number, 1, "contrastive")] for number in (2, 4))
    assert len(more) == 4
    assert more[:2] == few


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("src/headcount/training/seal.py", "test_seal"),
        ("src/headcount/model/transformer.py", "test_transformer"),
        ("src/headcount/decoding/sampling.py", "test_sampling"),  # which conf/ builds
        ("src/headcount/data/plan.py", "test_batches"),
    ],
)
def test_the_nearest_tests_are_those_that_import_the_module(file, nearest, graph):
    assert nearest_tests(file, graph)[0] == (1, nearest)


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("pass", ""),
        ("assert 1 > 2", "tests/test_it.py::test_second"),
        pytest.param("while True: pass", "timeout", marks=pytest.mark.slow),
        ("bytearray(10 * 2**30)", "tests/test_it.py::test_second"),
        ("import os; os._exit(7)", "tests/test_it.py (exit code 7)"),
    ],
)
def test_the_first_test_that_fails_is_named(tmp_path, body, first):
    (tmp_path / "tree" / "tests").mkdir(parents=True)
    (tmp_path / "tree" / "src").mkdir()
    text = f"def test_first():\n    pass\n\n\ndef test_second():\n    {body}\n"
    (tmp_path / "tree" / "tests" / "test_it.py").write_text(text, encoding="utf-8")
    assert failing(tmp_path / "tree", ["tests/test_it.py"], seconds=3) == first


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A trial of a tree with one module and two files of tests, all with a limit of 50 seconds."""
    files = {
        "src/small/one.py": "x = 1\n",
        "tests/test_one.py": "import small.one\n",
        "tests/test_two.py": "import test_one\n",
    }
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "root", check=True)
    monkeypatch.setattr("mutation.ROOT", tmp_path / "root")
    return Trial(tmp_path / "copy", False, 3, 50)


MUTANT = Mutant("model", "src/small/one.py", 1, "x = 1", "x = 2", 0, "x = 2\n")


def ends(trial, monkeypatch, ends: dict[str, tuple[str, str]]) -> list[tuple[str, int]]:
    """How the tests of files end on the mutant, and on the code as it is; the list of those that run, with limits."""
    ran = []

    def failing(copy, tests, seconds):
        ran.append((*tests, seconds))
        return ends[tests[0]]["1" in (copy / MUTANT.file).read_text()]

    monkeypatch.setattr("mutation.failing", failing)
    return ran


def test_test_files_run_one_by_one_until_one_fails(trial, monkeypatch):
    ran = ends(trial, monkeypatch, {"tests/test_one.py": ("", ""), "tests/test_two.py": ("tests/test_two.py::x", "")})
    assert trial.outcome(MUTANT, 1).by == "tests/test_two.py::x"
    assert ran == [("tests/test_one.py", 50), ("tests/test_two.py", 50)]
    assert (trial.copy / MUTANT.file).read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("now", "kind"), [("", "timed out"), ("timeout", "survived"), ("tests/test_one.py::x", "survived")]
)
def test_a_timeout_counts_where_the_file_passes_on_the_code_as_it_is_in_a_fifth(trial, monkeypatch, now, kind):
    ran = ends(trial, monkeypatch, {"tests/test_one.py": ("timeout", now), "tests/test_two.py": ("", "")})
    assert trial.outcome(MUTANT, 1).outcome == kind
    assert ran[:2] == [("tests/test_one.py", 50), ("tests/test_one.py", 10)]


@pytest.mark.medium
def test_tests_that_killed_a_mutant_must_pass_on_the_code_as_it_is(trial):
    def killed(*tests: str) -> list[str]:
        return trial.check([Outcome("a.py", 1, "a", "b", "model", "killed", test) for test in tests])

    (trial.copy / "tests" / "test_one.py").write_text("import missing\n")
    (trial.copy / "tests" / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert 1 > 2\n")
    assert killed("tests/test_two.py::test_a") == []
    failures = ["tests/test_one.py (import)", "tests/test_two.py::test_b"]
    assert killed("tests/test_one.py (import)", "tests/test_two.py::test_renamed") == failures


def test_lines_that_are_the_same_are_different_mutants(tmp_path, monkeypatch):
    pytest.importorskip("cosmic_ray")
    monkeypatch.setattr("mutation.ROOT", tmp_path)
    (tmp_path / "a.py").write_text("if x:\n    y = 1\nelse:\n    y = 1\n")
    one, other = (mutant_of("model", tmp_path / "a.py", "NumberReplacer", count) for count in (0, 2))
    assert (one.old, one.new, one.occurrence) == (other.old, other.new, 0)
    assert (one.line, other.line, other.occurrence) == (2, 4, 1)


def test_results_of_before_have_no_occurrence(tmp_path):
    before = asdict(Outcome("a.py", 1, "a", "b", "model", "survived"))
    lines = [{name: value for name, value in before.items() if name != "occurrence"}, before | {"occurrence": 1}]
    (tmp_path / "results").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(read(tmp_path / "results")) == [("a.py", "a", "b", 0), ("a.py", "a", "b", 1)]


def test_equivalent_mutants_are_of_lines_that_are_there():
    for file, old, new, occurrence in equivalents():
        lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert lines.count(old) > occurrence, f"{file}: {old}"
        assert new not in lines
