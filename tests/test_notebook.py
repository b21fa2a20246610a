"""The notebook: its cells run, one after the other."""

import json
import sys
from pathlib import Path

import pytest
from conftest import TINY, completed

NOTEBOOK = Path(__file__).parents[1] / "docs" / "heads.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_its_outputs_are_kept_with_a_sentence_that_changes():
    kept = [output for cell in CELLS for output in cell.get("outputs", [])]
    printed = "".join("".join(output["text"]) for output in kept if output["output_type"] == "stream")
    assert "nicht" in printed
    assert "without cross" in printed
    assert sum("image/png" in output.get("data", {}) for output in kept) == 2


@pytest.mark.medium
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    sizes = ("data.train_size=2000", "data.valid_size=8", "data.test_size=64", "tokenizer.vocab_size=400")
    completed("train", *TINY[1:], *sizes, "steps=4", "hydra.run.dir=runs/notebook", cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    scope: dict[str, object] = {}
    cells = [cell for cell in CELLS if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        source = "".join(cell["source"]).replace("range(200)", "range(64)")
        exec(compile(source, f"cell {number}", "exec"), scope)
    printed = capsys.readouterr().out
    assert "translation: " in printed
    assert "without both: " in printed
    assert scope["maps"].to_dict()["params"][0]["name"] == "chosen"
    assert scope["effects"].to_dict()["layer"]
    page = tmp_path / "runs" / "notebook" / "heads" / "heads.html"
    assert "Measures of your own: measure.first_token" in page.read_text(encoding="utf-8")
