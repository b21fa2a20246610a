"""The doctor: every planted cause is found, and healthy text and runs have no warning."""

import math
import re
import shutil
from dataclasses import replace

import pytest
from conftest import command, failed

from headcount.doctor.checks import CHECKS, FUNCTION_WORDS, diagnose, report, swapped
from headcount.doctor.evidence import Evidence, Pairs
from headcount.grammar import Grammar

RUN = {"loss": 1.0, "length_ratio": 0.99, "signature": {"bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"}}
OF_A_RUN = 5  # checks that need more than a corpus


def grammar(**sizes: int) -> dict[str, Pairs]:
    splits = Grammar(**sizes, seed=1).load().items()
    return {split: Pairs(list(rows["source"]), list(rows["target"])) for split, rows in splits}


@pytest.fixture(scope="module")
def healthy() -> Evidence:
    splits = grammar(train_size=3000, valid_size=400, test_size=400)
    own = dict(zip(*splits["valid"], strict=True))
    return Evidence(
        languages=("en", "de"),
        splits=splits,
        metrics={"valid": RUN, "test": RUN},
        curves={
            "valid/loss": [(250, 2.0), (500, 1.3), (750, 1.1), (1000, 1.02)],
            "valid/bleu": [(250, 5.0), (500, 20.0), (750, 25.0), (1000, 26.0)],
        },
        translations={split: Pairs(splits[split].target, splits[split].target) for split in ("valid", "test")},
        loss=lambda sources, targets: (
            4.0 - 3.0 * sum(own.get(s) == t for s, t in zip(sources, targets, strict=True)) / len(targets)
        ),
    )


def changing(split: str, share: float, change):
    """A plant: `change` of the pairs in the first part of a split."""

    def plant(evidence: Evidence) -> Evidence:
        pairs = list(zip(*evidence.splits[split], strict=True))
        rows = [change(*pair) if row < share * len(pairs) else pair for row, pair in enumerate(pairs)]
        return replace(evidence, splits={**evidence.splits, split: Pairs(*map(list, zip(*rows, strict=True)))})

    return plant


def shifted(*splits: str):
    """A plant: from the middle of a split on, each target stands a line too early."""

    def plant(evidence: Evidence) -> Evidence:
        moved = {}
        for split in splits:
            source, target = evidence.splits[split]
            half = len(target) // 2
            moved[split] = Pairs(source, [*target[:half], *target[half + 1 :], target[half]])
        return replace(evidence, splits={**evidence.splits, **moved})

    return plant


def leaking(evidence: Evidence) -> Evidence:
    source, target = evidence.splits["train"]
    near = [text.upper().replace(".", " !") for text in evidence.splits["test"].source[:10]]  # cleaning keeps these
    return replace(evidence, splits={**evidence.splits, "train": Pairs([*near, *source], [*near, *target])})


def with_figure(name: str, value):
    return lambda evidence: replace(evidence, metrics={**evidence.metrics, "valid": {**RUN, name: value}})


def with_curves(losses: list[float], scores: list[float]):
    steps = range(250, 1250, 250)
    curves = {"valid/loss": list(zip(steps, losses, strict=True)), "valid/bleu": list(zip(steps, scores, strict=True))}
    return lambda evidence: replace(evidence, curves=curves)


def overfit(evidence: Evidence) -> Evidence:
    return with_figure("loss", 1.7)(with_curves([1.5, 1.2, 1.4, 1.7], [20, 24, 22, 20])(evidence))


def translated(lines: list[str]):
    return lambda evidence: replace(evidence, translations={"test": Pairs(lines, lines)})


