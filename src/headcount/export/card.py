"""Model card: what a run was trained on, how, at what cost, its scores and limits, as the README.md of an export.

Everything comes from the files of the run, which others may have made: text is escaped, settings are an indented block,
and what is no number is left out.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import yaml

from headcount.errors import printable
from headcount.export.parts import positions_of
from headcount.run.alignment import alignment_head
from headcount.run.directory import read_metrics, read_settings
from headcount.run.opened import Run
from headcount.run.values import at

RECIPE = (
    "init_from",
    "pruned",
    "data",
    "tokenizer",
    "segmentation",
    "model",
    "loss",
    "optimizer",
    "schedule",
    "averaging",
    "trainer",
    "seed",
)
LIBRARIES = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
NORMAL = """
def normal(text):  # as headcount reads it
    text = " ".join(unicodedata.normalize("NFC", text).replace("\\u2581", " ").split())
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
"""
USE = {
    "ctranslate2": """import unicodedata, ctranslate2, sentencepiece
{normal}
translator = ctranslate2.Translator("DIR")
source = sentencepiece.SentencePieceProcessor("DIR/{source}")
target = sentencepiece.SentencePieceProcessor("DIR/{target}")
pieces = source.encode([normal("...")], out_type=str)
for result in translator.translate_batch(
    pieces,
    beam_size={beam},
    length_penalty={penalty},
    min_decoding_length=0,
    max_decoding_length={longest},
    max_input_length=0,
):
    print(" ".join(target.decode(result.hypotheses[0]).split()))""",
    "huggingface": """import unicodedata
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
{normal}
tokenizer = AutoTokenizer.from_pretrained("DIR")
model = AutoModelForSeq2SeqLM.from_pretrained("DIR")
# With the space, >>...<< at the beginning is text and no language code.
output = model.generate(**tokenizer([" " + normal("...")], return_tensors="pt", padding=True))
for text in tokenizer.batch_decode(output, skip_special_tokens=True):
    print(" ".join(text.split()))

# before transformers 5:  pipeline("translation", model="DIR")(" " + normal("..."))""",
}


def model_card(run: Run, format: str, quantization: str, max_positions: int) -> str:
    """The card of a run in a format, with the front matter of the Hugging Face hub.

    Raises InputError for damaged metrics or results of `heads`.
    """
    metrics = read_metrics(run.directory)
    figures: dict[str, Any] = {} if run.checkpoint else metrics  # of these weights
    source, target = run.languages
    parts = [
        f"# Translation from {escaped(source)} to {escaped(target)}",
        f"A model of {number(metrics, 'parameters', ',')} parameters, {origin(run)} with headcount "
        f"{text(metrics, 'versions.headcount')}; here for {LIBRARIES[format]}, with weights in {quantization}.",
        "## Use",
        indented(used(run, format, max_positions)),
        "## Data",
        data(run),
        "## Scores",
        *(_of_others(run) or scores(metrics)),
        "## Cost",
        *(_of_others(run) or [cost(metrics)]),
        "## Limits",
        limits(run, format, quantization, max_positions),
        "## Recipe",
        "The settings that it was trained with:",
        indented(recipe(run)),
    ]
    return front_matter(run, format, figures) + "\n\n".join(parts) + "\n"


def origin(run: Run) -> str:
    """Where the weights come from."""
    if run.config.get("pruned"):
        return "cut from a run"
    return "fine-tuned from a run" if run.config.get("init_from") else "trained from scratch"


def _of_others(run: Run) -> list[str]:
    """What is said instead of figures, where these are of other weights; nothing where they are not."""
    return [f"None: these are the weights of {escaped(run.checkpoint.name)}."] if run.checkpoint else []


