"""The encoder-decoder Transformer of Vaswani et al. 2017: token ids in, decoder output out."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.model.attention import AttendFactory, TokenPositions
from headcount.model.cache import DecoderState, KeysValues, LayerState
from headcount.model.dropout import Dropout, LayerDropout
from headcount.model.encoder_decoder import AttentionWeights, EncoderDecoder, OutputLayer, Source, SourceMask, Target
from headcount.model.feed_forward import FEED_FORWARDS
from headcount.model.layers import DecoderLayer, EncoderLayer, Residual
from headcount.model.multi_head import HeadPlan, MultiHeadAttention, OutputGate, plan_heads
from headcount.model.positions import POSITIONS
from headcount.model.settings import Factor, Heads, Layers, Probability, Size
from headcount.settings import Natural

Layer = TypeVar("Layer", bound=nn.Module)


class Transformer(EncoderDecoder):
    """Encoder and decoder with any head count in any layer.

    conf/train.yaml explains the settings. tied_embeddings: Press and Wolf 2017. init "zero_output": Zhang et al. 2019,
    "Fixup initialization", section 3; a layer with norm "pre" begins as the identity. source_vocab_size: pieces of a
    separate source vocabulary, whose embeddings are shared with nothing; None: one vocabulary of both languages.

    Raises ValueError for settings that do not fit together, naming the setting, its value, what is allowed and the fix.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: Size,
        encoder_layers: Layers,
        decoder_layers: Layers,
        d_feed_forward: Size,
        num_heads: Heads,
        encoder_heads: Heads | None,
        decoder_heads: Heads | None,
        cross_heads: Heads | None,
        head_size: Size | None,
        kv_heads: Size | None,
        local_heads: Natural,
        local_window: Natural,
        norm: Literal["pre", "post"],
        positions: Literal["sinusoidal", "learned", "rotary"],
        max_positions: Size,
        feed_forward: Literal["relu", "gelu", "swiglu"],
        tied_embeddings: bool,
        dropout: Probability,
        attention_dropout: Probability,
        activation_dropout: Probability,
        layer_dropout: Probability,
        head_dropout: Probability,
        embedding_dropout: Probability | None,
        qk_norm: Literal["fixed", "learned"] | None,
        qk_scale: Factor,
        head_gate: Literal["head", "element"] | None,
        logit_cap: Factor | None,
        init: Literal["xavier", "zero_output"],
        embedding_scale: Factor | None,
        embedding_std: Factor | None,
        self_attention: AttendFactory,
        cross_attention: AttendFactory,
        source_vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.kv_heads = d_model, kv_heads
        self.add_embeddings(vocab_size, source_vocab_size, d_model, tied_embeddings)
        self.embedding_scale = d_model**0.5 if embedding_scale is None else embedding_scale
        self.positions = nn.ModuleDict({s: POSITIONS[positions](d_model, max_positions) for s in ("source", "target")})
        self.dropout = Dropout(dropout if embedding_dropout is None else embedding_dropout)
        self.layer_dropout = LayerDropout(layer_dropout)
        plan = partial(plan_heads, num_heads=num_heads, d_model=d_model, head_size=head_size, kv_heads=kv_heads)
        plans = (
            plan("encoder_heads", encoder_heads, encoder_layers, local=local_heads, window=local_window),
            plan("decoder_heads", decoder_heads, decoder_layers, local=local_heads, window=local_window),
            plan("cross_heads", cross_heads, decoder_layers),
        )
        norms = {"head_dropout": head_dropout, "qk_norm": qk_norm, "qk_scale": qk_scale}
        options: dict[str, Any] = norms | {"dropout": attention_dropout, "output_gate": head_gate}
        rotary = max_positions if positions == "rotary" else None
        own = partial(MultiHeadAttention, d_model, attend=self_attention, rotary=rotary, **options)
        cross = partial(MultiHeadAttention, d_model, attend=cross_attention, **options)
        hidden = partial(FEED_FORWARDS[feed_forward], d_model, d_feed_forward, activation_dropout)
        self._add_layers(plans, own, cross, hidden, partial(Residual, d_model, dropout, norm))
        self.output = OutputLayer(d_model, vocab_size, logit_cap)
        self._initialise(init, embedding_std, tied_embeddings)

    def _add_layers(self, plans: Sequence[list[HeadPlan]], own: Any, cross: Any, hidden: Any, residual: Any) -> None:
        of_encoder, of_decoder, of_cross = plans
        encoder = [EncoderLayer(own(heads), hidden(), residual) for heads in of_encoder]
        pairs = zip(of_decoder, of_cross, strict=True)
        decoder = [DecoderLayer(own(heads), cross(others), hidden(), residual) for heads, others in pairs]
        self.encoder: Any = nn.ModuleList(encoder)
        self.decoder: Any = nn.ModuleList(decoder)
        final_norm: Any = nn.LayerNorm if residual().norm_first else nn.Identity  # of a sum that no layer normalises
        self.encoder_norm, self.decoder_norm = final_norm(self.d_model), final_norm(self.d_model)
        self._compiled: dict[nn.Module, Any] = {}
        self.max_length = getattr(self.positions["source"], "max_length", None)

    def _initialise(self, init: str, embedding_std: float | None, tied_embeddings: bool) -> None:
        # Multiplied by sqrt(d_model) on the way in, this gives unit variance; as output weights, mild logits.
        std = self.d_model**-0.5 if embedding_std is None else embedding_std
        for module in self.modules():
            if isinstance(module, nn.Linear) and not isinstance(module, OutputGate):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=std)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.apply_gain()
        sublayers = [part for layer in (*self.encoder, *self.decoder) for part in layer.children()]
        for sublayer in sublayers if init == "zero_output" else ():
            for matrix in [part.weight for part in sublayer.modules() if isinstance(part, nn.Linear)][-1:]:
                nn.init.zeros_(matrix)
        if tied_embeddings:
            self.output.weight = self.target_embedding.weight

    def compile_layers(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compile each layer for training, with batches of any size. Dropout draws other masks than without."""
        layers = (*self.encoder, *self.decoder)
        # Layers with other heads, and batches with a mask or without, are compiled anew.
        most: Any = torch._dynamo.config
        most.recompile_limit = max(most.recompile_limit, 16 * len(layers))
        most.accumulated_recompile_limit = max(most.accumulated_recompile_limit, 16 * len(layers))
        self._compiled = {each: torch.compile(each, backend=backend, dynamic=True) for each in layers}

    def _training_layers(self, stack: Iterable[Layer]) -> list[Layer]:
        """The layers of a training pass, in order: without those left out, and compiled."""
        layers = self.layer_dropout(stack) if self.layer_dropout.p else stack
        return [self._compiled.get(each, each) for each in layers]

    @property
    def head_counts(self) -> dict[str, list[int]]:
        """Heads in each layer, for each of the three kinds of attention, and `kv_heads`, if they are set."""
        kv_heads = {} if self.kv_heads is None else {"kv_heads": [self.kv_heads]}
        return {
            "encoder_heads": [layer.self_attention.heads.count for layer in self.encoder],
            "decoder_heads": [layer.self_attention.heads.count for layer in self.decoder],
            "cross_heads": [layer.cross_attention.heads.count for layer in self.decoder],
        } | kv_heads

    def forward(self, source: Source, source_mask: SourceMask | None, target: Target) -> Tensor:
        return self.decode(self.encode(source, source_mask), source_mask, target)

    def attention_weights(self, source: Source, source_mask: SourceMask, target: Target) -> AttentionWeights:
        weights = AttentionWeights([], [], [])
        self.decode(self.encode(source, source_mask, weights), source_mask, target, weights)
        return weights

    def encode(
        self, source: Source, source_mask: SourceMask | None, weights: AttentionWeights | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's output; `weights` collects the attention weights of each layer."""
        x = self._embed("source", self.source_embedding, source)
        mask = None if source_mask is None else source_mask[:, None, None, :]
        here = torch.arange(source.shape[1], device=source.device)
        for layer in self._training_layers(self.encoder) if self.training else self.encoder:
            x, layer_weights = layer(x, mask, TokenPositions(here, here, None), weights is not None)
            if weights is not None:
                weights.encoder.append(layer_weights)
        x = self.encoder_norm(x)
        return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x

    def decode(
        self,
        memory: Float[Tensor, "batch source d_model"],
        source_mask: SourceMask | None,
        target: Target,
        weights: AttentionWeights | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Decoder output at every position of a whole target, given the encoder's output; `weights` collects the
        attention weights of each layer."""
        x = self._embed("target", self.target_embedding, target)
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()[None, None]
        here, there = (torch.arange(each.shape[1], device=each.device) for each in (target, memory))
        own = (causal, TokenPositions(here, here, None, causal=True))
        mask = None if source_mask is None else source_mask[:, None, None, :]
        cross = (mask, TokenPositions(here, there, None))
        for layer in self._training_layers(self.decoder) if self.training else self.decoder:
            state = LayerState(layer.cross_attention.project(memory))
            x, own_weights, cross_weights, _ = layer(x, state, own, cross, weights is not None)
            if weights is not None:
                weights.decoder.append(own_weights)
                weights.cross.append(cross_weights)
        return self.decoder_norm(x)

    def _embed(self, side: str, embedding: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        return self.dropout(self.positions[side](embedding(tokens) * self.embedding_scale, start))

    def start(self, source: Source, source_mask: SourceMask | None) -> DecoderState:
        self.check_gates()
        memory = self.encode(source, source_mask)
        layers = []
        for layer in self.decoder:
            own, cross = layer.self_attention, layer.cross_attention
            # Made contiguous once, or attention would do so at every step.
            keys = KeysValues(*(x.contiguous() for x in cross.project(memory)))
            states = (each.attend.begin(len(source)) for each in (own, cross))
            layers.append(LayerState(keys, None, *states))
        mask = None if source_mask is None else source_mask[:, None, None, :]
        ancestors = torch.empty(len(source), 1, 0, dtype=torch.bool, device=self.device)
        none = torch.empty(0, dtype=torch.int64, device=self.device)
        return DecoderState(layers, mask, ancestors, none, 0)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, "row"], state: DecoderState) -> tuple[Float[Tensor, "row vocab"], DecoderState]:
        """Rows are sentence x beam, the beams of a sentence next to each other; see `headcount.model.cache`."""
        sentences, position = len(state.ancestors), state.position
        x = self._embed("target", self.target_embedding, tokens[:, None], position).view(sentences, -1, self.d_model)
        itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device).expand(sentences, -1, -1)
        ancestors = torch.cat([state.ancestors, itself], dim=2)
        here = state.key_positions.new_full((x.shape[1],), position)
        key_positions = torch.cat([state.key_positions, here])
        own = ancestors[:, None], TokenPositions(here, key_positions, position)
        there = torch.arange(state.layers[0].memory.key.shape[2], device=x.device)
        cross = state.source, TokenPositions(here, there, position)
        layers = []
        for layer, kept in zip(self.decoder, state.layers, strict=True):
            x, _, _, kept = layer(x, kept, own, cross, False)
            layers.append(kept)
        logits = self.output(self.decoder_norm(x).flatten(0, 1))
        # In half precision, sums of many log-probabilities would lose the differences between hypotheses.
        log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=1)
        return log_probs, DecoderState(layers, state.source, ancestors, key_positions, position + 1)

    def reorder(self, state: DecoderState, rows: Tensor, sentences: Tensor) -> DecoderState:
        ancestors = state.ancestors.flatten(0, 1).index_select(0, rows).unflatten(0, (len(sentences), -1))
        source, layers, some_left = state.source, [], len(sentences) < len(state.ancestors)
        if some_left and source is not None:
            source = source.index_select(0, sentences)
        for memory, past, *states in state.layers:
            own, cross = (each if each is None else each.index_select(0, rows) for each in states)
            if some_left:
                memory, past = memory.select(sentences), past and past.select(sentences)
            layers.append(LayerState(memory, past, own, cross))
        return state._replace(layers=layers, source=source, ancestors=ancestors)
