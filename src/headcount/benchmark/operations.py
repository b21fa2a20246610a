"""Arithmetic operations of training and of translating, counted from the shape of the model."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def training_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, target_lengths: np.ndarray
) -> float:
    """Operations of one training step over sentences of these lengths (ends counted), without padding.

    With widths d and f, V words, E and D layers, and for each sentence S source and T target tokens, the
    multiply-adds forward are

        linear:     S E (4 d^2 + 2 d f)  +  T D (6 d^2 + 2 d f)  +  S D 2 d^2  +  T d V
        attention:  E 2 d S^2  +  D 2 d (T^2 + S T)

    where 4 d^2 are the projections of query, key, value and output, of which in cross-attention two read the source. A
    multiply-add is two operations, and the backward pass takes twice the forward one: six in all. T^2 counts the full
    square, as torch's flop counter does, though half of it is masked.
    """
    return 3 * _forward_operations(size, vocab_size, source_lengths, target_lengths)


def _forward_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, target_lengths: np.ndarray
) -> float:
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    s, t = source_lengths.astype(float), target_lengths.astype(float)
    linear = s * encoder * (4 * d * d + 2 * d * f) + t * decoder * (6 * d * d + 2 * d * f)
    linear += s * decoder * 2 * d * d + t * d * vocab_size
    attention = encoder * 2 * d * s**2 + decoder * 2 * d * (t**2 + s * t)
    return float(2 * (linear + attention).sum())


def decoding_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, beam: int, steps: int
) -> float:
    """Operations of translating sentences of these lengths (ends counted) in `steps` steps each.

    Keys and values are cached, so a step computes one position of every beam. The terms are those of
    `training_operations`; at step i a position attends to i target positions, itself included.
    """
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    s, positions = source_lengths.astype(float), beam * steps
    encoding = s * (encoder * (4 * d * d + 2 * d * f) + decoder * 2 * d * d) + encoder * 2 * d * s**2
    attended = beam * steps * (steps + 1) / 2 + positions * s
    stepping = positions * (decoder * (6 * d * d + 2 * d * f) + d * vocab_size) + decoder * 2 * d * attended
    return float(2 * (encoding + stepping).sum())


def own_shapes(size: Mapping[str, Any], vocab_size: int, tokens: int) -> list[tuple[int, int, int]]:
    """The linear layers of a forward pass over `tokens` tokens a side, as products [m, k] x [k, n]; no attention."""
    d, f, encoder, decoder = (size[name] for name in ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers"))
    square, up, down = (tokens, d, d), (tokens, d, f), (tokens, f, d)
    return [square] * (4 * encoder + 8 * decoder) + [up, down] * (encoder + decoder) + [(tokens, d, vocab_size)]
