"""Findings on attention heads, from kept runs alone: docs/findings.md, the pages of questions, and their pictures.

    python scripts/findings/findings.py
    python scripts/findings/findings.py counts STUDY TEXT   n-gram counts, where no references are kept

Every measured figure of the page comes out of docs/results; words and published figures are those of findings.md.jinja.
"""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair
import gating
import head_gate
import learning
import pandas as pd
import records
import repair
import stability
import vl_convert
from common import MINUS, RESULTS, interval, rendered

from headcount.report.endpoint import bleu_endpoint
from headcount.report.read import read_sweep
from headcount.run.kept import read
from headcount.statistics.bootstrap import bleu_of, sentence_counts
from headcount.statistics.comparison import compare

ROOT = Path(__file__).parents[2]
QUESTIONS: tuple[Any, ...] = (stability, gating, head_gate, repair, learning)  # with a page of their own
BUILT_IN, CAPTIONS, PLANNED = "built-in corpus", "Multi30k, 375 steps", "Multi30k, 1,500 steps"
COUNTED = (  # in turn of a study of `STUDIES`, and last of `SAME_WIDTH`: query heads and the width of keys and values
    lambda heads: (heads, 32 * heads),
    lambda heads: (heads, 16 * heads),
    lambda kv_heads: (8, 16 * kv_heads),
    lambda heads: (heads, 128),
)
STUDIES = {
    BUILT_IN: ("heads_fixed_size_grammar", "heads_fixed_parameters_grammar", "kv_heads_grammar"),
    CAPTIONS: ("heads_fixed_size_multi30k", "heads_fixed_parameters_multi30k", "kv_heads_multi30k"),
}
SAME_WIDTH = {BUILT_IN: "heads_by_width_grammar", CAPTIONS: "heads_multi30k_quick/after_375"}


@cache
def table(study: str, number: int) -> pd.DataFrame:
    """A table of the report of a study as text: 0 has the results, 1 the quality, 2 the pairs by BLEU, 3 the planned
    contrasts."""
    text = (RESULTS / study / "report.md").read_text(encoding="utf-8")
    found = re.findall(r"^\|.*\n\|[-:| ]+\n(?:\|.*\n)+", text, re.MULTILINE)
    start = {2: "| pair ", 3: "| contrast "}.get(number)
    lines = next(each for each in found if each.startswith(start)) if start else found[number]
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines())
    return pd.DataFrame(rows, columns=header)


def less(study: str, first: Any, second: Any) -> str:
    """BLEU of the first condition less that of the second, with the interval of the report."""
    for one, other, sign in ((first, second, 1), (second, first, -1)):
        rows = table(study, 2).query("pair == @pair", local_dict={"pair": f"{one} {MINUS} {other}"})
        if len(rows):
            low, high = sorted(sign * float(end) for end in json.loads(rows["95 % interval"].iloc[0]))
            return interval(sign * float(rows["difference"].iloc[0]), low, high)
    raise KeyError(f"{study}: no pair of {first} and {second}")


def planned(study: str, name: str) -> str:
    """A contrast that was named before the runs: its difference with the interval of the report."""
    contrasts = table(study, 3).set_index("contrast").loc[name]
    low, high = json.loads(contrasts["95 % interval"])
    return interval(float(contrasts["difference"]), low, high)


def bleu(study: str) -> dict[str, float]:
    """Mean BLEU of each condition on validation and test together."""
    results = table(study, 0)
    scores = next(column for column in results if column.startswith("BLEU"))
    return dict(zip(results.iloc[:, 0], results[scores].str.partition(" ")[0].astype(float), strict=True))


def outcomes(study: str) -> dict[str, str]:
    """The pairs of conditions by verdict, each with its difference and interval: differ, equal, inconclusive."""
    found: dict[str, list[str]] = {"differ": [], "equal": [], "inconclusive": []}
    for pair, verdict in table(study, 2)[["pair", "verdict"]].itertuples(index=False):
        first, second = pair.split(f" {MINUS} ")
        if " > " in verdict:
            higher, lower = verdict.split(" > ")
            found["differ"].append(f"{higher} beat{'s' * (higher == '1')} {lower} by {less(study, higher, lower)}")
        else:
            found[verdict.split()[0]].append(f"{first} and {second}, {less(study, first, second)}")
    return {name: "; ".join(each) or "no pair" for name, each in found.items()}


def differing(study: str) -> int:
    """Pairs of a study that differ by BLEU."""
    return int(table(study, 2)["verdict"].str.contains(" > ").sum())


