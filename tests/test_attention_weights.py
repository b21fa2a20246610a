"""Attention weights as arrays and as drawings."""

import numpy as np
import pytest
from conftest import completed, refused

from headcount.errors import InputError
from headcount.heads.attention import attention_arrays, draw, write_weights
from headcount.heads.roles import SIDES
from headcount.run.opened import open_run


@pytest.mark.medium
def test_every_head_of_every_layer_is_drawn(home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    sentence = "the dog sees the cat"
    completed("heads", "run=runs/first", f"text={sentence}", "attention=seen", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {"attention.html", "attention.md", "plots"}
    plots = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "seen" / "plots").iterdir()}
    assert set(plots) == {f"{kind}_1" for kind in ("cross", "encoder", "decoder")}
    assert all(svg.count(">head 2<") == 1 for svg in plots.values())
    assert "▁the" in plots["cross_1"]
    page = (tmp_path / "seen" / "attention.html").read_text(encoding="utf-8")
    assert page.count('<script type="application/gzip">') == 3
    assert f"<h1>{sentence}</h1>" in page
    completed("heads", "run=runs/first", f"text={sentence}", "attention=again", cwd=tmp_path)
    for name, svg in plots.items():
        assert svg == (tmp_path / "again" / "plots" / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.medium
def test_drawings_of_too_many_tokens_get_one_line_and_arrays_are_written(home, tmp_path):
    run = open_run(home / "runs" / "first")
    text = " ".join(["the dog sees the cat"] * 120)
    with pytest.raises(InputError, match=r"have \d,\d+ tokens .* and 2,000 can be drawn; .* or attention=FILE"):
        draw(run, [text], ["der Hund"], tmp_path / "seen", lambda done: None)
    assert not (tmp_path / "seen").exists()
    assert write_weights(run, [text], ["der Hund"], tmp_path / "a.npz", lambda done: None).exists()


@pytest.mark.medium
def test_weights_stand_beside_their_tokens(home):
    run = open_run(home / "runs" / "first")
    seen = attention_arrays(run, ["the dog sees the cat"], ["der Hund sieht den Kater"])
    source, target = ("".join(seen[f"{side}_pieces"][0]) for side in ("source", "target"))
    assert (source, target) == ("▁the▁dog▁sees▁the▁cat</s>", "<s>▁der▁Hund▁sieht▁den▁Kater")
    for name in ("cross_1", "encoder_1", "decoder_1"):
        sides = [seen[f"{side}_pieces"].shape[1] for side in SIDES[name.partition("_")[0]]]
        assert seen[name].shape == (1, 2, *sides)
        np.testing.assert_allclose(seen[name].sum(axis=-1), 1, rtol=1e-5)
    assert not np.triu(seen["decoder_1"], 1).any()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["attention=a"], "attention=a: drawings are of a sentence; add text="),
        (["attention=a", "text=5"], "text=5: must be a valid string or null"),
        (["attention=a", "text=' '"], "text=: must be a sentence to translate"),
        (["attention=a.npz", "target=b"], "target=: goes with text=, the sentence that it translates; give both"),
        (["attention=a", "text=a", "run=runs/none"], "runs/none is not a run directory"),
        (["text=a", "attention=taken/x"], "attention=taken/x: can't be written to"),
    ],
)
def test_impossible_drawings_get_one_line(arguments, line, home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    (tmp_path / "taken").touch()
    run = [] if any(word.startswith("run=") for word in arguments) else ["run=runs/first"]
    (answer,) = refused("heads", *run, *arguments, cwd=tmp_path)
    assert answer.startswith(line)


@pytest.mark.medium
def test_the_weights_of_many_sentences_are_arrays(home, tmp_path, text):
    (tmp_path / "runs").symlink_to(home / "runs")
    completed("heads", "run=runs/first", "attention=all.npz", "sentences=4", cwd=tmp_path)
    found = np.load(tmp_path / "all.npz")
    run = open_run(home / "runs" / "first")
    sources = (text / "test.en").read_text(encoding="utf-8").splitlines()[:4]
    assert found["source"].tolist() == sources
    assert found["target"].tolist() == run.translator.translate(sources)
    for row, source in enumerate(sources):
        for name, alone in attention_arrays(run, [source], [str(found["target"][row])]).items():
            own = alone[0] if alone.ndim > 1 else alone[:1]
            if alone.dtype.kind != "f":
                np.testing.assert_array_equal(found[name][row].reshape(-1)[: own.size], own.reshape(-1))
                continue
            size = (slice(None), *map(slice, own.shape[1:]))
            np.testing.assert_allclose(found[name][row][size], own, atol=1e-6)
            assert np.isclose(found[name][row].sum(), own.sum())  # zero behind the sentence
    assert {array.shape[0] for array in found.values()} == {4}


@pytest.mark.medium
def test_the_weights_of_one_sentence_and_a_translation_of_your_own(home, tmp_path):
    (tmp_path / "runs").symlink_to(home / "runs")
    given = ("run=runs/first", "attention=one.npz", "text=the dog sees the cat")
    completed("heads", *given, "target=der Hund", cwd=tmp_path)
    found = np.load(tmp_path / "one.npz")
    assert (found["target"].tolist(), found["cross_1"].shape[:2]) == (["der Hund"], (1, 2))
    (line,) = refused("heads", *given, "sentences=0", cwd=tmp_path)
    assert line == "sentences=0: must be greater than or equal to 1"
    (line,) = refused("heads", "run=runs/first", "attention=nowhere/one.npz", "sentences=1", cwd=tmp_path)
    assert line.startswith("attention=nowhere/one.npz: can't be written to (No such file or directory); name another")
