"""Sizes that keep the code readable: a function fits on a screen, a file in one sitting."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION, FILE = 60, 500  # most lines of each


@pytest.mark.medium
@pytest.mark.parametrize("folder", ["src", "scripts"])
def test_no_function_and_no_file_is_too_long(folder: str) -> None:
    long = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
        sizes = [(each.name, (each.end_lineno or 0) - each.lineno + 1, FUNCTION) for each in functions]
        sizes += [("the file", len(text.splitlines()), FILE)]
        long += [f"{path.relative_to(ROOT)}: {name} has {n} lines" for name, n, most in sizes if n > most]
    assert not long, long
