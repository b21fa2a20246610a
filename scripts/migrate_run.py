"""Renew runs of earlier versions: `python scripts/migrate_run.py RUN_OR_RUNS.PARQUET ...`.

Earlier configs named classes; today's have words for kinds, and one home for each setting. config.yaml, the plan of a
sweep, the folders of its jobs and the hash in metrics.json are made anew; scores, weights and translations stay as they
are. Of a sweep, name its runs before the sweep itself.
"""

import json
import logging
import re
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.errors import InputError
from headcount.files import write_text
from headcount.run import kept
from headcount.run.build import OF_MODULE, plain, without_other_kinds
from headcount.run.identity import config_hash
from headcount.run.resolvers import job_directory, register_resolvers
from headcount.run.sweep import PLAN
from headcount.settings import KINDS, Design

WORDS = {str(target).rpartition(":")[2]: word for group in KINDS.values() for word, target in group.items()}
WORDS |= {"AdamW": "adamw", "NAdam": "nadamw"}  # torch's own
NONE = {"segmentation": "best", "averaging": "none"}  # where the group was empty
GONE = {  # words of command lines, and what says the same today
    "hydra/launcher=joblib": (),
    "hydra/launcher=basic": (),
    "recipe=multi30k_de_en": ("recipe=multi30k_quick", "data.source=de", "data.target=en"),
    "recipe=multi30k_en_fr": ("recipe=multi30k_en_de", "data.source=en", "data.target=fr"),
    "optimizer=muon_large_vocabulary": ("optimizer=muon", "optimizer.adamw_lr=0.02"),  # at d_model=128
    "optimizer=adamw_large_vocabulary": ("optimizer=adamw", "optimizer.other_lr=0.02"),
}
RENAMED = {
    r"study/optimizer=": "optimizer=",
    r"model/(self|cross)_attention=": r"model.\1_attention=",
    r"(trainer\.max_steps|data\.budget\.steps)=": "steps=",
    r"data\.budget\.warmup_steps=": "schedule.warmup_steps=",
    r"data\.budget\.validate_every=": "validation.every=",
    r"data\.vocab_size=": "tokenizer.vocab_size=",
    r"^(loss|schedule|averaging|segmentation)=": r"\1.kind=",
}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    register_resolvers()
    for argument in sys.argv[1:] or ["--help"]:
        path = Path(argument)
        if argument in ("--help", "-h"):
            sys.stdout.write(f"{__doc__}\n")
        elif path.is_file():
            runs = kept.read(path)
            folders = folders_of(runs.get(kept.SWEEP, {}))
            kept.write(path, {folders.get(run, run): renewed_files(files) for run, files in runs.items()})
            logging.info("%s: %d runs", path, len(runs) - (kept.SWEEP in runs))
        else:
            names = [name for name in ("config.yaml", "metrics.json", PLAN) if (path / name).is_file()]
            if not names:
                raise InputError(f"{path}: neither a run, nor a sweep, nor a file of kept runs")
            files = {name: (path / name).read_text(encoding="utf-8") for name in names}
            for name, text in renewed_files(files).items():
                write_text(path / name, text)
            for job, folder in folders_of(files).items():
                if (path / job).is_dir():
                    (path / job).rename(path / folder)
            logging.info("%s", path)


def renewed_files(files: dict[str, str]) -> dict[str, str]:
    """The files of a run, or of a sweep, in today's terms; those that are so already stay as they are."""
    new = dict(files)
    if "config.yaml" in files and "_target_" in files["config.yaml"]:
        config = OmegaConf.create(renewed(yaml.safe_load(files["config.yaml"])))
        new["config.yaml"] = OmegaConf.to_yaml(config)
        metrics = json.loads(files.get("metrics.json", "{}"))
        if "config_hash" in metrics:
            metrics["config_hash"] = config_hash(config)
            new["metrics.json"] = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
    if PLAN in files:
        plan = json.loads(files[PLAN])
        jobs = {job_directory(given): given for given in map(renamed, plan.get("jobs", {}).values())}
        new[PLAN] = json.dumps(plan | {"overrides": renamed(plan.get("overrides", [])), "jobs": jobs}, indent=2) + "\n"
    return new


