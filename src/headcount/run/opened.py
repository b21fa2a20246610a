"""Load a run: its config, model, tokenizer and translator, ready to use."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf
from safetensors import safe_open
from torch import Tensor

from headcount.data.corpora.corpus import language_codes
from headcount.data.tokenizer import BOS, EOS, PAD, AnyTokenizer, TokenizerPair, load_tokenizer
from headcount.decoding.ensemble import Ensemble
from headcount.decoding.search import SearchMethod, TranslationModel
from headcount.decoding.shortlist import Lexicon
from headcount.decoding.translator import Codec, Translator
from headcount.errors import InputError
from headcount.evaluation.likelihood import TargetScorer
from headcount.evaluation.metrics import bleu_tokenizer
from headcount.files import require_regular
from headcount.machine import choose_device
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.run.config import build, build_corpus, build_data, keyword_arguments
from headcount.run.directory import read_config
from headcount.run.lexicon import lexicon_of
from headcount.run.values import AS_TRAINED, typed
from headcount.training.seal import read_checkpoint

if TYPE_CHECKING:
    from headcount.data.module import TranslationData

OPENING = {"checkpoint", "device", "trust", "precision", "search"}  # settings of a script that `open_run` takes


@dataclass
class Run:
    """A run ready to use: its config, model, tokenizer and translator."""

    directory: Path
    config: DictConfig
    model: EncoderDecoder
    tokenizer: AnyTokenizer
    translator: Translator
    trust: Sequence[str] | None  # see `build`
    checkpoint: Path | None = None  # the file of its weights, where that is not its model.safetensors

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language. Raises InputError for what cannot be a part of a file name."""
        corpus = build_corpus(self.config, self.trust)
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
        return data_of_run(self.config, self.tokenizer, self.trust)


def data_of_run(config: DictConfig, tokenizer: AnyTokenizer, trust: Sequence[str] | None) -> "TranslationData":
    """A run's corpus, prepared as for its training: from the folder where that prepared it, if it is still there,
    otherwise prepared in the folder `data` of the current directory. Raises InputError."""
    # The config of somebody else's run may name any folder: it is read, and never written to.
    config = config.copy()
    for folder in (config.data.directory, "data"):
        config.data.directory = folder
        data = build_data(config, trust)
        if config.get("init_from"):  # then the tokenizer was not trained on this corpus
            data.use_tokenizer(tokenizer)
        if data.is_prepared:
            if folder != "data":
                data.check_prepared()
            break
    data.prepare_data()
    return data


