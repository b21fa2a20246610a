"""The pages of the heads of a run and of a sweep: text files ask the table of heads.csv, and views draw the answers.

A section is a file of `sections/run` or `sections/sweep`: lines `title:`, `query:` (of pandas, on the table of
`framed`) and `view:` (a view of `VIEWS` with the columns it draws; it draws the last query above it), an empty line,
and a note in Markdown, where {bleu} and {loss} are bounds.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from headcount.command_lines import command_anywhere
from headcount.files import show, write_text
from headcount.heads.attention import weights_of
from headcount.heads.findings import findings
from headcount.heads.floor import decided
from headcount.heads.interface import Head, heads_named
from headcount.heads.registered import extra_rows
from headcount.heads.results import Results, Study
from headcount.heads.seeds import seed_table
from headcount.heads.table import framed, heads_csv, run_rows
from headcount.report import page as pages
from headcount.report import views
from headcount.report.page import Marked, Page, Section, View, escaped, guarded, markdown_table

MEANING = (
    "encoder: self-attention of the encoder; decoder: that of the decoder; cross: from the decoder to the source. "
    "cross2.1 is head 1 of layer 2."
)
MOST = 2  # changed sentences a head
DIGITS = {"points": 0, "%": 0, "step": 0}  # in cells; all other units have two


@dataclass(frozen=True)
class HeadsPage:
    """A page with the table of its heads.csv and its findings."""

    page: Page
    table: pd.DataFrame
    findings: tuple[str, ...]


def run_page(results: Results, debug: bool = False, output: Path | None = None) -> HeadsPage:
    """The page of one run; debug: raise what fails, instead of a flag. output: where it will be; None: RUN/heads."""
    rows, flags = run_rows(results, debug)
    table = shown(framed([*rows, *extra_rows(results.parts)]))
    source, target = results.languages
    page = results.directory / "page.html"
    command = command_anywhere("export", "format=page", run=show(results.directory))
    live = quote(os.path.relpath(page, output or results.directory / "heads")) if page.is_file() else ""
    about = f"{len(results.heads)} heads of {results.name}, {source} to {target}. {MEANING}"
    links = escaped(about)
    where = f"on [the page that runs the model]({live})" if live else f"on a page that this command writes: `{command}`"
    links += f"\n\nSwitch heads off while the model translates, {where}" * results.own
    sections = list(of_files("run", named(table), vars(results.bounds), flags, debug))
    folded: list[Section] = []
    for make, part in ((partial(changed, live=live), "examples"), (attended, "attention")):
        if part in results.parts:
            folded += guarded(part, partial(make, results.parts[part]), flags, debug)
    sections += [Section("Sentences", tuple(folded))] if folded else []
    return finished(f"Heads of {results.name}", links, table, sections, flags)


def study_page(study: Study, debug: bool = False) -> HeadsPage:
    """The page over the runs of a sweep; seeds are the unit."""
    table, flags = seed_table(study, debug)
    table = shown(table)
    runs = len(study.runs)
    about = escaped(f"{runs} runs of {study.directory.name}. Heads of different seeds have no common names. {MEANING}")
    if study.unfinished:
        names = "; ".join(f"{each.name} {each.why}" for each in study.unfinished)
        flags.insert(0, f"{runs} of {runs + len(study.unfinished)} runs are finished. Not yet: {names}")
    parts = [arrays for run in study.runs for arrays in run.parts.values()]
    if len({str(arrays["sentences"]) for arrays in parts if "sentences" in arrays}) > 1:
        flags.append("Not all runs were measured on the same sentences.")
    for part in dict.fromkeys(name for run in study.runs for name in run.parts):
        some = sum(part in run.parts for run in study.runs)
        flags += [f"Part {part} was measured in {some} of {runs} runs."] if some < runs else []
    bounds = vars(study.runs[0].bounds) if runs else {}
    sections = list(of_files("sweep", named(table), bounds, flags, debug, study.label))
    title = f"Heads over the runs of {study.directory.name}"
    return finished(title, about, table, sections, [*study.notes, *flags], f"{study.label} ")


def finished(
    title: str, about: str, table: pd.DataFrame, sections: Sequence[Section], flags: Sequence[str], label: str = ""
) -> HeadsPage:
    told = findings(table[~table["column"].isin([*decided(table)])], label)
    verdict = " ".join(told) or "No part of these results is shown to have an effect beyond chance."
    return HeadsPage(Page(title, verdict, about, tuple(flags), tuple(sections)), table, told)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the text of a cell, and whether it is drawn pale."""
    digits = table["unit"].map(DIGITS).fillna(2).astype(int)
    text = [
        "–" if np.isnan(value) else f"{value:z.{places}f}".replace("-", "−") if value else "·"
        for value, places in zip(table["estimate"], digits, strict=True)
    ]
    runs = table["verdict"].str.extract(r"differs in ([1-9]\d*)", expand=False)
    return table.assign(text=text + (" / " + runs).fillna(""), pale=~table["sure"].astype(bool))


