"""Metrics against sacrebleu's own command line, and significance on known cases."""

import subprocess
import sys
import unicodedata

import pytest
from sacrebleu import corpus_bleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from headcount.errors import InputError
from headcount.evaluation import metrics
from headcount.evaluation.metrics import METRICS, Metric, bleu_tokenizer, score, tokenizer_of
from headcount.evaluation.significance import compare
from headcount.run.scores import comparison_table, score_table

REFERENCES = [
    "Ein Hund schläft auf dem alten Sofa.",
    "Zwei Männer gehen, weil es regnet, schnell nach Hause.",
    "Das Metric liest ein Buch.",
    "Niemand sieht die Katze im Garten.",
]
GOOD = [
    REFERENCES[0],
    "Zwei Männer gehen schnell nach Hause, weil es regnet.",
    REFERENCES[2],
    "niemand sieht die Katze.",
]
BAD = ["Ein Hund.", "Zwei Hunde gehen nach Hause.", "das Metric liest ein Buch", "Niemand."]


@pytest.mark.medium
@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_the_sacrebleu_command(tmp_path, lowercase):
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    reference.write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    hypothesis.write_text("\n".join(GOOD) + "\n", encoding="utf-8")
    scores = score(GOOD, REFERENCES, "13a", lowercase)
    for metric, flag in {"bleu": "--lowercase", "chrf": "--chrf-lowercase"}.items():
        command = f"-m sacrebleu {reference} -i {hypothesis} -m {metric} -b -w 6 {flag if lowercase else ''}"
        printed = subprocess.run([sys.executable, *command.split()], capture_output=True, check=True)
        assert float(printed.stdout) == pytest.approx(scores[metric].value, abs=1e-6)
    assert f"case:{'lc' if lowercase else 'mixed'}" in scores["bleu"].signature
    assert "tok:13a" in scores["bleu"].signature


@pytest.mark.medium
def test_bootstrap_tells_a_better_system_and_not_an_equal_one():
    references, good, bad = REFERENCES * 10, GOOD * 10, BAD * 10
    comparisons, signatures = compare({"good": good, "same": list(good), "bad": bad}, references, "13a")
    assert comparisons["good"]["bleu"].p_value is None
    assert comparisons["same"]["bleu"].p_value == 1
    assert comparisons["bad"]["bleu"].p_value < 0.01
    assert comparisons["bad"]["chrf"].score == pytest.approx(score(bad, references, "13a")["chrf"].value)
    assert comparisons["bad"]["bleu"].mean == pytest.approx(comparisons["bad"]["bleu"].score, abs=1)
    assert "bs:1000" in signatures["bleu"]
    assert "case:mixed" in signatures["bleu"]
    assert comparisons["good"]["bleu"].interval > 0


CHINESE = ["狗在老沙发上睡觉。", "两个男人因为下雨很快回家。", "孩子在读书。", "没有人看见花园里的猫。"]
NEARLY = ["狗在老沙发上睡觉。", "两个男人很快回家。", "孩子在看书。", "没有人看见花园里的猫。"]


def test_bleu_of_chinese_counts_characters():
    ours, theirs = score(NEARLY, CHINESE, "zh")["bleu"], BLEU(trg_lang="zh")
    assert ours.value == theirs.corpus_score(NEARLY, [CHINESE]).score > 50
    assert ours.signature == str(theirs.get_signature())
    _, signatures = compare({"one": NEARLY, "other": CHINESE}, CHINESE, "zh")
    assert "tok:zh" in signatures["bleu"]


def test_the_tokenizer_is_that_of_the_language_whatever_its_code():
    codes = dict.fromkeys(("zh", "zh-CN", "zh_TW", "ZHO_Hans", "zho-Hant", "cmn", "chi"), "zh")
    codes |= dict.fromkeys(("de", "en-GB", "deu_Latn", "zha"), "13a")
    assert {code: bleu_tokenizer(code) for code in codes} == codes
    assert bleu_tokenizer("de", "char") == "char"


WHICH = "must be null or one of none, zh, 13a, intl, char"
UNUSABLE = [
    ("jpn_Jpan", None, r'pip install "sacrebleu\[ja\]"'),
    ("ko", None, r'pip install "sacrebleu\[ko\]"'),
    ("kor", None, r'pip install "sacrebleu\[ko\]"'),
    ("de", "flores200", "bleu_tokenizer=flores200: needs a model .* curl .* -o nowhere/models/"),
    ("de", "words", f"bleu_tokenizer=words: {WHICH}"),
    ("de", 13, f"bleu_tokenizer=13: {WHICH}"),
]


