"""Measurement of the heads of one run, part by part; each part is kept in a file, so that it is measured once."""

import hashlib
import json
import logging
import time
from collections.abc import Sequence

import numpy as np

from headcount.errors import InputError
from headcount.files import show
from headcount.heads.ablation import ABLATION
from headcount.heads.analysis import Analysis, Arrays, Part
from headcount.heads.bleu import WITHOUT_HEADS
from headcount.heads.cutting import CUTTING
from headcount.heads.development import DEVELOPMENT
from headcount.heads.examples import ATTENTION, EXAMPLES
from headcount.heads.importance import IMPORTANCE
from headcount.heads.interactions import PAIRS
from headcount.heads.links import GOLD
from headcount.heads.patching import TWINS
from headcount.heads.paths import PATHS
from headcount.heads.roles import ROLES
from headcount.heads.shapley import SHAPLEY
from headcount.progress import progress_bar
from headcount.run.arrays import read_arrays, write_arrays
from headcount.run.opened import weights_digest

logger = logging.getLogger(__name__)

PARTS: tuple[Part, ...] = (
    ABLATION,
    WITHOUT_HEADS,
    IMPORTANCE,
    PAIRS,
    SHAPLEY,
    CUTTING,
    DEVELOPMENT,
    TWINS,
    PATHS,
    ROLES,
    GOLD,
    EXAMPLES,
    ATTENTION,
)
COMMON = ("test", "valid", "seed")
SAMPLE = 2  # the version of `stratified`, which chooses the sentences


def measure(analysis: Analysis, names: Sequence[str] | None = None) -> dict[str, Arrays]:
    """The arrays of all parts that a file of the same weights and settings has; these parts (None: all that the run's
    corpus allows) are measured now where it has not. Raises InputError for an unknown part, one that needs another
    corpus or run, and where no part is measured."""
    known = {part.name: part for part in PARTS}
    if unknown := [name for name in names or () if name not in known]:
        raise InputError(f"parts: {unknown[0]!r} is not allowed; choose from {', '.join(known)}")
    gold = bool(len(analysis.test.tested))
    wrong = [name for name in names or () if known[name].gold and not gold]
    if wrong:
        raise InputError(f"parts: {wrong[0]} needs a corpus with twins of its sentences, such as the built-in one")
    wanted = [known[name] for name in names] if names is not None else [part for part in PARTS if gold or not part.gold]
    lacking = {part.name: why for part in wanted if (why := part.lacks(analysis))}
    for name, why in lacking.items():
        if names is not None:
            raise InputError(f"parts: {name} {why}")
        logger.info("%s left out: it %s", name, why)
    weights = weights_digest(analysis.run.model)
    found = {}
    for part in PARTS:
        measured = part in wanted and part.name not in lacking
        if (arrays := _kept(analysis, part, weights, measured)) is not None:
            found[part.name] = arrays
    if not found:
        raise InputError("parts=[]: nothing is measured yet with these weights and settings; name a part")
    return found


def _kept(analysis: Analysis, part: Part, weights: str, measured: bool) -> Arrays | None:
    """The arrays of a part from its file, if it has those of these weights and settings; else None, or those that are
    measured now."""
    path = analysis.directory / f"{part.name}.npz"
    key = part_key(analysis, part, weights)
    if (kept := read_arrays(path)) is not None and str(kept.get("key")) == key:
        if measured:
            logger.info("%s: kept from before", part.about)
        return kept
    if not measured:
        if kept is not None:
            logger.warning(
                "%s is left out: %s has other weights, settings or an older form; parts=[%s] measures it again",
                part.name,
                show(path),
                part.name,
            )
        return None
    analysis.directory.mkdir(exist_ok=True)
    start = time.perf_counter()
    with progress_bar(part.about, part.steps(analysis)) as progress:
        arrays = part.measure(analysis, progress)
    arrays["key"] = np.array(key)
    arrays["sentences"] = np.array(hashlib.sha256("\n".join(analysis.test.rows["source"]).encode()).hexdigest()[:16])
    write_arrays(path, arrays)
    logger.info("%s: %.0f s", part.about, time.perf_counter() - start)
    return arrays


def part_key(analysis: Analysis, part: Part, weights: str) -> str:
    """Names what the figures of a part follow from: the weights, the settings and the version of its arrays."""
    settings = {name: getattr(analysis.settings, name) for name in (*COMMON, *part.settings)} | {"sample": SAMPLE}
    return hashlib.sha256(json.dumps([weights, part.name, part.version, settings]).encode()).hexdigest()[:16]
