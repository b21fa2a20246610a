"""Renew a run directory of an earlier version: `python scripts/migrate_run.py RUN ...`.

Earlier configs named classes; today's have words for kinds, and one home for each setting. config.yaml and the hash in
metrics.json are made anew, with what the run has learnt; scores, weights and translations stay as they are.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from headcount.command_lines import CONF
from headcount.files import write_text
from headcount.run.build import OF_MODULE, plain, without_other_kinds
from headcount.run.directory import REMOVED, REMOVED_OF_MUON
from headcount.run.identity import config_hash
from headcount.run.resolvers import register_resolvers
from headcount.settings import KINDS, Design

WORDS = {str(target).rpartition(":")[2]: word for group in KINDS.values() for word, target in group.items()}
WORDS |= {"AdamW": "adamw", "NAdam": "nadamw"}  # torch's own


def migrate(run: Path) -> None:
    old = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    if "_target_" not in old["model"]:
        return  # it is of today
    if old["data"].get("hide_source"):
        raise ValueError("data.hide_source=true")
    config = OmegaConf.create(renewed(old))
    metrics = run / "metrics.json"
    if metrics.is_file():
        figures = json.loads(metrics.read_text(encoding="utf-8")) | {"config_hash": config_hash(config)}
        write_text(metrics, json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    write_text(run / "config.yaml", OmegaConf.to_yaml(config))


def renewed(old: dict[str, Any]) -> dict[str, Any]:
    """A config of an earlier version in today's terms: settings that came later have their default of today."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = plain(compose("train"))
    data = old["data"] | old["data"].get("corpus", {})
    data.pop("corpus", None)
    for split in ("train", "valid", "test"):  # two files of text were two settings
        pair = [data.pop(f"{split}_{side}", None) for side in ("source", "target")]
        data |= {split: pair} if all(pair) else {}
    budget, trainer, schedule = data.pop("budget", {}), old["trainer"], old["schedule"]
    data.pop("vocab_size", None)
    config["steps"] = trainer["max_steps"]
    data["rate_tokens"] = budget.get("rate_tokens", config["data"]["rate_tokens"])
    cleaning = within(data.pop("cleaning", {"enabled": False}), config["data"]["cleaning"])
    defaults = {name: config["data"][name] for name in (*OF_MODULE, "rate_tokens")}
    config["data"] = {**defaults, **kind_of(data), "cleaning": config["data"]["cleaning"] | cleaning}
    model = dict(old["model"])
    for side in ("self_attention", "cross_attention"):
        if attention := kind_of(model.pop(side, {})):
            model[side] = attention.pop("kind")
            model |= ({"gain": 1.0} if model[side] == "luong_dot" else {}) | attention
    config["model"] |= kind_of(model)
    for group in ("tokenizer", "segmentation", "loss", "optimizer", "averaging", "search"):
        node = kind_of(old.get(group) or {}) or {"kind": "best" if group == "segmentation" else "none"}
        config[group] = {**(config[group] if group != "optimizer" else {}), **node}
    if config["optimizer"]["kind"] == "adamw":
        config["optimizer"].setdefault("other_lr", config["optimizer"]["lr"])
    config["schedule"] |= kind_of({name: schedule[name] for name in schedule if name not in ("steps", "d_model")})
    config["trainer"] |= within(trainer, config["trainer"])
    if isinstance(config["trainer"]["strategy"], dict):
        config["trainer"]["strategy"] = "ddp"
    config["logger"] = "default" if "tensorboard" in old.get("logger", {}) else "csv" if old.get("logger") else "none"
    for group in ("validation", "checkpoint", "divergence"):
        config[group] |= within(old.get(group, {}), config[group])
    top = ("seed", "name", "init_from", "threads", "cuda_graphs", "compile", "bleu_tokenizer", "resumed", "pruned")
    config |= within(old, top)
    if study := old.get("study"):
        own = within(study, Design.__dataclass_fields__)
        tables = {name: value for name, value in study.items() if name not in own}
        config["study"] = own | ({"tables": tables} if tables else {})
    return plain(without_other_kinds(OmegaConf.create(config)))


def kind_of(node: dict[str, Any]) -> dict[str, Any]:
    """A group whose class is a word; settings that are gone, and Hydra's own, left out."""
    gone = ("horizon", "shortlist", *REMOVED, *REMOVED_OF_MUON)
    settings = {name: value for name, value in node.items() if not name.startswith("_") and name not in gone}
    return {"kind": WORDS[node["_target_"].rpartition(".")[2]], **settings} if "_target_" in node else settings


def within(settings: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}


if __name__ == "__main__":
    register_resolvers()
    for directory in [each for each in sys.argv[1:] if not each.startswith("-")] or sys.exit(__doc__):
        try:
            migrate(Path(directory))
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"error: {directory}: not a run that can be renewed ({error})")
