"""What is found out about a run on one split, and where it is kept."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict

from datasets import Dataset
from rich.console import Console
from rich.progress import Progress

from headcount.evaluation.contrastive import TargetScorer, contrastive_accuracy
from headcount.evaluation.moses import moses_bleu
from headcount.evaluation.scoring import score
from headcount.run.directory import Run, update_metrics, write_text
from headcount.run.tables import Figures


def evaluate_split(run: Run, rows: Dataset, with_loss: bool = True) -> tuple[list[str], Figures]:
    """Translations of the rows' sources and the figures for metrics.json; on a corpus that comes with contrasts, their
    accuracy as well."""
    sources, references = list(rows["source"]), list(rows["target"])
    with progress_bar("translating", len(sources)) as progress:
        hypotheses = run.translator.translate(sources, progress)
    scores = score(hypotheses, references)
    figures: Figures = {name: figure.value for name, figure in scores.items()}
    figures["signature"] = {name: figure.signature for name, figure in scores.items()}
    figures["search"] = run.translator.search.settings
    scorer = TargetScorer(run.model, run.translator.codec.encode, run.tokenizer.target.encode)
    if with_loss:
        log_probs, tokens = scorer.score(sources, references)
        figures["loss"] = -sum(log_probs) / tokens
        figures["ppl"] = math.exp(figures["loss"])
    if with_loss and "contrast" in rows.column_names:
        contrasts = list(rows["contrast"])
        tested = [row for row, contrast in enumerate(contrasts) if contrast]  # plain sentences test nothing
        wrong, _ = scorer.score([sources[row] for row in tested], [contrasts[row] for row in tested])
        groups = list(zip(rows["phenomenon"], rows["grade"], strict=True))
        accuracy = contrastive_accuracy([log_probs[row] for row in tested], wrong, [groups[row] for row in tested])
        contrastive: dict[str, Figures] = {}
        for (phenomenon, grade), wins in sorted(accuracy.items()):
            contrastive.setdefault(phenomenon, {})[grade] = {"accuracy": wins.percent, "pairs": wins.total}
        figures["contrastive"] = contrastive
    return hypotheses, figures


def other_conventions(
    hypotheses: Sequence[str], references: Sequence[str], language: str, lowercase: bool, moses: bool
) -> Figures:
    """The scores of other conventions, each with its signature, under the name of its convention."""
    found: Figures = {}
    if lowercase:
        found["lowercase"] = {name: asdict(each) for name, each in score(hypotheses, references, True).items()}
    if moses:
        found["moses"] = {"bleu": asdict(moses_bleu(hypotheses, references, language))}
    return found


def record(run: Run, split: str, hypotheses: Sequence[str], references: Sequence[str], figures: Figures) -> None:
    """Keep translations, references and figures in the run directory."""
    language = run.languages[1]
    write_text(run.directory / f"{split}.hyp.{language}", "".join(line + "\n" for line in hypotheses))
    write_text(run.directory / f"{split}.ref.{language}", "".join(line + "\n" for line in references))
    update_metrics(run.directory, {split: figures})


class progress_bar:  # noqa: N801 - used as a context manager
    """A bar on standard error while a person watches, and nothing otherwise; gives the function that moves it."""

    def __init__(self, what: str, total: int) -> None:
        self.bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        self.task = self.bar.add_task(what, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self.bar.start()
        return lambda done: self.bar.update(self.task, completed=done)

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