def named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a mark at phenomena that the target alone decides."""
    return table.assign(column=table["column"].replace(decided(table)))


def of_files(
    folder: str, table: pd.DataFrame, bounds: dict[str, float], flags: list[str], debug: bool, row: str = "row"
) -> Iterator[Section]:
    """The sections of the text files of a folder that have something to show. row: the name of the column "row"."""
    for file in sorted(files("headcount.heads").joinpath("sections", folder).iterdir(), key=lambda each: each.name):
        make = partial(section, file.name.removesuffix(".md"), file.read_text(encoding="utf-8"), table, bounds, row)
        yield from guarded(file.name, make, flags, debug)


def section(name: str, text: str, table: pd.DataFrame, bounds: dict[str, float], row: str) -> Iterator[Section]:
    """The section of a text file, if its queries find something."""
    head, _, note = text.partition("\n\n")
    title, found = name, table
    blocks: list[str | View | Section] = []
    for line in head.splitlines():
        key, _, value = line.partition(": ")
        if key == "title":
            title = value
        elif key == "query":
            found = table.query(value, engine="python")
        elif len(found):
            blocks += viewed(f"{name}_{len(blocks)}", title, found, value, row)
    if blocks:
        yield Section(title, (note.strip().format(**bounds), *blocks))


def viewed(name: str, title: str, found: pd.DataFrame, view: str, row: str) -> Iterator[View | str]:
    """A view of rows of the table, such as "ranked label=head value=estimate"; two columns with + between them are one.
    A figure is named by its unit, where there is one. each: a column; each of its values has a view."""
    kind, *words = view.split()
    given: dict[str, Any] = dict(word.split("=", 1) for word in words)
    lists = {role: given.pop(role).split(",") for role in ("hover", "columns") if role in given}
    joined = [column for column in given.values() if "+" in column]
    found = found.assign(**{column: found[column.split("+")].agg(", ".join, axis=1) for column in joined})
    units = found["unit"].unique()
    wanted: list[tuple[Any, str]] = [("row", row), ("place", "matched head")]
    wanted += [(given.get("value", given.get("y")), units[0])] if len(units) == 1 else []
    names: dict[str, str] = {}
    for old, new in wanted:
        used = old in (*given.values(), *chain(*lists.values()))
        names |= {old: new} if used and new not in (*found, *names.values()) else {}
    found, given = found.rename(columns=names), {role: names.get(column, column) for role, column in given.items()}
    given |= {role: [names.get(column, column) for column in columns] for role, columns in lists.items()}
    if kind == "table":
        yield table_view(found, **given)
        return
    each = given.pop("each", None)
    for value, own in found.groupby(each, sort=False) if each else [("", found)]:
        words = [str(value)] if each else []
        yield View(re.sub(r"\W+", "_", "_".join([name, *words])), ": ".join([title, *words]), VIEWS[kind](own, **given))


def table_view(found: pd.DataFrame, columns: Sequence[str]) -> str:
    """The columns of a table as Markdown."""
    cells = [["" if pd.isna(cell) else f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row]
             for row in found[[*columns]].itertuples(index=False)]  # fmt: skip
    return markdown_table(columns, cells, [n for n, name in enumerate(columns) if found[name].dtype != float])


def path_graph(found: pd.DataFrame) -> Any:
    """Paths from sender to receiver, from the source above to the output below; blue towards the twin."""
    nodes = pd.DataFrame({"name": sorted({*found["first"], *found["second"]})})
    depths = nodes["name"].map(depth)
    nodes["y"] = depths.rank(method="dense")
    nodes["x"] = nodes.groupby("y").cumcount() - nodes.groupby("y")["name"].transform("size") / 2
    edges = found[["first", "second", "harm"]].set_axis(["source", "target", "value"], axis=1)
    return views.graph(nodes, edges)


def depth(node: str) -> tuple[int, int, int]:
    """The place of a head in the order of computation; the source is first and the output last."""
    head = Head.parse(node)
    if head is None:
        return (0, 0, 0) if node == "source" else (2, 0, 0)
    return (0, 1, head.layer) if head.kind == "encoder" else (1, head.layer, int(head.kind == "cross"))


VIEWS: dict[str, Callable[..., Any]] = {
    "heat_map": views.heat_map,
    "ranked": views.ranked,
    "curve": views.curve,
    "forest": views.forest,
    "graph": path_graph,
}


def changed(examples: dict[str, np.ndarray], live: str = "") -> Iterator[Section]:
    """The first translations that change without each head, with the words that differ marked. live: the page that runs
    the model, which each head links to."""
    cells = []
    for head, texts in zip(examples["head"].tolist(), examples["without"].tolist(), strict=True):
        others = [number for number, text in enumerate(texts) if text != examples["whole"][number]]
        for number in others[:MOST]:
            label, source = (str(examples[name][number]) for name in ("phenomenon", "source"))
            pair = map(Marked, marked(str(examples["whole"][number]), texts[number]))
            address = urlencode({"text": source, "off": head})
            name = Marked(f"[{head}]({live}#{address})") if live else head
            cells.append([name, f"{len(others)} of {len(texts)}", label, source, *pair])
    headers = ("head", "changed", "phenomenon", "source", "whole model", "without the head")
    text = markdown_table(headers, cells, range(6)) if cells else "No translation changes without a head."
    yield Section("Sentences that change without a head", (text,), folded=True)


def marked(before: str, after: str) -> tuple[str, str]:
    """Two texts as Markdown, with the words that differ in bold."""
    first, second = before.split(), after.split()
    sides: tuple[list[str], list[str]] = ([], [])
    for what, *at in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        for side, words in zip(sides, (first[at[0] : at[1]], second[at[2] : at[3]]), strict=True):
            text = escaped(" ".join(words))
            side += [text if what == "equal" else f"**{text}**"] if words else []
    return " ".join(sides[0]), " ".join(sides[1])


def attended(arrays: dict[str, np.ndarray]) -> Iterator[Section]:
    """The attention of each head while the first sentence is translated."""
    tables = []
    for kind, number in dict.fromkeys((head.kind, head.layer) for head in heads_named(arrays["head"])):
        own = weights_of(arrays, f"{kind}_{number}")
        tables.append(own.assign(head=f"{kind}{number}." + own["head"].astype(str)))
    table = pd.concat(tables, ignore_index=True)
    chart = views.heat_map(table, x="key", y="query", value="weight", choose="head")
    view = View("attention", "attention of a head, from queries to keys", chart)
    yield Section("Attention of each head to one sentence", (view,), folded=True)


def write(page: HeadsPage, directory: Path) -> Path:
    """Write heads.html, heads.md, heads.csv and plots/; returns the HTML file."""
    found = pages.write(page.page, directory, "heads")
    write_text(directory / "heads.csv", heads_csv(page.table))
    return found
