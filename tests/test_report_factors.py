"""Rows that differ in two settings, and BLEU by length of the reference."""

import itertools
import shutil
from pathlib import Path

import pytest
from reports import page_of, study_of, table_of_section
from sacrebleu import corpus_bleu
from sweeps import STUDY, changed, sentences, write_run

from headcount.report.measures import by_length
from headcount.report.read import read_sweep
from headcount.report.sections.effects import crossed_settings
from headcount.statistics.bootstrap import sentence_counts


def write_widths(folder: Path, widths, heads, other="model.d_model") -> Path:
    group, name = other.split(".")
    for width in widths:
        for number in heads:
            for seed in (1, 2):
                model = {"num_heads": number} | ({name: width} if group == "model" else {})
                config = {"model": model, "study": STUDY | {"varies": None}}
                if group != "model":
                    config[group] = {name: width}
                job = folder / f"{other}={width},model.num_heads={number},seed={seed}"
                write_run(job, sentences(40), 0.1 + 0.02 * number + 0.01 * seed, seed, config)
    return folder


def effects_of(folder: Path) -> list[list[str]]:
    return table_of_section(page_of(folder), "Effect of each setting").cells


@pytest.mark.medium
def test_the_effect_of_a_setting_is_averaged_over_the_others(tmp_path, undrawn):
    folder = write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4))
    width, *heads = effects_of(folder)
    assert width[:2] == ["d_model", "64 − 128"]
    assert (width[3], width[-1]) == ("+0.00", "+0.00 to +0.00")  # the toy runs follow the heads alone
    assert [line[:2] for line in heads] == [["num_heads", f"{a} − {b}"] for a, b in ((1, 2), (1, 4), (2, 4))]
    study = study_of(folder)
    means = dict(zip([row.label for row in study.rows], study.endpoint.comparison.means, strict=True))
    one, four = (sum(mean for label, mean in means.items() if label.endswith(f"num_heads={n}")) / 2 for n in (1, 4))
    assert float(heads[1][3]) == pytest.approx(one - four, abs=0.006)


@pytest.mark.medium
def test_an_effect_needs_all_combinations(tmp_path, undrawn):
    folder = write_widths(tmp_path / "sweep", (64, 128), (1, 2, 4))
    shutil.rmtree(folder / "model.d_model=64,model.num_heads=1,seed=1")
    assert crossed_settings(read_sweep(folder).rows) is None  # not the same seeds
    shutil.rmtree(folder / "model.d_model=64,model.num_heads=1,seed=2")
    assert crossed_settings(read_sweep(folder).rows) is None


@pytest.mark.medium
def test_each_group_is_scored_as_a_test_set_of_its_own():
    references = sentences(300)
    translations = [[changed(references, errors, seed) for seed in (1, 2)] for errors in (0.1, 0.3)]
    groups = by_length([[sentence_counts(lines, references, "13a") for lines in row] for row in translations])
    ends = [[int(end) for end in (name if " to " in name else f"{name} to {name}").split(" to ")] for name in groups]
    tokens = [len(line.split()) + 1 for line in references]  # the full stop is one of its own
    assert [ends[0][0], ends[-1][1]] == [min(tokens), max(tokens)]
    for (shortest, longest), scores in zip(ends, groups.values(), strict=True):
        own = [place for place, length in enumerate(tokens) if shortest <= length <= longest]
        assert len(own) > 40
        for row, found in zip(translations, scores, strict=True):
            expected = [corpus_bleu([run[i] for i in own], [[references[i] for i in own]]).score for run in row]
            assert found == pytest.approx(expected)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))


def test_groups_without_sentences_are_left_out():
    references = ["a b c d e."] * 20
    assert by_length([[sentence_counts(references, references, "13a")]]) == {}  # of one length
    short, long = [["a b c d"] * 4 + [f"{'a b ' * 4}c d"] * more for more in (0, 4)]
    counts = [[sentence_counts(lines, lines, "13a") for lines in (short, long, long)] for _ in range(2)]
    assert by_length(counts) == {}  # a corpus lacks sentences of a length
    assert list(by_length([row[1:] for row in counts])) == ["4", "10"]