def front_matter(run: Run, format: str, metrics: Mapping[str, Any]) -> str:
    """The card's data for the hub, in YAML."""
    found: dict[str, Any] = {
        "language": list(dict.fromkeys(run.languages)),
        "library_name": LIBRARIES[format],
        "pipeline_tag": "translation",
        "tags": ["translation", "headcount"],
    }
    measured = {name: each for name in ("bleu", "chrf") if isinstance(each := at(metrics, f"test.{name}"), float)}
    if measured:
        each = [
            {"type": name, "value": round(value, 2), "name": f"{name} {at(metrics, f'test.signature.{name}')}"}
            for name, value in measured.items()
        ]
        dataset = {"name": f"test set of {corpus(run)}", "type": corpus(run)}
        result = {"task": {"type": "translation"}, "dataset": dataset, "metrics": each}
        found["metrics"] = list(measured)
        found["model-index"] = [{"name": "-".join(run.languages), "results": [result]}]
    return f"---\n{yaml.safe_dump(found, sort_keys=False, allow_unicode=True)}---\n\n"


def used(run: Run, format: str, max_positions: int) -> str:
    """A program that translates a sentence with the export."""
    search = run.translator.search
    one = run.tokenizer.source is run.tokenizer.target
    files = ("tokenizer.model", "tokenizer.model") if one else ("source.model", "target.model")
    return USE[format].format(
        normal=NORMAL,
        source=files[0],
        target=files[1],
        beam=getattr(search, "beam", 1),
        penalty=getattr(search, "alpha", 1.0),
        longest=(run.model.max_length or max_positions) - 1,
    )


def corpus(run: Run) -> str:
    """The name of the corpus: that of its data set on the hub, or of its class."""
    data = run.config.data
    return printable(without_places(str(data.get("path") or data.get("_target_", "unknown"))))


def data(run: Run) -> str:
    """The corpus and its fingerprint."""
    settings = read_settings(run.directory / "config.yaml")
    cleaned = "cleaned" if at(settings, "data.cleaning.enabled") is True else "not cleaned"
    fingerprint = at(settings, "data.fingerprint") or "unknown"
    both = at(settings, "data.both_directions") is True
    source, target = map(escaped, run.languages)
    trained = (
        "that of the run that the weights come from" if run.config.get("init_from") else "trained on the same text"
    )
    return (
        f"{escaped(corpus(run))}, {cleaned}, fingerprint {escaped(str(fingerprint))}; its settings are in the recipe "
        f"below. The tokenizer is a sentencepiece model, {trained}, {run.tokenizer.vocab_size:,} pieces."
        + f" Train and valid, and its scores, have both directions; test sets have {source} to {target} alone."
        * both
    )


def scores(metrics: Mapping[str, Any]) -> Iterator[str]:
    """A table of the splits, the signatures, and the contrastive accuracy of each phenomenon."""
    splits = [name for name, each in metrics.items() if isinstance(each, Mapping) and "bleu" in each]
    if not splits:
        yield "None: the run was not evaluated."
        return
    rows = [["split", "BLEU", "chrF", "loss, nats a token"]]
    for split in splits:
        each = [number(metrics, f"{split}.{name}", ".2f") for name in ("bleu", "chrf")]
        rows.append([escaped(split), *each, number(metrics, f"{split}.loss", ".3f")])
    yield table(rows)
    for name in ("bleu", "chrf"):
        yield f"{name}: {text(metrics, f'{splits[0]}.signature.{name}')}"
    search, seed = text(metrics, f"{splits[0]}.search"), number(metrics, "seed", "")
    yield f"Search: {search}. These are of one run, with seed {seed}: others differ."
    found = at(metrics, "test.contrastive")
    if isinstance(found, Mapping) and found:
        yield "The right translation is more probable than a wrong one (test; chance is 50 %):"
        rows = [["phenomenon", "grade", "pairs", "accuracy, %"]]
        for phenomenon, grades in found.items():
            for grade in grades if isinstance(grades, Mapping) else ():
                figures = {name: at(grades, f"{grade}.{name}") for name in ("pairs", "accuracy")}
                pairs, accuracy = number(figures, "pairs", ","), number(figures, "accuracy", ".1f")
                rows.append([escaped(phenomenon), escaped(grade), pairs, accuracy])
        yield table(rows)


