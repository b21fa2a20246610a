"""Scores of one run, or of several side by side, or of several as one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict
from omegaconf import DictConfig, OmegaConf

from headcount.data.corpora import read_parallel
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.files import write_text
from headcount.run.directory import read_metrics
from headcount.run.identity import recorded, with_text
from headcount.run.opened import Run, as_one, open_as_asked
from headcount.run.split_scores import evaluate_split, other_conventions, record
from headcount.run.tables import Figures, comparison_table, contrastive_table, score_table

CHANGED = (
    "score text of your own with input= and reference=, or the corpus as it is now with other_text=true, which leaves "
    "the run's figures as they are"
)


def evaluate(config: DictConfig) -> str:
    """What conf/evaluate.yaml asks for, as text for a person. Writes to the runs what is theirs. Raises InputError."""
    check(config)
    directories, splits = as_list(config.run), as_list(config.split)
    output = output_file(config.output, len(directories) == 1 or config.ensemble)
    runs = {name: open_as_asked(config, name) for name in directories}
    tokenizer = common_tokenizer(config.bleu_tokenizer, runs)
    if config.ensemble:
        runs = {" + ".join(runs): as_one(list(runs.values()))}
    chosen = [config.input, config.checkpoint, config.bleu_tokenizer, *config.search.values()]
    own = all(choice is None for choice in chosen) and not config.ensemble and not config.other_text
    if own:
        for run in runs.values():
            read_metrics(run.directory)  # what is damaged should show before the work, not after
    if config.input is not None:
        splits = ["input"]
        sources, references = read_parallel(config.input, config.reference)
        if not sources:
            raise InputError(f"{config.input}: holds no line, so there is nothing to score")
        rows = {name: {"input": Dataset.from_dict({"source": sources, "target": references})} for name in runs}
    else:
        rows = {name: splits_of(name, run, splits, config.other_text) for name, run in runs.items()}
    with_loss = config.input is None and not config.ensemble  # an ensemble has no one model whose loss it would be
    wanted = {split: common_references(split, {name: rows[name][split] for name in runs}) for split in splits}
    hypotheses: dict[str, dict[str, list[str]]] = {}
    figures: dict[str, dict[str, Figures]] = {}
    for split, references in wanted.items():
        hypotheses[split], figures[split] = {}, {}
        for name, run in runs.items():
            try:
                found = evaluate_split(run, rows[name][split], tokenizer, with_loss)
            except LineError as error:
                raise InputError(f"{config.input or split}, {error}") from error
            found.figures.update(
                other_conventions(
                    found.hypotheses, references, run.languages[1], tokenizer, config.lowercase, config.moses
                )
            )
            if own:
                record(run, split, found, references)
            hypotheses[split][name], figures[split][name] = found.hypotheses, found.figures
    parts = [score_table(labelled(figures))]
    for split, references in wanted.items():
        heading = f"{split}: " if len(splits) > 1 else ""
        if len(runs) > 1:
            parts.append(heading + comparison_table(hypotheses[split], references, tokenizer, config.lowercase))
        if any("contrastive" in figure for figure in figures[split].values()):
            parts.append(heading + contrastive_table(figures[split]))
    if own:
        kept = ", ".join(f"{name}/metrics.json" for name in runs)
        parts.append(f"figures: {kept}; translations: {', '.join(f'{split}.hyp.*' for split in splits)} beside")
    elif config.ensemble:
        parts.append("an ensemble: nothing was written to the metrics.json of its runs")
    else:
        parts.append(
            "not the run's own text, weights, search and way of counting BLEU: its metrics.json is left as it is"
        )
    if output is not None:
        (texts,) = hypotheses[splits[0]].values()
        write_text(output, "".join(line + "\n" for line in texts))
        parts.append(f"translations: {output}")
    return "\n\n".join(parts)


def check(config: DictConfig) -> None:
    """Raises InputError for settings that are no such thing, or don't go together."""
    directories, splits = as_list(config.run), as_list(config.split)
    if not directories:
        raise InputError("run=[]: give a run directory, or several")
    if not splits or "train" in splits or not all(isinstance(split, str) for split in splits):
        raise InputError(f"split={config.split}: must be test or valid, or the name of a further test set, or a list")
    if (config.input is None) != (config.reference is None):
        raise InputError("input= and reference= go together: the text to translate, and its translation")
    if config.checkpoint and len(directories) > 1:
        raise InputError("checkpoint= goes with one run: it replaces that run's weights")
    if config.output is not None and len(splits) > 1:
        raise InputError(f"output={config.output}: goes with one split")
    for name in ("lowercase", "moses", "ensemble", "other_text"):
        if not isinstance(config[name], bool):
            raise InputError(f"{name}={config[name]}: must be true or false")


def as_list(setting: object) -> list[str]:
    """One or several, each once."""
    return list(dict.fromkeys(setting)) if OmegaConf.is_list(setting) else [setting]  # type: ignore[call-overload,list-item]


def output_file(output: str | None, one: bool) -> Path | None:
    """Where output= wants the translations. Raises InputError if they cannot go there, or are not those of `one`."""
    if output is None:
        return None
    if not one:
        raise InputError(f"output={output}: goes with one run, or with ensemble=true")
    path = Path(str(output))
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"output={output}: must be a file in a folder that exists")
    return path


def common_tokenizer(chosen: str | None, runs: Mapping[str, Run]) -> str:
    """In whose tokens the BLEU of all runs is counted: as `chosen`, or as their own configs say.

    Raises InputError where these differ: such figures must not be in one column.
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


def splits_of(name: str, run: Run, splits: Sequence[str], other_text: bool = False) -> DatasetDict:
    """What the run's corpus has, with all of `splits`.

    Raises InputError where it lacks one, or where, without `other_text`, it is not the text that the run was trained
    on: its figures would be of another test set, of which it may have learned a part.
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
    return data.data


def check_references(name: str, run: Run, split: str, references: Sequence[str]) -> None:
    """Raises InputError unless these are the references that the run was scored on, and has kept.

    For a run from before fingerprints were recorded: nothing else tells whether its corpus is still the same.
    """
    path = run.directory / f"{split}.ref.{run.languages[1]}"
    if not path.is_file():
        wrong = f"has no {path.name} to compare"
    elif path.read_bytes() != "".join(line + "\n" for line in references).encode():
        wrong = f"its {path.name} is not the {split} split of its corpus"
    else:
        return
    raise InputError(f"{name}: does not record what text it was trained on, and {wrong}; {CHANGED}")


def common_references(split: str, rows: dict[str, Dataset]) -> list[str]:
    """The references of a split, by run. Raises InputError where runs have different ones."""
    (first, common), *others = ((name, list(own["target"])) for name, own in rows.items())
    for name, references in others:
        if references != common:
            raise InputError(f"{name}: another {split} split than {first}; compare runs of one corpus")
    return common


def labelled(figures: dict[str, dict[str, Figures]]) -> dict[str, Figures]:
    """The figures of every split and run in one, under a label that says only what differs."""
    many_splits, many_runs = len(figures) > 1, any(len(of_split) > 1 for of_split in figures.values())
    return {
        (f"{name} {split}" if many_runs else split) if many_splits else name: figure
        for split, of_split in figures.items()
        for name, figure in of_split.items()
    }
