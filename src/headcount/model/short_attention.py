"""Scaled dot-product attention for many short sentences on a GPU: Triton kernels, a program a head of a sentence.

torch's kernels go over long sentences in tiles of 64 queries and 128 keys, most of which a short sentence leaves empty.
Here a program holds all queries and all keys of its head at once, reads each number once and writes each once. No two
programs write to the same place, so that results are the same from run to run.

The gradient is that of Dao et al. 2022, "FlashAttention", appendix B.2. The backward pass computes the weights anew:
whole rows of them are at hand, so nothing but the inputs is kept.

Triton comes with torch's builds for GPUs. Without it, the module can be imported and `supports` says no.
"""

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any, no_type_check

import torch
from torch import Tensor

from headcount.errors import first_line

logger = logging.getLogger(__name__)


def _imported(name: str) -> Any:
    """The module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


triton, tl = _imported("triton"), _imported("triton.language")
constexpr: Any = tl.constexpr if tl else None  # of what is known when a kernel is compiled

TYPES = (torch.float16, torch.bfloat16)
AMPERE = (8, 0)  # the oldest GPUs that Triton is made for and that have products in bfloat16
HEAD_SIZES = (16, 32, 64, 128)
LONGEST = 64  # queries or keys: the tiles of torch's kernels suit longer sentences, and a program has no room for them
VARYING = ("heads", "queries", "keys", "mask_by_sentence", "mask_by_key", "causal")  # from call to call
WARPS = {16: 1, 32: 1, 64: 4}
"""By the block: as compiled for an H100, no kernel has to put registers into memory."""


def _kernel(*varying: str) -> Callable[[Callable], Any]:
    """Decorator: a function in Triton's language. varying: whole numbers that change from batch to batch: without
    this, Triton compiles another kernel where one is divisible by 16."""

    return lambda function: triton.jit(function, do_not_specialize=varying) if triton else function


# Shapes of tiles: query, key, value and output [block, d_head], weights [block, block]. Beyond the end of a sentence, a
# tile has zeros. To compile a kernel takes about a second, so there are few: the block is that of the longer side, and
# whether there is a mask and whether it is causal are read when a kernel runs.


@_kernel()
@no_type_check
def _read(start, sentence, head, by_sentence, by_head, by_position, length, block: constexpr, d_head: constexpr):
    """A head of a sentence, from memory with any strides but 1 for the last dimension."""
    position = tl.arange(0, block)[:, None]
    start += sentence * by_sentence + head * by_head
    return tl.load(start + position * by_position + tl.arange(0, d_head)[None, :], mask=position < length, other=0.0)


@_kernel()
@no_type_check
def _write(start, tile, sentence, head, heads, length, block: constexpr, d_head: constexpr):
    """Write a head of a sentence to contiguous memory [batch, position, head, d_head]."""
    position = tl.arange(0, block)[:, None]
    start += (sentence * length * heads + head) * d_head
    at = start + position * (heads * d_head) + tl.arange(0, d_head)[None, :]
    tl.store(at, tile.to(start.dtype.element_ty), mask=position < length)


@_kernel()
@no_type_check
def _weights(
    query, key, mask, sentence, mask_by_sentence, mask_by_key, keys, causal, scale: constexpr, block: constexpr
):
    """Softmax over the scores of the keys, in float32. A query that may attend to no key has the weights 0."""
    j = tl.arange(0, block)[None, :]
    allowed = j < keys
    allowed = allowed & tl.load(mask + sentence * mask_by_sentence + j * mask_by_key, mask=allowed, other=0)
    allowed = allowed & (j <= tl.arange(0, block)[:, None] + (1 - causal) * block)
    score = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)  # log2(e): powers of 2 are what a GPU computes
    score = tl.where(allowed, score, float("-inf"))
    highest = tl.maximum(tl.max(score, axis=1), -1e38)  # not -inf, of which the difference to itself is NaN
    weights = tl.exp2(score - highest[:, None])
    total = tl.maximum(tl.sum(weights, axis=1), 1.0)  # the highest score alone has exp2(0) = 1
    return weights * (1.0 / total)[:, None]


@_kernel(*VARYING)
@no_type_check
def _forward_kernel(
    output, query, key, value, mask, heads, queries, keys,
    query_by_sentence, query_by_head, query_by_position,
    key_by_sentence, key_by_head, key_by_position,
    value_by_sentence, value_by_head, value_by_position,
    mask_by_sentence, mask_by_key,
    causal, scale: constexpr, d_head: constexpr, block: constexpr,
):  # fmt: skip
    head = tl.program_id(0) % heads  # neighbours in memory at the same time
    sentence = (tl.program_id(0) // heads).to(tl.int64)
    q = _read(query, sentence, head, query_by_sentence, query_by_head, query_by_position, queries, block, d_head)
    k = _read(key, sentence, head, key_by_sentence, key_by_head, key_by_position, keys, block, d_head)
    v = _read(value, sentence, head, value_by_sentence, value_by_head, value_by_position, keys, block, d_head)
    weights = _weights(q, k, mask, sentence, mask_by_sentence, mask_by_key, keys, causal, scale, block)
    _write(output, tl.dot(weights.to(v.dtype), v), sentence, head, heads, queries, block, d_head)


@_kernel(*VARYING)
@no_type_check
def _backward_kernel(
    for_query, for_key, for_value, gradient, query, key, value, mask, heads, queries, keys,
    gradient_by_sentence, gradient_by_head, gradient_by_position,
    query_by_sentence, query_by_head, query_by_position,
    key_by_sentence, key_by_head, key_by_position,
    value_by_sentence, value_by_head, value_by_position,
    mask_by_sentence, mask_by_key,
    causal, scale: constexpr, d_head: constexpr, block: constexpr,
):  # fmt: skip
    head = tl.program_id(0) % heads
    sentence = (tl.program_id(0) // heads).to(tl.int64)
    q = _read(query, sentence, head, query_by_sentence, query_by_head, query_by_position, queries, block, d_head)
    k = _read(key, sentence, head, key_by_sentence, key_by_head, key_by_position, keys, block, d_head)
    v = _read(value, sentence, head, value_by_sentence, value_by_head, value_by_position, keys, block, d_head)
    g = _read(
        gradient, sentence, head, gradient_by_sentence, gradient_by_head, gradient_by_position, queries, block, d_head
    )
    weights = _weights(q, k, mask, sentence, mask_by_sentence, mask_by_key, keys, causal, scale, block)
    _write(for_value, tl.dot(tl.trans(weights.to(g.dtype)), g), sentence, head, heads, keys, block, d_head)
    # d softmax: w (g - sum(w g)), where g is the gradient of the weights.
    for_weights = tl.dot(g, tl.trans(v))
    common = tl.sum(weights * for_weights, axis=1)
    for_score = (weights * (for_weights - common[:, None]) * scale).to(q.dtype)
    _write(for_query, tl.dot(for_score, k), sentence, head, heads, queries, block, d_head)
    _write(for_key, tl.dot(tl.trans(for_score), q), sentence, head, heads, keys, block, d_head)


@functools.cache
def _tried() -> bool:
    """Whether the kernels run here, by a try: Triton needs a recent GPU, and, to start a kernel, a C compiler with
    Python's headers and a folder that it can write to."""
    if torch.cuda.get_device_capability() < AMPERE:
        return False
    try:
        tile = torch.zeros(1, 1, 16, 16, dtype=torch.bfloat16, device="cuda")
        _launch(_forward_kernel, (tile.clone(),), (tile, tile, tile), None, False)
    except Exception as error:  # of as many kinds as there are causes
        logger.warning("Triton does not run here, so attention is torch's own, which is slower: %s", first_line(error))
        return False
    return True


