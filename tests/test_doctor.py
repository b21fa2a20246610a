"""The doctor: every planted cause is found, and healthy text and runs are clean."""

import json
import math
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from built import sentence_piece
from conftest import command, failed

from headcount.doctor.check import Finding, Limit
from headcount.doctor.diagnosis import checks, diagnose, report
from headcount.doctor.evidence import Evidence, Pairs
from headcount.doctor.languages import COMMON, own_words
from headcount.grammar import Grammar
from headcount.grammar.copy import Copy

DOCS = Path(__file__).parents[1] / "docs" / "doctor.md"
LOSS = {"average": 1.00, "last": 1.02}


def damaged(lines: list[str], every: int = 3) -> list[str]:
    """Translations of a model that makes mistakes: of some lines, two words in the wrong order."""
    return [
        " ".join([*words[:1], *words[2:3], *words[1:2], *words[3:]]) if row % every == 0 else line
        for row, line in enumerate(lines)
        for words in [line.split()]
    ]


@pytest.fixture(scope="module")
def healthy() -> Evidence:
    data = Grammar(train_size=8000, valid_size=400, test_size=400, seed=1).load()
    splits = {split: Pairs(list(rows["source"]), list(rows["target"])) for split, rows in data.items()}
    own = dict(zip(*splits["valid"], strict=True))
    figures = {
        "length_ratio": 0.99,
        "signature": {"bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"},
    }
    return Evidence(
        languages=("en", "de"),
        splits=splits,
        tokenizer=sentence_piece(800).train(*splits["train"]),
        read=8000,
        kept=8000,
        config={"schedule": {"warmup_steps": 100}, "averaging": {"_target_": "headcount.training.averaging.Average"}},
        metrics={
            "train": {"steps": 1000, "epochs": 4.0},
            "weights": {"scored": "average", "valid_loss": LOSS},
            "valid": {"loss": 1.00, **figures},
            "test": {"loss": 1.10, **figures},
        },
        curves={
            "valid/loss": [(250, 2.0), (500, 1.3), (750, 1.1), (1000, 1.02)],
            "valid/bleu": [(250, 5.0), (500, 20.0), (750, 25.0), (1000, 26.0)],
        },
        translations={split: (damaged(splits[split].target), splits[split].target) for split in ("valid", "test")},
        loss=lambda sources, targets: (
            4.0 - 3.0 * sum(own.get(s) == t for s, t in zip(sources, targets, strict=True)) / len(targets)
        ),
        changed=False,
    )


def warnings(evidence: Evidence) -> list[str]:
    return [finding.check.name for finding in diagnose(evidence) if finding.warning]


def found(name: str, evidence: Evidence) -> Finding:
    """The finding of one check."""
    (check,) = (each for each in checks() if each.name == name)
    return Finding(check, check.measure(evidence))


def with_split(evidence: Evidence, split: str, source: list[str], target: list[str]) -> Evidence:
    return replace(evidence, splits={**evidence.splits, split: Pairs(source, target)})


def changing(split: str, share: float, change, side: str | None = None):
    """A plant: `change` of the pairs, or of the texts of one side, in the first part of a split."""

    def plant(evidence: Evidence) -> Evidence:
        pairs = list(zip(*evidence.splits[split], strict=True))
        number = Pairs._fields.index(side) if side else None
        for row in range(round(share * len(pairs))):
            pair = pairs[row]
            pairs[row] = (
                change(pair)
                if number is None
                else tuple(change(text) if each == number else text for each, text in enumerate(pair))
            )
        return with_split(evidence, split, *map(list, zip(*pairs, strict=True)))

    return plant


def with_figure(path: str, value):
    """A plant: another figure in metrics.json."""

    def changed(node: dict, names: list[str]) -> dict:
        first, *rest = names
        return {**node, first: changed(node.get(first, {}), rest) if rest else value}

    return lambda evidence: replace(evidence, metrics=changed(evidence.metrics, path.split(".")))


