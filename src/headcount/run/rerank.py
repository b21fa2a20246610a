"""N-best reranking: the translations of a run, chosen anew with the scores of further runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig
from tabulate import tabulate

from headcount.data.corpora.text import read_lines
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.evaluation.reranking import GRID, BleuCounts, Features, at_the_edge, choose_weights
from headcount.files import write_text
from headcount.progress import progress_bar
from headcount.run.evaluate import output_file, splits_of
from headcount.run.opened import Run, as_list, ensemble, open_from_config, open_runs
from headcount.run.split_scores import Evaluation, corpus_figures, other_conventions
from headcount.run.tables import Figures, comparison_table, score_table
from headcount.run.values import AS_TRAINED, fits, typed

CHOSEN_ON = "valid"  # the split that the weights are chosen on


@dataclass(frozen=True)
class Reranker:
    """A run that translates, and those that score: forward in its direction, backward in the other."""

    run: Run
    forward: Sequence[Run]
    backward: Sequence[Run]
    nbest: int

    def candidates(self, sources: Sequence[str], name: str) -> tuple[list[list[str]], Features]:
        """The translations of every source, as the search orders them, and their features: where several runs score
        one direction, the mean of their log-probabilities. name: of the text. Raises InputError for a line that is too
        long."""
        with progress_bar("translating", len(sources)) as progress:
            try:
                found = self.run.translator.nbest(sources, self.nbest, progress)
            except LineError as error:
                raise InputError(f"{name}, {error}") from error
        texts = [[translation.text for translation in each] for each in found]
        repeated = [source for source, each in zip(sources, texts, strict=True) for _ in each]
        flat = [text for each in texts for text in each]
        ends = np.cumsum([len(each) for each in texts])[:-1]
        scores = [run.scorer.score(repeated, flat) for run in self.forward]
        backward = [run.scorer.score(flat, repeated)[0] for run in self.backward]
        features = Features(
            np.split(np.mean([log_probs for log_probs, _ in scores], axis=0), ends),
            np.split(np.mean(backward, axis=0), ends) if backward else None,
            np.split(np.array(scores[0][1]), ends),
        )
        return texts, features


def rerank(config: DictConfig) -> str:
    """Translate, and choose anew, as conf/rerank.yaml says; the tables. Raises InputError."""
    check(config)
    output = output_file(config.output, one=True)
    reranker = open_reranker(config)
    run, fixed = reranker.run, {name: weight for name, weight in config.weights.items() if weight is not None}
    splits = as_list(config.split) if config.input is None else []
    to_choose = any(name not in fixed for name in GRID if name != "backward" or reranker.backward)
    needed = [*([CHOSEN_ON] if to_choose else []), *splits]
    data = splits_of(str(run.directory), run, needed, one_way=True) if needed else {}
    candidates, weights = {}, fixed
    if to_choose:
        texts, features = candidates[CHOSEN_ON] = reranker.candidates(data[CHOSEN_ON]["source"], CHOSEN_ON)
        weights = choose_weights(features, BleuCounts(texts, data[CHOSEN_ON]["target"], run.bleu_tokenizer), fixed)
    blocks = [weights_table(weights, fixed)]
    for split in splits:
        texts, features = candidates.get(split) or reranker.candidates(data[split]["source"], split)
        lines = chosen(texts, features.best(weights))
        blocks.append(f"{split}: {split_tables(run, texts, lines, data[split]['target'], config.moses)}")
    if config.input is not None:
        texts, features = reranker.candidates(read_lines(config.input), config.input)
        lines = chosen(texts, features.best(weights))
    if output is not None:
        write_text(output.resolve(), "".join(line + "\n" for line in lines))
        blocks.append(f"translations: {output}")
    return "\n\n".join(blocks) + "\n"


def chosen(texts: Sequence[Sequence[str]], indices: Sequence[int]) -> list[str]:
    """Of each sentence's translations the one with the given index."""
    return [each[index] for each, index in zip(texts, indices, strict=True)]


