"""Perplexity: exp(loss), of a loss in nats a token."""

import math


def perplexity(loss: float) -> float:
    """exp(loss); inf where no float is that large, which is beyond a loss of 709."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
