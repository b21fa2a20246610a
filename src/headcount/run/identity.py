"""Run identity: the hash of what a run learns (`headcount.settings.LEARNT`) and of its corpus.

config.yaml of a run records the fingerprint of its corpus as `data.fingerprint`. In the hash it takes the place of
every setting that says where the text comes from: the same text under two paths is one run, another text under the
same path is another.
"""

import hashlib
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.run.build import NOT_CORPUS, build_corpus, plain
from headcount.settings import flatten, is_learnt, within

FINGERPRINT = "data.fingerprint"
# All other settings of data say which text it is, and the fingerprint says that better.
USES = tuple(f"data.{name}" for name in NOT_CORPUS)


def with_text(config: DictConfig, fingerprint: str | None = None) -> DictConfig:
    """A copy of `config` that records the fingerprint of its corpus; None: as the text is now. Raises InputError for
    text that is not there."""
    found = config.copy()
    OmegaConf.update(found, FINGERPRINT, fingerprint or build_corpus(config).fingerprint(), force_add=True)
    return found


def settings_of(config: DictConfig) -> dict[str, Any]:
    """Every setting of what is learnt, by its dotted name."""
    return {name: value for name, value in flatten(plain(config)).items() if is_learnt(name)}


def settings_that_matter(config: DictConfig) -> dict[str, Any]:
    """What a run is: its settings, and its corpus by the fingerprint."""
    settings = settings_of(config)
    return {name: value for name, value in settings.items() if not name.startswith("data.") or within(name, USES)}


def config_hash(config: DictConfig) -> str:
    """Names a run: two with the same hash, on the same machine, are the same run."""
    return hashlib.sha256(json.dumps(settings_that_matter(config), sort_keys=True).encode()).hexdigest()[:16]


def differences(before: DictConfig, now: DictConfig) -> str:
    """The first settings in which two runs differ, as text; empty if they are the same."""
    were, are = settings_of(before), settings_of(now)
    one, other = settings_that_matter(before), settings_that_matter(now)
    names = differing(one, other)
    if FINGERPRINT in names:  # other settings of data may say why
        names = list(dict.fromkeys([FINGERPRINT, *differing(were, are)]))
    texts = [f"{name}={were.get(name, 'not set')}, now {are.get(name, 'not set')}" for name in names[:3]]
    return "; ".join(texts) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names whose values differ, sorted."""
    return [name for name in sorted(before | now) if before.get(name) != now.get(name)]
