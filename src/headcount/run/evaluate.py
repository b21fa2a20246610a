"""Evaluate: BLEU, chrF and loss of one run, of several side by side, or of an ensemble."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict
from omegaconf import DictConfig

from headcount.data.corpora.text import read_lines, read_parallel
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.evaluation.metrics import bleu_tokenizer, composed
from headcount.files import write_text
from headcount.run.directory import locked, read_metrics
from headcount.run.identity import recorded, with_text
from headcount.run.opened import Run, as_list, ensemble, open_runs
from headcount.run.split_scores import Evaluation, doubts, evaluate_split, other_conventions, record
from headcount.run.tables import Figures, comparison_table, contrastive_table, score_table
from headcount.run.values import AS_TRAINED

CHANGED = (
    "score text of your own with input= and reference=, or the corpus as it is now with other_text=true, which leaves "
    "the run's figures as they are"
)


def evaluate(config: DictConfig) -> str:
    """Score runs as conf/evaluate.yaml says: one run, several side by side, or several as one ensemble; the tables.

    Figures and translations of a run's own text, weights and search go to its directory. Raises InputError.
    """
    check(config)
    output = output_file(config.output, len(as_list(config.run)) < 2 or config.ensemble)
    runs = open_runs(config)
    tokenizer = common_tokenizer(config.bleu_tokenizer, runs)
    if config.ensemble:
        runs = {" + ".join(runs): ensemble(list(runs.values()))}
    records = {name: Record(run) for name, run in runs.items()} if is_recorded(config) else {}
    texts = texts_to_score(config, runs)
    results = {split: score_text(config, split, rows, runs, tokenizer, records) for split, rows in texts.items()}
    blocks = tables(config, results, tokenizer)
    for name, run in runs.items():
        given = {split: rows[name] for split, rows in texts.items()}
        blocks += doubts(given, run.tokenizer, run.translator.search, tokenizer)
    if output is not None:
        ((result,),) = (by_run.values() for by_run in results.values())
        write_text(output.resolve(), "".join(line + "\n" for line in result.hypotheses))
        blocks.append(f"translations: {output}")
    return "\n\n".join(blocks) + "\n"


class Record:
    """The directory of a run, whose figures and translations are those of the weights there. Raises InputError for a
    damaged metrics.json, and where a training holds the directory: before the work, not after it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._weights = self._version()
        if not os.access(run.directory, os.W_OK):
            raise InputError(
                f"{run.directory}: can't be written to, and figures of a run are kept there; other_text=true keeps none"
            )
        with locked(run.directory):
            read_metrics(run.directory)

    def keep(self, split: str, result: Evaluation) -> None:
        """Put the figures of a split there. Raises InputError where the weights are others than those scored."""
        with locked(self._run.directory):
            if self._version() != self._weights:
                raise InputError(f"{self._run.directory}: has been trained on since it was opened; evaluate it again")
            record(self._run, split, result)

    def _version(self) -> tuple[int, int]:
        stat = (self._run.directory / "model.safetensors").stat()
        return stat.st_ino, stat.st_mtime_ns


def is_recorded(config: DictConfig) -> bool:
    """Whether the figures go to the runs' directories: only those of a run's own text, weights, search and way of
    counting BLEU do."""
    own = all(choice is None for choice in (config.input, config.checkpoint, config.bleu_tokenizer))
    own = own and all(value == AS_TRAINED for value in config.search.values())
    return own and not config.ensemble and not config.other_text


def texts_to_score(config: DictConfig, runs: Mapping[str, Run]) -> dict[str, dict[str, Dataset]]:
    """The sentence pairs to score by split (`input` for files that are given) and run.

    Raises InputError where runs have different references.
    """
    if config.input is not None:
        sources, references = read_parallel(config.input, config.reference)
        if not sources:
            raise InputError(f"{config.input}: holds no line, so there is nothing to score")
        return {"input": dict.fromkeys(runs, Dataset.from_dict({"source": sources, "target": references}))}
    splits = as_list(config.split)
    data = {name: splits_of(name, run, splits, config.other_text) for name, run in runs.items()}
    texts = {split: {name: data[name][split] for name in runs} for split in splits}
    for split, rows in texts.items():
        (first, common), *others = ((name, list(each["target"])) for name, each in rows.items())
        for name, references in others:
            if references != common:
                raise InputError(f"{name}: another {split} split than {first}; compare runs of one corpus")
    return texts


def score_text(
    config: DictConfig,
    split: str,
    rows: Mapping[str, Dataset],
    runs: Mapping[str, Run],
    tokenizer: str,
    records: Mapping[str, Record],
) -> dict[str, Evaluation]:
    """Translate and score one split with every run, and keep the figures in `records`; by run."""
    with_loss = config.input is None and not config.ensemble  # an ensemble has no one model whose loss it would be
    results = {}
    for name, run in runs.items():
        try:
            result = evaluate_split(run, rows[name], tokenizer, with_loss)
        except LineError as error:
            raise InputError(f"{config.input or split}, {error}") from error
        others = other_conventions(result, run.languages[1], tokenizer, config.lowercase, config.moses)
        result.figures.update(others)
        if name in records:
            records[name].keep(split, result)
        results[name] = result
    return results


