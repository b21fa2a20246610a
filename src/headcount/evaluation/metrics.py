"""BLEU and chrF by sacrebleu: no score without its signature.

A metric is an entry of `METRICS`; scores, paired tests and tables go through them all.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from headcount.errors import InputError

# sacrebleu's own choice, which it makes for two-letter codes alone: here for those of ISO 639-2 and 639-3 as well.
TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "hak", "nan", "lzh", "zht"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
}
PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


@dataclass(frozen=True)
class Score:
    """A figure, and the signature that says how it was measured.

    length_ratio: tokens of the hypotheses / tokens of the references, where the metric counts them; below 1, BLEU holds
    a brevity penalty, exp(1 - 1 / length_ratio).
    """

    value: float
    signature: str
    length_ratio: float | None = None


@dataclass(frozen=True)
class Kind:
    """A metric as tables call it (`label`), and what builds it from a BLEU tokenizer and whether case is ignored."""

    label: str
    build: Callable[[str, bool], Metric]


def bleu_tokenizer(language: str, chosen: str | None = None) -> str:
    """sacrebleu's name of the tokenizer in whose tokens BLEU of text in `language` is counted: `chosen`, or where that
    is None the one that sacrebleu takes for the language, such as zh for zh-CN and zho_Hans.

    Raises InputError for a name that sacrebleu does not have, and for a tokenizer that needs what is not installed.
    """
    code = re.split("[-_]", language.lower())[0]
    name = TOKENIZERS.get(code, BLEU.TOKENIZER_DEFAULT) if chosen is None else chosen
    if str(name) not in BLEU.TOKENIZERS:
        raise InputError(f"bleu_tokenizer={name}: must be null or one of {', '.join(BLEU.TOKENIZERS)}")
    bleu(name)
    return name


def bleu(tokenizer: str, lowercase: bool = False, effective_order: bool = False) -> BLEU:
    """sacrebleu's BLEU in the tokens of `tokenizer`; every BLEU is made here. Raises InputError where it needs what is
    not installed."""
    if tokenizer in SPM_MODELS:
        _check_model(tokenizer)
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenizer, effective_order=effective_order)
    except (RuntimeError, OSError, AssertionError) as error:
        if tokenizer in PACKAGES:
            raise InputError(
                f"bleu_tokenizer={tokenizer}: BLEU of this language is counted in words that only a dictionary finds, "
                f'and it is not installed: pip install "{PACKAGES[tokenizer]}", or give bleu_tokenizer=char'
            ) from error
        raise InputError(f"bleu_tokenizer={tokenizer}: cannot be used ({str(error).strip()})") from error


def _check_model(tokenizer: str) -> None:
    # sacrebleu would download it without asking, and leave half a file where the line breaks.
    url = SPM_MODELS[tokenizer]["url"]
    path = Path(SACREBLEU_DIR) / "models" / url.rpartition("/")[2]
    if not path.is_file():
        raise InputError(
            f"bleu_tokenizer={tokenizer}: needs a model that is not here; fetch it with "
            f"curl --create-dirs -L {url} -o {path}"
        )


def tokenizer_of(signature: str) -> str:
    """sacrebleu's name of the tokenizer that the signature of a BLEU names. Raises InputError where it names none.

    >>> tokenizer_of("nrefs:1|case:mixed|eff:no|tok:ja-mecab-0.996-IPA|smooth:exp|version:2.6.0")
    'ja-mecab'
    """
    said = dict(field.partition(":")[::2] for field in signature.split("|")).get("tok", "")
    for name in BLEU.TOKENIZERS:
        if said == name or said.startswith(f"{name}-"):
            return name
    raise InputError(f"a BLEU signature names the tokenizer {said or 'of nothing'}, which sacrebleu does not have")


METRICS = {  # by their name in metrics.json
    "bleu": Kind("BLEU", lambda tokenizer, lowercase: bleu(tokenizer, lowercase)),  # Papineni et al. 2002
    "chrf": Kind("chrF", lambda tokenizer, lowercase: CHRF(lowercase=lowercase)),  # chrF2, Popović 2015
}


def score(
    hypotheses: Sequence[str], references: Sequence[str], tokenizer: str, lowercase: bool = False
) -> dict[str, Score]:
    """Corpus score of every metric, 0 to 100, of one reference a line, both sides in NFC.

    tokenizer: `bleu_tokenizer` of the target language.
    """
    scores = {}
    for name, kind in METRICS.items():
        metric = kind.build(tokenizer, lowercase)
        figure = metric.corpus_score(composed(hypotheses), [composed(references)])
        ratio = getattr(figure, "ratio", None)
        scores[name] = Score(figure.score, str(metric.get_signature()), ratio)
    return scores


def composed(lines: Iterable[str]) -> list[str]:
    """Lines in NFC: a letter with its accent is one sign, however the file spells it."""
    return [unicodedata.normalize("NFC", line) for line in lines]


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """Corpus BLEU, 0 to 100, of one reference a line, both sides in NFC. language: code of what both are in; for one
    that Moses has no rules of, those of English hold."""
    metric = BLEU(tokenize="none", force=True)  # force: the text is tokenised on purpose
    figure = metric.corpus_score(moses_tokens(hypotheses, language), [moses_tokens(references, language)])
    # sacrebleu saw text that others had lowercased and tokenised; its signature must not hide that.
    signature = str(metric.get_signature()).replace("case:mixed", "case:lc")
    signature = signature.replace("tok:none", f"tok:moses-{language}.sacremoses-{version('sacremoses')}")
    return Score(figure.score, signature, figure.ratio)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Every line in lower case, its Moses tokens apart by spaces.

    >>> moses_tokens(["Ein Mann, der schläft."], "de")
    ['ein mann , der schläft .']
    """
    import sacremoses  # a third of a second, for what few ask

    normaliser = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normaliser.normalize(line.lower()), return_str=True) for line in composed(lines)]
