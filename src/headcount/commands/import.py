"""Make a run directory of a model that others trained."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from headcount.command_lines import command
from headcount.errors import InputError
from headcount.files import show
from headcount.run.build import build_model, plain, without_other_kinds
from headcount.run.fairseq import model_settings, model_weights, read_checkpoint, read_dictionaries
from headcount.run.identity import with_text
from headcount.run.opened import Run, fill, make_translator, search_of
from headcount.run.written import parameters, write_run
from headcount.settings import check

OWN = ("checkpoint", "dictionaries", "output", "debug")


def settings(*, checkpoint: str, dictionaries: list[str], output: str) -> None:
    """The types of the settings that `train` does not have."""


def run(config: DictConfig) -> str:
    """Import a checkpoint as conf/import.yaml says; a summary. Raises InputError."""
    given = {name: config[name] for name in OWN if name != "debug"}
    if missing := [name for name, value in given.items() if value is None]:
        raise InputError(f"{missing[0]}=: is missing; headcount import --help shows an example")
    check(settings, plain(OmegaConf.masked_copy(config, list(given))))
    if len(config.dictionaries) != 2:
        raise InputError("dictionaries=: give two, of source and target")
    output, path = Path(config.output), Path(config.checkpoint)
    if output.exists():
        raise InputError(f"{show(output)} is there already: move it away, or give another output=")
    args, theirs = read_checkpoint(path)
    tokenizer = read_dictionaries(config.dictionaries)
    own = OmegaConf.masked_copy(config, [str(name) for name in config if name not in OWN])
    own.merge_with({"model": model_settings(args, path), "tokenizer": {"kind": "separate"}, "init_from": str(path)})
    own = with_text(without_other_kinds(own))
    model = build_model(own, tokenizer)
    sizes = (tokenizer.source.vocab_size, tokenizer.target.vocab_size)
    try:
        fill(model, model_weights(theirs, own.model.max_positions, sizes))
    except (RuntimeError, KeyError) as error:
        raise InputError(f"checkpoint={path}: does not fit fairseq's transformer: {error}") from error
    translator = make_translator(model.eval(), tokenizer, search_of(own, {}))
    found = Run(output, own, model, tokenizer, translator)
    write_run(found)
    heads = sum(sum(counts) for counts in model.head_counts.values())
    return (
        f"{parameters(found.model):,} parameters, {heads} heads\nrun directory: {show(output)}\n"
        f"next:  {command('heads', run=show(output))}\n"
    )
