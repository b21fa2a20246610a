"""Look for causes of a low score in a run or a corpus."""

import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.settings import named_by, typed, within

OWN = ("run", "checkpoint", "device", "trust", "debug")
CORPUS = ("data", "tokenizer", "segmentation", "recipe")  # settings that choose a corpus


def run(config: DictConfig) -> tuple[str, bool]:
    """The report of a run, or of the corpus that the command line describes, and whether it has a warning."""
    from headcount.doctor import checks, evidence  # here, because --help does not need them
    from headcount.run.build import build_data
    from headcount.run.opened import open_run

    words = HydraConfig.get().overrides.task
    of_corpus = [word for word in words if named_by(word) not in OWN]
    if other := [named_by(word) for word in of_corpus if not within(named_by(word), CORPUS)]:
        raise InputError(f"{other[0]}=: chooses neither a run nor a corpus; {', '.join(CORPUS)} choose a corpus")
    if of_corpus and any(named_by(word) == "run" for word in words):
        raise InputError(f"run= and {named_by(of_corpus[0])}=: a run has its own corpus; give one of the two")
    if not isinstance(config.run, str):
        raise InputError(f"run={typed(OmegaConf.to_container(config)['run'])}: must be text or a path")  # type: ignore[index,call-overload]
    if of_corpus:
        name, found = " ".join(of_corpus), evidence.of_corpus(build_data(evidence.of_both_sides(config)))
    else:
        trust = OmegaConf.to_container(config.trust)
        opened = open_run(config.run, config.checkpoint, config.device, trust=trust)  # type: ignore[arg-type]
        name, found = config.run, evidence.of_run(opened)
    findings = checks.diagnose(found)
    return checks.report(found, findings, name), any(each.warning for each in findings)


def main() -> None:
    warned = False

    def diagnose(config: DictConfig) -> str:
        nonlocal warned
        answer, warned = run(config)
        return answer

    run_script("doctor", diagnose)
    if warned:
        sys.exit(1)