def with_curve(name: str, *values: float):
    curve = [(250 * (number + 1), value) for number, value in enumerate(values)]
    return lambda evidence: replace(evidence, curves={**evidence.curves, name: curve})


def translating(change):
    """A plant: other translations of test; `change` gets those that there are, the sources and the references."""

    def plant(evidence: Evidence) -> Evidence:
        ours, theirs = evidence.translations["test"]
        changed = change(ours, evidence.splits["test"].source, theirs)
        return replace(evidence, translations={**evidence.translations, "test": (changed, theirs)})

    return plant


def misaligned_from_the_middle(evidence: Evidence) -> Evidence:
    source, target = evidence.splits["train"]
    half = len(target) // 2
    return with_split(evidence, "train", source, [*target[:half], *target[half + 1 :], target[half]])


def swapped(*splits: str):
    def plant(evidence: Evidence) -> Evidence:
        return replace(
            evidence,
            splits={
                name: Pairs(*reversed(pairs)) if name in splits else pairs for name, pairs in evidence.splits.items()
            },
        )

    return plant


def few_pairs(evidence: Evidence) -> Evidence:
    source, target = evidence.splits["train"]
    return replace(with_split(evidence, "train", source[:1000], target[:1000]), read=1000, kept=1000)


def leaking(evidence: Evidence) -> Evidence:
    test = evidence.splits["test"]
    source, target = evidence.splits["train"]
    near = [text.upper().replace(".", " !") for text in test.source[:10]]  # which cleaning lets through
    return with_split(evidence, "train", [*near, *source], [*test.target[:10], *target])


def repeated(evidence: Evidence) -> Evidence:
    source, target = evidence.splits["train"]
    return with_split(evidence, "train", [*source, *source[:2000]], [*target, *target[:2000]])


def bigger_vocabulary(evidence: Evidence) -> Evidence:
    few = [side[:120] for side in evidence.splits["train"]]
    pieces = sentence_piece(900).train(*few)
    return replace(with_split(evidence, "train", *few), tokenizer=pieces, read=120, kept=120)


def other_vocabulary(evidence: Evidence) -> Evidence:
    draw = random.Random(1)
    texts = [" ".join("".join(draw.choices("qxzjvkw", k=6)) for _ in range(8)) for _ in range(300)]
    return replace(
        evidence, tokenizer=sentence_piece(600).train([*texts, "abcdefghijklmnoprstuy ABCDEFGHIJKLMNOPRSTUVWZ äöüß.,"])
    )


NEWS = "Der Aufsichtsrat genehmigte gestern 1.250.000 Euro Jahresüberschuss; Kommentatoren bezweifeln Quartalszahlen!"
OTHER_DOMAIN = changing("test", 1.0, lambda text: NEWS, "target")
MOJIBAKE = changing("train", 0.02, lambda text: f"{text} schön".encode().decode("latin-1"), "target")
TOKENISED = changing("test", 1.0, lambda text: re.sub(r"([.,])", r" \1", text), "target")

