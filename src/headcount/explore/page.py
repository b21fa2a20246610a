"""The page that runs one or several runs: a single HTML file without network access."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from headcount.errors import InputError, reason
from headcount.explore import architecture, vocabulary
from headcount.explore.tensors import Tensors
from headcount.files import write_text
from headcount.run.opened import Run

SCRIPTS = ("tokenizer.js", "model.js", "search.js", "words.js", "page.js")
LONGEST = 400  # characters of an example


def write_page(runs: Mapping[str, Run], output: Path, weights: str, examples: int) -> Path:
    """Write the page of these runs, by directory, to the file `output`, and return it.

    weights: "int8" or "float32". examples: sentences of each phenomenon from the test set of the first run; of a corpus
    without phenomena, twice that in all.
    Raises InputError for runs that a page cannot run, with all reasons, and for a file that cannot be written.
    """
    check(runs)
    data = content(runs, weights, example_sentences(next(iter(runs.values())), examples) if examples else [])
    try:
        write_text(output, rendered(data))
    except OSError as error:
        raise InputError(f"output={output}: can't be written to ({reason(error)}); name another") from error
    return output


def check(runs: Mapping[str, Run]) -> None:
    """Raises InputError with all reasons why a page cannot run these runs."""
    found = [(name, why) for name, run in runs.items() for why in unsupported(run)]
    reasons = [f"{name}: {why}" if len(runs) > 1 else why for name, why in found]
    if len({run.languages for run in runs.values()}) > 1:
        reasons.append("they translate between different languages")
    if reasons:
        raise InputError(f"run={','.join(runs)}: a page cannot run this: {'; '.join(reasons)}")


def unsupported(run: Run) -> list[str]:
    """Reasons why a page cannot run a run; none if it can."""
    sides = {tokenizer.fingerprint(): tokenizer for tokenizer in (run.tokenizer.source, run.tokenizer.target)}
    hidden = ["data.hide_source=true: its model does not read the source"] if run.translator.hide_source else []
    tokens = [why for tokenizer in sides.values() for why in vocabulary.unsupported(tokenizer)]
    return [*architecture.unsupported(run.model), *dict.fromkeys(tokens), *hidden]


def content(runs: Mapping[str, Run], weights: str, examples: list[dict[str, str]]) -> dict[str, Any]:
    """All that the page reads, for JSON."""
    tokenizers: dict[str, Any] = {}
    names = short_names([Path(name).resolve().name for name in runs])  # not that of a link, such as latest
    shown = [_run(name, run, weights, tokenizers) for name, run in zip(names, runs.values(), strict=True)]
    first = next(iter(runs.values()))
    return {"languages": first.languages, "runs": shown, "tokenizers": tokenizers, "examples": examples}


def _run(name: str, run: Run, weights: str, tokenizers: dict[str, Any]) -> dict[str, Any]:
    model: Any = run.model
    tensors = Tensors(weights)
    sides = {"source": run.tokenizer.source, "target": run.tokenizer.target}
    for tokenizer in sides.values():
        if tokenizer.fingerprint() not in tokenizers:
            tokenizers[tokenizer.fingerprint()] = vocabulary.vocabulary(tokenizer)
    search = run.translator.search
    return {
        "name": name,
        "model": architecture.architecture(model, tensors),
        "tensors": tensors.packed(),
        "weights": weights,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokenizers": {side: tokenizer.fingerprint() for side, tokenizer in sides.items()},
        "search": {
            "ratio": search.max_ratio,
            "extra": search.max_extra,
            "longest": search.max_source,
            "beam": min(getattr(search, "beam", 5), 10),
            "alpha": getattr(search, "alpha", 1.0),
        },
    }


def short_names(names: list[str]) -> list[str]:
    """The names of the runs without the settings that all have in common, where they are jobs of a sweep."""
    parts = [name.split(",") for name in names]
    common = set.intersection(*map(set, parts))
    differing = [",".join(part for part in each if part not in common) for each in parts]
    return differing if len(names) > 1 and all(differing) else names


def example_sentences(run: Run, each: int) -> list[dict[str, str]]:
    """Sentences of the test set with their translations: `each` of each phenomenon, evenly spread, with its wrong
    translation and the source whose translation that is; of a corpus without phenomena, 2 `each` in all."""
    try:
        rows = run.data().data["test"]
    except InputError as error:
        raise InputError(f"{error}; or set examples=0 for a page without examples") from error
    columns = [
        name for name in ("source", "target", "phenomenon", "grade", "contrast", "twin") if name in rows.features
    ]
    labels = np.array(rows["phenomenon"] if "phenomenon" in columns else [""] * len(rows))
    names = sorted(set(labels.tolist()))
    most = each if len(names) > 1 else 2 * each
    picked = [row for name in names for row in _spread(np.flatnonzero(labels == name), most)]
    found = [{name: str(rows[row][name]) for name in columns} for row in picked]
    return [example for example in found if len(example["source"]) <= LONGEST]


def _spread(rows: np.ndarray, most: int) -> list[int]:
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    return [int(row) for row in rows[places]]


def rendered(data: Mapping[str, Any]) -> str:
    """The page. Nothing of `data` can become markup or script: it is JSON without a `<`, and the page's policy
    (Content Security Policy) allows its own script and style alone, by their digests, and no network."""
    folder = files("headcount.explore")
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = (folder / "page.css").read_text(encoding="utf-8")
    parts = {
        "title": escape(", ".join(run["name"] for run in data["runs"])),
        "script": script,
        "style": style,
        "script_digest": _digest(script),
        "style_digest": _digest(style),
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: parts[found[1]], template)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
