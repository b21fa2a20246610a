"""Attention weights as data: those of every head for many sentences, as arrays."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.errors import InputError, reason
from headcount.report.attention_maps import attention_maps
from headcount.run.arrays import padded, write_arrays
from headcount.run.opened import Run

Arrays = dict[str, NDArray[Any]]


def attention_arrays(
    run: Run, sources: Sequence[str], targets: Sequence[str], progress: Callable[[int], None] = lambda done: None
) -> Arrays:
    """Attention weights of a run on these sentences and translations.

    source, target [sentence]: the texts. source_pieces [sentence, source], target_pieces [sentence, target]: the pieces
    as text, "" behind the last; sources end with "</s>", and targets begin with "<s>", since a query of the decoder is
    the token before the one to predict. For each layer, from 1, float32 and zero behind a sentence:
    encoder_1 [sentence, head, source, source], decoder_1 [sentence, head, target, target],
    cross_1 [sentence, head, target, source].
    Raises InputError for a model without attention.
    """
    found = []
    for source, target in zip(sources, targets, strict=True):
        found.append(attention_maps(run, source, target))
        progress(1)
    crosses = [maps.layers[0] for maps in found]  # queries of the target, keys of the source
    return {
        "source": np.array([maps.source for maps in found]),
        "target": np.array([maps.target for maps in found]),
        "source_pieces": padded([np.array(layer.keys) for layer in crosses]),
        "target_pieces": padded([np.array(layer.queries) for layer in crosses]),
    } | {
        layer.name: padded([maps.layers[number].weights.numpy() for maps in found])
        for number, layer in enumerate(found[0].layers)
    }


def write(run: Run, sources: Sequence[str], targets: Sequence[str], out: Path, progress: Callable[[int], None]) -> Path:
    """Write the arrays into a .npz file, and return it. Raises InputError for one that cannot be written."""
    arrays = attention_arrays(run, sources, targets, progress)
    try:
        write_arrays(out, arrays)
    except OSError as error:
        raise InputError(f"attention={out}: can't be written to ({reason(error)}); name another") from error
    return out
