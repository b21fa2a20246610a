"""Evaluate a run on one split and record the results."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from datasets import Dataset

from headcount.data.tokenizer import AnyTokenizer
from headcount.decoding.search import SearchMethod
from headcount.evaluation.contrastive import contrastive_accuracy
from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import PRIMARY, Score, composed, counts_sentences, moses_bleu, score
from headcount.files import write_text
from headcount.progress import progress_bar
from headcount.run.arrays import write_arrays
from headcount.run.directory import update_metrics
from headcount.run.opened import Run
from headcount.run.tables import Figures


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a run on one split: translations, references, figures for metrics.json, by name the arrays of
    pairs.npz (see `likelihoods`; empty without the loss), and sources."""

    hypotheses: list[str]
    references: list[str]
    figures: Figures
    arrays: dict[str, np.ndarray]
    sources: Sequence[str] = ()


def evaluate_split(run: Run, rows: Dataset, tokenizer: str, with_loss: bool = True) -> Evaluation:
    """Translate the rows' sources and score them; on a corpus with contrasts, measure contrastive accuracy as well.

    tokenizer: of BLEU, by sacrebleu's name. Raises LineError for a line that is too long.
    """
    sources, references = list(rows["source"]), list(rows["target"])
    with progress_bar("translating", len(sources)) as progress:
        hypotheses = composed(run.translator.translate(sources, progress))
    figures = corpus_figures(hypotheses, references, tokenizer)
    figures["search"] = run.translator.search.settings
    if not with_loss:
        return Evaluation(hypotheses, references, figures, {}, sources)
    arrays = likelihoods(run, rows)
    figures["loss"] = -sum(arrays["log_prob"].tolist()) / int(arrays["tokens"].sum())
    figures["ppl"] = perplexity(figures["loss"])
    if len(arrays["row"]):
        figures["contrastive"] = contrastive_figures(rows, arrays)
    return Evaluation(hypotheses, references, figures, arrays, sources)


def doubts(splits: Mapping[str, Dataset], tokenizer: AnyTokenizer, search: SearchMethod, bleu: str) -> list[str]:
    """A line for each split that no model can score well on: its references are longer than translations may be, or
    have no words for BLEU's tokenizer `bleu`."""
    lines = []
    for split, rows in splits.items():
        references = list(rows["target"])
        limits = [search.limit(len(ids)) for ids in tokenizer.source.encode(list(rows["source"]))]
        longer = [len(ids) > most for ids, most in zip(tokenizer.target.encode(references), limits, strict=True)]
        if any(longer):
            allowed = f"search.max_ratio={search.max_ratio} and search.max_extra={search.max_extra}"
            lines.append(f"{split}: {np.mean(longer):.2%} of the references have more pieces than {allowed} allow")
        if counts_sentences(bleu, references):
            lines.append(f"{split}: BLEU by {bleu} takes sentences for words; give bleu_tokenizer=char (Chinese: zh)")
    return lines


def corpus_figures(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str) -> Figures:
    """Every metric, the length ratio and the signatures, as in metrics.json. The arguments are those of `score`."""
    scores = score(hypotheses, references, tokenizer)
    figures: Figures = {name: figure.value for name, figure in scores.items()}
    figures["length_ratio"] = scores[PRIMARY].length_ratio
    figures["signature"] = {name: figure.signature for name, figure in scores.items()}
    return figures


def likelihoods(run: Run, rows: Dataset) -> dict[str, np.ndarray]:
    """Log-probabilities of the references, sentence by sentence: enough for any later paired test.

    log_prob and tokens [sentence]: log-probability of the reference in nats, its tokens, the end counted.
    row, phenomenon, right and wrong [pair]: for each row that has a contrast its number, what it tests, and the
    log-probability of the right and of the wrong translation; empty on a corpus without contrasts.
    """
    scorer = run.scorer
    log_prob, tokens = scorer.score(rows["source"], rows["target"])
    contrasts = rows["contrast"] if "contrast" in rows.column_names else []
    tested = np.array([row for row, contrast in enumerate(contrasts) if contrast], dtype=np.int64)
    pairs = rows.select(tested)
    wrong, _ = scorer.score(pairs["source"], pairs["contrast"] if len(tested) else [])
    arrays = {"log_prob": np.array(log_prob), "tokens": np.array(tokens, dtype=np.int64)}
    phenomenon = np.array(pairs["phenomenon"] if len(tested) else [], dtype=np.str_)
    return arrays | {
        "row": tested,
        "phenomenon": phenomenon,
        "right": arrays["log_prob"][tested],
        "wrong": np.array(wrong),
    }


def contrastive_figures(rows: Dataset, arrays: Mapping[str, np.ndarray]) -> Figures:
    """Contrastive accuracy by phenomenon and grade."""
    pairs = rows.select(arrays["row"])
    groups = list(zip(pairs["phenomenon"], pairs["grade"], strict=True))
    accuracy = contrastive_accuracy(arrays["right"].tolist(), arrays["wrong"].tolist(), groups)
    figures: dict[str, Figures] = {}
    for (phenomenon, grade), (percent, number) in sorted(accuracy.items()):
        figures.setdefault(phenomenon, {})[grade] = {"accuracy": percent, "pairs": number}
    return figures


def other_conventions(result: Evaluation, language: str, tokenizer: str, lowercase: bool, moses: bool) -> Figures:
    """Scores by other conventions (lowercased; Moses tokens), each with its signature, by the convention's name."""
    figures: Figures = {}
    if lowercase:
        scores = score(result.hypotheses, result.references, tokenizer, lowercase=True)
        figures["lowercase"] = {name: _figures(figure) for name, figure in scores.items()}
    if moses:
        figures["moses"] = {"bleu": _figures(moses_bleu(result.hypotheses, result.references, language))}
    return figures


def _figures(figure: Score) -> Figures:
    return {name: value for name, value in asdict(figure).items() if value is not None}


def record(run: Run, split: str, result: Evaluation) -> None:
    """Keep sources, translations, references as they were scored, likelihoods and figures in the run directory."""
    source, language = run.languages
    write_text(run.directory / f"{split}.src.{source}", "".join(line + "\n" for line in result.sources))
    write_text(run.directory / f"{split}.hyp.{language}", "".join(line + "\n" for line in result.hypotheses))
    write_text(run.directory / f"{split}.ref.{language}", "".join(line + "\n" for line in composed(result.references)))
    write_arrays(run.directory / f"{split}.pairs.npz", result.arrays)
    update_metrics(run.directory, {split: result.figures})