def parameters() -> str:
    """The smallest and the largest model of the page, in millions."""
    studies = {study for each in STUDIES.values() for study in each} | {*SAME_WIDTH.values()}
    counts = pd.concat([pd.read_csv(RESULTS / study / "results.csv")["parameters"] for study in studies]) / 1e6
    return f"{counts.min():.1f} to {counts.max():.1f}"


def head(study: str, endpoint: str, column: str, label: str = "") -> str:
    """A figure of heads.csv with its interval: a share of runs as "4 of 5", all else as a number."""
    rows = pd.read_csv(RESULTS / study / "heads.csv", dtype={"head": str})
    rows = rows[(rows.endpoint == endpoint) & (rows["column"] == column)]
    row = (rows[rows["head"] == label] if label else rows).iloc[0]
    shown = interval(row.estimate, row.low, row.high)
    return (
        f"{row.estimate * row.runs:.0f} of {row.runs:.0f} {shown[shown.index('[') :]}" if "share" in row.unit else shown
    )


def false_alarms(design: str, method: str) -> str:
    """Share of simulated studies of equal conditions that report a difference."""
    rows = pd.read_csv(RESULTS / "false_alarms.csv").set_index("design")
    return str(rows.loc[design, method]).replace(" [", " % [")


def time_of(heads: str) -> str:
    """Training time with so many heads, beyond that with one head."""
    rows = json.loads((RESULTS / "cost" / "grammar.json").read_text(encoding="utf-8"))
    value, low, high = (100 * (each - 1) for row in rows if row["peer"] == heads for each in row["time"])
    return interval(value, low, high, digits=1, unit=" %")


def scores(study: str, settings: Sequence[str], seeds: Sequence[int]) -> list[float]:
    """BLEU of kept runs on validation and test together, a seed each, which has a corpus of its own."""
    runs = read(RESULTS / study / "runs.parquet")
    found = []
    for seed in seeds:
        of_seed = [files for run, files in runs.items() if run.endswith(f"seed={seed}")]
        references = next(files for files in of_seed if "test.ref.de" in files)  # kept once, with one run of a seed
        own = runs[",".join([*settings, f"seed={seed}"])]
        hypotheses, texts = (
            [line for split in ("valid", "test") for line in files[f"{split}.{kind}.de"].removesuffix("\n").split("\n")]
            for kind, files in (("hyp", own), ("ref", references))
        )
        found.append(float(bleu_of(sentence_counts(hypotheses, texts, "13a").sum(axis=0))))
    return found


def same_parameters() -> dict[str, str]:
    """Differences of BLEU on the built-in corpus at equal parameters, for all pairs of these conditions at once."""
    narrow, wide = "heads_fixed_parameters_grammar", "heads_by_width_grammar"
    conditions = {
        "1 of 16": (narrow, ["model.num_heads=1"]),
        "4 of 16": (narrow, ["model.num_heads=4"]),
        "1 of 128": (wide, ["model.d_model=128", "model.num_heads=1"]),
        "8 of 16": (wide, ["model.d_model=128", "model.num_heads=8"]),
    }
    names = list(conditions)
    compared = compare([scores(*each, seeds=(1, 2, 3)) for each in conditions.values()], blocks=True)
    found = {}
    for each in compared.differences:
        low, high = each.interval
        found[f"{names[each.first]} - {names[each.second]}"] = interval(each.value, low, high)
        found[f"{names[each.second]} - {names[each.first]}"] = interval(-each.value, -high, -low)
    return found


def widths() -> pd.DataFrame:
    """Mean BLEU of conditions with 1 to 8 heads, by the width of all keys and values of a layer."""
    rows = []
    for corpus, studies in STUDIES.items():
        for counted, study in zip(COUNTED, (*studies, SAME_WIDTH[corpus]), strict=True):
            for condition, score in bleu(study).items():
                heads, width = counted(int(condition.rpartition("=")[2]))
                if heads <= 8 and not condition.startswith(("d_model=64", "d_model=256")):
                    rows.append({"corpus": corpus, "heads": heads, "width": width, "BLEU": score})
    for condition, score in bleu("width_or_number").items():
        given = {name: int(value) for name, _, value in (each.partition("=") for each in condition.split(", "))}
        width = given.get("kv_heads", given["num_heads"]) * given["head_size"]
        rows.append({"corpus": PLANNED, "heads": given["num_heads"], "width": width, "BLEU": score})
    return pd.DataFrame(rows)


