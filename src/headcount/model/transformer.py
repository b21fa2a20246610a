"""The encoder-decoder Transformer of Vaswani et al. 2017: token ids in, logits out."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.model.attention import AttendFactory, ScaledDotProduct, begin
from headcount.model.cache import Cache, KeysValues
from headcount.model.dropout import Dropout, LayerDropout
from headcount.model.encoder_decoder import AttentionWeights, EncoderDecoder
from headcount.model.feed_forward import FEED_FORWARDS, FeedForward
from headcount.model.head_plan import reach_of
from headcount.model.layers import (
    RESIDUALS,
    DecoderLayer,
    EncoderLayer,
    LayerState,
    ResidualFactory,
    for_products,
)
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.positions import POSITIONS, Rotate, unrotated

HeadCounts = int | Sequence[int]
Module = TypeVar("Module", bound=nn.Module)

CHUNK = {"cpu": 320}  # rows whose logits a step makes at once


class DecoderState(NamedTuple):
    """What search carries from step to step. The caches in it are written in place: a state can be used once.

    layers: a `LayerState` a layer. source_mask: [sentence, 1, 1, source]. ancestors: [sentence, beam, key], True where
    a cached key belongs to that beam's own past. places: the target position of each cached key, [key]. position: how
    many target positions are already decoded. log_probs: room for what a step returns, [row, vocab] or more.
    """

    layers: list[LayerState]
    source_mask: Tensor | None
    ancestors: Tensor
    places: Tensor
    position: int
    log_probs: Tensor


class Transformer(EncoderDecoder):
    """Encoder and decoder with any head count in any layer.

    num_heads: heads of all three kinds of attention. encoder_heads, decoder_heads and cross_heads override it for
        encoder self-, decoder self- and cross-attention; each is one number, or one a layer.
    head_size: size of a head's queries, keys and values; None means d_model / heads.
    kv_heads: heads of keys and values, which equal groups of the other heads share; None means as many as heads.
    local_heads, local_window: so many heads of each self-attention see only so many positions to each side.
    norm: "pre" or "post". positions: "sinusoidal", "learned" or "rotary". feed_forward: "relu", "gelu" or "swiglu";
        d_feed_forward is its hidden width. tied_embeddings: source, target and output share one matrix (Press and Wolf
        2017).
    dropout acts on embeddings and on each sublayer's output, attention_dropout on attention weights,
        activation_dropout inside the feed-forward, layer_dropout on whole layers; each a probability in [0, 1).
    source_vocab_size: pieces of a source vocabulary of its own, whose embeddings are then shared with nothing; None for
        one vocabulary of both languages.
    cross_attention: builds the `Attend` of the cross-attention; scaled dot-product by default.

    Raises ValueError, naming the setting, its value, what is allowed and the fix.
    """

    encoder: Sequence[EncoderLayer]
    decoder: Sequence[DecoderLayer]

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 512,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        d_feed_forward: int = 2048,
        num_heads: HeadCounts = 8,
        encoder_heads: HeadCounts | None = None,
        decoder_heads: HeadCounts | None = None,
        cross_heads: HeadCounts | None = None,
        head_size: int | None = None,
        kv_heads: int | None = None,
        norm: str = "pre",
        positions: str = "sinusoidal",
        max_positions: int = 256,
        feed_forward: str = "relu",
        tied_embeddings: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        cross_attention: AttendFactory = ScaledDotProduct,
        source_vocab_size: int | None = None,
        local_heads: int = 0,
        local_window: int = 4,
    ) -> None:
        super().__init__()
        counts = {
            "d_model": d_model,
            "encoder_layers": encoder_layers,
            "decoder_layers": decoder_layers,
            "d_feed_forward": d_feed_forward,
            "max_positions": max_positions,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"model.{name}={count}: must be 1 or more")
        for name, probability in {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
            "layer_dropout": layer_dropout,
        }.items():
            if not 0 <= probability < 1:
                raise ValueError(f"model.{name}={probability}: a probability from 0 up to, not including, 1")
        norm_order = _choose("norm", norm, RESIDUALS)
        residual: ResidualFactory = partial(norm_order, d_model, dropout)
        positions_kind = _choose("positions", positions, POSITIONS)
        feed_forward_kind = _choose("feed_forward", feed_forward, FEED_FORWARDS)

        def heads(name: str, own: HeadCounts | None, layers: int) -> list[int]:
            name, value = (name, own) if own is not None else ("num_heads", num_heads)
            return heads_per_layer(f"model.{name}", value, layers, d_model, head_size)

        encoder_counts = heads("encoder_heads", encoder_heads, encoder_layers)
        decoder_counts = heads("decoder_heads", decoder_heads, decoder_layers)
        cross_counts = heads("cross_heads", cross_heads, decoder_layers)
        check_kv_heads(kv_heads, {*encoder_counts, *decoder_counts, *cross_counts})
        self.reach = reach_of(local_heads, local_window, encoder_counts + decoder_counts)

        def attention(
            count: int, rotation: Callable[[int], Rotate], attend: AttendFactory = ScaledDotProduct
        ) -> MultiHeadAttention:
            size = head_size or d_model // count
            return MultiHeadAttention(d_model, count, size, attend, attention_dropout, kv_heads, rotation(size))

        def cross_to_source(count: int) -> MultiHeadAttention:
            return attention(count, lambda size: unrotated, cross_attention)

        def last_sublayer() -> FeedForward:
            return feed_forward_kind(d_model, d_feed_forward, activation_dropout)

        self.d_model = d_model
        self.kv_heads = kv_heads
        self.source_embedding = nn.Embedding(source_vocab_size or vocab_size, d_model)
        shared = tied_embeddings and source_vocab_size is None
        self.target_embedding = self.source_embedding if shared else nn.Embedding(vocab_size, d_model)
        sides = {side: positions_kind(d_model, max_positions) for side in ("source", "target")}
        self.positions = nn.ModuleDict(sides)
        self._max_length = sides["source"].max_length
        self.dropout = Dropout(dropout)
        self.layer_dropout = LayerDropout(layer_dropout)
        self.encoder = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(attention(count, sides["source"].rotation), last_sublayer(), residual)
            for count in encoder_counts
        )
        self.decoder = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(attention(own, sides["target"].rotation), cross_to_source(cross), last_sublayer(), residual)
            for own, cross in zip(decoder_counts, cross_counts, strict=True)
        )
        self.encoder_norm = norm_order.final_norm(d_model)
        self.decoder_norm = norm_order.final_norm(d_model)
        self.output = nn.Linear(d_model, vocab_size, bias=False)
        self._initialise()
        if tied_embeddings:
            self.output.weight = self.target_embedding.weight

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                # Multiplied by sqrt(d_model) on the way in, this gives unit variance; as output weights, mild logits.
                nn.init.normal_(module.weight, std=self.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.apply_gain()

    @property
    def max_length(self) -> int | None:
        return self._max_length

    @property
    def head_counts(self) -> dict[str, list[int]]:
        """Heads in each layer, for each of the three kinds of attention; if they share keys and values, `kv_heads`, one
        number for all."""
        kv_heads = {} if self.kv_heads is None else {"kv_heads": [self.kv_heads]}
        return {
            "encoder_heads": [layer.self_attention.num_heads for layer in self.encoder],
            "decoder_heads": [layer.self_attention.num_heads for layer in self.decoder],
            "cross_heads": [layer.cross_attention.num_heads for layer in self.decoder],
        } | kv_heads

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target d_model"]:
        return self._run(source, source_mask, target, None)

    def attention_weights(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
    ) -> AttentionWeights:
        weights = AttentionWeights([], [], [])
        self._run(source, source_mask, target, weights)
        return weights

    def _run(self, source: Tensor, source_mask: Tensor, target: Tensor, weights: AttentionWeights | None) -> Tensor:
        memory = self._encode(source, source_mask, weights)
        layers = self.layer_dropout(self.decoder)
        states = [LayerState(None, layer.cross_attention.project(memory), None) for layer in layers]
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()[None, None]
        places = torch.arange(length, device=target.device)
        x = self._embed("target", self.target_embedding, target)
        return self._decode(x, layers, states, causal, (places, places), source_mask[:, None, None, :], weights)[0]

    def _embed(self, side: str, embedding: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        return self.dropout(self.positions[side](embedding(tokens) * self.d_model**0.5, start))

    def _encode(self, source: Tensor, source_mask: Tensor | None, weights: AttentionWeights | None) -> Tensor:
        x = self._embed("source", self.source_embedding, source)
        mask = None if source_mask is None else source_mask[:, None, None, :]
        places = torch.arange(source.shape[1], device=source.device)
        for layer in self.layer_dropout(self.encoder):
            within = self.reach(mask, layer.self_attention.num_heads, places, places)
            x, layer_weights = layer(x, within, weights is not None)
            if weights is not None:
                weights.encoder.append(layer_weights)
        return for_products(self.encoder_norm(x))

    def _decode(
        self,
        x: Tensor,
        layers: Iterable[DecoderLayer],
        states: list[LayerState],
        target_mask: Tensor,
        places: tuple[Tensor, Tensor],
        source_mask: Tensor | None,
        weights: AttentionWeights | None,
        position: int | None = None,
    ) -> tuple[Tensor, list[LayerState]]:
        new_states = []
        for layer, state in zip(layers, states, strict=True):
            within = self.reach(target_mask, layer.self_attention.num_heads, *places)
            decoded = layer(x, state, within, source_mask, weights is not None, position)
            x, self_weights, cross_weights, state = decoded
            new_states.append(state)
            if weights is not None:
                weights.decoder.append(self_weights)
                weights.cross.append(cross_weights)
        return self.decoder_norm(x), new_states

    def start(
        self, source: Int[Tensor, "sentence source"], source_mask: Bool[Tensor, "sentence source"] | None
    ) -> DecoderState:
        memory = self._encode(source, source_mask, None)
        layers = []
        for layer in self.decoder:
            key, value = layer.cross_attention.project(memory)
            # Laid out here once as attention wants them, or it would do so at every step.
            cross = begin(layer.cross_attention.attend, len(source))
            layers.append(LayerState(Cache(), KeysValues(key.contiguous(), value.contiguous()), cross))
        mask = None if source_mask is None else source_mask[:, None, None, :]
        # In half precision the sum of many log-probabilities would lose the differences that search goes by.
        exact = torch.promote_types(self.output.weight.dtype, torch.float32)
        log_probs = torch.empty(0, self.output.out_features, dtype=exact, device=self.device)
        ancestors = torch.empty(len(source), 1, 0, dtype=torch.bool, device=self.device)
        places = torch.empty(0, dtype=torch.int64, device=self.device)
        return DecoderState(layers, mask, ancestors, places, 0, log_probs)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, "row"], state: DecoderState) -> tuple[Float[Tensor, "row vocab"], DecoderState]:
        """Rows are sentence x beam, the beams of a sentence next to each other. They share one cache, in which a mask
        shows each its own past: when beams change places only the mask has to follow.
        """
        sentences, position = len(state.ancestors), state.position
        x = self._embed("target", self.target_embedding, tokens[:, None], position).view(sentences, -1, self.d_model)
        itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device).expand(sentences, -1, -1)
        ancestors = torch.cat([state.ancestors, itself], dim=2)
        here = state.places.new_full((x.shape[1],), position)
        places = torch.cat([state.places, here])
        room = (0, Cache.size(len(places)) - len(places))  # a mask hides it
        seen, keys = F.pad(ancestors, room)[:, None], F.pad(places, room)
        x, layers = self._decode(x, self.decoder, state.layers, seen, (here, keys), state.source_mask, None, position)
        log_probs = state.log_probs
        if len(log_probs) < len(tokens):
            log_probs = log_probs.new_empty(len(tokens), log_probs.shape[1])
        # Large tensors made anew at each step cost more than the arithmetic: the system has to clear their memory.
        size = CHUNK.get(x.device.type, len(tokens))
        for rows, out in zip(x.flatten(0, 1).split(size), log_probs[: len(tokens)].split(size), strict=True):
            torch.log_softmax(out.copy_(self.output(rows)), dim=1, out=out)
        new_state = DecoderState(layers, state.source_mask, ancestors, places, position + 1, log_probs)
        return log_probs[: len(tokens)], new_state

    def reorder(
        self, state: DecoderState, rows: Int[Tensor, "new_row"], sentences: Int[Tensor, "kept"]
    ) -> DecoderState:
        ancestors = state.ancestors.flatten(0, 1).index_select(0, rows).unflatten(0, (len(sentences), -1))
        layers = [layer._replace(cross=layer.cross and layer.cross.select(rows)) for layer in state.layers]
        mask = state.source_mask
        if len(sentences) < len(state.ancestors):
            layers = [layer.select(sentences) for layer in layers]
            mask = mask if mask is None else mask.index_select(0, sentences)
        return DecoderState(layers, mask, ancestors, state.places, state.position, state.log_probs)


def heads_per_layer(name: str, heads: HeadCounts, layers: int, d_model: int, head_size: int | None) -> list[int]:
    """`heads` as one number a layer.

    Raises ValueError if there are not as many numbers as layers, or if one is below 1 or, with no `head_size`, does not
    divide d_model.
    """
    per_layer = [heads] * layers if isinstance(heads, int) else list(heads)
    if len(per_layer) != layers:
        raise ValueError(
            f"{name}={per_layer}: {len(per_layer)} numbers for {layers} layers; give one number, or {layers}"
        )
    for count in per_layer:
        if count < 1:
            raise ValueError(f"{name}={count}: must be 1 or more")
        if head_size is None and d_model % count:
            fits = [n for n in range(1, d_model + 1) if d_model % n == 0]
            below = max(n for n in fits if n < count)
            above = min((n for n in fits if n > count), default=d_model)
            raise ValueError(
                f"{name}={count} does not divide model.d_model={d_model}: the nearest that do are {below} and {above}; "
                f"or fix the size of a head with model.head_size"
            )
    if head_size is not None and head_size < 1:
        raise ValueError(f"model.head_size={head_size}: must be 1 or more, or null for d_model / heads")
    return per_layer


def check_kv_heads(kv_heads: int | None, counts: Collection[int]) -> None:
    """Raises ValueError if there are heads in `counts`, numbers of heads, that `kv_heads` does not divide."""
    common = math.gcd(*counts)
    if kv_heads is not None and (kv_heads < 1 or common % kv_heads):
        raise ValueError(
            f"model.kv_heads={kv_heads}: must divide every number of heads ({', '.join(map(str, sorted(counts)))}), so "
            f"one of {', '.join(str(n) for n in range(1, common + 1) if common % n == 0)}; or null, as many as heads"
        )


def _choose(name: str, value: str, choices: Mapping[str, type[Module]]) -> type[Module]:
    if value not in choices:
        raise ValueError(f"model.{name}={value}: must be one of {', '.join(choices)}")
    return choices[value]
