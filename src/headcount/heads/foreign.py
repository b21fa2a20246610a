"""Encoder-decoders of transformers as models of headcount, so that their heads are measured like our own.

The attention of these models calls a function that transformers looks up by name. The one named here computes what
their own does, and passes the outputs of the heads, before they are joined and projected, through a `ForeignAttention`.

Token ids: those of headcount's special tokens are 0 to 3, and a token of the model is its own id plus `SHIFT`. EOS is
the last token that the model reads of a source, and its end of a target.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import eager_mask

from headcount.data.tokenizer import BOS, EOS, PAD
from headcount.errors import InputError
from headcount.heads.interface import KINDS
from headcount.model.attention import AttentionOutput
from headcount.model.encoder_decoder import AttentionWeights, EncoderDecoder
from headcount.model.multi_head import HeadPlan

SHIFT = 4
NAME = "headcount"  # of the attention function
PROJECTIONS = ("out_proj", "o")
CLOSE = 1e-3  # logits of the model itself and those through `ForeignModel`, which round differently


class Attend(nn.Module):
    """Where hooks see what the heads read and found, see `headcount.heads.interface.Hook`."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, found: AttentionOutput) -> AttentionOutput:
        return found


class ForeignAttention(nn.Module):
    """The heads of an attention, between what it computes and its output projection; like `MultiHeadAttention`, with
    `head_gate`, hooks on `attend`, and `output`, the projection."""

    head_gate: Tensor | None

    def __init__(self, heads: HeadPlan, output: nn.Linear) -> None:
        super().__init__()
        self.heads, self.output, self.attend = heads, output, Attend()
        self.register_buffer("head_gate", None, persistent=False)

    @classmethod
    def of(cls, module: Any) -> "ForeignAttention":
        """The heads of an attention module of transformers, which will pass its heads through them."""
        count, output = getattr(module, "num_heads", getattr(module, "n_heads", 1)), projection(module)
        vars(module)[NAME] = own = cls(HeadPlan(count, output.in_features // count, count), output)
        return own

    def forward(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor, weights: Tensor) -> Tensor:
        """What is projected in place of the outputs [batch, query, head, d_head], and likewise."""
        heads = self.attend(query, key, value, AttentionOutput(output.transpose(1, 2), weights, None)).output
        if self.head_gate is not None:
            heads = heads * self.head_gate[..., None, None]
        return heads.transpose(1, 2)


def attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **settings: Any) -> Any:
    """The attention of a model's own module, without fused kernels, with its heads passed through what
    `ForeignModel` put there; outputs [batch, query, head, d_head] and weights [batch, head, query, key]."""
    own: Any = sys.modules[type(module).__module__]
    output, weights = own.eager_attention_forward(module, query, key, value, mask, **settings)
    heads = vars(module).get(NAME)
    return output if heads is None else heads(query, key, value, output, weights), weights


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)


def found_attentions(model: Any) -> dict[str, list[Any]]:
    """The attention modules of each kind, by layer. Raises InputError for a model that is built otherwise."""
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for stack, kinds in ((model.get_encoder(), ("encoder",)), (model.get_decoder(), ("decoder", "cross"))):
        for layer in getattr(stack, "layers", getattr(stack, "block", ())):
            own = [each for each in layer.modules() if projection(each) is not None]
            if len(own) != len(kinds):
                raise InputError(f"a layer of {type(stack).__name__} has {len(own)} attentions that end in an output "
                                 f"projection, and {len(kinds)} can be measured: {' and '.join(kinds)}")  # fmt: skip
            for kind, each in zip(kinds, own, strict=True):
                found[kind].append(each)
    if not all(found.values()):
        raise InputError(f"a {type(model).__name__} has no layers of encoder and decoder that are found by their names")
    return found


def projection(module: Any) -> Any:
    """The output projection of an attention; None for another module."""
    found = [getattr(module, name, None) for name in PROJECTIONS]
    return next((each for each in found if isinstance(each, nn.Linear)), None)


