"""Mutation testing: which places change, which tests a mutant meets, and the list of equivalent mutants."""

import pytest
from mutation import ROOT, drawn, equivalents, failing, imports_of, modules, nearest_tests, places

GRAPH = {name: imports_of(path) for name, path in modules().items()}
SOURCE = '''
def doubled(x: int = 3, *, n: "a | b" = 1) -> "c + d":
    """2 * x."""
    logger.info("%d", 4 + x)
    pairs = zip(x, n, strict=True)
    if x < 5:
        raise InputError(f"{x + 6}")
    return -x * 7
'''


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
def test_the_nearest_tests_are_those_that_import_the_module(file, nearest):
    assert nearest_tests(file, GRAPH)[0] == (1, nearest)


@pytest.mark.parametrize(
    ("body", "first"),
    [("pass", ""), ("assert 1 > 2", "tests/test_it.py::test_second"), ("while True: pass", "timeout")],
)
def test_the_first_test_that_fails_is_named(tmp_path, body, first):
    (tmp_path / "tree" / "tests").mkdir(parents=True)
    (tmp_path / "tree" / "src").mkdir()
    text = f"def test_first():\n    pass\n\n\ndef test_second():\n    {body}\n"
    (tmp_path / "tree" / "tests" / "test_it.py").write_text(text, encoding="utf-8")
    assert failing(tmp_path / "tree", ["tests/test_it.py"], seconds=3) == first


def test_equivalent_mutants_are_of_lines_that_are_there():
    for file, old, new in equivalents():
        lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert old in lines, f"{file}: {old}"
        assert new not in lines
