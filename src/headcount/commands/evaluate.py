"""Score a run, several side by side, or given translations; rerank the n best."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Ge
from datasets import Dataset
from omegaconf import DictConfig

from headcount.data.corpora.text import read_lines, read_parallel
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.evaluation.contrastive import read_all_contrasts
from headcount.evaluation.likelihood import TargetScorer, perplexity
from headcount.evaluation.metrics import bleu_tokenizer, moses_bleu, score
from headcount.evaluation.reranking import GRID, Reranker, at_the_edge, choose_weights
from headcount.files import write_text
from headcount.run import scores
from headcount.run.arrays import write_arrays
from headcount.run.build import names_given, only_take
from headcount.run.contrasts import contrast_figures, contrast_rows, contrast_scores, contrast_table, trigrams
from headcount.run.directory import locked, read_metrics, update_metrics
from headcount.run.identity import with_text
from headcount.run.opened import Run, as_list, ensemble, open_from_config, open_runs
from headcount.run.scores import Evaluation, evaluate_split
from headcount.settings import AS_TRAINED, Opening, within
from headcount.statistics.bootstrap import bleu_of, sentence_counts


@dataclass(frozen=True, kw_only=True)
class Settings(Opening):
    """conf/evaluate.yaml explains them."""

    device: str
    ensemble: bool
    output: str | None
    split: str | list[str]
    input: str | None
    reference: str | None
    hypotheses: str | None
    contrasts: str | list[str] | None
    rerank: str | list[str] | None
    nbest: Annotated[int, Ge(2)]
    weights: dict[Literal["backward", "length"], float | None]
    bleu_tokenizer: str | None
    lowercase: bool
    moses: bool


CHOSEN_ON = "valid"  # the split that the weights of reranking are chosen on


def run(config: DictConfig) -> str:
    """Score as conf/evaluate.yaml says; the tables. Figures and translations of a run's own text, weights and search
    go to its directory. Raises InputError."""
    check(config)
    if config.hypotheses is not None:
        return given_likelihoods(open_from_config(config, config.run), config.input, config.hypotheses)
    if config.contrasts is not None:
        return contrastive_scores(config)
    runs = open_runs(config)
    members = list(runs.values())
    for member in members if config.rerank is not None else ():
        search = member.translator.search
        if config.search.get(search.width_setting) == AS_TRAINED:
            member.translator.search = replace(search, **{search.width_setting: config.nbest})
    tokenizer = common_tokenizer(config.bleu_tokenizer, runs)
    if config.ensemble or config.rerank is not None:
        runs = {" + ".join(runs): ensemble(members)}
    kept = runs if is_recorded(config) else {}
    for run in kept.values():
        with locked(run.directory):  # before the work, not after it
            read_metrics(run.directory)
    blocks = []
    if config.rerank is not None:
        ((name, run),) = runs.items()
        reranker = open_reranker(config, members, run)
        weights, shown = chosen_weights(config, run, reranker, tokenizer)
        blocks.append(shown)
        if config.input is not None and config.reference is None:
            lines = reranker.by(lambda each: each.best(weights)).translate(read_lines(config.input))
            return "\n\n".join([*blocks, write_translations(config.output, lines)]) + "\n"
        first, best = reranker.by(lambda each: [0] * len(each.forward)), reranker.by(lambda each: each.best(weights))
        runs = {name: replace(run, translator=first), "reranked": replace(run, translator=best)}
    texts = texts_to_score(config, runs)
    results = {split: score_text(config, split, rows, runs, tokenizer) for split, rows in texts.items()}
    for split, by_run in results.items():
        for name, run in kept.items():
            with locked(run.directory):
                scores.record(run, split, by_run[name])
    blocks += tables(config, results, tokenizer)
    if config.output is not None:
        *_, result = next(iter(results.values())).values()
        blocks.append(write_translations(config.output, result.hypotheses))
    return "\n\n".join(dict.fromkeys(blocks)) + "\n"


def check(config: DictConfig) -> None:
    """Raises InputError for invalid or conflicting settings."""
    splits = as_list(config.split)
    if not splits or "train" in splits:
        raise InputError(f"split={config.split}: must be test or valid, or the name of a further test set, or a list")
    if config.hypotheses is not None:
        only_take("hypotheses=", ["hypotheses", "input", "reference", "checkpoint", "device"])
        if config.input is None or config.reference is not None:
            raise InputError("hypotheses=: goes with input=, the text that they translate, and not with reference=")
        return
    if config.contrasts is not None:
        only_take("contrasts=", ["contrasts", "checkpoint", "device", "output"])
        return
    if config.rerank is None and any(within(name, ("nbest", "weights")) for name in names_given()):
        raise InputError("nbest= and weights.: go with rerank=, a run that scores the n best, or []")
    only_translated = config.rerank is not None and config.output is not None
    if (config.input is None) != (config.reference is None) and not (only_translated and config.reference is None):
        raise InputError("input= and reference= go together: the text to translate, and its translation")
    one = len(splits) == 1 and (len(as_list(config.run)) == 1 or config.ensemble or config.rerank is not None)
    if config.output is not None and not one:
        raise InputError(f"output={config.output}: goes with one split, and with one run or ensemble=true")
    if config.output is not None and not Path(config.output).parent.is_dir():
        raise InputError(f"output={config.output}: must be a file in a folder that exists")


def write_translations(output: str, lines: Sequence[str]) -> str:
    """Write translations to a file; of a link, to what it points to. A line that says so."""
    write_text(Path(output).resolve(), "".join(f"{line}\n" for line in lines))
    return f"translations: {output}"


def is_recorded(config: DictConfig) -> bool:
    """Whether the figures go to the runs' directories: only those of a run's own text, weights, search and way of
    counting BLEU do."""
    other = (config.input, config.checkpoint, config.bleu_tokenizer, config.rerank)
    own = all(choice is None for choice in other) and not config.ensemble
    return own and all(value == AS_TRAINED for value in config.search.values())


def given_likelihoods(run: Run, source: str, target: str) -> str:
    """The log-probability of given translations, without a search: a line for each pair, and to standard error a line
    for all.

    A line holds, between tabs, the log-probability in nats of the target given the source, with its end; the tokens of
    the target, its end counted; and the perplexity, exp(-log-probability / tokens). Raises InputError.
    """
    sides = read_parallel(source, target)
    if not sides[0]:
        raise InputError(f"{source}: holds no line, so there is nothing to score")
    longest = run.translator.longest
    codecs = (run.tokenizer.source, run.tokenizer.target)
    for path, codec, lines in zip((source, target), codecs, sides, strict=True):
        for number, ids in enumerate(codec.encode(lines), start=1):
            if longest is not None and len(ids) > longest:
                what = f"{len(ids):,} subwords, more than {longest:,}"
                raise InputError(f"{path}, line {number}: {what}; cut it into sentences")
    log_probs, tokens = run.scorer.score(*sides)
    whole, total = sum(log_probs), sum(tokens)
    shown = f"{len(tokens):,} pairs, {total:,} tokens: log-probability {whole:.4f} nats"
    sys.stderr.write(f"{shown}, perplexity {perplexity(-whole / total):.4f}\n")
    pairs = zip(log_probs, tokens, strict=True)
    return "".join(f"{found:.6f}\t{count}\t{perplexity(-found / count):.4f}\n" for found, count in pairs)


def contrastive_scores(config: DictConfig) -> str:
    """Score the contrastive pairs of files with every run; each run keeps the log-probabilities and figures of its own
    weights, which reports show. Raises InputError."""
    tables = read_all_contrasts(as_list(config.contrasts))
    blocks, lines, runs = [], [], open_runs(config)
    blind = {name: trigrams(run, run.data().one_way["train"]["target"]) for name, run in runs.items()}
    for file, rows in tables.items():
        found = {name: contrast_scores(run, rows, blind[name]) for name, run in runs.items()}
        table = contrast_rows(rows, found)
        for name, run in runs.items() if config.checkpoint is None else ():
            with locked(run.directory):
                kept = run.directory / "contrasts" / f"{file}.npz"
                kept.parent.mkdir(exist_ok=True)
                write_arrays(kept, found[name])
                update_metrics(run.directory, {"test": {"contrastive": contrast_figures(table, name, file)}})
        blocks.append(f"{file}: {contrast_table(table)}")
        lines += [{"file": file, **row} for row in table]
    if config.output is not None:
        write_text(
            Path(config.output), pd.DataFrame(lines).to_csv(index=False, float_format="%.2f", lineterminator="\n")
        )
    return "\n\n".join(blocks) + "\n"


def texts_to_score(config: DictConfig, runs: Mapping[str, Run]) -> dict[str, dict[str, Dataset]]:
    """The sentence pairs to score by split (`input` for files that are given) and run. Raises InputError where runs
    have different references."""
    if config.input is not None:
        sources, references = read_parallel(config.input, config.reference)
        if not sources:
            raise InputError(f"{config.input}: holds no line, so there is nothing to score")
        return {"input": dict.fromkeys(runs, Dataset.from_dict({"source": sources, "target": references}))}
    splits, one_way = as_list(config.split), config.rerank is not None
    data = {name: splits_of(name, run, splits, one_way) for name, run in runs.items()}
    texts = {split: {name: data[name][split] for name in runs} for split in splits}
    for split, rows in texts.items():
        first, common = next(iter(rows)), list(next(iter(rows.values()))["target"])
        if other := [name for name, each in rows.items() if list(each["target"]) != common]:
            raise InputError(f"{other[0]}: another {split} split than {first}; compare runs of one corpus")
    return texts


def splits_of(name: str, run: Run, splits: Sequence[str], one_way: bool = False) -> Mapping[str, Dataset]:
    """The run's corpus, which has all of `splits`. one_way: without the reversed pairs of data.both_directions.

    Raises InputError where it lacks one, or is another text than the run was trained on: other test text may be a part
    of what the run has learned.
    """
    if run.config.data.fingerprint != with_text(run.config).data.fingerprint:
        raise InputError(f"{name}: its corpus has changed since it was trained; score text with input= and reference=")
    data = run.data()
    for split in splits:
        if split not in data.held_out_splits:
            raise InputError(f"split={split}: {name} has {', '.join(data.held_out_splits)}")
    return data.one_way if one_way else data.data


def score_text(
    config: DictConfig, split: str, rows: Mapping[str, Dataset], runs: Mapping[str, Run], tokenizer: str
) -> dict[str, Evaluation]:
    """Translate and score one split with every run, also by other conventions (lowercased; Moses tokens); by run."""
    # An ensemble has no one model whose loss it would be, and reranking has the model's own.
    with_loss = config.input is None and not config.ensemble and config.rerank is None
    results = {}
    for name, run in runs.items():
        try:
            results[name] = result = evaluate_split(run, rows[name], tokenizer, with_loss)
        except LineError as error:
            raise InputError(f"{config.input or split}, {error}") from error
        both = result.hypotheses, result.references
        if config.lowercase:
            found = score(*both, tokenizer, lowercase=True)
            result.figures["lowercase"] = {key: asdict(each) for key, each in found.items()}
        if config.moses:
            result.figures["moses"] = {"bleu": asdict(moses_bleu(*both, run.languages[1]))}
    return results


def common_tokenizer(chosen: str | None, runs: Mapping[str, Run]) -> str:
    """The BLEU tokenizer of all runs, by sacrebleu's name: `chosen`, or that of their configs.

    Raises InputError where these differ: their figures cannot be compared.
    """
    if chosen is not None:
        return bleu_tokenizer(next(iter(runs.values())).languages[1], chosen)
    found = {name: run.bleu_tokenizer for name, run in runs.items()}
    if len({*found.values()}) > 1:
        each = ", ".join(f"{name} in those of {tokenizer}" for name, tokenizer in found.items())
        raise InputError(f"BLEU is counted in other tokens: {each}; count all alike by bleu_tokenizer=")
    return next(iter(found.values()))


def tables(config: DictConfig, results: Mapping[str, Mapping[str, Evaluation]], tokenizer: str) -> list[str]:
    """The tables of all splits and runs, and a line about where the figures are kept."""
    runs, many = list(next(iter(results.values()))), len(results) > 1
    labelled = {  # by the run, the split, or both where both differ
        (f"{name} {split}" if len(runs) > 1 else split) if many else name: result.figures
        for split, by_run in results.items()
        for name, result in by_run.items()
    }
    blocks = [scores.score_table(labelled)]
    for split, by_run in results.items():
        heading = f"{split}: " if many else ""
        if len(runs) > 1:
            hypotheses = {name: result.hypotheses for name, result in by_run.items()}
            references = by_run[runs[0]].references
            blocks.append(heading + scores.comparison_table(hypotheses, references, tokenizer, config.lowercase))
        figures = {name: result.figures for name, result in by_run.items()}
        if any("contrastive" in figure for figure in figures.values()):
            blocks.append(heading + scores.contrastive_table(figures))
    if is_recorded(config):
        kept = ", ".join(f"{name}/metrics.json" for name in runs)
        return [*blocks, f"figures: {kept}; translations: {', '.join(f'{split}.hyp.*' for split in results)} beside"]
    return [*blocks, "not one run's own text, weights, search and way of counting BLEU: no metrics.json was changed"]


def open_reranker(config: DictConfig, members: Sequence[Run], run: Run) -> Reranker:
    """The n best translations of `run`, scored by its members and by the runs of `rerank`. Raises InputError for a run
    between other languages, and for a weight of what no run scores."""
    run.translator.search.rows(config.nbest)  # raises InputError
    plain = config.copy()
    plain.search, plain.checkpoint = {}, None
    forward, backward = [member.scorer for member in members], list[TargetScorer]()
    for name in as_list(config.rerank):
        other = open_from_config(plain, name)
        if other.languages not in (run.languages, run.languages[::-1]):
            raise InputError(
                f"rerank={name}: translates {' to '.join(other.languages)}; it must translate "
                f"{' to '.join(run.languages)}, or the other way round"
            )
        (forward if other.languages == run.languages else backward).append(other.scorer)
    if config.weights.backward is not None and not backward:
        raise InputError("weights.backward: no run of rerank= translates backwards; give one, or null")
    return Reranker(run.translator, forward, backward, config.nbest)


def chosen_weights(config: DictConfig, run: Run, reranker: Reranker, tokenizer: str) -> tuple[dict[str, float], str]:
    """The weights of reranking, those that are null by BLEU of validation, and a line about them. Raises InputError."""
    fixed = {name: weight for name, weight in config.weights.items() if weight is not None}
    names = ["backward", "length"] if reranker.backward else ["length"]
    weights = fixed
    if any(name not in fixed for name in names):
        data = splits_of(str(run.directory), run, [CHOSEN_ON], one_way=True)[CHOSEN_ON]
        texts, features = reranker.candidates(list(data["source"]))
        lines = zip(texts, data["target"], strict=True)
        counts = [sentence_counts(each, [line] * len(each), tokenizer) for each, line in lines]

        def bleu(chosen: Sequence[int]) -> float:
            return float(bleu_of(np.sum([each[n] for each, n in zip(counts, chosen, strict=True)], axis=0)))

        weights = choose_weights(features, bleu, fixed)
    shown = ["forward 1"]
    for name in names:
        how = "given" if name in fixed else f"by BLEU of {CHOSEN_ON}, from {GRID[name][0]} to {GRID[name][-1]}"
        shown.append(f"{name} {weights[name]:.2f} ({how}{', at an end' if name in at_the_edge(weights) else ''})")
    return weights, f"weights: {', '.join(shown)}"