def make_translator(
    model: TranslationModel,
    codec: Codec,
    search: SearchMethod,
    hide_source: bool,
    name: str = "the model",
    lexicon: Lexicon | None = None,
) -> Translator:
    """A translator of our model and tokenizer, which know nothing of each other."""
    return Translator(model, codec, search, (PAD, BOS, EOS), hide_source, name, lexicon)


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
    run's, `AS_TRAINED` for the run's own; with a `_target_`, all settings of another search. trust: class names that
    its config may build beside headcount's own. precision: of the weights; bfloat16 is faster where the processor has
    it, and not quite as exact.
    Raises InputError for a directory that is not a (finished) run, weights that don't fit, a device that isn't there.
    """
    directory = Path(directory)
    config = read_config(directory)
    weights = Path(checkpoint) if checkpoint else directory / "model.safetensors"
    if not weights.is_file():
        hint = f"; training may still be under way, or to be resumed with resume={directory}" if not checkpoint else ""
        raise InputError(f"{weights}: no such file{hint}")
    tokenizer = load_tokenizer(directory)
    settings: Any = OmegaConf.create(dict(search or {}))
    if "_target_" not in settings:
        given = {name: value for name, value in settings.items() if value != AS_TRAINED}
        settings = OmegaConf.merge(config.search, given)
    model = model_with(weights, config, tokenizer, directory, trust)
    model.to(choose_device(device), getattr(torch, precision)).eval()
    way: SearchMethod = build(settings, "search", trust)
    lexicon = lexicon_of(directory, tokenizer, way, partial(data_of_run, config, tokenizer, trust))
    translator = make_translator(model, tokenizer, way, config.data.hide_source, str(directory), lexicon)
    own = weights.resolve() == (directory / "model.safetensors").resolve()
    return Run(directory, config, model, tokenizer, translator, trust, None if own else weights)


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
    """`open_run` with the settings of conf/evaluate.yaml or translate.yaml. Raises InputError."""
    if not isinstance(directory, str):
        raise InputError(f"run={typed(directory)}: must be text or a path")
    return open_run(directory, **keyword_arguments(open_run, config, without={"directory", *config} - OPENING))


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
        if (other.languages, other.config.data.hide_source) != (first.languages, first.config.data.hide_source):
            raise InputError(f"{names} translate between other languages, or one of them without seeing the source")
    if not others:
        return first
    translator = make_translator(
        Ensemble([run.model for run in runs]),
        first.tokenizer,
        first.translator.search,
        first.translator.hide_source,
        " + ".join(run.translator.name for run in runs),
        first.translator.lexicon,
    )
    return replace(first, translator=translator)


def load(directory: str | Path, **settings: Any) -> Translator:
    """The translator of a run: `load("runs/latest").translate(["..."])`; settings: arguments of `open_run`."""
    return open_run(directory, **settings).translator


def build_model(config: DictConfig, tokenizer: AnyTokenizer, trust: Sequence[str] | None = None) -> EncoderDecoder:
    """The model that `config` describes, for the vocabulary of `tokenizer`, with initial weights. Raises InputError."""
    source = {"source_vocab_size": tokenizer.source.vocab_size} if isinstance(tokenizer, TokenizerPair) else {}
    model: EncoderDecoder = build(config.model, "model", trust, vocab_size=tokenizer.vocab_size, **source)
    return model


def model_with(
    path: Path, config: DictConfig, tokenizer: AnyTokenizer, directory: Path, trust: Sequence[str] | None = None
) -> EncoderDecoder:
    """The model that `config`, of the run in `directory`, describes, with the weights of a file.

    Raises InputError where these are another model's, before there is memory for it: a config can name any size; and
    for numbers that are not finite.
    """
    with torch.device("meta"):
        described = build_model(config, tokenizer, trust)
    load_weights(described, path, directory)
    model = build_model(config, tokenizer, trust)
    load_weights(model, path, directory)
    return model


def read_weights(path: Path) -> dict[str, Tensor]:
    """The model's weights from a .safetensors file or a Lightning checkpoint, mapped from the file. Raises InputError
    for anything else."""
    try:
        require_regular(path)
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
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
    except RuntimeError as error:
        what = str(error).splitlines()[-1].strip()  # torch's last line names a weight that does not fit
        raise InputError(f"{path}: does not fit the model in {directory}: {what}") from error
    if damaged := [
        name for name, weight in model.state_dict().items() if not (weight.is_meta or weight.isfinite().all())
    ]:
        raise InputError(
            f"{path}: {damaged[0]} is not of finite numbers (NaN or infinite): training has diverged, or the file is "
            "damaged; take earlier weights with checkpoint="
        )


def fill(model: EncoderDecoder, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, each by name. Raises RuntimeError if one is missing, or has another shape."""
    parameters = dict(model.named_parameters())
    if missing := parameters.keys() - weights.keys():
        raise RuntimeError(f"no weights for {min(missing)}")
    for name, parameter in parameters.items():
        found = weights[name]
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise RuntimeError(f"no numbers for {name}")
        if found.shape != parameter.shape:
            raise RuntimeError(f"size mismatch for {name}: {list(found.shape)}, and not {list(parameter.shape)}")
    if not next(iter(parameters.values())).is_meta:
        model.load_state_dict({name: weights[name] for name in parameters}, strict=False)
