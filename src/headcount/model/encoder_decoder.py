"""The contract of an encoder-decoder: all that training, search and the study of heads use of a model."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.errors import InputError

Source = Int[Tensor, "batch source"]
SourceMask = Bool[Tensor, "batch source"]
"""True = a token of the source, not padding."""
Target = Int[Tensor, "batch target"]


class AttentionWeights(NamedTuple):
    """The weights of every head, one tensor a layer: [batch, head, query, key]; rows of a softmax sum to one."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


def soft_capped(logits: Tensor, cap: float) -> Tensor:
    """cap tanh(logits / cap): nearly the logits where they are small, and always between -cap and cap. Gemma Team 2024,
    "Gemma 2: improving open language models at a practical size", section 2."""
    return (logits / cap).tanh() * cap


class OutputLayer(nn.Linear):
    """From decoder output to logits, without a bias; cap: soft-caps them, if it is given."""

    def __init__(self, d_model: int, vocab_size: int, cap: float | None = None) -> None:
        super().__init__(d_model, vocab_size, bias=False)
        self.cap = cap

    def forward(self, x: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row vocab"]:
        logits = super().forward(x)
        return logits if self.cap is None else soft_capped(logits, self.cap)


class EncoderDecoder(nn.Module, ABC):
    """Token ids in, decoder output [batch, target, d_model] out.

    output: the layer from decoder output to logits. It is apart from `forward`, so that a loss can leave out padding
    before the largest matrix product. source_embedding and target_embedding may be one. max_length: most tokens of a
    source, with its end, and of a target, with its beginning; None: any number.
    """

    max_length: int | None = None
    output: OutputLayer
    source_embedding: nn.Embedding
    target_embedding: nn.Embedding

    def add_embeddings(self, vocab_size: int, source_vocab_size: int | None, d_model: int, tied: bool) -> None:
        """Source and target embeddings: one matrix if they are tied and the source has no vocabulary of its own."""
        self.source_embedding = nn.Embedding(source_vocab_size or vocab_size, d_model)
        one = tied and source_vocab_size is None
        self.target_embedding = self.source_embedding if one else nn.Embedding(vocab_size, d_model)

    @property
    def device(self) -> torch.device:
        """The device of the weights, to which ids and masks must be moved."""
        return self.output.weight.device

    @property
    @abstractmethod
    def head_counts(self) -> dict[str, list[int]]:
        """Heads in each layer, for each kind of attention of the model."""

    @abstractmethod
    def forward(self, source: Source, source_mask: SourceMask | None, target: Target) -> Tensor:
        """Decoder output [batch, target, d_model] at every target position, given the source and the target before
        that position; source_mask None: no source has padding."""

    @abstractmethod
    def attention_weights(self, source: Source, source_mask: SourceMask, target: Target) -> AttentionWeights:
        """Weights of every head, never averaged, when `target` is translated from `source`; of the layers that run, in
        eval mode all."""

    def check_gates(self) -> None:
        """Raises InputError for gates of each sentence, which what puts sentences in another order gives to others."""
        if any(name.endswith("head_gate") and gate.dim() > 1 for name, gate in self.named_buffers()):
            raise InputError(
                "gates or patches of each sentence: translations and scores put sentences in the order of their "
                "length; give gates [head], and translate or score one sentence at a time"
            )

    @abstractmethod
    def start(self, source: Source, source_mask: SourceMask | None) -> Any:
        """The state of a search, see headcount.decoding.search, before the first target token."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [row, vocab] of the next token after `tokens` [row], the newest token of each row."""

    @abstractmethod
    def reorder(self, state: Any, rows: Tensor, sentences: Tensor) -> Any:
        """The state whose row i is row `rows[i]` of the old state; `sentences`: the sentences that remain, in order."""