def cost(metrics: Mapping[str, Any]) -> str:
    """Time, work and machine of the training."""
    gpu = at(metrics, "hardware.gpu")
    machine = escaped(gpu) if isinstance(gpu, str) else text(metrics, "hardware.processor")
    threads = number(metrics, "hardware.threads", ",")
    return (
        f"{number(metrics, 'train.seconds', ',.0f')} seconds of training on {machine}, "
        f"{threads} {'thread' if threads == '1' else 'threads'}: {number(metrics, 'train.steps', ',')} steps, "
        f"{number(metrics, 'train.epochs', '.1f')} epochs, {number(metrics, 'train.tokens', ',')} tokens of source and "
        f"target, in {text(metrics, 'train.precision')}."
    )


def limits(run: Run, format: str, quantization: str, max_positions: int) -> str:
    """What the model cannot do, and what differs from the run."""
    lines = [
        "It knows the words and constructions of its training data alone, and translates sentence by sentence.",
        "Nobody has looked for harmful or biased translations.",
        *longest(run, max_positions),
        "Text must be as that of training before it is tokenized: in Unicode's composed form (NFC), with single plain "
        "spaces in place of all white space and of U+2581, and without lone surrogates. normal, above, makes it so. "
        "headcount gives a line of characters that cannot be seen an empty translation; leave such lines out.",
    ]
    if quantization != "float32":
        lines.append(f"The scores are those of weights in float32; with {quantization} some translations differ.")
    if format == "huggingface":
        lines.append(
            "Text between `>>` and `<<` at the beginning of a sentence is taken for a language code, and lost; a space "
            "before it makes it text, as above. Within a sentence `</s>`, `<s>`, `<unk>` and `<pad>` are text: "
            "`split_special_tokens` is set in tokenizer_config.json."
        )
    if format == "ctranslate2":
        lines.append(aligning(run))
        lines.append("Its length penalty divides by length^penalty, that of the scores by ((5 + length) / 6)^penalty.")
    return "\n".join(f"- {line}" for line in lines)


def longest(run: Any, max_positions: int) -> Iterator[str]:
    """The most tokens of a sentence; nothing where positions are computed for any number."""
    if run.model.max_length is not None or positions_of(run.model) != "rotary":
        yield f"A sentence may have {run.model.max_length or max_positions:,} tokens at most."


def aligning(run: Run) -> str:
    """The attention that `return_attention` gives."""
    found = alignment_head(run)
    if found is None:
        return (
            "`return_attention` gives the mean of the last layer that has cross heads; how well it aligns is unknown."
        )
    return (
        f"`return_attention` gives the head {found}: on the validation set it links {100 * found.right:.1f} % of the "
        "target words to a source word that is aligned with them."
    )


def recipe(run: Run) -> str:
    """The settings of training, without the paths of the machine."""
    settings = read_settings(run.directory / "config.yaml")
    found = {name: settings[name] for name in RECIPE if settings.get(name) not in (None, {})}
    left_out = ("directory", "root", "vocab_size")  # that of the tokenizer is in its settings
    found["data"] = {name: value for name, value in found["data"].items() if name not in left_out}
    return yaml.safe_dump(without_places(found), sort_keys=False, allow_unicode=True)


def without_places(settings: Any) -> Any:
    """Settings with the last name alone of each path of the machine."""
    if isinstance(settings, Mapping):
        return {name: without_places(value) for name, value in settings.items()}
    if isinstance(settings, list):
        return [without_places(value) for value in settings]
    place = isinstance(settings, str) and settings.startswith(("/", "~", "./", "../"))
    return PurePath(settings).name if place else settings


def table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def indented(code: str) -> str:
    """A block of code, which no text in it can end."""
    return "\n".join(f"    {line}".rstrip() for line in code.rstrip().splitlines())


def number(figures: Mapping[str, Any], name: str, form: str) -> str:
    """A figure; "unknown" for what is none."""
    value = at(figures, name)
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return format(value, form) if known else "unknown"


def text(figures: Mapping[str, Any], name: str) -> str:
    """A text, or some settings, of the figures."""
    value = at(figures, name)
    if isinstance(value, Mapping):
        value = ", ".join(f"{setting} {each}" for setting, each in value.items() if each is not None)
    return escaped(value) if isinstance(value, str) and value else "unknown"


def escaped(text: str) -> str:
    """Text that Markdown shows unchanged, in one line."""
    return re.sub(r"[\\`*_\[\]<>|&#]", r"\\\g<0>", printable(" ".join(text.split())))
