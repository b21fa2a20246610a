"""Look for causes of a low score in a run or a corpus."""

import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.doctor import checks, evidence
from headcount.errors import InputError
from headcount.run.build import build_data, plain, without_other_kinds
from headcount.run.opened import open_run
from headcount.settings import check, named_by, within

OWN = ("run", "checkpoint", "device", "threads", "extensions", "debug")
CORPUS = ("data", "tokenizer", "segmentation", "recipe")  # settings that choose a corpus


def settings(*, run: str, checkpoint: str | None, device: str) -> None:
    """The types of the settings that `train` does not have."""


def run(config: DictConfig) -> None:
    """Report on a run, or on the corpus that is described. Raises SystemExit with code 1 for a warning."""
    check(settings, plain(OmegaConf.masked_copy(config, ["run", "checkpoint", "device"])))
    words = HydraConfig.get().overrides.task
    of_corpus = [word for word in words if named_by(word) not in OWN]
    if other := [named_by(word) for word in of_corpus if not within(named_by(word), CORPUS)]:
        raise InputError(f"{other[0]}=: chooses neither a run nor a corpus; {', '.join(CORPUS)} choose a corpus")
    if of_corpus and any(named_by(word) == "run" for word in words):
        raise InputError(f"run= and {named_by(of_corpus[0])}=: a run has its own corpus; give one of the two")
    if of_corpus:
        own = without_other_kinds(config, list(map(named_by, of_corpus)))
        name, found = " ".join(of_corpus), evidence.of_corpus(build_data(own))
    else:
        name, found = config.run, evidence.of_run(open_run(config.run, config.checkpoint, config.device))
    findings = checks.diagnose(found)
    sys.stdout.write(checks.report(found, findings, name))
    if any(each.warning for each in findings):
        raise SystemExit(1)
