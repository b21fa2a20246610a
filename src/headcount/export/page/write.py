"""A page that runs one or several runs: a single HTML file without network access."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from headcount.errors import InputError
from headcount.export.page.model import Tensors, architecture, vocabulary
from headcount.run.opened import Run

SCRIPTS = ("tokenizer.js", "model.js", "search.js", "words.js", "page.js")
COLUMNS = ("source", "target", "phenomenon", "contrast", "twin")
LONGEST = 400  # characters of an example


def page(runs: Mapping[str, Run], weights: str, examples: int) -> str:
    """The page of these runs, by directory. weights: "int8" or "float32". examples: sentences of each phenomenon from
    the test set of the first run; of a corpus without phenomena, twice that in all."""
    return rendered(content(runs, weights, example_sentences(next(iter(runs.values())), examples) if examples else []))


def content(runs: Mapping[str, Run], weights: str, examples: list[dict[str, str]]) -> dict[str, Any]:
    """All that the page reads, for JSON."""
    both = [side for run in runs.values() for side in (run.tokenizer.source, run.tokenizer.target)]
    tokenizers = {side.fingerprint(): side for side in both}
    return {
        "languages": next(iter(runs.values())).languages,
        "runs": [_run(Path(name).resolve().name, run, weights) for name, run in runs.items()],
        "tokenizers": {name: vocabulary(tokenizer) for name, tokenizer in tokenizers.items()},
        "examples": examples,
    }


def _run(name: str, run: Run, weights: str) -> dict[str, Any]:
    model: Any = run.model
    tensors = Tensors(weights)
    search = run.translator.search
    return {
        "name": name,
        "model": architecture(model, tensors),
        "tensors": tensors.packed(),
        "weights": weights,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokenizers": {side: getattr(run.tokenizer, side).fingerprint() for side in ("source", "target")},
        "search": {"ratio": search.max_ratio, "extra": search.max_extra, "longest": search.max_source},
    }


def example_sentences(run: Run, each: int) -> list[dict[str, str]]:
    """Sentences of the test set with their translations: `each` of each phenomenon, evenly spread, with its wrong
    translation and the source whose translation that is; of a corpus without phenomena, 2 `each` in all."""
    try:
        rows = run.data().data["test"]
    except InputError as error:
        raise InputError(f"{error}; or set examples=0 for a page without examples") from error
    columns = [name for name in COLUMNS if name in rows.features]
    labels = np.array(rows["phenomenon"] if "phenomenon" in columns else [""] * len(rows))
    names = np.unique(labels)
    most = each if len(names) > 1 else 2 * each
    picked: list[int] = []
    for name in names:
        places = np.flatnonzero(labels == name)
        picked += places[np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int)].tolist()
    found = [{name: str(rows[row][name]) for name in columns} for row in picked]
    return [example for example in found if len(example["source"]) <= LONGEST]


def rendered(data: Mapping[str, Any]) -> str:
    """The page. Nothing of `data` can become markup or script: it is JSON without a `<`, and the page's policy
    (Content Security Policy) allows its own script and style alone, by their digests, and no network."""
    folder = files("headcount.export.page")
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = (folder / "page.css").read_text(encoding="utf-8")
    return jinja2.Template((folder / "page.html").read_text(encoding="utf-8")).render(
        title=", ".join(run["name"] for run in data["runs"]),
        script=script,
        style=style,
        script_digest=_digest(script),
        style_digest=_digest(style),
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
