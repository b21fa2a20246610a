"""Load a run: its config, model, tokenizer and translator, ready to use."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file
from torch import Tensor

from headcount.data.corpora.corpus import language_codes
from headcount.data.tokenizer import BOS, EOS, PAD, AnyTokenizer, load_tokenizer
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.search import SearchMethod, TranslationModel
from headcount.decoding.translator import Codec, Translator
from headcount.devices import choose_device
from headcount.errors import InputError
from headcount.evaluation.likelihood import TargetScorer
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.build import build_corpus, build_data, build_model, load_extensions, names_given, plain
from headcount.run.directory import read_config
from headcount.settings import AS_TRAINED, build, own_settings, typed

if TYPE_CHECKING:
    from headcount.data.module import TranslationData

OPENING = {"checkpoint", "device", "precision", "search", "extensions"}  # settings of a command that `open_run` takes


@dataclass
class Run:
    """A run ready to use: its config, model, tokenizer and translator."""

    directory: Path
    config: DictConfig
    model: EncoderDecoder
    tokenizer: AnyTokenizer
    translator: Translator
    checkpoint: Path | None = None  # the file of its weights, where that is not its model.safetensors

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language. Raises InputError for what cannot be a part of a file name."""
        corpus = build_corpus(self.config)
        return language_codes(corpus.source_language, corpus.target_language)

    @property
    def bleu_tokenizer(self) -> str:
        """The tokenizer of the run's BLEU, by sacrebleu's name. Raises InputError, see `bleu_tokenizer`."""
        return bleu_tokenizer(self.languages[1], self.config.get("bleu_tokenizer"))

    @property
    def scorer(self) -> TargetScorer:
        """Scores the pairs that are given to it."""
        return TargetScorer(self.model, self.translator.encode, self.tokenizer.target.encode)

    def data(self) -> "TranslationData":
        """The run's corpus, see `data_of_run`."""
        return data_of_run(self.config, self.tokenizer)


def data_of_run(config: DictConfig, tokenizer: AnyTokenizer) -> "TranslationData":
    """A run's corpus, prepared as for its training: from the folder where that prepared it, if it is still there,
    otherwise prepared in the folder `data` of the current directory. Raises InputError."""
    config = config.copy()
    for folder in (config.data.directory, "data"):
        config.data.directory = folder
        data = build_data(config)
        if config.init_from:  # then the tokenizer was not trained on this corpus
            data.use_tokenizer(tokenizer)
        if data.is_prepared:
            break
    data.prepare_data()
    return data


def make_translator(model: TranslationModel, codec: Codec, search: SearchMethod, name: str = "the model") -> Translator:
    """A translator of our model and tokenizer, which know nothing of each other."""
    return Translator(model, codec, search, (PAD, BOS, EOS), name)


def open_run(
    directory: str | Path,
    checkpoint: str | Path | None = None,
    device: str = "auto",
    search: Mapping[str, Any] | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
    extensions: Sequence[str] = (),
) -> Run:
    """Everything in a run directory, ready to use.

    checkpoint: other weights than model.safetensors. device: "auto", or any of torch's. search: settings other than the
    run's; with a `kind`, all settings of another search. precision: of the weights; bfloat16 is faster where the
    processor has it, and not quite as exact. extensions: modules of yours that add kinds, see `headcount.settings`.
    Raises InputError for a directory that is not a (finished) run, weights that don't fit, a device that isn't there.
    """
    directory = Path(directory)
    load_extensions({"extensions": extensions})
    config = read_config(directory)
    weights = Path(checkpoint) if checkpoint else directory / "model.safetensors"
    if not weights.is_file():
        hint = f"; training may still be under way, or to be resumed with resume={directory}" if not checkpoint else ""
        raise InputError(f"{weights}: no such file{hint}")
    tokenizer = load_tokenizer(directory)
    model = build_model(config, tokenizer)
    load_weights(model, weights, directory)
    model.to(choose_device(device), getattr(torch, precision)).eval()
    method = search_of(config, search or {})
    translator = make_translator(model, tokenizer, method, str(directory))
    own = weights.resolve() == (directory / "model.safetensors").resolve()
    return Run(directory, config, model, tokenizer, translator, None if own else weights)