def open_reranker(config: DictConfig) -> Reranker:
    """The runs of `run`, and of `by`, which do not search. Raises InputError for a run between other languages,
    a search that cannot give that many translations, and a weight for what no run scores."""
    scoring = config.copy()
    scoring.search, scoring.checkpoint = {}, None
    if config.search.get("beam") == AS_TRAINED:
        config.search.beam = config.nbest
    runs = list(open_runs(config).values())
    run = ensemble(runs)
    run.translator.search.check(config.nbest)
    forward, backward = list(runs), list[Run]()
    for name in as_list(config.by) if config.by is not None else []:
        other = open_from_config(scoring, name)
        if other.languages not in (run.languages, run.languages[::-1]):
            raise InputError(
                f"by={name}: translates {' to '.join(other.languages)}; it must translate "
                f"{' to '.join(run.languages)}, or the other way round"
            )
        (forward if other.languages == run.languages else backward).append(other)
    if config.weights.backward is not None and not backward:
        raise InputError(
            f"weights.backward={config.weights.backward}: no run of by= translates {run.languages[1]} to "
            f"{run.languages[0]}; give one, or weights.backward=null"
        )
    return Reranker(run, forward, backward, config.nbest)


def weights_table(weights: Mapping[str, float], fixed: Mapping[str, float]) -> str:
    """The weights, and how each was found."""
    rows = [["forward", 1.0, "always 1"]]
    for name, weight in weights.items():
        low, high = GRID[name][0], GRID[name][-1]
        found = "given" if name in fixed else f"by BLEU of {CHOSEN_ON}, between {low} and {high}"
        rows.append([name, weight, found + (", at an end of it" if name in at_the_edge(weights) else "")])
    return tabulate(rows, headers=["feature", "weight", "chosen"], floatfmt=".2f")


def split_tables(
    run: Run, texts: Sequence[Sequence[str]], lines: list[str], references: Sequence[str], moses: bool
) -> str:
    """Scores of the search's first translation, of the chosen one and of the best there is; and the difference between
    the first two."""
    tokenizer = run.bleu_tokenizer
    systems = {
        "the search's first": chosen(texts, [0] * len(texts)),
        "reranked": lines,
        "the best in the list, by its reference": chosen(texts, BleuCounts(texts, references, tokenizer).oracle()),
    }
    figures: dict[str, Figures] = {}
    for name, hypotheses in systems.items():
        figures[name] = corpus_figures(hypotheses, references, tokenizer)
        result = Evaluation(hypotheses, list(references), figures[name], {})
        figures[name] |= other_conventions(result, run.languages[1], tokenizer, lowercase=False, moses=moses)
    systems.popitem()
    return f"{score_table(figures)}\n\n{comparison_table(systems, references, tokenizer, lowercase=False)}"


def check(config: DictConfig) -> None:
    """Raises InputError for invalid or conflicting settings."""
    splits = as_list(config.split)
    if not splits or "train" in splits or not all(isinstance(split, str) for split in splits):
        raise InputError(f"split={typed(config.split)}: must be test or valid, or a further test set, or a list")
    if not fits(config.nbest, int) or config.nbest < 2:
        raise InputError(f"nbest={typed(config.nbest)}: must be a whole number above 1")
    if not isinstance(config.moses, bool):
        raise InputError(f"moses={typed(config.moses)}: must be true or false")
    for name, weight in config.weights.items():
        if name not in GRID:
            raise InputError(f"weights.{name}={typed(weight)}: there are {', '.join(GRID)}; that of forward is 1")
        if not fits(weight, float | None) or not math.isfinite(weight or 0):
            raise InputError(f"weights.{name}={typed(weight)}: must be a number, or null to choose it on {CHOSEN_ON}")
    if config.input is not None and (not isinstance(config.input, str) or config.output is None):
        raise InputError(f"input={typed(config.input)}: must be a file of sentences, and goes with output=FILE")
    if config.output is not None and config.input is None and len(splits) > 1:
        raise InputError(f"output={typed(config.output)}: goes with one split")