def tables(config: DictConfig, results: Mapping[str, Mapping[str, Evaluation]], tokenizer: str) -> list[str]:
    """The tables of all splits and runs, and a line about where the figures are kept."""
    figures = {split: {name: result.figures for name, result in each.items()} for split, each in results.items()}
    runs = next(iter(results.values()))
    blocks = [score_table(labelled(figures))]
    for split, by_run in results.items():
        heading = f"{split}: " if len(results) > 1 else ""
        if len(runs) > 1:
            hypotheses = {name: result.hypotheses for name, result in by_run.items()}
            references = next(iter(by_run.values())).references
            blocks.append(heading + comparison_table(hypotheses, references, tokenizer, config.lowercase))
        if any("contrastive" in figure for figure in figures[split].values()):
            blocks.append(heading + contrastive_table(figures[split]))
    if is_recorded(config):
        kept = ", ".join(f"{name}/metrics.json" for name in runs)
        blocks.append(f"figures: {kept}; translations: {', '.join(f'{split}.hyp.*' for split in results)} beside")
    elif config.ensemble:
        blocks.append("an ensemble: nothing was written to the metrics.json of its runs")
    else:
        blocks.append(
            "not the run's own text, weights, search and way of counting BLEU: its metrics.json is left as it is"
        )
    return blocks


def check(config: DictConfig) -> None:
    """Raises InputError for invalid or conflicting settings."""
    splits = as_list(config.split)
    if not splits or "train" in splits or not all(isinstance(split, str) for split in splits):
        raise InputError(f"split={config.split}: must be test or valid, or the name of a further test set, or a list")
    if (config.input is None) != (config.reference is None):
        raise InputError("input= and reference= go together: the text to translate, and its translation")
    if config.output is not None and len(splits) > 1:
        raise InputError(f"output={config.output}: goes with one split")
    for name in ("lowercase", "moses", "ensemble", "other_text"):
        if not isinstance(config[name], bool):
            raise InputError(f"{name}={config[name]}: must be true or false")


def output_file(output: str | None, one: bool) -> Path | None:
    """The file of output=; of a link, what it points to is to be written. Raises InputError if it cannot be written, or
    there are translations of more than `one`."""
    if output is None:
        return None
    if not one:
        raise InputError(f"output={output}: goes with one run, or with ensemble=true")
    path = Path(str(output))
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"output={output}: must be a file in a folder that exists")
    return path


def common_tokenizer(chosen: str | None, runs: Mapping[str, Run]) -> str:
    """The BLEU tokenizer of all runs, by sacrebleu's name: `chosen`, or that of their configs.

    Raises InputError where these differ: their figures cannot be compared.
    """
    (first, common), *others = (
        (name, bleu_tokenizer(run.languages[1], chosen) if chosen is not None else run.bleu_tokenizer)
        for name, run in runs.items()
    )
    for name, tokenizer in others:
        if tokenizer != common:
            raise InputError(
                f"{first} counts BLEU in the tokens of {common}, {name} in those of {tokenizer}: these cannot be "
                f"compared; count both alike, such as with bleu_tokenizer={common}"
            )
    return common


def splits_of(
    name: str, run: Run, splits: Sequence[str], other_text: bool = False, one_way: bool = False
) -> DatasetDict:
    """The run's corpus, which has all of `splits`. one_way: without the reversed pairs of data.both_directions.

    Raises InputError where it lacks one. Without `other_text` it must be the text that the run was trained on: other
    test text may be a part of what the run has learned.
    """
    trained_on = recorded(run.config)
    if trained_on not in (None, recorded(with_text(run.config, run.trust))) and not other_text:
        raise InputError(f"{name}: its corpus has changed since it was trained; {CHANGED}")
    data = run.data()
    for split in splits:
        if split not in data.held_out_splits:
            raise InputError(f"split={split}: {name} has {', '.join(data.held_out_splits)}")
        if trained_on is None and not other_text:
            check_references(name, run, split, data.data[split]["target"])
    return data.one_way if one_way else data.data


def check_references(name: str, run: Run, split: str, references: Sequence[str]) -> None:
    """Raises InputError unless these are the references that the run was scored on, and has kept.

    A run from before fingerprints were recorded has no other proof that its corpus is still the same.
    """
    path = run.directory / f"{split}.ref.{run.languages[1]}"
    if not path.is_file():
        wrong = f"has no {path.name} to compare"
    elif composed(read_lines(path)) != composed(references):
        wrong = f"its {path.name} is not the {split} split of its corpus"
    else:
        return
    raise InputError(f"{name}: does not record what text it was trained on, and {wrong}; {CHANGED}")


def labelled(figures: dict[str, dict[str, Figures]]) -> dict[str, Figures]:
    """The figures of every split and run by label: the run's name, the split's name, or both where both differ."""
    many_splits, many_runs = len(figures) > 1, any(len(of_split) > 1 for of_split in figures.values())
    return {
        (f"{name} {split}" if many_runs else split) if many_splits else name: figure
        for split, of_split in figures.items()
        for name, figure in of_split.items()
    }
