"""Fingerprint of the words and rules that the corpus follows from; comments and docstrings are no part of it."""

import ast
import hashlib
from functools import cache
from pathlib import Path

from headcount.grammar.lexicon.table import content


@cache
def fingerprint(folder: Path) -> str:
    """A digest of all Python files and tables in the folder and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".py":
            meaning = _tree(ast.parse(path.read_text(encoding="utf-8")))
        elif path.suffix == ".tsv":
            meaning = [line for _, line in content(path)]
        else:
            continue
        digest.update(f"{path.relative_to(folder).as_posix()}\0{meaning}\0".encode())
    return digest.hexdigest()


def _tree(node: object) -> object:
    """A syntax tree as tuples, without docstrings, positions and empty fields (of which newer Pythons have more)."""
    if isinstance(node, list):
        return [_tree(item) for item in node if not _without_effect(item)]
    if isinstance(node, ast.AST):
        fields = [(name, _tree(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return type(node).__name__, fields
    return node


def _without_effect(node: object) -> bool:
    """Whether the node is a statement that is just a constant, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
