"""Measurement of the heads of one run, part by part; each part is kept in a file, so that it is measured once."""

import hashlib
import json
import logging
import time
from collections.abc import Sequence

import numpy as np

from headcount.errors import InputError
from headcount.files import show
from headcount.heads import (
    ablation,
    bleu,
    cutting,
    development,
    floor,
    importance,
    interactions,
    links,
    patching,
    paths,
    roles,
    shapley,
)
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.effects import FILE, read_parts, write_parts
from headcount.heads.registered import own_parts
from headcount.progress import progress_bar
from headcount.run.opened import weights_digest

logger = logging.getLogger(__name__)

PARTS: tuple[Part, ...] = (
    ablation.ablation,
    floor.floor,
    bleu.without_heads,
    importance.importance,
    interactions.interactions,
    shapley.shapley,
    cutting.cutting,
    development.development,
    patching.TWINS,
    paths.PATHS,
    roles.ROLES,
    links.GOLD,
    bleu.examples,
    bleu.attention,
)
COMMON = ("test", "valid", "seed")
SAMPLE = 2  # the version of `stratified`, which chooses the sentences


def measure(analysis: Analysis, names: Sequence[str] | None = None) -> dict[str, Arrays]:
    """The arrays of all parts that are kept with the same weights and settings; these parts (None: all that the run's
    corpus allows) are measured now where they are not. Raises InputError for an unknown part, one that needs another
    corpus or run, and where no part is measured."""
    known = {part.name: part for part in (*PARTS, *own_parts())}
    wanted = _wanted(analysis, known, names)
    weights, path = weights_digest(analysis.run.model), analysis.run.directory / "heads" / FILE
    weights += getattr(analysis.run, "sentences", "")  # of a model that others trained, with text of no corpus
    kept, found = read_parts(path), {}
    for name, part in known.items():
        key = part_key(analysis, part, weights)
        same = name in kept and str(kept[name]["key"]) == key
        if same and name in wanted:
            logger.info("%s: kept from before", part.about)
        elif name in wanted:
            kept[name] = _measured(analysis, part, key)
            write_parts(path, kept)
        elif name in kept and not same:
            reason = f"its figures in {show(path)} are of other weights, settings or an older form"
            logger.warning("%s is left out: %s; parts=[%s] measures it again", name, reason, name)
        if same or name in wanted:
            found[name] = kept[name]
    if not found:
        raise InputError("parts=[]: nothing is measured yet with these weights and settings; name a part")
    return found


def _wanted(analysis: Analysis, known: dict[str, Part], names: Sequence[str] | None) -> set[str]:
    """The names of the parts that are to be measured."""
    found = set()
    for name in known if names is None else names:
        if name not in known:
            raise InputError(f"parts: {name!r} is not allowed; choose from {', '.join(known)}")
        why = known[name].lacks(analysis)
        if why and names is not None:
            raise InputError(f"parts: {name} {why}")
        if why:
            logger.info("%s left out: it %s", name, why)
        else:
            found.add(name)
    return found


def _measured(analysis: Analysis, part: Part, key: str) -> Arrays:
    start = time.perf_counter()
    with progress_bar(part.about, part.steps(analysis)) as progress:
        arrays = part.measure(analysis, progress)
    logger.info("%s: %.0f s", part.about, time.perf_counter() - start)
    sentences = hashlib.sha256("\n".join(analysis.test.rows["source"]).encode()).hexdigest()[:16]
    return {**arrays, "key": np.array(key), "sentences": np.array(sentences)}


def part_key(analysis: Analysis, part: Part, weights: str) -> str:
    """Names what the figures of a part follow from: the weights, the settings and the version of its arrays."""
    settings = {name: getattr(analysis.settings, name) for name in (*COMMON, *part.settings)} | {"sample": SAMPLE}
    if analysis.pairs is not None:
        settings["contrasts"] = hashlib.sha256(json.dumps(analysis.pairs.to_dict()).encode()).hexdigest()
    if part is links.GOLD and analysis.gold is not None:
        settings["gold"] = 2, hashlib.sha256(json.dumps(analysis.gold.to_dict()).encode()).hexdigest()
    return hashlib.sha256(json.dumps([weights, part.name, part.version, settings]).encode()).hexdigest()[:16]