def distinct(corpus: str) -> pd.DataFrame:
    """The conditions of `widths` on a corpus, each once: series share runs."""
    return widths().query("corpus == @corpus").drop_duplicates(["heads", "width"])


def explained(corpus: str, by: str) -> str:
    """Share of the variance of BLEU between conditions that groups of `by` explain, in %."""
    own = distinct(corpus)
    fitted = own.groupby(by)["BLEU"].transform("mean")
    return f"{100 * fitted.var() / own['BLEU'].var():.0f}"


def number() -> pd.DataFrame:
    """Mean BLEU at constant width by the number of heads."""
    wide = {name: score for name, score in bleu("heads_by_width_grammar").items() if name.startswith("d_model=128,")}
    found = {BUILT_IN: wide, "Multi30k": bleu("heads_multi30k_quick")}
    return pd.DataFrame(
        [
            {"corpus": corpus, "heads": int(name.rpartition("=")[2]), "BLEU": score}
            for corpus, each in found.items()
            for name, score in each.items()
        ]
    )


def chart(data: pd.DataFrame, x: str, title: str, **more: Any) -> str:
    """Points and lines of BLEU by x on a logarithmic axis, a panel a corpus, as SVG."""
    values = sorted(data[x].unique().tolist())
    base = altair.Chart(data).encode(
        x=altair.X(x, title=title, scale=altair.Scale(type="log", base=2), axis=altair.Axis(values=values)),
        y=altair.Y("BLEU", scale=altair.Scale(zero=False)),
        **more,
    )
    drawn = (base.mark_line() + base.mark_point(filled=True, size=60)).properties(width=260, height=220)
    order = data["corpus"].unique().tolist()
    panels = drawn.facet(column=altair.Column("corpus", title=None, sort=order)).resolve_scale(y="independent")
    return str(vl_convert.vegalite_to_svg(panels.to_json()))


def page() -> str:
    """The page."""
    figures = {
        "less": less,
        "planned": planned,
        "bleu": bleu,
        "head": head,
        "false_alarms": false_alarms,
        "time_of": time_of,
        "explained": explained,
        "conditions": len(distinct(BUILT_IN)),
        "differing": differing,
        "outcomes": outcomes,
        "parameters": parameters(),
        "same": same_parameters(),
    }
    return rendered("findings.md.jinja", **figures)


def pictures() -> dict[str, str]:
    """The pictures as SVG, by file name."""
    scale, legend = altair.Scale(scheme="viridis", reverse=True), altair.Legend(orient="bottom")
    colour = altair.Color("heads:O", title="query heads", scale=scale, legend=legend)
    return {
        "width.svg": chart(widths(), "width", "width of keys and values", color=colour),
        "number.svg": chart(number(), "heads", "heads, d_model 128"),
    }


def written() -> dict[Path, str]:
    """The text of each file that `make findings` writes. A question has a page where its effects are kept."""
    docs = ROOT / "docs"
    found = {docs / "findings.md": page()} | {docs / "findings" / name: each for name, each in pictures().items()}
    found |= {docs / "records.md": records.page()} if records.RECORDS.is_dir() else {}
    for question in QUESTIONS:
        if (folder := RESULTS / question.QUESTION).is_dir():
            found[folder / "README.md"], found[folder / "picture.svg"] = question.page()
    return found


def counts(study: str, text: str) -> pd.DataFrame:
    """The sufficient statistics of BLEU (see `sentence_counts`) of all sentences of the kept runs of a study. text: the
    folder with the references."""
    sweep = read_sweep(RESULTS / study / "runs.parquet", text=text)
    found = bleu_endpoint(sweep, resamples=2).counts
    names = [f"{kind}{order}" for kind in ("matches", "total") for order in range(1, 5)] + ["length", "reference"]
    runs = [run.name for row in sweep.rows for run in row.runs]
    each = (of_run for row in found for of_run in row)
    tables = [
        pd.DataFrame(own, columns=names, dtype="uint8").assign(run=run) for run, own in zip(runs, each, strict=True)
    ]
    return pd.concat(tables)


def main() -> None:
    """Write all pages and pictures, or the counts of a study."""
    if sys.argv[1:2] == ["counts"]:
        study, text = sys.argv[2:]
        counts(study, text).to_parquet(RESULTS / study / "counts.parquet", compression="zstd", index=False)
        return
    for path, content in written().items():
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