PLANTED = {
    "words of train": few_pairs,
    "kept by cleaning": lambda evidence: replace(evidence, read=2 * evidence.kept),
    "empty held-out pairs": changing("test", 0.01, lambda text: " ", "target"),
    "duplicates in train": repeated,
    "most frequent target": changing("train", 0.02, lambda text: "Alle Rechte vorbehalten.", "target"),
    "held-out text in train": leaking,
    "targets that copy": changing("train", 0.03, lambda pair: (pair[0], pair[0])),
    "length of one side to the other": changing("train", 1.0, lambda text: text[: len(text) // 3], "target"),
    "length outliers": changing("train", 0.05, lambda text: " ".join([text] * 5), "target"),
    "lengths correlate": misaligned_from_the_middle,
    "words of the right language": swapped("train", "valid", "test"),
    "pairs in mixed languages": changing("train", 0.1, lambda pair: pair[::-1]),
    "broken characters": MOJIBAKE,
    "tokenised text": TOKENISED,
    "case differs from train": changing("test", 1.0, str.lower, "target"),
    "characters spelled in bytes": changing("test", 1.0, lambda text: f"{text} Привет", "target"),
    "pieces never used": other_vocabulary,
    "frequency of the median piece": bigger_vocabulary,
    "distance from train": OTHER_DOMAIN,
    "valid differs from test": OTHER_DOMAIN,
    "corpus changed since training": lambda evidence: replace(evidence, changed=True),
    "updates over those of warm-up": lambda evidence: replace(evidence, config={"schedule": {"warmup_steps": 800}}),
    "epochs": with_figure("train.epochs", 0.4),
    "steps skipped": with_figure("train.skipped_steps", 40),
    "better than frequencies": with_figure("valid.loss", 5.5),
    "use of the source": lambda evidence: replace(evidence, loss=lambda sources, targets: 2.0),
    "loss still falling": with_curve("valid/loss", 5.0, 4.0, 3.0, 2.4),
    "loss rising again": lambda evidence: with_curve("valid/bleu", 20, 24, 22, 20)(
        with_curve("valid/loss", 1.5, 1.2, 1.4, 1.7)(evidence)
    ),
    "scored weights worse than the last": with_figure("valid.loss", 1.05),
    "loss on valid against test": with_figure("test.loss", 2.0),
    "translations too short": with_figure("test.length_ratio", 0.72),
    "translations too long": with_figure("test.length_ratio", 1.3),
    "one translation for many": translating(lambda ours, *_: ["Der Hund schläft."] * 20 + ours[20:]),
    "repeated phrases": translating(
        lambda ours, *_: [f"{line} und der und der und der" for line in ours[:20]] + ours[20:]
    ),
    "translations that copy": translating(lambda ours, sources, _: sources[:20] + ours[20:]),
    "likeness to the own reference": translating(lambda ours, _, theirs: ours[1:] + ours[:1]),
    "BLEU lost by case": translating(lambda ours, *_: [line.lower() for line in ours]),
    "tokenizer of BLEU unfit": lambda evidence: replace(
        evidence, translations={"test": (["小狗看见公猫在花园里"],) * 2}
    ),
}


@pytest.mark.medium
def test_healthy_evidence_is_clean_and_measured_by_every_check(healthy):
    findings = diagnose(healthy)
    assert [finding.check.name for finding in findings if finding.measured is None] == []
    assert warnings(healthy) == []
    assert "38 checks: 0 warnings, 0 not measured" in report(healthy, findings, "run")


def test_a_cause_is_planted_for_every_check():
    assert list(PLANTED) == [check.name for check in checks()]


@pytest.mark.medium
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_found(healthy, name):
    planted = PLANTED[name](healthy)
    finding = found(name, planted)
    assert finding.warning, finding.measured
    assert f"\n{name}, " in report(planted, [finding], "run")  # the line that says what to do


MORE = {  # further ways to the same warning
    "valid and test swapped": ("pairs in mixed languages", swapped("valid", "test")),
    "languages without a list of words": (
        "pairs in mixed languages",
        lambda evidence: replace(swapped("test")(evidence), languages=("xx", "yy")),
    ),
    "test misaligned": (
        "lengths correlate",
        lambda evidence: with_split(
            evidence, "test", evidence.splits["test"].source, [*evidence.splits["test"].target[1:], "Ende."]
        ),
    ),
    "HTML entities": (
        "broken characters",
        changing("test", 0.05, lambda text: text.replace(".", " &amp; Co."), "source"),
    ),
    "pieces in the reference": (
        "tokenised text",
        changing("test", 1.0, lambda text: text.replace("en", "e@@ n"), "target"),
    ),
    "no number for a loss": ("better than frequencies", with_figure("valid.loss", math.nan)),
    "an older run that scored a bad average": (
        "scored weights worse than the last",
        lambda evidence: with_figure("valid.loss", 1.18)(with_figure("weights", {})(evidence)),
    ),
}


@pytest.mark.medium
@pytest.mark.parametrize("way", MORE)
def test_other_ways_to_the_same_warning(healthy, way):
    name, plant = MORE[way]
    assert found(name, plant(healthy)).warning


@pytest.mark.medium
def test_what_is_not_there_is_not_measured(healthy):
    bare = Evidence(("en", "de"), config={"seed": 1}, notes=("the corpus is not examined: no network",))
    findings = diagnose(bare)
    assert len(findings) == len(checks())
    measured = [finding.check.name for finding in findings if finding.measured is not None]
    assert measured == []
    assert "the corpus is not examined: no network" in report(bare, findings, "run")
    corpus = replace(healthy, config={})
    assert len(diagnose(corpus)) == len(checks(("text", "vocabulary"))) < len(findings)


@pytest.mark.parametrize("value", ["x", None, [], 10**400])
def test_a_figure_that_is_no_number_is_not_measured(healthy, value):
    assert found("epochs", with_figure("train.epochs", value)(healthy)).measured is None


def test_fewer_copies_and_repetitions_than_the_references_have_are_none_and_not_less():
    lines = ["the dog sees the cat"] * 3
    translated = {"test": (["a b c", "d e f", "g h i"], lines)}
    evidence = Evidence(("en", "de"), {"test": Pairs(lines, lines)}, translations=translated)
    for name in ("translations that copy", "one translation for many"):
        measured = found(name, evidence).measured
        assert measured is not None
        assert measured.value == 0


@pytest.mark.slow
def test_a_copy_task_may_copy(healthy):
    rows = Copy(train_size=8000, valid_size=400, test_size=400, seed=1).load()
    splits = {split: Pairs(list(each["source"]), list(each["target"])) for split, each in rows.items()}
    pieces = sentence_piece(600).train(splits["train"].source)
    evidence = replace(healthy, languages=("en", "en"), splits=splits, tokenizer=pieces, config={})
    assert warnings(evidence) == []


def test_weights_that_bleu_chose_may_have_a_higher_loss(healthy):
    chosen = with_figure("weights.valid_bleu", LOSS)(with_figure("valid.loss", 1.2)(healthy))
    assert not found("scored weights worse than the last", chosen).warning


def test_a_loss_that_rises_with_bleu_is_no_warning(healthy):
    rising = with_curve("valid/loss", 1.5, 1.2, 1.4, 1.7)
    assert not found("loss rising again", rising(with_curve("valid/bleu", 20, 22, 24, 26)(healthy))).warning


@pytest.mark.parametrize(
    ("limit", "value", "shown"),
    [
        (Limit(0.01, "%", False), 0.012, "1.2 %"),
        (Limit(0.01, "%", False), 0.99962, "99.96 %"),
        (Limit(100_000, "words", True), 390548, "390,548 words"),
        (Limit(0.9, "times", True), 0.7148, "0.71 times"),
        (Limit(0.0, "", True), -0.034, "-0.034"),
        (Limit(1.0, "nats", False), math.nan, "nan nats"),
    ],
)
def test_figures_are_shown_with_their_unit(limit, value, shown):
    assert limit.shown(value) == shown


def test_the_words_of_a_language_are_its_own():
    english = ["the dog is in the house and it was not for you"] * 3
    assert own_words(english, "en", "de") > 0.9
    assert own_words(english, "de_DE", "en-US") < 0.1
    assert own_words(english, "en", "xx") is None
    assert own_words(["a b c"], "en", "de") is None
    for code, text in COMMON.items():
        for other in COMMON.keys() - {code}:
            assert own_words([text] * 5, code, other) == 1.0, (code, other)


def test_every_limit_has_its_reason_in_the_page():
    page = DOCS.read_text(encoding="utf-8")
    for check in checks():
        assert f"| {check.name} | {check.limit} | {check.because} |" in page, check.name


@pytest.mark.medium
def test_the_doctor_of_a_corpus_answers_with_code_1_where_it_warns(text, tmp_path):
    overrides = ("data=multi30k", f"data.root={text}", "data.vocab_size=320", "json=doctor.json")
    result = command("doctor", *overrides, cwd=tmp_path)
    assert result.code == 1
    assert re.search(r"^words of train +\d+ words +at least 100,000 words +warning$", result.out, re.MULTILINE)
    kept = json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))
    warned = {each["check"] for each in kept["checks"] if each["verdict"] == "warning"}
    assert kept["warnings"] == len(warned)
    assert "words of train" in warned
    assert "epochs" not in {each["check"] for each in kept["checks"]}