def _runs() -> bool:
    return _tried()


if triton:  # this imports torch's compiler, which takes a second
    _runs = torch.compiler.assume_constant_result(_runs)  # in a compiled model, which cannot try a kernel


def supports(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> bool:
    """Whether `short_attention` is made for these: on a GPU, in half precision, short sentences, no dropout.

    query: [batch, head, query, d_head]. key, value: [batch, head, key, d_head]. mask: None, or [batch or 1, 1, 1, key].
    """
    (batch, heads, queries, d_head), keys = query.shape, key.shape[2]
    if triton is None or dropout or d_head not in HEAD_SIZES or max(queries, keys) > LONGEST:
        return False
    if key.shape != (batch, heads, keys, d_head) or value.shape != key.shape or query.dtype not in TYPES:
        return False
    if not all(x.is_cuda and x.dtype == query.dtype for x in (query, key, value)) or not _runs():
        return False
    return mask is None or (mask.dtype == torch.bool and mask.shape[0] in (1, batch) and mask.shape[1:] == (1, 1, keys))


def short_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k / sqrt(d_head)) v, where `supports` says so; a query that may attend to no key gets zeros.

    query: [batch, head, query, d_head]. key, value: [batch, head, key, d_head], of any strides; views of what the
    projections give are read as they are. mask: None, or [batch or 1, 1, 1, key]. causal: key j is for the queries
    i >= j alone. Output [batch, head, query, d_head]: a view of contiguous [batch, query, head, d_head].
    """
    return _short_attention(query, key, value, mask, causal)


def _like(x: Tensor) -> Tensor:
    """Memory for a tensor [batch, head, position, d_head]: a view of contiguous [batch, position, head, d_head]."""
    batch, heads, positions, d_head = x.shape
    return x.new_empty(batch, positions, heads, d_head).transpose(1, 2)


def _launch(
    kernel: Any, written: tuple[Tensor, ...], read: tuple[Tensor, ...], mask: Tensor | None, causal: bool
) -> None:
    """Run the kernel for all heads of all sentences. read: ends with query, key and value."""
    read = tuple(x if x.stride(3) == 1 else x.contiguous() for x in read)
    (batch, heads, queries, d_head), keys = read[-3].shape, read[-1].shape[2]
    if not batch * heads:
        return
    block = max(16, triton.next_power_of_2(max(queries, keys)))  # at least what a tl.dot takes
    strides = [stride for x in read for stride in x.stride()[:3]]
    if mask is None:
        mask = _true(read[-1].device).expand(1, 1, 1, keys)
    by_sentence, by_key = mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(3)
    with torch.cuda.device_of(read[-1]):
        kernel[batch * heads,](
            *written, *read, mask, heads, queries, keys, *strides, by_sentence, by_key,
            int(causal), d_head**-0.5, d_head, block, num_warps=_warps(block, d_head), num_stages=1,
        )  # fmt: skip


@functools.cache
def _true(device: torch.device) -> Tensor:
    """One number in the device's memory. `_tried` asks for it first, so that it is not made within a CUDA graph."""
    return torch.ones(1, dtype=torch.bool, device=device)


def _warps(block: int, d_head: int) -> int:
    """Warps of a program: as few as have enough registers, since warps of a program wait for each other."""
    return WARPS[block] if d_head < 128 else max(2, WARPS[block])


@torch.library.custom_op("headcount::short_attention", mutates_args=())
def _short_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    output = _like(query)
    _launch(_forward_kernel, (output,), (query, key, value), mask, causal)
    return output


@torch.library.custom_op("headcount::short_attention_backward", mutates_args=())
def _short_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    written = _like(query), _like(key), _like(value)
    _launch(_backward_kernel, written, (gradient, query, key, value), mask, causal)
    return written


@_short_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    return _like(query)


@_short_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return _like(query), _like(key), _like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.causal = inputs[4]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, mask = ctx.saved_tensors
    return *_short_attention_backward(gradient, query, key, value, mask, ctx.causal), None, None


_short_attention.register_autograd(_backward, setup_context=_keep)
