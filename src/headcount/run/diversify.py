"""Data diversification and distillation: a training text and its translations by several runs, as a new corpus."""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from omegaconf import DictConfig
from tabulate import tabulate

from headcount.data.corpora.corpus import SPLITS
from headcount.data.corpora.digests import file_digest
from headcount.data.tokenizer import normalise
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.files import show, write_text
from headcount.progress import progress_bar
from headcount.run.opened import Run, ensemble, open_runs
from headcount.run.place import command, hydra_text
from headcount.run.values import typed

ORIGINAL = "original"  # provenance of the pairs of the corpus itself
Pair = tuple[str, str]

logger = logging.getLogger(__name__)


def diversify(config: DictConfig) -> str:
    """Write train.jsonl, valid.jsonl and test.jsonl as conf/diversify.yaml says; their counts, and what to type next.

    Nguyen et al. 2020, "Data diversification: a simple strategy for neural machine translation", one round; without the
    original pairs, Kim and Rush 2016, "Sequence-level knowledge distillation". Raises InputError.
    """
    if not isinstance(config.out, str):
        raise InputError(f"out={typed(config.out)}: must be a folder to write, such as out=data/diverse")
    out, runs = Path(config.out), list(open_runs(config).values())
    languages = check_languages(runs)
    splits = split_pairs(runs[0])
    text = [(normalise(source), normalise(target)) for source, target in splits["train"]]
    pairs = DistinctPairs()
    if config.original:
        pairs.add(ORIGINAL, text)
    for run, weights in teachers(runs, config):
        pairs.add(
            run.translator.name, translated(run, weights, text, run.languages != languages, out, config.precision)
        )
    write_pairs(out / "train.jsonl", languages, pairs.rows())
    for split in ("valid", "test"):
        write_pairs(out / f"{split}.jsonl", languages, [(*pair, ORIGINAL) for pair in splits[split]])
    return summary(out, languages, pairs)


def split_pairs(run: Run) -> dict[str, list[Pair]]:
    """The pairs of the run's train, valid and test, each in one direction alone."""
    data = run.data().one_way
    return {split: list(zip(data[split]["source"][:], data[split]["target"][:], strict=True)) for split in SPLITS}


def check_languages(runs: Sequence[Run]) -> Pair:
    """The languages of the first run. Raises InputError for a run between others, in neither direction."""
    first = runs[0]
    for run in runs[1:]:
        if run.languages not in (first.languages, first.languages[::-1]):
            raise InputError(
                f"run={run.directory}: translates {run.languages[0]} to {run.languages[1]}; all runs must be between "
                f"{first.languages[0]} and {first.languages[1]}, as {first.directory}"
            )
    return first.languages


def teachers(runs: Sequence[Run], config: DictConfig) -> list[tuple[Run, list[Path]]]:
    """The runs that translate, each with the files of its weights; with `ensemble`, one run of all."""
    weights = [Path(config.checkpoint) if config.checkpoint else run.directory / "model.safetensors" for run in runs]
    if config.ensemble:
        return [(ensemble(runs), weights)]
    return [(run, [file]) for run, file in zip(runs, weights, strict=True)]


def translated(
    run: Run, weights: Sequence[Path], text: Sequence[Pair], backwards: bool, out: Path, precision: str
) -> list[Pair]:
    """Pairs of one side of `text` and the run's translation of the other: of the sources, or backwards of the targets.

    The translations are kept in `out`/translations under a hash of weights, search, precision and text, and made once.
    """
    texts = [pair[backwards] for pair in text]
    made_of = [*(file_digest(file).hex() for file in weights), repr(run.translator.search), precision, texts]
    kept = out / "translations" / f"{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]}.txt"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with progress_bar(run.translator.name, len(texts)) as advance:
            try:
                lines = run.translator.translate(texts, advance)
            except LineError as error:
                raise InputError(f"{run.directory}: row {error.line} of the training text has {error.why}") from error
        write_text(kept, "".join(line + "\n" for line in lines))
    logger.info("%s: %s", run.translator.name, show(kept))
    lines = kept.read_text(encoding="utf-8").split("\n")[:-1]
    return [(line, target) if backwards else (source, line) for line, (source, target) in zip(lines, text, strict=True)]


class DistinctPairs:
    """Pairs in the order that they were added, each once, with their provenance; pairs without text are left out."""

    def __init__(self) -> None:
        self._provenance: dict[Pair, str] = {}
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, provenance: str, pairs: Iterable[Pair]) -> None:
        counts = self.counts[provenance] = {"pairs": 0, "empty": 0, "duplicates": 0, "kept": 0}
        for pair in pairs:
            counts["pairs"] += 1
            what = "empty" if not all(pair) else "duplicates" if pair in self._provenance else "kept"
            counts[what] += 1
            if what == "kept":
                self._provenance[pair] = provenance

    def rows(self) -> list[tuple[str, str, str]]:
        """Source, target and provenance of every pair."""
        return [(*pair, provenance) for pair, provenance in self._provenance.items()]


def write_pairs(path: Path, languages: Pair, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write a JSON object a line, with the text under the codes of the languages and the provenance under "run"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = (*languages, "run")
    write_text(path, "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows))


def summary(out: Path, languages: Pair, pairs: DistinctPairs) -> str:
    """The counts, and the command that trains on the corpus."""
    counts = [[name, *each.values()] for name, each in pairs.counts.items()]
    table = tabulate(counts, headers=["", "pairs", "empty", "duplicates", "kept"], intfmt=",")
    place, (source, target) = show(out.resolve()), languages
    files = [f"data.{split}={hydra_text(f'{place}/{split}.jsonl')}" for split in ("train", "valid", "test")]
    return (
        f"{table}\n\n{len(pairs.rows()):,} pairs in {place}/train.jsonl\n"
        f"next:  {command('train', 'data=files', f'data.source={source}', f'data.target={target}', *files)}\n"
    )
