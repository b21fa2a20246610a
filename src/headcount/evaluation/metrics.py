"""Metrics: corpus scores of translations by sacrebleu, each with the signature that says how it was measured.

`METRICS` is the one list of them. Whatever shows scores goes through it: metrics.json, the tables of run/scores.py, the
paired bootstrap, and a report. A new metric is one more entry.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import regex
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from headcount.errors import InputError, printable

# sacrebleu chooses these for two-letter codes only; here also for the codes of ISO 639-2 and 639-3.
TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "hak", "nan", "lzh", "zht"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
}
LETTER = regex.compile(r"[\p{L}\p{M}]")
# Letters in a row that are hardly ever one word, in scripts without spaces between words and in others.
PHRASE = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}ー]{5,}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]{9,}|"
    r"\p{Hangul}{10,}|[\p{L}\p{M}]{25,}"
)
PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


@dataclass(frozen=True)
class Score:
    """A corpus score and its signature.

    length_ratio: tokens of the hypotheses / tokens of the references, where the metric counts them; below 1, BLEU
    includes a brevity penalty, exp(1 - 1 / length_ratio).
    """

    value: float
    signature: str
    length_ratio: float | None = None


@dataclass(frozen=True)
class Metric:
    """One metric of sacrebleu.

    label: its name in tables. build: makes sacrebleu's metric from a BLEU tokenizer and from whether case is ignored.
    higher_is_better: False for an error rate.

    The key in `METRICS` is the name on disk: metrics.json has the score of a split at `<split>.<key>` and its signature
    at `<split>.signature.<key>`. A reader of runs takes the metrics whose score they all have, since older runs lack a
    metric that was added later.
    """

    label: str
    build: Callable[[str, bool], SacrebleuMetric]
    higher_is_better: bool = True

    def score(
        self, hypotheses: Sequence[str], references: Sequence[str], tokenizer: str, lowercase: bool = False
    ) -> Score:
        """Corpus score, 0 to 100, with one reference a line, both sides in NFC; the signature says so where the
        references are not.

        tokenizer: `bleu_tokenizer` of the target language.
        """
        metric, scored = self.build(tokenizer, lowercase), composed(references)
        result = metric.corpus_score(composed(hypotheses), [scored])
        signature = str(metric.get_signature()) + ("" if scored == list(references) else "|norm:nfc")
        return Score(result.score, signature, getattr(result, "ratio", None))


def bleu(tokenizer: str, lowercase: bool = False, effective_order: bool = False) -> BLEU:
    """sacrebleu's BLEU with its tokenizer `tokenizer`. Raises InputError if a package or model is missing."""
    if tokenizer in SPM_MODELS:
        _check_model(tokenizer)
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenizer, effective_order=effective_order)
    except (RuntimeError, OSError, AssertionError) as error:
        if tokenizer in PACKAGES:
            raise InputError(
                f"bleu_tokenizer={tokenizer}: BLEU of this language counts words, which need a dictionary that is not "
                f'installed: pip install "{PACKAGES[tokenizer]}", or give bleu_tokenizer=char'
            ) from error
        raise InputError(f"bleu_tokenizer={tokenizer}: cannot be used ({str(error).strip()})") from error


def _check_model(tokenizer: str) -> None:
    # sacrebleu would download the model without asking, and leave half a file if the connection breaks.
    url = SPM_MODELS[tokenizer]["url"]
    path = Path(SACREBLEU_DIR) / "models" / url.rpartition("/")[2]
    if not path.is_file():
        raise InputError(
            f"bleu_tokenizer={tokenizer}: needs a model that is not here; fetch it with "
            f"curl --create-dirs -L {url} -o {path}"
        )


METRICS = {  # key in metrics.json: metric
    "bleu": Metric("BLEU", bleu),  # Papineni et al. 2002
    "chrf": Metric("chrF", lambda tokenizer, lowercase: CHRF(lowercase=lowercase)),  # chrF2, Popović 2015
}
PRIMARY = "bleu"  # the metric of validation, of the length ratio and of a report's verdicts