def search_of(config: DictConfig, given: Mapping[str, Any]) -> SearchMethod:
    """The search of a run, with the settings that are given in place of its own. Raises InputError."""
    new = {name: value for name, value in given.items() if value != AS_TRAINED}
    settings = new if "kind" in new else plain(config.search) | new
    words = names_given() if "kind" in new else [f"search.{name}" for name in new]
    own = own_settings("search", settings, (), words)
    search: SearchMethod = build("search", {"kind": settings["kind"], **own})
    return search


def as_list(setting: object) -> list[str]:
    """A setting that may be a list, as a list without repetitions."""
    return list(dict.fromkeys(setting)) if OmegaConf.is_list(setting) else [setting]  # type: ignore[call-overload,list-item]


def open_runs(config: DictConfig) -> dict[str, Run]:
    """The run, or the list of runs, of the setting `run`, by directory, see `open_from_config`. Raises InputError."""
    directories = as_list(config.run)
    if not directories:
        raise InputError("run=[]: give a run directory, or several")
    if config.checkpoint and len(directories) > 1:
        raise InputError("checkpoint= goes with one run: it replaces that run's weights")
    return {name: open_from_config(config, name) for name in directories}


def open_from_config(config: DictConfig, directory: str) -> Run:
    """`open_run` with the settings of a command. Raises InputError."""
    if not isinstance(directory, str):
        raise InputError(f"run={typed(directory)}: must be text or a path")
    return open_run(directory, **{name: value for name, value in plain(config).items() if name in OPENING})


def ensemble(runs: Sequence[Run]) -> Run:
    """A run that translates with the mean probabilities of all (`Ensemble`); in all else, it is the first.

    Raises InputError where their vocabularies or languages differ.
    """
    first, *others = runs
    for other in others:
        names = f"run=[{first.directory},{other.directory}]: {first.directory} and {other.directory}"
        if other.tokenizer.fingerprint() != first.tokenizer.fingerprint():
            raise InputError(
                f"{names} have different vocabularies (tokenizer.model), so their probabilities have no mean; "
                "give runs that were trained on one corpus, prepared alike"
            )
        if other.languages != first.languages:
            raise InputError(f"{names} translate between other languages")
    if not others:
        return first
    translator = make_translator(
        Ensemble([run.model for run in runs]),
        first.tokenizer,
        first.translator.search,
        " + ".join(run.translator.name for run in runs),
    )
    return replace(first, translator=translator)


def load(directory: str | Path, **settings: Any) -> Translator:
    """The translator of a run: `load("runs/latest").translate(["..."])`; settings: arguments of `open_run`."""
    return open_run(directory, **settings).translator


def read_weights(path: Path) -> dict[str, Tensor]:
    """The model's weights from a .safetensors file or a Lightning checkpoint, mapped from the file. Raises InputError
    for anything else."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        from headcount.training.checkpoint import read_checkpoint  # with Lightning, which takes a second

        state = read_checkpoint(path)["state_dict"]
        return {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}
    except Exception as error:  # of many classes, where bytes are not what they claim to be
        raise InputError(
            f"{path}: no weights can be read from it; give a .safetensors or .ckpt file of a run"
        ) from error


def weights_digest(model: EncoderDecoder, dtype: torch.dtype = torch.float32) -> str:
    """SHA-256 of the weights as numbers of a type: with bfloat16, one of a run opened in either precision."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().to(dtype).float().numpy().tobytes())
    return digest.hexdigest()


def load_weights(model: EncoderDecoder, path: Path, directory: Path) -> None:
    """Fill the model of the run in `directory` from a file. Raises InputError where that holds another model's, or
    numbers that are not finite."""
    try:
        fill(model, read_weights(path))
    except (RuntimeError, TypeError) as error:
        what = str(error).splitlines()[-1].strip()  # torch's last line names a weight that does not fit
        raise InputError(f"{path}: does not fit the model in {directory}: {what}") from error
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise InputError(
                f"{path}: {name} is not of finite numbers (NaN or infinite): training has diverged, or the file is "
                "damaged; take earlier weights with checkpoint="
            )


def fill(model: EncoderDecoder, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, each by name. Raises RuntimeError if one is missing, or has another shape."""
    names = dict(model.named_parameters()).keys()
    if missing := names - weights.keys():
        raise RuntimeError(f"no weights for {min(missing)}")
    model.load_state_dict({name: weights[name] for name in names}, strict=False)
