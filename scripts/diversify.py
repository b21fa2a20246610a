"""Data diversification and distillation: a training text and its translations by several runs, as a new corpus.

Nguyen et al. 2020, "Data diversification: a simple strategy for neural machine translation", one round; with
--distilled Kim and Rush 2016, "Sequence-level knowledge distillation". Writes train.jsonl, valid.jsonl and test.jsonl,
each pair once, with the run that made it.
"""

import argparse
import json
import logging
from pathlib import Path

from headcount.data.corpora.corpus import SPLITS
from headcount.data.tokenizer import normalise
from headcount.errors import InputError
from headcount.files import write_text
from headcount.progress import progress_bar
from headcount.run.opened import Run, ensemble, open_run


def diversify(out: Path, runs: list[Run], original: bool) -> None:
    """Write the corpus; the runs may be of either direction. Raises InputError."""
    languages, data = runs[0].languages, runs[0].data().one_way
    splits = {name: list(zip(data[name]["source"][:], data[name]["target"][:], strict=True)) for name in SPLITS}
    text = [(normalise(source), normalise(target)) for source, target in splits["train"]]
    found = dict.fromkeys(text, "original") if original else {}
    for run in runs:
        name, backwards = run.translator.name, run.languages == languages[::-1]
        if not backwards and run.languages != languages:
            raise InputError(f"{name}: translates {run.languages}; all must be between {languages}")
        with progress_bar(name, len(text)) as advance:
            lines = run.translator.translate([pair[backwards] for pair in text], advance)
        for line, (source, target) in zip(lines, text, strict=True):
            found.setdefault((line, target) if backwards else (source, line), name)
    rows = {name: [(*pair, "original") for pair in splits[name]] for name in ("valid", "test")}
    rows["train"] = [(*pair, name) for pair, name in found.items() if all(pair)]
    out.mkdir(parents=True, exist_ok=True)
    for name, made in rows.items():
        each = (json.dumps(dict(zip((*languages, "run"), row, strict=True)), ensure_ascii=False) for row in made)
        write_text(out / f"{name}.jsonl", "".join(line + "\n" for line in each))
    files = " ".join(f"data.{name}={out}/{name}.jsonl" for name in SPLITS)
    logging.info(
        "%d pairs; train with data=files data.source=%s data.target=%s %s", len(rows["train"]), *languages, files
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("runs", nargs="+", help="run directories; the first one's training text is translated")
    parser.add_argument("--distilled", action="store_true", help="translations only, without the original pairs")
    parser.add_argument("--ensemble", action="store_true", help="the runs translate as one")
    parser.add_argument("--search", default="{}", help="settings of the search, such as '{\"beam\": 1}'")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        runs = [open_run(name, search=json.loads(given.search)) for name in given.runs]
        diversify(given.out, [ensemble(runs)] if given.ensemble else runs, not given.distilled)
    except ValueError as error:  # an InputError, or a search that is no JSON
        parser.error(str(error))


if __name__ == "__main__":
    main()
