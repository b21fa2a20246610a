"""Run identity: the hash of a run, of its settings and the text of its corpus.

config.yaml of a run records the fingerprint of its corpus as `data.fingerprint`. In the hash it takes the place of
every setting that says where the text comes from: the same text under two paths is one run, another text under the
same path is another. Runs from before fingerprints were recorded have none; their hash is of the settings alone.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.run.aliases import NOT_HASHED, with_added_settings
from headcount.run.config import BATCHES, build_corpus
from headcount.run.design import DESIGN, Design
from headcount.run.values import flatten, within

FINGERPRINT = "data.fingerprint"
# Settings that make no difference to what is learnt: names, what is only printed, the words of a study, and how much of
# the machine to use.
NO_MATTER = frozenset({"name", "debug", "trust", "resume", "threads", "logger", "data.directory", "data.workers"})
NO_MATTER |= {"checkpoint", "divergence", "if_exists", "cuda_graphs", "validation.samples", "trainer.log_every_n_steps"}
NO_MATTER |= {f"{DESIGN}.{word.name}" for word in fields(Design)}
PLACES = frozenset({"data.root"})  # of text that is the same wherever it lies
ASIDE = NO_MATTER | PLACES
# All other settings of data say which text it is, and the fingerprint says that better.
USES = tuple(f"data.{name}" for name in BATCHES)


def identified(config: DictConfig, fingerprint: str) -> DictConfig:
    """A copy of `config` that records the fingerprint of its corpus."""
    found = config.copy()
    OmegaConf.update(found, FINGERPRINT, fingerprint, force_add=True)
    return found


def recorded(config: DictConfig) -> str | None:
    """The fingerprint of its corpus that a run's config records; None for a run from before that was recorded."""
    found: str | None = OmegaConf.select(config, FINGERPRINT)
    return found


def with_text(config: DictConfig, trust: Collection[str] | None = None) -> DictConfig:
    """`config` with the fingerprint of its corpus as the text is now; `trust` as for `build`.

    Raises InputError for text that is not there.
    """
    return identified(config, build_corpus(config, trust).fingerprint())


def settings_of(config: DictConfig) -> dict[str, Any]:
    """Every setting of a config, resolved, by its dotted name, less those that make no difference to what is learnt,
    and less the study, whose arms act by the settings that they set."""
    settings = flatten(with_added_settings(OmegaConf.to_container(config, resolve=True)))
    aside = {*NO_MATTER, DESIGN, *(name for name, before in NOT_HASHED.items() if settings.get(name) == before)}
    return {name: value for name, value in settings.items() if not within(name, aside)}


def settings_that_matter(config: DictConfig) -> dict[str, Any]:
    """What a run is: its settings, and its corpus by the fingerprint; without one, by all that is set of it."""
    settings = settings_of(config)
    if recorded(config) is None:
        return {name: value for name, value in settings.items() if name not in PLACES}
    return {name: value for name, value in settings.items() if not name.startswith("data.") or name.startswith(USES)}


def config_hash(config: DictConfig) -> str:
    """Names a run: two with the same hash, on the same machine, are the same run."""
    return hashlib.sha256(json.dumps(settings_that_matter(config), sort_keys=True).encode()).hexdigest()[:16]


def differences(before: DictConfig, now: DictConfig) -> str:
    """The first settings in which two runs differ, as text; empty if they are the same.

    Where one of them records no fingerprint, their corpora are compared by their settings, the path too.
    """
    settings = settings_of(before), settings_of(now)
    if recorded(before) is None or recorded(now) is None:
        names = [name for name in _differing(*settings) if name != FINGERPRINT]
    else:
        names = _differing(settings_that_matter(before), settings_that_matter(now))
        if FINGERPRINT in names:  # other settings of data may say why
            names = list(dict.fromkeys([FINGERPRINT, *_differing(*settings)]))
    texts = [f"{name}={settings[0].get(name, 'not set')}, now {settings[1].get(name, 'not set')}" for name in names[:3]]
    return "; ".join(texts) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # A setting that came later is null, off, in an older run.
    return [name for name in sorted(before | now) if before.get(name) != now.get(name)]
