"""The encoder-decoder Transformer of Vaswani et al. 2017: token ids in, decoder output out."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.devices import small_products
from headcount.errors import InputError
from headcount.model.attention import AttendFactory, TokenPositions
from headcount.model.cache import Cache
from headcount.model.dropout import Dropout, DropoutRates, LayerDropout
from headcount.model.encoder_decoder import (
    AttentionWeights,
    EncoderDecoder,
    OutputLayer,
    Source,
    SourceMask,
    Target,
    new_embeddings,
)
from headcount.model.head_plan import HeadCounts, plan_heads
from headcount.model.layers import (
    AttentionScope,
    DecoderLayer,
    EncoderLayer,
    LayerFactory,
    LayerState,
    in_product_precision,
)
from headcount.model.multi_head import MultiHeadAttention, QueryKeyNorm
from headcount.model.positions import new_positions
from headcount.model.settings import check_choice, positive

Layer = TypeVar("Layer", bound=nn.Module)
INITS = ("xavier", "zero_output")
PASSED_BY = re.compile(r"|output|decoder\.\d+\.self_attention\.(query|key|value)")  # in a search, which uses weights
CHUNK = {"cpu": 320}  # rows whose logits a step makes at once


class DecoderState(NamedTuple):
    """The state of a search between two steps. The caches in it are written in place: a state can be used once.

    layers: a `LayerState` for each layer. source: mask [sentence, 1, 1, source] and positions of the source.
    ancestors: [sentence, beam, key], True where a cached key belongs to the past of that hypothesis. key_positions: the
    target position of each cached key, [key]. position: how many target positions are decoded. log_probs: memory for
    the log-probabilities of a step, [row, vocab] or more.
    """

    layers: list[LayerState]
    source: AttentionScope
    ancestors: Tensor
    key_positions: Tensor
    position: int
    log_probs: Tensor


class Transformer(EncoderDecoder):
    """Encoder and decoder with any head count in any layer.

    conf/train.yaml explains the settings; num_heads to local_window: see `plan_heads`. d_feed_forward: hidden
    width of the feed-forward. tied_embeddings: Press and Wolf 2017. dropout: on each sublayer's output; on embeddings
    too, unless embedding_dropout is given. head_dropout: see `head_dropout_mask`. qk_norm, qk_scale: see
    `QueryKeyNorm`. logit_cap: see `OutputLayer`. init "zero_output": the last matrix of each sublayer is zero at first
    (Zhang et al. 2019, "Fixup initialization", section 3), so that a layer with norm "pre" begins as the identity.
    source_vocab_size: pieces of a separate source vocabulary, whose embeddings are shared with nothing; None: one
    vocabulary of both languages.

    Raises ValueError, naming the setting, its value, what is allowed and the fix.
    """

    encoder: Sequence[EncoderLayer]
    decoder: Sequence[DecoderLayer]

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        encoder_layers: int,
        decoder_layers: int,
        d_feed_forward: int,
        num_heads: HeadCounts,
        encoder_heads: HeadCounts | None,
        decoder_heads: HeadCounts | None,
        cross_heads: HeadCounts | None,
        head_size: int | None,
        kv_heads: int | None,
        local_heads: int,
        local_window: int,
        norm: str,
        positions: str,
        max_positions: int,
        feed_forward: str,
        tied_embeddings: bool,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        layer_dropout: float,
        head_dropout: float,
        embedding_dropout: float | None,
        qk_norm: str | None,
        qk_scale: float,
        logit_cap: float | None,
        init: str,
        embedding_scale: float | None,
        embedding_std: float | None,
        self_attention: AttendFactory,
        cross_attention: AttendFactory,
        source_vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        by_place = attention_dropout, activation_dropout, layer_dropout, head_dropout
        dropouts = DropoutRates(dropout, *by_place, dropout if embedding_dropout is None else embedding_dropout)
        kinds, depths = (encoder_heads, decoder_heads, cross_heads), (encoder_layers, decoder_layers)
        heads = plan_heads(num_heads, kinds, depths, d_model, head_size, kv_heads, local_heads, local_window)
        attends = self_attention, cross_attention
        head_norm = partial(QueryKeyNorm, kind=qk_norm, scale=qk_scale) if qk_norm else None
        layers = LayerFactory(d_model, norm, feed_forward, d_feed_forward, dropouts, attends, head_norm)
        self.d_model, self.kv_heads = d_model, kv_heads
        embeddings = new_embeddings(vocab_size, source_vocab_size, d_model, tied_embeddings)
        self.source_embedding, self.target_embedding = embeddings
        self.embedding_scale = positive("embedding_scale", embedding_scale, d_model**0.5)
        sides = {side: new_positions(positions, d_model, max_positions) for side in ("source", "target")}
        self.positions = nn.ModuleDict(sides)
        self.dropout = Dropout(dropouts.embedding_dropout)
        self.layer_dropout = LayerDropout(layer_dropout)
        self.encoder = layers.encoder(heads.encoder, sides["source"])
        self.decoder = layers.decoder(heads.decoder, heads.cross, sides["target"])
        self.encoder_norm, self.decoder_norm = layers.final_norm(), layers.final_norm()
        self.output = OutputLayer(d_model, vocab_size, logit_cap)
        self._compiled: dict[nn.Module, Any] = {}
        self._initialise(init, embedding_std, tied_embeddings)

    def _initialise(self, init: str, embedding_std: float | None, tied_embeddings: bool) -> None:
        check_choice("init", init, INITS)
        # Multiplied by sqrt(d_model) on the way in, this gives unit variance; as output weights, mild logits.
        std = positive("embedding_std", embedding_std, self.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=std)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.apply_gain()
        for matrix in self._last_matrices() if init == "zero_output" else ():
            nn.init.zeros_(matrix)
        if tied_embeddings:
            self.output.weight = self.target_embedding.weight

    def compile_layers(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Let torch.compile make the kernels of each layer, for training: layers of one kind share them, and they fit
        batches of any size. The first steps wait for the compiler. Dropout draws other masks than without."""
        layers = (*self.encoder, *self.decoder)
        # Layers with other heads, and batches with a mask or without, are compiled anew.
        most: Any = torch._dynamo.config
        most.recompile_limit = max(most.recompile_limit, 16 * len(layers))
        most.accumulated_recompile_limit = max(most.accumulated_recompile_limit, 16 * len(layers))
        self._compiled = {each: torch.compile(each, backend=backend, dynamic=True) for each in layers}

    def _layers_to_run(self, stack: Iterable[Layer]) -> list[Layer]:
        """The layers of a pass over whole sentences, in order: without those left out; in training, the compiled."""
        layers = self.layer_dropout(stack)
        return [self._compiled.get(each, each) for each in layers] if self.training else layers

    def _last_matrices(self) -> Iterator[Tensor]:
        """The last matrix of each sublayer: W_O of an attention, the second (of SwiGLU: third) of a feed-forward."""
        for layer in (*self.encoder, *self.decoder):
            for sublayer in layer.children():
                yield from [part.weight for part in sublayer.modules() if isinstance(part, nn.Linear)][-1:]

    @property
    def max_length(self) -> int | None:
        positions: Any = self.positions["source"]
        return positions.max_length

    @property
    def head_counts(self) -> dict[str, list[int]]:
        """Heads in each layer, for each of the three kinds of attention, and `kv_heads`, if they are set."""
        kv_heads = {} if self.kv_heads is None else {"kv_heads": [self.kv_heads]}
        return {
            "encoder_heads": [layer.self_attention.heads.count for layer in self.encoder],
            "decoder_heads": [layer.self_attention.heads.count for layer in self.decoder],
            "cross_heads": [layer.cross_attention.heads.count for layer in self.decoder],
        } | kv_heads

    def forward(
        self, source: Source, source_mask: SourceMask | None, target: Target
    ) -> Float[Tensor, "batch target d_model"]:
        return self._run(source, source_mask, target, None)

    def attention_weights(self, source: Source, source_mask: SourceMask, target: Target) -> AttentionWeights:
        weights = AttentionWeights([], [], [])
        self._run(source, source_mask, target, weights)
        return weights

    def _run(
        self, source: Tensor, source_mask: Tensor | None, target: Tensor, weights: AttentionWeights | None
    ) -> Tensor:
        return self.decode(self.encode(source, source_mask, weights), source_mask, target, weights)

    def decode(
        self,
        memory: Float[Tensor, "batch source d_model"],
        source_mask: SourceMask | None,
        target: Target,
        weights: AttentionWeights | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Decoder output at every position of a whole target, given the encoder's output; `weights` collects the
        attention weights of each layer."""
        layers = self._layers_to_run(self.decoder)
        states = [LayerState(None, layer.cross_attention.project(memory)) for layer in layers]
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()[None, None]
        here, there = (torch.arange(each.shape[1], device=each.device) for each in (target, memory))
        own = AttentionScope(causal, TokenPositions(here, here, None, causal=True))
        mask = None if source_mask is None else source_mask[:, None, None, :]
        cross = AttentionScope(mask, TokenPositions(here, there, None))
        x = self._embed("target", self.target_embedding, target)
        return self._decode(x, layers, states, own, cross, weights)[0]

    def _embed(self, side: str, embedding: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        return self.dropout(self.positions[side](embedding(tokens) * self.embedding_scale, start))

    def encode(
        self, source: Source, source_mask: SourceMask | None, weights: AttentionWeights | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's output; `weights` collects the attention weights of each layer."""
        x = self._embed("source", self.source_embedding, source)
        mask = None if source_mask is None else source_mask[:, None, None, :]
        positions = torch.arange(source.shape[1], device=source.device)
        for layer in self._layers_to_run(self.encoder):
            x, layer_weights = layer(x, mask, TokenPositions(positions, positions, None), weights is not None)
            if weights is not None:
                weights.encoder.append(layer_weights)
        return in_product_precision(self.encoder_norm(x))

    def _decode(
        self,
        x: Tensor,
        layers: Iterable[DecoderLayer],
        states: list[LayerState],
        target: AttentionScope,
        source: AttentionScope,
        weights: AttentionWeights | None,
    ) -> tuple[Tensor, list[LayerState]]:
        new_states = []
        for layer, state in zip(layers, states, strict=True):
            x, self_weights, cross_weights, state = layer(x, state, target, source, weights is not None)
            new_states.append(state)
            if weights is not None:
                weights.decoder.append(self_weights)
                weights.cross.append(cross_weights)
        return self.decoder_norm(x), new_states

    def start(self, source: Source, source_mask: SourceMask | None) -> DecoderState:
        self.check_gates()
        for name, part in self.named_modules():
            if (part._forward_hooks or part._forward_pre_hooks) and PASSED_BY.fullmatch(name):
                raise InputError(f"{name or 'the model'}: a hook on it does not act in a search; hook a layer of it")
        memory = self.encode(source, source_mask)
        layers = [layer.start(memory) for layer in self.decoder]
        mask = None if source_mask is None else source_mask[:, None, None, :]
        # In half precision, sums of many log-probabilities would lose the differences between hypotheses.
        exact = torch.promote_types(self.output.weight.dtype, torch.float32)
        log_probs = torch.empty(0, self.output.out_features, dtype=exact, device=self.device)
        ancestors = torch.empty(len(source), 1, 0, dtype=torch.bool, device=self.device)
        none = torch.empty(0, dtype=torch.int64, device=self.device)
        positions = TokenPositions(none, torch.arange(source.shape[1], device=self.device), 0)
        return DecoderState(layers, AttentionScope(mask, positions), ancestors, none, 0, log_probs)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, "row"], state: DecoderState) -> tuple[Float[Tensor, "row vocab"], DecoderState]:
        """Rows are sentence x beam, the beams of a sentence next to each other. They share one cache, and a mask shows
        each beam its own past: when beams change places, only the mask changes.
        """
        sentences, position = len(state.ancestors), state.position
        x = self._embed("target", self.target_embedding, tokens[:, None], position).view(sentences, -1, self.d_model)
        itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device).expand(sentences, -1, -1)
        ancestors = torch.cat([state.ancestors, itself], dim=2)
        here = state.key_positions.new_full((x.shape[1],), position)
        key_positions = torch.cat([state.key_positions, here])
        room = (0, Cache.size(len(key_positions)) - len(key_positions))  # a mask hides it
        own = AttentionScope(
            F.pad(ancestors, room)[:, None], TokenPositions(here, F.pad(key_positions, room), position)
        )
        cross = AttentionScope(state.source.mask, TokenPositions(here, state.source.positions.key, position))
        with small_products():
            x, layers = self._decode(x, self.decoder, state.layers, own, cross, None)
        log_probs = state.log_probs
        if len(log_probs) < len(tokens):
            log_probs = log_probs.new_empty(len(tokens), log_probs.shape[1])
        # A large tensor that is new at each step costs more than the arithmetic: the system has to clear its memory.
        size = CHUNK.get(x.device.type, len(tokens))
        for rows, out in zip(x.flatten(0, 1).split(size), log_probs[: len(tokens)].split(size), strict=True):
            torch.log_softmax(self.output.into(rows, out), dim=1, out=out)
        new_state = DecoderState(layers, cross, ancestors, key_positions, position + 1, log_probs)
        return log_probs[: len(tokens)], new_state

    def reorder(
        self, state: DecoderState, rows: Int[Tensor, "new_row"], sentences: Int[Tensor, "kept"]
    ) -> DecoderState:
        ancestors = state.ancestors.flatten(0, 1).index_select(0, rows).unflatten(0, (len(sentences), -1))
        source, kept = state.source, None
        if len(sentences) < len(state.ancestors):
            kept = sentences
            source = source._replace(mask=source.mask if source.mask is None else source.mask.index_select(0, kept))
        layers = [layer.select(rows, kept) for layer in state.layers]
        return DecoderState(layers, source, ancestors, state.key_positions, state.position, state.log_probs)
