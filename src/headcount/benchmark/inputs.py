"""Inputs of the benchmark: the corpus as token ids, the models' sizes, and the arithmetic operations of both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose
from omegaconf import DictConfig

from headcount.benchmark.workloads import Case
from headcount.data.corpora.corpus import SPLITS
from headcount.errors import InputError
from headcount.run.config import build_data

WIDTHS_AND_LAYERS = ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers")
SIZES = (*WIDTHS_AND_LAYERS, "num_heads", "dropout")


class Inputs:
    """What all measurements share: prepared data, its token ids in a file, and a training config for each model.

    overrides: the command line, of which the settings of the corpus are taken over. folder: for the files. Raises
    InputError.
    """

    def __init__(self, config: DictConfig, overrides: Sequence[str], folder: Path) -> None:
        self.config = config
        self.folder = folder
        chosen = [each for each in overrides if each.lstrip("+~").startswith(("data=", "data."))]
        if not _vocab_size_is_set(overrides, config):
            chosen.append(f"data.vocab_size={config.vocab_size}")
        self.overrides = [*chosen, f"data.batch_tokens={config.batch_tokens}"]
        self.configs = {name: compose("train", [*self.overrides, f"model={name}"]) for name in config.models}
        self.sizes = {
            name: {"name": name, **{key: composed.model[key] for key in SIZES}}
            for name, composed in self.configs.items()
        }
        self.data = build_data(self.configs[config.models[0]])
        self.data.prepare_data()
        if self.data.tokenizer.vocab_size > config.vocab_size:
            raise InputError(
                f"vocab_size={config.vocab_size}: must be {self.data.tokenizer.vocab_size} or more, the tokenizer's "
                "vocabulary; raise it, or give a smaller data.vocab_size"
            )
        self.arrays = folder / "token_ids.npz"
        self.source_lengths, self.target_lengths, self.decode_lengths = self._write_arrays()

    def _write_arrays(self) -> tuple[np.ndarray, ...]:
        """Token ids for everybody; returns the lengths, with end of sentence, of source, target and test sentences."""
        pairs, test = self.data.data["train"], self.data.data["test"]
        source, target = pairs["source_ids"][:], pairs["target_ids"][:]
        decode = ([ids for ids in test["source_ids"][:] if len(ids)] + source)[: self.config.sentences]
        arrays: dict[str, np.ndarray] = {}
        for name, rows in {"source": source, "target": target, "decode": decode}.items():
            arrays[f"{name}_ids"] = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
            arrays[f"{name}_offsets"] = np.cumsum([0, *map(len, rows)])
        np.savez(self.arrays, allow_pickle=False, **arrays)
        return tuple(np.diff(arrays[f"{name}_offsets"]) + 1 for name in ("source", "target", "decode"))

    def write_files(self) -> list[str]:
        """Write the corpus as text files, with `pairs` training pairs; returns the overrides to train on them."""
        data = self.data
        overrides = ["data=files", f"data.source={data.source_language}", f"data.target={data.target_language}"]
        for split in SPLITS:
            for side in ("source", "target"):
                lines = data.data[split][side][:]
                path = self.folder / f"{split}.{side}"
                with path.open("w", encoding="utf-8") as file:
                    count = self.config.pairs if split == "train" else len(lines)
                    file.writelines(f"{line}\n" for line in repeated(lines, count))
                overrides.append(f"data.{split}_{side}={path}")
        return [*overrides, f"data.vocab_size={data.tokenizer.vocab_size}"]

    def operations(self, case: Case) -> tuple[float, float]:
        """Operations of one pass over all sentences, and the number of target tokens (decode: sentences) in them."""
        size, config = self.sizes[case.model or ""], self.config
        if case.work == "decode":
            steps = (config.beam, config.new_tokens)
            return decoding_operations(size, config.vocab_size, self.decode_lengths, *steps), len(self.decode_lengths)
        lengths = (self.source_lengths, self.target_lengths)
        return training_operations(size, config.vocab_size, *lengths), float(self.target_lengths.sum())


def _vocab_size_is_set(overrides: Iterable[str], config: DictConfig) -> bool:
    """Whether the command line sets it, or the corpus is the built-in one, which sets its own."""
    set_by_hand = any(each.lstrip("+").startswith("data.vocab_size=") for each in overrides)
    return set_by_hand or str(config.data["_target_"]).endswith("grammar.Grammar")


def repeated(lines: Sequence[str], count: int) -> Iterator[str]:
    """`count` lines, none twice: from the second time on, a number follows the line."""
    for index in range(count):
        turn, row = divmod(index, len(lines))
        yield f"{lines[row]} {turn}" if turn else lines[row]


def training_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, target_lengths: np.ndarray
) -> float:
    """Operations of one training step over sentences of these lengths (ends counted), without padding.

    With widths d and f, V words, E and D layers, and for each sentence S source and T target tokens, the
    multiply-adds forward are

        linear:     S E (4 d^2 + 2 d f)  +  T D (6 d^2 + 2 d f)  +  S D 2 d^2  +  T d V
        attention:  E 2 d S^2  +  D 2 d (T^2 + S T)

    where 4 d^2 are the projections of query, key, value and output, of which in cross-attention two read the source. A
    multiply-add is two operations, and the backward pass takes twice the forward one: six in all. T^2 counts the full
    square, as torch's flop counter does, though half of it is masked.
    """
    d, f, encoder, decoder = (size[name] for name in WIDTHS_AND_LAYERS)
    s, t = source_lengths.astype(float), target_lengths.astype(float)
    linear = s * encoder * (4 * d * d + 2 * d * f) + t * decoder * (6 * d * d + 2 * d * f)
    linear += s * decoder * 2 * d * d + t * d * vocab_size
    attention = encoder * 2 * d * s**2 + decoder * 2 * d * (t**2 + s * t)
    return 3 * float(2 * (linear + attention).sum())


def decoding_operations(
    size: Mapping[str, Any], vocab_size: int, source_lengths: np.ndarray, beam: int, steps: int
) -> float:
    """Operations of translating sentences of these lengths (ends counted) in `steps` steps each.

    Keys and values are cached, so a step computes one position of every beam. The terms are those of
    `training_operations`; at step i a position attends to i target positions, itself included.
    """
    d, f, encoder, decoder = (size[name] for name in WIDTHS_AND_LAYERS)
    s, positions = source_lengths.astype(float), beam * steps
    encoding = s * (encoder * (4 * d * d + 2 * d * f) + decoder * 2 * d * d) + encoder * 2 * d * s**2
    attended = beam * steps * (steps + 1) / 2 + positions * s
    stepping = positions * (decoder * (6 * d * d + 2 * d * f) + d * vocab_size) + decoder * 2 * d * attended
    return float(2 * (encoding + stepping).sum())


def own_shapes(size: Mapping[str, Any], vocab_size: int, tokens: int) -> list[tuple[int, int, int]]:
    """The linear layers of a forward pass over `tokens` tokens a side, as products [m, k] x [k, n]; no attention."""
    d, f, encoder, decoder = (size[name] for name in WIDTHS_AND_LAYERS)
    square, up, down = (tokens, d, d), (tokens, d, f), (tokens, f, d)
    return [square] * (4 * encoder + 8 * decoder) + [up, down] * (encoder + decoder) + [(tokens, d, vocab_size)]