def score(
    hypotheses: Sequence[str], references: Sequence[str], tokenizer: str, lowercase: bool = False
) -> dict[str, Score]:
    """The score of every metric, by its key. The arguments are those of `Metric.score`."""
    return {key: metric.score(hypotheses, references, tokenizer, lowercase) for key, metric in METRICS.items()}


def bleu_tokenizer(language: str, chosen: str | None = None) -> str:
    """sacrebleu's name of the tokenizer for BLEU of text in `language`: `chosen`, or if that is None the one that
    sacrebleu takes for the language, such as zh for zh-CN and zho_Hans.

    Raises InputError for a name that sacrebleu does not have, and for a tokenizer that needs what is not installed.
    """
    code = re.split("[-_]", language.lower())[0]
    name = TOKENIZERS.get(code, BLEU.TOKENIZER_DEFAULT) if chosen is None else chosen
    if str(name) not in BLEU.TOKENIZERS:
        raise InputError(f"bleu_tokenizer={printable(str(name))}: must be null or one of {', '.join(BLEU.TOKENIZERS)}")
    bleu(name)
    return name


def counts_sentences(tokenizer: str, references: Sequence[str]) -> bool:
    """Whether most of what BLEU counts as words with this tokenizer are phrases, since the text has no spaces between
    words. Raises InputError, see `bleu`."""
    counted = "\n".join(map(bleu(tokenizer).tokenizer, references))
    return 2 * sum(map(len, PHRASE.findall(counted))) > len(LETTER.findall(counted))


def tokenizer_of(signature: str) -> str:
    """The tokenizer that a BLEU signature names. Raises InputError if sacrebleu does not have it.

    >>> tokenizer_of("nrefs:1|case:mixed|eff:no|tok:ja-mecab-0.996-IPA|smooth:exp|version:2.6.0")
    'ja-mecab'
    """
    tokenizer = dict(field.partition(":")[::2] for field in signature.split("|")).get("tok", "")
    for name in BLEU.TOKENIZERS:
        if tokenizer == name or tokenizer.startswith(f"{name}-"):
            return name
    what = f"the tokenizer {tokenizer}, which sacrebleu does not have" if tokenizer else "no tokenizer"
    raise InputError(f"a BLEU signature names {what}")


def composed(lines: Iterable[str]) -> list[str]:
    """Lines in NFC: a letter with its accent is one character, however the file spells it."""
    return [unicodedata.normalize("NFC", line) for line in lines]


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of lowercased Moses tokens, as papers on Multi30k report it; comparable with theirs and with no other.

    The text is lowercased, its punctuation normalised and then tokenised, in that order, as the script
    task1-tokenize.sh of the corpus does it (Elliott et al. 2016); Wu et al. 2021, "Good for misconceived reasons",
    score such text. One reference a line, both sides in NFC. language: code of both sides; the rules of English are
    used for a language that Moses does not know.
    """
    metric = BLEU(tokenize="none", force=True)  # force: the text is tokenised on purpose
    result = metric.corpus_score(moses_tokens(hypotheses, language), [moses_tokens(references, language)])
    # sacrebleu got text that was lowercased and tokenised before; its signature must say so.
    signature = str(metric.get_signature()).replace("case:mixed", "case:lc")
    signature = signature.replace("tok:none", f"tok:moses-{language}.sacremoses-{version('sacremoses')}")
    return Score(result.score, signature, result.ratio)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Every line in lower case, its Moses tokens separated by spaces.

    >>> moses_tokens(["Ein Mann, der schläft."], "de")
    ['ein mann , der schläft .']
    """
    import sacremoses  # here, because it takes a third of a second and few ask for it

    normaliser = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normaliser.normalize(line.lower()), return_str=True) for line in composed(lines)]
