"""Sizes that keep the code readable: a function fits on a screen, a file in one sitting."""

import ast
from pathlib import Path

import pytest
from functions_passed import training_step, translation

ROOT = Path(__file__).parents[1]
FUNCTION, FILE = 60, 500  # most lines of each


@pytest.mark.medium
def test_no_function_and_no_file_is_too_long() -> None:
    long = []
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
        long += [(path, each.name) for each in functions if (each.end_lineno or 0) - each.lineno >= FUNCTION]
        long += [(path, "")] if len(text.splitlines()) > FILE else []
    assert not long


@pytest.mark.parametrize(("path", "most"), [(training_step, 20), (translation, 35)])
def test_a_sentence_passes_few_functions(path, most):
    assert len(path()) <= most
