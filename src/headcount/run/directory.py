"""A run directory: opened, read, written. Every file is written beside and renamed."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal

import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headcount.data.corpora import language_codes
from headcount.data.tokenizer import BOS, EOS, PAD, AnyTokenizer, TokenizerPair, load_tokenizer
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.search import SearchMethod
from headcount.decoding.translator import Codec, TranslationModel, Translator
from headcount.errors import InputError
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.files import point, write_text
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.aliases import with_new_names
from headcount.run.config import build, build_data
from headcount.run.types import wrong_values

if TYPE_CHECKING:
    from headcount.data.module import TranslationData


@dataclass
class Run:
    """A trained model and all that belongs to it."""

    directory: Path
    config: DictConfig
    model: EncoderDecoder
    tokenizer: AnyTokenizer
    translator: Translator
    trust: Sequence[str]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language. Raises InputError for what cannot be a part of a file name."""
        corpus = build(self.config.data.corpus, "data.corpus", self.trust)
        return language_codes(corpus.source_language, corpus.target_language)

    @property
    def bleu_tokenizer(self) -> str:
        """In whose tokens the run's BLEU is counted, by sacrebleu's name. Raises InputError, see `bleu_tokenizer`."""
        return bleu_tokenizer(self.languages[1], self.config.get("bleu_tokenizer"))

    def data(self) -> "TranslationData":
        """The run's corpus, prepared as for its training: opened where its training prepared it, if it is still there,
        and else prepared in the folder `data` of the current directory. Raises InputError."""
        # A run of somebody else may name any folder for its data: that is read, and never written to.
        data = self._data(self.config)
        if not data.is_prepared:
            config = self.config.copy()
            config.data.directory = "data"
            data = self._data(config)
        data.prepare_data()
        return data

    def _data(self, config: DictConfig) -> "TranslationData":
        data = build_data(config, self.trust)
        if config.get("init_from"):  # then the tokenizer was not trained on this corpus
            data.use_tokenizer(self.tokenizer)
        return data


def make_translator(
    model: TranslationModel, codec: Codec, search: SearchMethod, hide_source: bool, name: str = "the model"
) -> Translator:
    """A translator of our model and tokenizer, which know nothing of each other."""
    return Translator(model, codec, search, (PAD, BOS, EOS), hide_source, name)


def read_config(directory: Path) -> DictConfig:
    """The config of a run directory. Raises InputError if it is not one."""
    path = directory / "config.yaml"
    if not path.is_file():
        hint = "train one with `make train`" if not directory.exists() else "it has no config.yaml"
        raise InputError(f"{directory} is not a run directory: {hint}")
    try:
        config = OmegaConf.create(with_new_names(yaml.safe_load(path.read_text(encoding="utf-8"))))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable config: {str(error).splitlines()[0]}") from error
    groups = ("data", "tokenizer", "model", "search")
    if not isinstance(config, DictConfig) or not all(isinstance(config.get(name), DictConfig) for name in groups):
        raise InputError(f"{path}: not the config of a run, which has the groups {', '.join(groups)}")
    return config