class Output(nn.Module):
    """From decoder output to logits of headcount's ids; like `OutputLayer`.

    forced [token]: ids of the tokens with which every target begins, whatever the model says. Their positions have a
    mark, the last number of the decoder output, and there the token has the log-probability 0.
    """

    cap = None
    forced: Tensor
    bias: Tensor | None

    def __init__(self, model: Any, end: int, forced: Sequence[int]) -> None:
        super().__init__()
        self.linear = model.get_output_embeddings()
        self.register_buffer("bias", getattr(model, "final_logits_bias", None), persistent=False)
        self.scale, self.end = 1.0, end  # `checked` finds the scale
        given = torch.full((len(forced), len(self.linear.weight) + SHIFT), float("-inf"))
        given[range(len(forced)), [token + SHIFT for token in forced]] = 0
        self.register_buffer("forced", given, persistent=False)

    @property
    def weight(self) -> Tensor:
        """Of the projection to logits, [vocab of the model, d_model]."""
        weight: Tensor = self.linear.weight
        return weight

    def forward(self, marked: Tensor) -> Tensor:
        """Logits [*row, vocab] of decoder output [*row, d_model + 1]."""
        x, mark = marked[..., :-1], marked[..., -1].round().long()
        logits = self.linear(x * self.scale)
        logits = logits if self.bias is None else logits + self.bias
        special = torch.full_like(logits[..., :SHIFT], float("-inf"))
        special[..., EOS] = logits[..., self.end]
        is_end = torch.arange(logits.shape[-1], device=logits.device) == self.end
        logits = torch.cat([special, logits.masked_fill(is_end, float("-inf"))], dim=-1)
        if not len(self.forced):
            return logits
        return torch.where(mark[..., None] > 0, self.forced[(mark - 1).clamp_min(0)].to(logits), logits)


class State(NamedTuple):
    """The state of a search: one row a hypothesis. cache: transformers' keys and values."""

    memory: Tensor
    mask: Tensor | None
    cache: Any
    position: int


