"""The notebook: its cells run, one after the other."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "heads.ipynb"
CHOICE = 'RUN = "runs/notebook"'


def cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_its_outputs_are_kept_with_a_sentence_that_changes():
    kept = [output for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] for output in cell.get("outputs", [])]
    printed = "".join("".join(output["text"]) for output in kept if output["output_type"] == "stream")
    assert "nicht" in printed and "without cross" in printed
    assert sum("image/png" in output.get("data", {}) for output in kept) == 2


@pytest.mark.medium
def test_the_notebook_runs(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    choice, *others = cells()
    assert choice == CHOICE
    scope: dict[str, object] = {"RUN": "runs/first"}
    assert any("range(200)" in cell for cell in others)
    for number, cell in enumerate(others, start=2):
        exec(compile(cell.replace("range(200)", "range(8)"), f"cell {number}", "exec"), scope)
    printed = capsys.readouterr().out
    assert "translation: " in printed
    assert "without both: " in printed
    assert scope["maps"].to_dict()["params"][0]["name"] == "chosen"
    assert scope["effects"].to_dict()["layer"]
