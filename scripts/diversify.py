"""Data diversification and distillation: a training text and its translations by several runs, as a new corpus.

Nguyen et al. 2020, "Data diversification: a simple strategy for neural machine translation", one round; with
--distilled Kim and Rush 2016, "Sequence-level knowledge distillation". Writes train.jsonl, valid.jsonl and test.jsonl,
each pair once, with the run that made it. Typed again, it goes on after the runs whose translations are finished.
"""

import argparse
import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import yaml

from headcount.data.corpora.corpus import SPLITS
from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.files import write_text
from headcount.progress import progress_bar
from headcount.run.opened import Run, ensemble, open_run, weights_digest

Pairs = list[tuple[str, str]]


def diversify(out: Path, runs: list[Run], original: bool) -> None:
    """Write the corpus; the runs may be of either direction. Raises InputError."""
    languages, data = runs[0].languages, runs[0].data().one_way
    splits = {name: list(zip(data[name]["source"][:], data[name]["target"][:], strict=True)) for name in SPLITS}
    text = [(normalise(source), normalise(target)) for source, target in splits["train"]]
    found = dict.fromkeys(filter(all, text), "original") if original else {}
    for run in runs:
        if run.languages not in (languages, languages[::-1]):
            raise InputError(f"{run.translator.name}: translates {run.languages}; all must be between {languages}")
        for pair in filter(all, translated(run, text, run.languages != languages, out / "translations")):
            found.setdefault(pair, run.translator.name)
    rows = {name: [(*pair, "original") for pair in splits[name]] for name in ("valid", "test")}
    for name, made in (rows | {"train": [(*pair, name) for pair, name in found.items()]}).items():
        each = (json.dumps(dict(zip((*languages, "run"), row, strict=True)), ensure_ascii=False) for row in made)
        write_text(out / f"{name}.jsonl", "".join(line + "\n" for line in each))
    files = " ".join(f"data.{name}={out}/{name}.jsonl" for name in SPLITS)
    logging.info("%d pairs; train with data=files data.source=%s data.target=%s %s", len(found), *languages, files)


def translated(run: Run, text: Pairs, backwards: bool, folder: Path) -> Pairs:
    """Pairs of one side of `text` and the run's translation of the other: of the sources, or backwards of the targets.
    Translations are kept in the folder, under a hash of weights and search, and made once."""
    weights = [weights_digest(model) for model in getattr(run.translator.model, "members", [run.model])]
    name = hashlib.sha256(repr((weights, run.translator.search, len(text))).encode()).hexdigest()[:16]
    kept = folder / f"{name}.txt"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar(run.translator.name, len(text)) as advance:
            lines = run.translator.translate([pair[backwards] for pair in text], advance)
        write_text(kept, "".join(line + "\n" for line in lines))
    lines = kept.read_text(encoding="utf-8").split("\n")[:-1]
    return [(line, target) if backwards else (source, line) for line, (source, target) in zip(lines, text, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("runs", nargs="+", help="run directories; the first one's training text is translated")
    parser.add_argument("--distilled", action="store_true", help="translations only, without the original pairs")
    parser.add_argument("--ensemble", action="store_true", help="the runs translate as one")
    parser.add_argument("--search", default="{}", help="settings of the search, such as '{beam: 1}'")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    search: Any = yaml.safe_load(given.search)
    try:
        runs = [open_run(name, search=search) for name in given.runs]
        diversify(given.out, [ensemble(runs)] if given.ensemble else runs, not given.distilled)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
