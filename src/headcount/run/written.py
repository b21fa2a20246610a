"""A run directory of a model that was not trained there: pruned, or imported."""

from contextlib import suppress
from typing import Any

from headcount.data.tokenizer import save_tokenizer
from headcount.devices import versions
from headcount.errors import InputError
from headcount.files import new_directory
from headcount.model.encoder_decoder import EncoderDecoder
from headcount.model.flops import operations_per_token
from headcount.run.directory import begin_metrics, write_config
from headcount.run.opened import Run
from headcount.training.averaging import own_weights, save_weights


def write_run(run: Run) -> None:
    """Write a run to its directory, which must not be there, whole or not at all."""
    figures: dict[str, Any] = {"seed": run.config.seed, "parameters": parameters(run.model)}
    with suppress(InputError):  # without the corpus nobody knows the lengths that training counts with
        figures["operations_per_token"] = operations_per_token(run.model, *run.data().mean_lengths)
    figures |= {"model": run.model.head_counts, "versions": versions()}
    with new_directory(run.directory) as directory:
        write_config(directory, run.config)
        save_tokenizer(run.tokenizer, directory)
        save_weights(own_weights(run.model), directory / "model.safetensors")
        begin_metrics(directory, figures)


def parameters(model: EncoderDecoder) -> int:
    """The number of trained numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
