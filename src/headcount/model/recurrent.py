"""Recurrent encoder-decoders with and without attention: token ids in, logits out, as in the Transformer.

The encoder is one bidirectional layer, the decoder one layer. Models differ in the cell, and in when the decoder
attends to the source:

    none (Sutskever et al. 2014)              s_t = cell(y_(t-1), s_(t-1)), s_0 from the last states of the encoder
    before (Bahdanau et al. 2015, A.2)        c_t from s_(t-1), s_t = cell([y_(t-1); c_t], s_(t-1))
    after (Luong et al. 2015, 3.1 and 3.3)    s_t = cell([y_(t-1); o_(t-1)], s_(t-1)), c_t from s_t
    after (Graves 2013, eq. 47, 52)           the same, but what is fed to the next step is the window c_t itself

where o_t = tanh(W [c_t; s_t]) goes to the output layer (s_t if there is no c_t). The attention is the cross-attention
of the Transformer, with any `Attend`, any number of heads, and their gates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.devices import small_products
from headcount.model.attention import AttendFactory, TokenPositions, named
from headcount.model.cache import KeysValues
from headcount.model.dropout import Dropout
from headcount.model.encoder_decoder import (
    AttentionWeights,
    EncoderDecoder,
    OutputLayer,
    Source,
    SourceMask,
    Target,
    new_embeddings,
)
from headcount.model.head_plan import HeadPlan, heads_per_layer
from headcount.model.multi_head import MultiHeadAttention
from headcount.model.settings import check_choice, check_probability, choose

CELLS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
LOOKS = ("none", "before", "after")
FEEDS = ("output", "context")

Cell = tuple[Tensor, ...]
"""The state of a cell by row: (s,) of a GRU, (s, c) of an LSTM, each [row, d_model]."""
Record = Callable[[Tensor], None] | None
"""Receives the attention weights of each step."""


class RecurrentState(NamedTuple):
    """The state of a search between two steps; rows are sentence x beam.

    cell: as in `Cell`. fed: o_t or c_t of the last step, [row, d_model]. cross: the state of the `Attend`. memory: keys
    and values of the source, one for all rows of a sentence; None without attention. source_mask: [sentence, 1, 1,
    source]. positions: of the next query, and of the source.
    """

    cell: Cell
    fed: Tensor
    cross: Any
    memory: KeysValues | None
    source_mask: Tensor | None
    positions: TokenPositions
    sentences: int


class Recurrent(EncoderDecoder):
    """Encoder-decoder of recurrent cells.

    conf/model/rnn.yaml explains the settings. feed: for look "after", the next step reads the "output" o_t or the
    "context" c_t. dropout: on embeddings and before the output layer. source_vocab_size: as in the Transformer.

    Raises ValueError, naming the setting, its value and what is allowed.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        cell: str,
        look: str,
        feed: str,
        num_heads: int,
        head_size: int | None,
        tied_embeddings: bool,
        dropout: float,
        cross_attention: AttendFactory,
        source_vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        kind = choose("cell", cell, CELLS)
        check_choice("look", look, LOOKS)
        check_choice("feed", feed, FEEDS)
        if d_model < 2 or d_model % 2:
            raise ValueError(f"model.d_model={d_model}: must be even, since each direction of the encoder has half")
        check_probability("dropout", dropout)
        (count,) = heads_per_layer("model.num_heads", num_heads, 1, d_model, head_size)
        self.d_model = d_model
        self.look = look
        embeddings = new_embeddings(vocab_size, source_vocab_size, d_model, tied_embeddings)
        self.source_embedding, self.target_embedding = embeddings
        self.dropout = Dropout(dropout)
        self.encoder = kind(d_model, d_model // 2, batch_first=True, bidirectional=True)
        self.first = nn.Linear(d_model, d_model)  # Bahdanau et al. 2015, A.2.2: s_0 = tanh(W h)
        self.decoder = kind(d_model if look == "none" else 2 * d_model, d_model, batch_first=True)
        self.attention = None
        if look != "none":
            heads = HeadPlan(count, head_size or d_model // count, count, 0, 0)
            self.attention = MultiHeadAttention(d_model, heads, named("model.cross_attention", cross_attention), 0.0)
            self.attention.apply_gain()
            self.combine = nn.Linear(2 * d_model, d_model)
        self.feed_context = look == "before" or feed == "context"
        self.output = OutputLayer(d_model, vocab_size)
        for embedding in embeddings:
            nn.init.normal_(embedding.weight, std=d_model**-0.5)
        if tied_embeddings:
            self.output.weight = self.target_embedding.weight

    @property
    def head_counts(self) -> dict[str, list[int]]:
        """Heads of the attention, if the model has one."""
        return {} if self.attention is None else {"cross_heads": [self.attention.heads.count]}

    def forward(
        self, source: Source, source_mask: SourceMask | None, target: Target
    ) -> Float[Tensor, "batch target d_model"]:
        return self._decode(source, source_mask, target, None)

    def attention_weights(self, source: Source, source_mask: SourceMask, target: Target) -> AttentionWeights:
        """Weights of the cross-attention, the only attention of the model."""
        steps: list[Tensor] = []
        self._decode(source, source_mask, target, steps.append)
        return AttentionWeights([], [], [torch.cat(steps, dim=2)] if steps else [])

    def _decode(self, source: Tensor, source_mask: Tensor | None, target: Tensor, record: Record) -> Tensor:
        state = self.start(source, source_mask)
        x = self._embed(self.target_embedding, target)
        if self.attention is None:
            return self.dropout(self._recur(x, state.cell)[0])
        outputs = []
        for step in range(target.shape[1]):
            y, state = self._step(x[:, step], state, record)
            outputs.append(y)
        return self.dropout(torch.stack(outputs, dim=1))

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(embedding(tokens) * self.d_model**0.5)

    def start(self, source: Source, source_mask: SourceMask | None) -> RecurrentState:
        x = self._embed(self.source_embedding, source)
        lengths = torch.full((len(x),), x.shape[1]) if source_mask is None else source_mask.sum(dim=1)
        with torch.autocast(x.device.type, enabled=False):  # in full precision: errors of a recurrence add up
            packed = nn.utils.rnn.pack_padded_sequence(
                x.to(self.first.weight.dtype), lengths.long().cpu(), batch_first=True, enforce_sorted=False
            )
            read, last = self.encoder(packed)
            states, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True, total_length=x.shape[1])
            hidden = last[0] if isinstance(last, tuple) else last  # [direction, sentence, d_model / 2]
            begun = torch.tanh(self.first(torch.cat([hidden[0], hidden[1]], dim=1)))
        cell = (begun, torch.zeros_like(begun)) if isinstance(last, tuple) else (begun,)
        mask = None if source_mask is None else source_mask[:, None, None, :]
        memory, cross = None, None
        if self.attention is not None:
            memory, cross = self.attention.project(states), self.attention.attend.begin(len(source))
        there = torch.arange(source.shape[1], device=source.device)
        positions = TokenPositions(there[:1], there, None)
        return RecurrentState(cell, torch.zeros_like(begun), cross, memory, mask, positions, len(source))

    def _recur(self, x: Tensor, cell: Cell) -> tuple[Tensor, Cell]:
        """The decoder's cell over x [row, position, d]."""
        with torch.autocast(x.device.type, enabled=False):
            given = tuple(part[None] for part in cell)
            y, last = self.decoder(x.to(cell[0].dtype), given if len(cell) == 2 else given[0])
        return y, tuple(part[0] for part in last) if len(cell) == 2 else (last[0],)

    def _look(self, query: Tensor, state: RecurrentState, record: Record) -> tuple[Tensor, Any]:
        """Context [row, d_model] of queries [row, d_model], and the new state of the `Attend`."""
        assert self.attention is not None
        assert state.memory is not None
        queries = query.unflatten(0, (state.sentences, -1))
        context, weights, cross = self.attention(
            queries, state.memory, state.source_mask, state.positions, state.cross, record is not None
        )
        if record is not None:
            record(weights)
        return context.flatten(0, 1).to(query.dtype), cross

    def _step(self, x: Tensor, state: RecurrentState, record: Record = None) -> tuple[Tensor, RecurrentState]:
        """Output [row, d_model] after x [row, d_model], the newest target token of each row."""
        if self.attention is None:
            y, cell = self._recur(x[:, None], state.cell)
            return y[:, 0], state._replace(cell=cell)
        if self.look == "before":
            context, cross = self._look(state.cell[0], state, record)
            y, cell = self._recur(torch.cat([x, context], dim=1)[:, None], state.cell)
        else:
            y, cell = self._recur(torch.cat([x, state.fed], dim=1)[:, None], state.cell)
            context, cross = self._look(cell[0], state, record)
        output = torch.tanh(self.combine(torch.cat([context, y[:, 0]], dim=1)))
        fed = context if self.feed_context else output.to(context.dtype)
        positions = state.positions._replace(query=state.positions.query + 1)
        return output, state._replace(cell=cell, fed=fed, cross=cross, positions=positions)

    @torch.no_grad()
    def step(
        self, tokens: Int[Tensor, "row"], state: RecurrentState
    ) -> tuple[Float[Tensor, "row vocab"], RecurrentState]:
        with small_products():
            y, state = self._step(self._embed(self.target_embedding, tokens), state)
        logits = self.output(self.dropout(y))
        # In half precision, sums of many log-probabilities would lose the differences between hypotheses.
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=1), state

    def reorder(
        self, state: RecurrentState, rows: Int[Tensor, "new_row"], sentences: Int[Tensor, "kept"]
    ) -> RecurrentState:
        memory, mask = state.memory, state.source_mask
        if len(sentences) < state.sentences:
            memory = memory and memory.select(sentences)
            mask = mask if mask is None else mask.index_select(0, sentences)
        return RecurrentState(
            tuple(part.index_select(0, rows) for part in state.cell),
            state.fed.index_select(0, rows),
            state.cross and state.cross.select(rows),
            memory,
            mask,
            state.positions,
            len(sentences),
        )
