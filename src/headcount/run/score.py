"""Score given translations: their log-probability under a run's model."""

import sys

from omegaconf import DictConfig

from headcount.data.corpora.text import read_parallel
from headcount.decoding.translator import LineError
from headcount.errors import InputError
from headcount.evaluation.likelihood import perplexity
from headcount.run.opened import open_from_config
from headcount.run.values import typed


def score(config: DictConfig) -> str:
    """Score the pairs of conf/score.yaml: a line for each pair; one for all goes to standard error.

    A line holds, between tabs, the log-probability in nats of the target given the source, with its end; the tokens of
    the target, its end counted; and the perplexity, exp(-log-probability / tokens). Raises InputError.
    """
    for name, what in {"source": "sentences", "target": "their translations"}.items():
        if not isinstance(config[name], str):
            raise InputError(f"{name}={typed(config[name])}: must be a file of {what}, one a line")
    run = open_from_config(config, config.run)
    sources, targets = read_parallel(config.source, config.target)
    if not sources:
        raise InputError(f"{config.source}: holds no line, so there is nothing to score")
    longest = run.translator.longest
    for path, codec, lines in (
        (config.source, run.tokenizer.source, sources),
        (config.target, run.tokenizer.target, targets),
    ):
        for number, ids in enumerate(codec.encode(lines), start=1):
            if longest is not None and len(ids) > longest:
                what = f"{len(ids):,} pieces, more than {longest:,}"
                raise InputError(f"{path}, line {number}: {what}; cut it into sentences")
    try:
        log_probs, tokens = run.scorer.score(sources, targets)
    except LineError as error:
        raise InputError(f"{config.source}, {error}") from error
    whole, total = sum(log_probs), sum(tokens)
    sys.stderr.write(
        f"{len(targets):,} pairs, {total:,} tokens: log-probability {whole:.4f} nats, "
        f"perplexity {perplexity(-whole / total):.4f}\n"
    )
    return "".join(
        f"{log_prob:.6f}\t{count}\t{perplexity(-log_prob / count):.4f}\n"
        for log_prob, count in zip(log_probs, tokens, strict=True)
    )
