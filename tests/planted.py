"""A model with heads whose roles are known, since their weights are set by hand, and sentences to find them on."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from built import ONE_LAYER, built
from datasets import Dataset

from headcount.data.tokenizer import EOS
from headcount.heads.evaluation_set import evaluation_set
from headcount.heads.interface import Heads

POSITIONS = 18  # the first numbers of d_model; words fill the others
VERBS, NOUNS, OTHERS = ([kind + letter for letter in "abcdefghijklmno"] for kind in ("verb", "noun", "other"))
WORDS = [*VERBS, *NOUNS, *OTHERS]
D_MODEL, D_HEAD = 64, 32
HOT = 4.0  # of a position, or of a word, before normalisation


class WordTokenizer:
    """Each word is a piece. split: the last letter of a noun is a second piece."""

    def __init__(self, split: bool = False) -> None:
        self.split = split
        sizes = [3 + len(word) - (split and word in NOUNS) for word in WORDS]
        self.piece_bytes = np.array([0, 0, 0, 0, *sizes, 1])

    @property
    def source(self) -> "WordTokenizer":
        return self

    target = source

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[piece for word in text.split() for piece in self._pieces(word)] for text in texts]

    def _pieces(self, word: str) -> list[int]:
        letter = [EOS + 1 + len(WORDS)] if self.split and word in NOUNS else []
        return [WORDS.index(word) + EOS + 1, *letter]


def sentences(count: int, seed: int, shuffled: bool = False) -> Dataset:
    """Sentences of 13 to 15 words with one link, from a verb to a noun, anywhere; the target is the source again.

    shuffled: the link leads to any word instead.
    """
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        text = [str(word) for word in random.choice(OTHERS, random.integers(13, 16))]
        verb, noun, other = random.choice(len(text), 3, replace=False).tolist()
        text[verb], text[noun] = (str(random.choice(words)) for words in (VERBS, NOUNS))
        links = [{"relation": "subject", "dependent": verb, "head": other if shuffled else noun}]
        alignment = [{"source": place, "target": place} for place in range(len(text))]
        line = " ".join(text)
        rows.append({"source": line, "target": line, "links": links, "alignment": alignment})
    return Dataset.from_list(rows)


def random_model() -> Any:
    torch.manual_seed(0)
    sizes = {**ONE_LAYER, "d_model": D_MODEL, "positions": "learned", "max_positions": POSITIONS}
    return built("model/nano", **sizes, vocab_size=EOS + 2 + len(WORDS)).eval()


@torch.no_grad()
def even_model() -> Any:
    """All heads attend to all keys alike."""
    model = random_model()
    for attention in Heads(model).layers.values():
        attention.query.weight.zero_()
        attention.query.bias.zero_()
    return model


@torch.no_grad()
def planted_model() -> Any:
    """encoder1.1 attends to the word before; encoder1.2 from verbs to nouns; cross1.2 to the source word at the place
    of the target word to predict."""
    model = random_model()
    model.source_embedding.weight.zero_()
    model.source_embedding.weight[EOS + 1 : -1, POSITIONS : POSITIONS + len(WORDS)] = (
        torch.eye(len(WORDS)) * HOT * D_MODEL**-0.5
    )
    for side in model.positions.values():
        side.table.copy_(torch.eye(POSITIONS, D_MODEL) * HOT)
    own = model.encoder[0].self_attention
    here = torch.zeros(D_HEAD, D_MODEL)
    here[:POSITIONS, :POSITIONS] = torch.eye(POSITIONS)
    _attend(own, 0, here.roll(-1, dims=0), here)
    from_verb, to_noun = torch.zeros(2, D_HEAD, D_MODEL)
    from_verb[0, POSITIONS : POSITIONS + len(VERBS)] = to_noun[0, POSITIONS + len(VERBS) :][: len(NOUNS)] = 1
    _attend(own, 1, from_verb, to_noun)
    for attention in (own, model.decoder[0].self_attention):
        attention.output.weight.zero_()
    _attend(model.decoder[0].cross_attention, 1, here, here)
    return model


def _attend(attention: Any, head: int, query: torch.Tensor, key: torch.Tensor) -> None:
    part = slice(head * D_HEAD, (head + 1) * D_HEAD)
    for projection, weight in ((attention.query, query), (attention.key, key)):
        projection.weight[part] = 2 * weight
        projection.bias[part] = 0


def analysis(model: Any, shuffled: bool = False, split: bool = False) -> Any:
    """What the parts of an analysis read of it."""
    tokenizer = WordTokenizer(split)
    run = SimpleNamespace(model=model, tokenizer=tokenizer, translator=tokenizer)
    splits = {name: sentences(120, seed, shuffled) for seed, name in enumerate(("train", "valid", "test"))}
    sets: dict[str, Any] = {name: evaluation_set(run, splits[name]) for name in ("valid", "test")}  # type: ignore[arg-type]
    sets |= {f"own_{name}": each for name, each in sets.items()}
    return SimpleNamespace(run=run, heads=Heads(model), splits=splits, gold=None, pairs=None, **sets)