def folders_of(files: dict[str, str]) -> dict[str, str]:
    """The folder that each job in the plan of a sweep has today, by the one that it had."""
    jobs = json.loads(files.get(PLAN, "{}")).get("jobs", {})
    return {job: job_directory(renamed(given)) for job, given in jobs.items()}


def renamed(overrides: list[str]) -> list[str]:
    """A command line in today's words."""
    new = [word for each in overrides for word in GONE.get(each, (each,))]
    for old, now in RENAMED.items():
        new = [re.sub(old, now, each) for each in new]
    return new


@cache
def defaults_of_today() -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plain(compose("train"))


def renewed(old: dict[str, Any]) -> dict[str, Any]:
    """A config of an earlier version in today's terms: settings that came later have their default of today."""
    config = deepcopy(defaults_of_today())
    data = {**old["data"], **old["data"].pop("corpus", {})}
    budget, trainer, schedule = data.pop("budget", {}), old["trainer"], old["schedule"]
    data.pop("vocab_size", None)
    config["steps"] = trainer["max_steps"]
    data["rate_tokens"] = budget.get("rate_tokens", config["data"]["rate_tokens"])
    cleaning = {name: value for name, value in data.pop("cleaning", {}).items() if name in config["data"]["cleaning"]}
    if "cleaning" not in old["data"]:
        cleaning = {"enabled": False}
    defaults = {name: config["data"][name] for name in (*OF_MODULE, "rate_tokens")}
    config["data"] = {**defaults, **kind_of(data), "cleaning": config["data"]["cleaning"] | cleaning}
    model = dict(old["model"])
    for side in ("self_attention", "cross_attention"):
        attention = model.pop(side, {})
        if attention:
            model[side] = WORDS[attention["_target_"].rpartition(".")[2]]
            model |= {name: attention[name] for name in ("gain", "gaussians") if name in attention}
            if model[side] == "luong_dot" and "gain" not in attention:
                model["gain"] = 1.0
    config["model"] |= kind_of(model)
    for group in ("tokenizer", "segmentation", "loss", "optimizer", "averaging", "search"):
        node = kind_of(old.get(group) or {}) or {"kind": NONE.get(group)}
        config[group] = {**(config[group] if group != "optimizer" else {}), **node}
    if config["optimizer"]["kind"] == "adamw":
        config["optimizer"].setdefault("other_lr", config["optimizer"]["lr"])
    config["schedule"] |= kind_of({name: schedule[name] for name in schedule if name not in ("steps", "d_model")})
    config["trainer"] |= {name: trainer[name] for name in config["trainer"] if name in trainer}
    if isinstance(config["trainer"]["strategy"], dict):
        config["trainer"]["strategy"] = "ddp"
    config["logger"] = "default" if "tensorboard" in old.get("logger", {}) else "csv" if old.get("logger") else "none"
    config["divergence"] = old.get("divergence", {"stop_after": 1})
    for group in ("validation", "checkpoint"):
        config[group] |= {name: value for name, value in old.get(group, {}).items() if name in config[group]}
    top = ("seed", "name", "init_from", "threads", "cuda_graphs", "compile", "bleu_tokenizer")
    config |= {name: old[name] for name in (*top, "resumed", "pruned") if name in old}
    config["study"] = study_of(old.get("study"))
    return plain(without_other_kinds(OmegaConf.create(config)))


def kind_of(node: dict[str, Any]) -> dict[str, Any]:
    """A group whose class is a word; settings that are gone, and Hydra's own, left out."""
    gone = ("horizon", "shortlist")
    settings = {name: value for name, value in node.items() if not name.startswith("_") and name not in gone}
    return {"kind": WORDS[node["_target_"].rpartition(".")[2]], **settings} if "_target_" in node else settings


def study_of(study: dict[str, Any] | None) -> dict[str, Any] | None:
    if study is None:
        return None
    own = {name: value for name, value in study.items() if name in Design.__dataclass_fields__}
    tables = {name: value for name, value in study.items() if name not in own}
    return own | ({"tables": tables} if tables else {})


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