@pytest.mark.medium
def test_misaligned_files_are_found_through_all_of_preparation(tmp_path):
    rows = Grammar(train_size=2500, valid_size=250, test_size=250, seed=1).load()
    for split, pairs in rows.items():
        target = list(pairs["target"])
        moved = [*target[1:], "Das Ende."] if split == "train" else target
        for language, lines in {"en": list(pairs["source"]), "de": moved}.items():
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    overrides = ("data=multi30k", f"data.root={tmp_path}", "data.vocab_size=500", "data.both_directions=true")
    assert command("doctor", *overrides, "json=doctor.json", cwd=tmp_path).code == 1
    kept = json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))
    (aligned,) = (each for each in kept["checks"] if each["check"] == "lengths correlate")
    assert (aligned["verdict"], aligned["where"]) == ("warning", "train")
    assert abs(aligned["measured"]) < 0.3
    (language,) = (each for each in kept["checks"] if each["check"] == "words of the right language")
    assert language["verdict"] == "OK"  # of the corpus, not of both directions mixed


@pytest.mark.medium
def test_the_doctor_of_a_run(home, tmp_path):
    result = command("doctor", "run=runs/first", f"json={tmp_path / 'doctor.json'}", cwd=home)
    assert result.code == 1  # its corpus is tiny
    kept = {
        each["check"]: each for each in json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))["checks"]
    }
    assert len(kept) == len(checks())
    assert kept["corpus changed since training"]["measured"] == 0
    assert kept["use of the source"]["measured"] > 0.2  # it has learned some of the toy language
    assert kept["words of train"]["verdict"] == "warning"
    assert kept["translations too short"]["where"] in ("valid", "test")