class ForeignModel(EncoderDecoder):
    """An encoder-decoder of transformers.

    start: the token that its decoder begins with. source_end: the last token of a source. target_end: of a target.
    forced: tokens with which every target begins, such as that of its language. All are ids of the model. Raises
    InputError for a model whose heads would not be what is measured, see `checked`.
    """

    def __init__(self, model: Any, start: int, source_end: int, target_end: int, forced: Sequence[int] = ()) -> None:
        super().__init__()
        self.theirs, self.pad = model.eval().requires_grad_(False), model.config.pad_token_id
        self.max_length = getattr(model.config, "max_position_embeddings", None)
        ends = {"source": source_end, "target": target_end}
        self.ids = {side: (self.pad, self.pad, start, end) for side, end in ends.items()}
        self.attentions: Any = nn.ModuleDict()
        for kind, modules in found_attentions(model).items():
            own = [ForeignAttention.of(module) for module in modules]
            self.attentions[kind] = nn.ModuleList(own)
        self.output: Any = Output(model, target_end, forced)
        checked(self)

    @property
    def head_counts(self) -> dict[str, list[int]]:
        return {f"{kind}_heads": [each.heads.count for each in own] for kind, own in self.attentions.items()}

    def read(self, side: str, ids: Tensor) -> Tensor:
        """The model's own ids of ours, of "source" or "target"."""
        if self.max_length is not None and ids.shape[1] > self.max_length:
            raise InputError(f"a {side} of {ids.shape[1]} tokens, and the model has positions for {self.max_length}")
        special = torch.tensor(self.ids[side], device=ids.device)
        return torch.where(ids < SHIFT, special[ids.clamp_max(SHIFT - 1)], ids - SHIFT)

    def forward(self, source: Tensor, source_mask: Tensor | None, target: Tensor) -> Tensor:
        return self.decode(self.encode(source, source_mask), source_mask, target)

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """The encoder's output [batch, source, d_model]."""
        mask = torch.ones_like(source) if source_mask is None else source_mask.long()
        memory: Tensor = self.theirs.get_encoder()(self.read("source", source), attention_mask=mask).last_hidden_state
        return memory

    def decode(self, memory: Tensor, source_mask: Tensor | None, target: Tensor) -> Tensor:
        """Decoder output [batch, target, d_model + 1], with the mark of `Output`."""
        return self._decoded(target, State(memory, source_mask, None, 0))

    def _decoded(self, target: Tensor, state: State) -> Tensor:
        mask = torch.ones(state.memory.shape[:2]).to(target) if state.mask is None else state.mask.long()
        given = {"encoder_hidden_states": state.memory, "encoder_attention_mask": mask}
        cache = {"past_key_values": state.cache, "use_cache": state.cache is not None}
        found = self.theirs.get_decoder()(self.read("target", target), **given, **cache).last_hidden_state
        mark = torch.arange(state.position + 1, state.position + target.shape[1] + 1, device=found.device)
        mark = mark * (mark <= len(self.output.forced))
        return torch.cat([found, mark.to(found)[None, :, None].expand(len(found), -1, 1)], dim=-1)

    def attention_weights(self, source: Tensor, source_mask: Tensor, target: Tensor) -> AttentionWeights:
        with _seen(self) as seen:
            self(source, source_mask, target)
        return AttentionWeights(*([both[0].weights for own, both in seen if own == kind] for kind in KINDS))

    def start(self, source: Tensor, source_mask: Tensor | None) -> State:
        self.check_gates()
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return State(self.encode(source, source_mask), source_mask, cache, 0)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities [row, vocab]; padding is never chosen, as in transformers."""
        logits = self.output(self._decoded(tokens[:, None], state)[:, -1]).float()
        log_probs = logits.log_softmax(dim=1)
        if self.pad not in self.ids["target"][EOS:]:
            log_probs[:, self.pad + SHIFT] = float("-inf")
        return log_probs, state._replace(position=state.position + 1)

    def reorder(self, state: State, rows: Tensor, sentences: Tensor) -> State:
        state.cache.reorder_cache(rows)
        mask = state.mask if state.mask is None else state.mask.index_select(0, rows)
        return state._replace(memory=state.memory.index_select(0, rows), mask=mask)


@contextmanager
def _seen(model: ForeignModel) -> Iterator[list[tuple[str, list[Any]]]]:
    """The kind of each attention, and what its heads found and what its projection read, in the order of time."""
    seen: list[tuple[str, list[Any]]] = []
    with ExitStack() as handles:
        for kind, own in model.attentions.items():
            for each in own:
                both: list[Any] = []
                seen.append((kind, both))
                keep = partial(_keep, both)
                handles.callback(each.attend.register_forward_hook(keep).remove)
                handles.callback(each.output.register_forward_pre_hook(keep).remove)
        yield seen


def _keep(both: list[Any], _: Any, given: Any, found: AttentionOutput | None = None) -> None:
    both.append(given[0] if found is None else found)


def checked(model: ForeignModel) -> None:
    """Raises InputError unless, on two pairs of sentences, every attention passes its heads once, its projection reads
    these heads side by side, and the model gives its own logits through this file too."""
    name, first = type(model.theirs).__name__, len(model.output.forced)
    source = torch.arange(10, device=model.device).view(2, 5) % 7 + SHIFT + 5
    source[0, 4], source[1, 2], source[1, 3:] = EOS, EOS, PAD
    target = torch.arange(12 + 2 * first, device=model.device).view(2, -1) % 5 + SHIFT + 7
    target[:, 0] = BOS
    given = {"attention_mask": (source != PAD).long(), "decoder_input_ids": model.read("target", target)}
    with torch.no_grad():
        own = model.theirs(input_ids=model.read("source", source), use_cache=False, **given).logits[:, first:]
        model.theirs.set_attn_implementation(NAME)
        if model.theirs.config._attn_implementation != NAME:
            raise InputError(f"the attention of a {name} is not one that transformers can exchange")
        with _seen(model) as seen:
            hidden = model(source, source != PAD, target)
    shapes = {"encoder": (5, 5), "decoder": (target.shape[1],) * 2, "cross": (target.shape[1], 5)}
    for kind, both in seen:
        right = len(both) == 2 and both[0].weights.shape[2:] == shapes[kind]
        if not right or not both[1].equal(both[0].output.transpose(1, 2).flatten(2)):
            raise InputError(
                f"the attention of a {name} does not give its heads, side by side, to an output projection"
            )
    end = torch.tensor([model.output.end], device=model.device)
    for scale in (1.0, model.theirs.config.d_model**-0.5):  # T5's
        model.output.scale = scale
        ours = model.output(hidden)[:, first:]
        ours = ours[..., SHIFT:].index_copy(-1, end, ours[..., EOS, None])
        if torch.allclose(ours, own.to(ours), atol=CLOSE * float(own.abs().max())):
            return
    raise InputError(f"{name} gives other logits than its decoder output and its output layer, which are measured")