def open_run(
    directory: str | Path,
    checkpoint: str | Path | None = None,
    device: str = "auto",
    search: Mapping[str, Any] | None = None,
    trust: Sequence[str] = (),
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Run:
    """Everything in a run directory, ready to use.

    checkpoint: other weights than model.safetensors. device: "auto", or any of torch's. search: settings other than the
    run's, None for the run's own; with a `_target_`, another way to search altogether. trust: class names that its
    config may build beside headcount's own. precision: of the weights; bfloat16 is faster where the processor has it,
    and not quite as exact.
    Raises InputError for a directory that is not a (finished) run, weights that don't fit, a device that isn't there.
    """
    directory = Path(directory)
    config = read_config(directory)
    weights = Path(checkpoint) if checkpoint else directory / "model.safetensors"
    if not weights.is_file():
        hint = f"; training may still be under way, or go on with resume={directory}" if not checkpoint else ""
        raise InputError(f"{weights}: no such file{hint}")
    tokenizer = load_tokenizer(directory)
    chosen = {name: value for name, value in (search or {}).items() if value is not None}
    settings = OmegaConf.create(chosen) if "_target_" in chosen else OmegaConf.merge(config.search, chosen)
    model = build_model(config, tokenizer, trust)
    load_weights(model, weights, directory)
    model.to(choose_device(device), getattr(torch, precision)).eval()
    way: SearchMethod = build(settings, "search", trust)
    translator = make_translator(model, tokenizer, way, config.data.hide_source, str(directory))
    return Run(directory, config, model, tokenizer, translator, trust)


def open_as_asked(config: DictConfig, directory: str) -> Run:
    """`open_run` with the settings that conf/evaluate.yaml and conf/translate.yaml share. Raises InputError."""
    given: Any = OmegaConf.to_container(config)
    settings = {name: given[name] for name in ("checkpoint", "device", "trust", "precision") if name in given}
    values = settings | {"directory": directory}
    if wrong := wrong_values(open_run, values, lambda name: "run" if name == "directory" else name):
        raise InputError("\n".join(wrong))
    return open_run(directory, search=given.get("search"), **settings)


def as_one(runs: Sequence[Run]) -> Run:
    """A run that translates with the mean of the probabilities of all (`Ensemble`); whatever else it is, the first is.

    Raises InputError where they don't speak of the same pieces, or translate another way.
    """
    first, *others = runs
    for other in others:
        names = f"run=[{first.directory},{other.directory}]: {first.directory} and {other.directory}"
        if other.tokenizer.fingerprint() != first.tokenizer.fingerprint():
            raise InputError(
                f"{names} have different vocabularies (tokenizer.model), so their probabilities have no mean; "
                "give runs that were trained on one corpus, prepared alike"
            )
        if (other.languages, other.config.data.hide_source) != (first.languages, first.config.data.hide_source):
            raise InputError(f"{names} translate between other languages, or one of them without seeing the source")
    if not others:
        return first
    ensemble = Ensemble([run.model for run in runs])
    translator = make_translator(
        ensemble,
        first.tokenizer,
        first.translator.search,
        first.translator.hide_source,
        " + ".join(run.translator.name for run in runs),
    )
    return replace(first, translator=translator)


def load(
    directory: str | Path,
    checkpoint: str | Path | None = None,
    device: str = "auto",
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Translator:
    """The translator of a run: `load("runs/latest").translate(["..."])`. The arguments are those of `open_run`."""
    return open_run(directory, checkpoint, device, precision=precision).translator


def read_weights(path: Path) -> dict[str, Tensor]:
    """The model's weights from a .safetensors file or a Lightning checkpoint. Raises InputError for anything else."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, KeyError, TypeError, OSError) as error:
        raise InputError(
            f"{path}: no weights can be read from it; give a .safetensors or .ckpt file of a run"
        ) from error
    return {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}


def load_weights(model: EncoderDecoder, path: Path, directory: Path) -> None:
    """Fill the model of the run in `directory` from a file. Raises InputError where that holds another model's."""
    try:
        fill(model, read_weights(path))
    except RuntimeError as error:
        what = str(error).splitlines()[-1].strip()  # Torch says what it was doing, then a line for each misfit.
        raise InputError(f"{path}: does not fit the model in {directory}: {what}") from error


def build_model(config: DictConfig, tokenizer: AnyTokenizer, trust: Sequence[str] | None = None) -> EncoderDecoder:
    """The model that `config` describes, for the vocabulary of `tokenizer`, with initial weights. Raises InputError."""
    source = {"source_vocab_size": tokenizer.source.vocab_size} if isinstance(tokenizer, TokenizerPair) else {}
    model: EncoderDecoder = build(config.model, "model", trust, vocab_size=tokenizer.vocab_size, **source)
    return model


def fill(model: EncoderDecoder, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, each by name. Raises RuntimeError if one is missing, or has another shape."""
    missing = {name for name, _ in model.named_parameters()} - set(weights)
    if missing:
        raise RuntimeError(f"no weights for {min(missing)}")
    model.load_state_dict(dict(weights), strict=False)


def choose_device(device: str) -> torch.device:
    """The torch device of that name; "auto" is a GPU if there is one. Raises InputError if it isn't there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device={device}: not available here ({str(error).splitlines()[0]}); try device=cpu"
        ) from error


def read_metrics(directory: Path) -> dict[str, Any]:
    """metrics.json of a run, or an empty dict. Raises InputError for a damaged one."""
    path = directory / "metrics.json"
    try:
        metrics = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise InputError(f"{path}: not readable JSON ({error}); move it away, and evaluate the run again") from error
    if not isinstance(metrics, dict):
        raise InputError(f"{path}: not the figures of a run; move it away, and evaluate the run again")
    return metrics


def is_finished(directory: Path) -> bool:
    """Whether the run has been trained and scored to its end."""
    return "config_hash" in read_metrics(directory)


def update_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Put figures into metrics.json, dict by dict."""
    merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(read_metrics(directory)), dict(figures)))
    _write_metrics(directory, merged)


def begin_metrics(directory: Path, figures: Mapping[str, Any]) -> None:
    """Write metrics.json anew, with figures of a training whose weights have just been saved. What was scored with the
    weights before them goes: its figures, translations and log-probabilities."""
    for path in (*directory.glob("*.hyp.*"), *directory.glob("*.pairs.npz")):
        path.unlink()
    _write_metrics(directory, dict(figures))


def mark_unfinished(directory: Path) -> None:
    """Take it out of metrics.json that the run has been trained and scored to its end: it goes on."""
    metrics = read_metrics(directory)
    if metrics.pop("config_hash", None):
        _write_metrics(directory, metrics)


def _write_metrics(directory: Path, metrics: Any) -> None:
    write_text(directory / "metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def check_links(directory: Path) -> None:
    """Raises InputError for a link in a run directory that leads out of it: a run that goes on would write there."""
    root = directory.resolve()
    for path in directory.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InputError(
                f"{path}: is a link out of the run, which may write into its own directory alone; remove it"
            )


def link_latest(directory: Path) -> None:
    """Point runs/latest at a run that lies in the same folder."""
    link = directory.parent / "latest"
    if link.exists() and not link.is_symlink():
        raise InputError(f"{link} is in the way: it should be a link to the newest run; move it elsewhere")
    point(link, directory.name)


def show(directory: Path) -> str:
    """A path as one would type it."""
    return str(directory.relative_to(Path.cwd())) if directory.is_relative_to(Path.cwd()) else str(directory)


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    packages = ("headcount", "torch", "pytorch-lightning", "datasets", "sentencepiece", "sacrebleu", "hydra-core")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def processor() -> str:
    """The processor's name, as well as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