@pytest.mark.medium
def test_a_corpus_that_is_gone_leaves_the_checks_of_the_run(home, tmp_path, tiny):
    run = tmp_path / "run"
    shutil.copytree(home / "runs" / "first", run)
    config = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(re.sub(r"root: .*", "root: nowhere", config), encoding="utf-8")
    result = command("doctor", f"run={run}", cwd=tmp_path)
    assert "the corpus is not examined: " in result.out
    assert re.search(r"^words of train +- +at least 100,000 words +not measured$", result.out, re.MULTILINE)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run=nowhere"], "nowhere is not a run directory"),
        (["run=[a,b]"], "run=[a,b]: must be text or a path"),
        (["run=x", "data=grammar"], "run= and data=: a run has its own corpus; give one of the two"),
        (["seed=2"], "seed=: chooses neither a run nor a corpus; data, tokenizer, segmentation, recipe ch"),
        (["data=grammar", "init_from=x"], "init_from=: chooses neither a run nor a corpus"),
        (["json=3"], "json=3: must be text or a path"),
    ],
)
def test_wrong_settings_are_one_line(words, line, tmp_path):
    assert failed("doctor", *words, cwd=tmp_path)[0].startswith(line)


@pytest.mark.slow
def test_a_healthy_training_of_the_built_in_corpus_is_clean(tmp_path):
    """Eight hundred updates, with Muon, which needs half as many as the default."""
    steps = ("optimizer=muon", "data.budget.steps=800", "data.budget.warmup_steps=100", "validation.every=200")
    small = ("data.valid_size=300", "data.test_size=400", "trainer=cpu", "logger=csv", "hydra.run.dir=runs/healthy")
    assert command("train", *steps, *small, cwd=tmp_path).code == 0
    result = command("doctor", "run=runs/healthy", cwd=tmp_path)
    assert result.code == 0, result.out
    assert " 0 warnings, 0 not measured" in result.out