PLANTED = {  # plant: the check that finds it
    leaking: "held-out text in train",
    shifted("train"): "lengths correlate",
    shifted("test"): "lengths correlate",
    changing("train", 1.0, lambda s, t: (s, t[: len(t) // 3])): "length of one side to the other",
    changing("test", 1.0, lambda s, t: (t, s)): "words of the right language",
    changing("train", 1.0, lambda s, t: (s, s)): "words of the right language",
    changing("train", 0.02, lambda s, t: (s, f"{t} schön".encode().decode("latin-1"))): "broken characters",
    changing("test", 0.05, lambda s, t: (f"{s} &amp; Co.", t)): "broken characters",
    changing("train", 0.03, lambda s, t: (s, s)): "targets that copy",
    changing("test", 0.02, lambda s, t: (s, "\u200b")): "empty lines",
    translated([""] * 2 + ["Ein Hund schläft."] * 50): "empty lines",
    lambda evidence: replace(evidence, loss=lambda sources, targets: 2.0): "use of the source",
    with_curves([5.0, 4.0, 3.0, 2.4], [1, 2, 3, 4]): "loss still falling",
    overfit: "loss rising again",
    with_figure("length_ratio", 0.72): "length of translations",
    with_figure("length_ratio", math.nan): "length of translations",
    translated(["小狗看见公猫在花园里"]): "tokenizer of BLEU unfit",
    lambda evidence: with_figure("signature", {"bleu": "tok:none"})(evidence): "tokenizer of BLEU unfit",
}


@pytest.mark.medium
@pytest.mark.parametrize(("plant", "name"), PLANTED.items(), ids=range(len(PLANTED)))
def test_a_planted_cause_is_found(healthy, plant, name):
    planted = plant(healthy)
    (found,) = (each for each in diagnose(planted) if each.name == name)
    assert found.warning, found
    assert f"\n{name}, {found.measured}: {found.todo}\n" in report(planted, [found], "run")


@pytest.mark.medium
def test_healthy_evidence_is_measured_by_every_check_without_a_warning(healthy):
    findings = diagnose(healthy)
    assert {each.name for each in findings} == set(PLANTED.values())
    assert [each for each in findings if each.warning] == []
    assert len(findings) == len(CHECKS)
    assert report(healthy, findings, "run").endswith("12 checks, 0 not measured; warnings: 0\n")


@pytest.mark.medium
def test_a_copy_task_may_copy_and_a_rising_loss_with_rising_bleu_is_fine(healthy):
    text = {split: Pairs(pairs.source, pairs.source) for split, pairs in healthy.splits.items()}
    copies = Evidence(("en", "en"), text)
    rising = with_figure("loss", 1.7)(with_curves([1.5, 1.2, 1.4, 1.7], [20, 22, 24, 26])(healthy))
    assert not [each for evidence in (copies, rising) for each in diagnose(evidence) if each.warning]


@pytest.mark.parametrize("value", ["x", None, [], 10**400])
def test_what_is_not_there_is_not_measured(value):
    bare = Evidence(("en", "de"), metrics={"valid": {"loss": value}, "test": value}, notes=("no network",))
    assert diagnose(bare) == []
    assert "\n\nno network\n\n12 checks, 12 not measured; warnings: 0\n" in report(bare, [], "run")


def test_the_function_words_of_a_language_are_its_own():
    for code, text in FUNCTION_WORDS.items():
        for other in FUNCTION_WORDS.keys() - {code}:
            found = swapped(Evidence((f"{code}_XX", other), {"train": Pairs([text] * 5, [FUNCTION_WORDS[other]] * 5)}))
            assert found == {"train": 1.0}, (code, other)


@pytest.mark.medium
def test_shifted_files_are_found_through_all_of_preparation(tmp_path):
    """Of the corpus, and not of both directions mixed."""
    for split, pairs in grammar(train_size=2500, valid_size=250, test_size=250).items():
        target = [*pairs.target[1:], "Das Ende."] if split == "train" else pairs.target
        for language, lines in {"en": pairs.source, "de": target}.items():
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = ("data=multi30k", f"data.root={tmp_path}", "tokenizer.vocab_size=500", "data.both_directions=true")
    result = command("doctor", *corpus, cwd=tmp_path)
    assert result.code == 1
    assert warnings_in(result.out) == ["lengths correlate"]
    assert result.out.endswith(f"12 checks, {OF_A_RUN} not measured; warnings: 1\n")


def warnings_in(out: str) -> list[str]:
    return [line.split("  ")[0] for line in out.splitlines() if line.endswith("warning")]


@pytest.mark.medium
def test_the_run_of_the_tests_has_no_false_alarm(home):
    """It has learned its toy language, though its translations are a tenth too short."""
    result = command("doctor", "run=runs/first", cwd=home)
    assert set(warnings_in(result.out)) <= {"length of translations"}, result.out
    assert "\n12 checks, 2 not measured; warnings: " in result.out  # a single validation, and no 200 pairs
    assert result.code == bool(warnings_in(result.out))


@pytest.mark.slow
def test_the_run_of_the_default_recipe_has_no_warning(tmp_path):
    assert command("train", "trainer=cpu", "logger=csv", "hydra.run.dir=run", cwd=tmp_path).code == 0
    result = command("doctor", "run=run", cwd=tmp_path)
    assert result.code == 0, result.out
    assert result.out.endswith("12 checks, 0 not measured; warnings: 0\n")


@pytest.mark.medium
def test_a_corpus_that_is_gone_leaves_the_checks_of_the_run(home, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(home / "runs" / "first", run)
    config = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(re.sub(r"root: .*", "root: nowhere", config), encoding="utf-8")
    result = command("doctor", f"run={run}", cwd=tmp_path)
    assert "\nthe corpus is not examined: " in result.out
    assert "\nlength of translations  " in result.out
    assert "\nlengths correlate  " not in result.out


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run=nowhere"], "nowhere is not a run directory"),
        (["run=[a,b]"], "run=[a,b]: must be a valid string"),
        (["run=x", "data=grammar"], "run= and data=: a run has its own corpus; give one of the two"),
        (["data=grammar", "init_from=x"], "init_from=: chooses neither a run nor a corpus"),
    ],
)
def test_wrong_settings_are_one_line(words, line, tmp_path):
    assert failed("doctor", *words, cwd=tmp_path)[0].startswith(line)
