"""The notebook: its cells run, one after the other."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "heads.ipynb"
CHOICE = 'RUN = "runs/notebook"'


def cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in content["cells"])
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def figures():
    """The numbers of the figures that are drawn, of which none is shown."""
    import matplotlib  # here: it is slow to import
    from matplotlib import pyplot

    matplotlib.use("Agg")
    yield pyplot.get_fignums
    pyplot.close("all")


@pytest.mark.medium
def test_the_notebook_runs(home, figures, monkeypatch, capsys):
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
    assert len(figures()) == 2
