"""Figures with intervals, templates, pictures and kept effects, for all pages of findings."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import altair
import jinja2
import numpy as np
import pandas as pd
import vl_convert
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from headcount.heads.effects import FILE
from headcount.statistics.bootstrap import Floats, bleu_of, sentence_counts
from headcount.statistics.planned import holm

RESULTS = Path(__file__).parents[2] / "docs" / "results"
MINUS = "\N{MINUS SIGN}"


def interval(value: float, low: float, high: float, digits: int = 2, unit: str = "") -> str:
    """A figure with its interval."""
    return f"{value:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]".replace("-", MINUS)


class Estimate(NamedTuple):
    """A figure with its 95 % interval and p-value."""

    value: float
    low: float
    high: float
    p: float

    def show(self, digits: int = 2) -> str:
        return interval(self.value, self.low, self.high, digits)

    @property
    def verdict(self) -> str:
        return "above 0" if self.low > 0 else "below 0" if self.high < 0 else "inconclusive"


def over_runs(values: ArrayLike, tests: int = 1) -> Estimate:
    """The mean over runs, with a t interval that holds for `tests` figures at once (Bonferroni). Raises ValueError for
    a run without a figure."""
    known = np.asarray(values, dtype=np.float64)
    if np.isnan(known).any():
        raise ValueError(f"a run lacks a figure, or its pair: {known}")
    found = stats.ttest_1samp(known, 0)
    low, high = found.confidence_interval(1 - 0.05 / tests)
    p = min(1.0, tests * float(found.pvalue)) if np.ptp(known) else 1.0  # equal runs have no spread to test against
    return Estimate(float(known.mean()), float(low), float(high), p)


def planned(contrasts: Mapping[str, ArrayLike]) -> dict[str, Estimate]:
    """The mean of each contrast over runs, with an interval that holds for all at once, and p by Holm's method."""
    alone = {name: over_runs(each, len(contrasts)) for name, each in contrasts.items()}
    adjusted = holm([over_runs(each).p for each in contrasts.values()])
    return {name: each._replace(p=p) for (name, each), p in zip(alone.items(), adjusted, strict=True)}


def alarm_rate(contrasts: Iterable[ArrayLike], studies: int = 1000) -> float:
    """Share in percent of studies without an effect that find one in any contrast: its figures, one a run, less their
    mean, with the sign of each run drawn anew, and a t interval that holds for all contrasts (see `over_runs`)."""
    random, values = np.random.default_rng(0), [np.asarray(each, dtype=np.float64) for each in contrasts]
    known = [each - each.mean() for each in values]
    signs = random.choice([-1.0, 1.0], (studies, max(map(len, known))))
    found = np.zeros(studies, dtype=bool)
    for each in known:
        flipped = each * signs[:, : len(each)]
        half = float(stats.t.isf(0.025 / len(known), len(each) - 1)) * flipped.std(axis=1, ddof=1) / np.sqrt(len(each))
        found |= abs(flipped.mean(axis=1)) > half
    return 100 * float(found.mean())


def jackknife(without: NDArray[np.float64], whole: float, tests: int = 1) -> Estimate:
    """A figure of all runs, `whole`, from those without each run: Tukey's pseudo-values, see `over_runs`."""
    count = len(without)
    found = over_runs(count * whole - (count - 1) * without, tests)
    return found._replace(value=whole, low=whole + found.low - found.value, high=whole + found.high - found.value)


def runs_of(words: Sequence[str], holding: str = f"heads/{FILE}") -> Iterator[tuple[str, int, Path]]:
    """Condition, seed and directory of each run; words: NAME=PATTERN of run directories, such as
    'default=runs/default/*'. Ends the program for a pattern without a run, and for a run without the file `holding`,
    which measured runs have."""
    for word in words:
        condition, _, pattern = word.partition("=")
        paths = sorted(map(Path, glob(pattern)))
        found = {path: seed for path in paths if (seed := re.search(r"seed=?(\d+)", path.name))}
        if not found:
            raise SystemExit(f"{word}: no folder of a run with its seed in the name")
        for directory, seed in found.items():
            if not (directory / holding).is_file():
                raise SystemExit(f"{directory}: has no {holding}")
            yield condition, int(seed[1]), directory


def bleu(directory: Path) -> float:
    """BLEU of a run on validation and test together, cased 13a, from the text that it wrote."""
    texts = {}
    for side in ("hyp", "ref"):
        files = [next(directory.glob(f"{split}.{side}.*")) for split in ("valid", "test")]
        texts[side] = [
            line for file in files for line in file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        ]
    return float(bleu_of(sentence_counts(texts["hyp"], texts["ref"], "13a").sum(axis=0)))


def kept(question: str, name: str = "effects") -> pd.DataFrame:
    """The kept effects of a question."""
    return pd.read_parquet(RESULTS / question / f"{name}.parquet")


def counts_of(study: str) -> dict[str, Floats]:
    """The kept n-gram counts of each run of a study, [sentence, 10], see `sentence_counts`."""
    runs = kept(study, "counts").groupby("run")
    return {str(run): own.drop(columns="run").to_numpy(np.float64) for run, own in runs}


def keep(question: str, table: pd.DataFrame, name: str = "effects") -> None:
    """Write the effects of a question: numbers as float32, which halves the file."""
    (RESULTS / question).mkdir(parents=True, exist_ok=True)
    floats = dict.fromkeys(table.select_dtypes("float64"), "float32")
    table.astype(floats).to_parquet(RESULTS / question / f"{name}.parquet", compression="zstd", index=False)


def add(question: str, table: pd.DataFrame, keys: list[str], name: str = "effects") -> None:
    """Write more effects of a question, in place of kept ones with the same keys."""
    try:
        known = kept(question, name)
    except FileNotFoundError:
        known = table[:0]
    old = known.set_index(keys).index.isin(table.set_index(keys).index)
    keep(question, pd.concat([known[~old], table]), name)


def rendered(template: str, **figures: Any) -> str:
    """A page, from its template."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=folder, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(template).render(figures)


def points(data: pd.DataFrame, x: str, order: Sequence[str], y: str, series: str) -> str:
    """Points with their intervals, columns value, low and high, by x and series, as SVG."""
    colour = altair.Color(series, title=None, legend=altair.Legend(orient="bottom"))
    x_axis = altair.X(x, title=None, sort=list(order))
    base = altair.Chart(data).encode(x=x_axis, color=colour, xOffset=altair.XOffset(series))
    bars = base.mark_rule().encode(y=altair.Y("low", title=y, scale=altair.Scale(zero=False)), y2="high")
    drawn = (bars + base.mark_point(filled=True, size=50).encode(y="value")).properties(width=480, height=240)
    return str(vl_convert.vegalite_to_svg(drawn.to_json()))
