"""Look for causes of a low score in a run or a corpus."""

import json
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError
from headcount.files import write_text
from headcount.run.console import run_script
from headcount.run.values import named_by, typed, within

OWN = ("run", "json", "checkpoint", "device", "trust", "debug")
CORPUS = ("data", "tokenizer", "segmentation", "recipe")  # settings that choose a corpus


def run(config: DictConfig) -> tuple[str, bool]:
    """The diagnosis of a run, or of the corpus that the command line describes, and whether there is a warning."""
    from headcount.doctor import diagnosis, evidence  # here, because --help does not need them
    from headcount.run.config import build_data
    from headcount.run.opened import open_run

    named = {named_by(word) for word in HydraConfig.get().overrides.task}
    of_corpus = sorted(named - {*OWN})
    if other := [name for name in of_corpus if not within(name, CORPUS)]:
        raise InputError(f"{other[0]}=: chooses neither a run nor a corpus; {', '.join(CORPUS)} choose a corpus")
    if of_corpus and "run" in named:
        raise InputError(f"run= and {of_corpus[0]}=: a run has its own corpus; give one of the two")
    for name in ("run", "json"):
        value = OmegaConf.to_container(config)[name]  # type: ignore[call-overload,index]
        if not isinstance(value, str) and (name == "run" or value is not None):
            raise InputError(f"{name}={typed(value)}: must be text or a path")
    if of_corpus:
        data = build_data(evidence.of_both_sides(config))
        name = " ".join(word for word in HydraConfig.get().overrides.task if named_by(word) in of_corpus)
        found = evidence.of_corpus(data)
    else:
        name = config.run
        trust = OmegaConf.to_container(config.trust)
        found = evidence.of_run(open_run(name, config.checkpoint, config.device, trust=trust))  # type: ignore[arg-type]
    findings = diagnosis.diagnose(found)
    if config.json is not None:
        text = json.dumps(diagnosis.as_json(found, findings, name), indent=2, ensure_ascii=False)
        write_text(Path(config.json), text + "\n")
    return diagnosis.report(found, findings, name), any(each.warning for each in findings)


def main() -> None:
    warned = False

    def diagnose(config: DictConfig) -> str:
        nonlocal warned
        answer, warned = run(config)
        return answer

    run_script("doctor", diagnose)
    if warned:
        sys.exit(1)
