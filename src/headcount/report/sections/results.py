"""Results: scores and cost of each row. Every run, and how it was measured."""

import yaml

from headcount.evaluation.likelihood import perplexity
from headcount.evaluation.metrics import METRICS
from headcount.report.flags import answers_of
from headcount.report.measures import measures
from headcount.report.page import Section, code, escaped, markdown_table
from headcount.report.study import Study
from headcount.report.table import mean, scores
from headcount.settings import typed

COSTS = {  # header: figure
    "parameters": "parameters",
    "operations/token": "operations_per_token",
    "tokens/s": "train.tokens_per_second",
    "seconds": "train.seconds",
}
FACTS = {"precision": "train.precision", "hardware": "hardware", "versions": "versions", "search": "test.search"}


def results(study: Study) -> Section:
    endpoint, first = study.endpoint, study.sweep.runs[0]
    where = "each on a corpus of its own" if endpoint.corpora > 1 else "on these sentences"
    note = (
        f"Means over seeds ± half a 95 % interval (Student's t, {where}; not for comparing rows)."
        if endpoint.comparison.spread
        else "One seed a row, so the spread between seeds is unknown."
    )
    note += f" The primary endpoint is {endpoint.name}; all other figures are secondary."
    note += " Length ratio: tokens of the translations of test per token of the references."
    signatures = [f"- {METRICS[key].label}: {code(str(first.figure(f'test.signature.{key}')))}" for key in METRICS
                  if key in study.sweep.metrics]  # fmt: skip
    return Section("Results", (note, _table(study), "\n".join(signatures)))


def _table(study: Study) -> str:
    """A line for each row."""
    rows, loss = study.rows, study.loss
    columns = {
        study.label: study.labels,
        study.endpoint.name: scores(study.endpoint.comparison),
        "seeds": [" ".join(str(run.seed) for run in row.runs) for row in rows],
        **{header: [mean(row.figures(path)) for row in rows] for header, path in COSTS.items()},
        "length ratio": [mean(row.figures("test.length_ratio"), 3) for row in rows],
        "valid. loss": scores(loss, 3) if loss else ["–"] * len(rows),
        "valid. perplexity": [f"{perplexity(value):.3f}" for value in loss.means] if loss else ["–"] * len(rows),
    }
    return markdown_table([*columns], [*zip(*columns.values(), strict=True)], words=(0, 2))


def runs(study: Study) -> Section:
    known = measures(study)
    cells = [
        (run.name, row.label, str(run.seed), *(f"{measure.scores[index][place]:.5g}" for measure in known))
        for index, row in enumerate(study.rows)
        for place, run in enumerate(row.runs)
    ]
    headers = ("run", study.label, "seed", *(measure.name for measure in known))
    return Section("Every run", (markdown_table(headers, cells, words=(0, 1)),))


def settings(study: Study) -> Section:
    """Corpus, machine, versions, and the settings of the runs."""
    sweep = study.sweep
    facts = {
        "corpus": sweep.runs[0].corpus + (", another one for each seed" if sweep.corpora else ""),
        "seeds": ", ".join(str(seed) for seed in sorted({run.seed for run in sweep.runs})),
        **{name: "; ".join(answers_of(sweep.runs, path)) for name, path in FACTS.items()},
    }
    blocks: list[str | Section] = ["\n".join(f"- {name}: {escaped(fact)}" for name, fact in facts.items())]
    if sweep.differing:
        cells = [
            (name, *(" or ".join({typed(run.settings.get(name)): 0 for run in row.runs}) for row in sweep.rows))
            for name in sweep.differing
        ]
        blocks.append(markdown_table(("setting", *study.labels), cells))
    shared = yaml.safe_dump(dict(sweep.shared), sort_keys=False, allow_unicode=True)
    blocks.append(Section("Settings that all runs share", (code(shared, "yaml"),), folded=True))
    return Section("How it was measured", tuple(blocks))