@pytest.mark.parametrize(("language", "name", "message"), UNUSABLE)
def test_a_tokenizer_that_cannot_be_used_is_one_line(language, name, message, monkeypatch):
    for each in ("ja", "ko"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{each}_mecab.MeCab", None)
    monkeypatch.setattr(metrics, "SACREBLEU_DIR", "nowhere")
    with pytest.raises(InputError, match=message):
        bleu_tokenizer(language, name)


def test_a_signature_says_which_tokenizer_it_was():
    for name in ("13a", "zh", "none"):
        assert tokenizer_of(score(GOOD, REFERENCES, name)["bleu"].signature) == name
    assert tokenizer_of("nrefs:1|case:mixed|tok:ja-mecab-0.996-IPA|smooth:exp") == "ja-mecab"
    with pytest.raises(InputError, match=r"a BLEU signature names the tokenizer words, which sacrebleu does not have$"):
        tokenizer_of("nrefs:1|tok:words|smooth:exp")
    with pytest.raises(InputError, match=r"a BLEU signature names no tokenizer$"):
        tokenizer_of("nrefs:1|smooth:exp")


@pytest.mark.medium
def test_accents_apart_are_letters_all_the_same():
    lines = [*REFERENCES, "Schön für Bären."]
    apart = [unicodedata.normalize("NFD", line) for line in lines]
    assert apart != lines
    for hypotheses, references in ((lines, apart), (apart, lines)):
        scores = score(hypotheses, references, "13a")
        assert {name: round(figure.value, 6) for name, figure in scores.items()} == {"bleu": 100, "chrf": 100}
        comparisons, _ = compare({"one": hypotheses, "same": references}, references, "13a")
        assert comparisons["one"]["bleu"].score == pytest.approx(100)
        assert comparisons["same"]["chrf"].p_value == 1


def test_the_length_ratio_is_that_of_tokens():
    found = score(BAD, REFERENCES, "13a")
    assert found["bleu"].length_ratio == pytest.approx((3 + 6 + 5 + 2) / (8 + 12 + 6 + 7))
    assert found["chrf"].length_ratio is None


@pytest.mark.medium
def test_a_third_metric_is_reported_as_what_it_is(monkeypatch):
    references, good = REFERENCES * 10, GOOD * 10
    monkeypatch.setitem(METRICS, "ter", Metric("TER", lambda tokenizer, lowercase: TER(), higher_is_better=False))
    comparisons, signatures = compare({"good": good, "bad": BAD * 10}, references, "13a")
    assert list(comparisons["good"]) == ["bleu", "chrf", "ter"]
    assert comparisons["good"]["ter"].score == TER().corpus_score(good, [references]).score
    assert "tok:tercom" in signatures["ter"]
    assert "nc:6" in signatures["chrf"]
    found = score(good, references, "13a")
    figures = {name: figure.value for name, figure in found.items()}
    figures |= {"length_ratio": 1.0, "signature": {name: figure.signature for name, figure in found.items()}}
    compared = comparison_table({"good": good, "other": good}, references, "13a", False)
    for table in (score_table({"good": figures}), compared):
        assert "TER: nrefs:1" in table
        assert next(line for line in table.splitlines() if line.startswith("run ")).split()[-1] == "TER"


MOSES = {  # what lowercase.perl, normalize-punctuation.perl and tokenizer.perl make of the lines, typed by hand
    "Ein Mann geht, im Park.": "ein mann geht , im park .",
    "Zwei Hunde spielen im roten Gras.": "zwei hunde spielen im roten gras .",
    "Er sagt „nein“.": "er sagt &quot; nein &quot; .",
    "Ein Mann geht im Park.": "ein mann geht im park .",
    "Zwei Hunde Spielen im Gras herum.": "zwei hunde spielen im gras herum .",
    "Er sagt: „Schön!“": "er sagt : &quot; schön ! &quot;",
}


def test_moses_bleu_is_that_of_tokens_typed_by_hand():
    lines, tokens = list(MOSES), list(MOSES.values())
    found = metrics.moses_bleu(lines[:3], lines[3:], "de")
    by_hand = corpus_bleu(tokens[:3], [tokens[3:]], tokenize="none", force=True)
    assert found.value == pytest.approx(by_hand.score) != pytest.approx(100, abs=1)
    assert found.length_ratio == pytest.approx(20 / 20)
    apart = [unicodedata.normalize("NFD", line) for line in lines]
    assert metrics.moses_bleu(lines, apart, "de").value == pytest.approx(100)
    assert "case:lc" in found.signature
    assert "tok:moses-de.sacremoses-" in found.signature
    assert metrics.moses_tokens(["The man's dog"], "en") == ["the man &apos;s dog"]
