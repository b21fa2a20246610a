"""Attention for short sentences in Triton: outputs and gradients, in Triton's interpreter on a CPU, and on a GPU."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

INTERPRET = "TRITON_INTERPRET"  # read when the kernels are made
HEADS = 3
CAUSAL = [False, True]
SIZES = [(7, 9), (16, 16), (24, 40), (33, 33), (1, 5)]
interpreted = pytest.mark.skipif(INTERPRET not in os.environ, reason="in another process")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or INTERPRET in os.environ, reason="no GPU"),
]


def module():
    """The module under test, skipped without Triton."""
    pytest.importorskip("triton")
    from headcount.model import short_attention

    return short_attention


def inputs(batch: int, queries: int, keys: int, d_head: int, masked: bool, dtype=torch.float32, device="cpu"):
    """Query, key, value and mask: views of what one projection would give, so that positions are far apart."""
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    tensors = []
    for part, length in enumerate((queries, keys, keys)):
        packed = torch.randn(batch, length, 3 * HEADS * d_head, generator=generator).to(device, dtype).requires_grad_()
        tensors.append(packed.chunk(3, dim=-1)[part].unflatten(-1, (HEADS, d_head)).transpose(1, 2))
    lengths = torch.randint(1, keys + 1, (batch,), generator=generator)  # of each sentence, at least one word
    mask = (torch.arange(keys) < lengths[:, None])[:, None, None].to(device) if masked else None
    return *tensors, mask


def expected(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The same by its definition."""
    query, key, value = query.double(), key.double(), value.double()
    score = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
    allowed = torch.ones_like(score, dtype=torch.bool) if mask is None else mask.expand_as(score)
    score = score.masked_fill(~(allowed.tril() if causal else allowed), float("-inf"))
    return score.softmax(dim=-1) @ value


def check(short_attention, query, key, value, mask, causal, tolerance: float) -> None:
    """Output and gradients are those of the definition, and lie in memory as the output projection wants them."""
    output = short_attention(query, key, value, mask, causal)
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output)
    right = expected(query, key, value, mask, causal)
    assert output.dtype == query.dtype
    assert output.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(output.double(), right, atol=tolerance, rtol=tolerance)
    ours = torch.autograd.grad(output, (query, key, value), gradient)
    theirs = torch.autograd.grad(right, (query, key, value), gradient.double())
    for one, other in zip(ours, theirs, strict=True):
        assert one.transpose(1, 2).is_contiguous()
        torch.testing.assert_close(one.double(), other.double(), atol=2 * tolerance, rtol=2 * tolerance)


def test_in_the_interpreter():
    pytest.importorskip("triton")
    here = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "interpreted", __file__]
    result = subprocess.run(here, env=os.environ | {INTERPRET: "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU, where they run")
def test_where_kernels_do_not_run_attention_is_that_of_torch(monkeypatch, caplog):
    from headcount.model import short_attention

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    short_attention._tried.cache_clear()
    assert [short_attention._runs() for _ in range(2)] == [False, False]
    assert caplog.text.count("attention is torch's own, which is slower: ") == 1
    short_attention._tried.cache_clear()


@interpreted
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("d_head", [16, 32, 64])
@pytest.mark.parametrize("sizes", SIZES)
def test_interpreted(sizes, d_head, masked, causal):
    check(module().short_attention, *inputs(2, *sizes, d_head, masked), causal, 1e-5)


@interpreted
def test_interpreted_half_precision():
    check(module().short_attention, *inputs(2, 24, 40, 32, True, torch.float16), False, 4e-3)


@interpreted
def test_interpreted_one_mask_for_all_and_copies():
    query, key, value, mask = inputs(3, 6, 6, 16, True)
    every_other = torch.zeros(3, HEADS, 6, 32)[..., ::2]  # a stride of 2 in the last dimension
    query = (query + every_other).detach().requires_grad_()
    strided = every_other.copy_(query.detach()).requires_grad_()
    short_attention = module().short_attention
    check(short_attention, query, key, value, mask[:1], False, 1e-5)
    for causal in CAUSAL:
        same = short_attention(query, key, value, mask[:1], causal)
        assert torch.equal(short_attention(strided, key, value, mask[:1], causal), same)
    output = short_attention(query, key, value, None, False)
    (gradient,) = torch.autograd.grad(output.sum(), query)  # a gradient without strides
    (right,) = torch.autograd.grad(expected(query, key, value, None, False).sum(), query)
    torch.testing.assert_close(gradient, right, atol=1e-5, rtol=1e-5)


@interpreted
def test_interpreted_a_sentence_without_words_gets_zeros():
    query, key, value, mask = inputs(2, 5, 7, 16, True)
    mask[1] = False
    output = module().short_attention(query, key, value, mask, False)
    gradients = torch.autograd.grad(output.sum(), (query, key, value))
    assert all(x[0].isfinite().all() and not x[1].any() for x in (output, *gradients))


@interpreted
def test_interpreted_what_is_not_finite_stays_so():
    query, key, value, mask = inputs(1, 5, 7, 16, False)
    broken = query.detach().clone()
    broken[0, 0, 2] = float("nan")
    finite = module().short_attention(broken, key, value, mask, False).isfinite()
    assert not finite[0, 0, 2].any()
    assert finite.sum() == finite.numel() - 16


@interpreted
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("masked", [False, True])
def test_interpreted_operators_are_sound(masked, causal):
    module()
    operators = torch.ops.headcount
    query, key, value, mask = inputs(2, 7, 9, 16, masked)
    torch.library.opcheck(operators.short_attention.default, (query, key, value, mask, causal))
    read = [x.detach() for x in (torch.randn_like(query), query, key, value)]
    torch.library.opcheck(operators.short_attention_backward.default, (*read, mask, causal))


def test_says_no_to_what_it_is_not_made_for():
    short_attention = module()
    query, key, value, mask = inputs(2, 7, 9, 16, True, torch.float16)
    assert not short_attention.supports(query, key, value, mask)  # not on a GPU


class TestOnGPU:
    pytestmark = on_gpu

    @pytest.mark.parametrize("causal", CAUSAL)
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("d_head", [16, 32, 64, 128])
    @pytest.mark.parametrize("sizes", [*SIZES, (64, 64), (60, 20), (128, 128), (5, 100)])
    def test_is_its_definition(self, sizes, d_head, masked, causal):
        short_attention = module()
        values = inputs(5, *sizes, d_head, masked, torch.bfloat16, "cuda")
        assert short_attention.supports(*values) == (max(sizes) <= short_attention.LONGEST)
        if max(sizes) <= short_attention.LONGEST:
            check(short_attention.short_attention, *values, causal, 2e-2)

    def test_says_no_to_what_it_is_not_made_for(self):
        supports = module().supports
        query, key, value, mask = inputs(2, 7, 9, 16, True, torch.bfloat16, "cuda")
        assert supports(query, key, value, mask)
        assert not supports(query, key, value, mask, dropout=0.1)
        assert not supports(query, key, value, mask.expand(2, 1, 7, 9))
        assert not supports(query.float(), key.float(), value.float(), mask)
        assert not supports(query, key[:, :1], value[:, :1], mask)
        assert not supports(*(x[..., :8] for x in (query, key, value)), mask)

    def test_is_the_same_each_time_and_waits_for_nothing(self):
        short_attention = module().short_attention
        query, key, value, mask = inputs(50, 24, 24, 64, True, torch.bfloat16, "cuda")
        results = []
        for again in range(3):
            torch.cuda.set_sync_debug_mode("error" if again else "default")
            output = short_attention(query, key, value, mask, False)
            results.append((output, *torch.autograd.grad(output, (query, key, value), torch.ones_like(output))))
        torch.cuda.set_sync_debug_mode("default")
        assert all(torch.equal(one, other) for one, other in zip(results[1], results[2], strict=True))

    @pytest.mark.parametrize("causal", CAUSAL)
    def test_in_a_graph(self, causal):
        short_attention = module().short_attention
        query, key, value, mask = inputs(20, 24, 24, 64, not causal, torch.bfloat16, "cuda")
        query, key, value = (x.detach().requires_grad_() for x in (query, key, value))

        def step() -> tuple[Tensor, ...]:
            output = short_attention(query, key, value, mask, causal)
            return output, *torch.autograd.grad(output, (query, key, value), torch.ones_like(output))

        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # compiles the kernels, which a capture may not
            step()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        with torch.no_grad():
            query.copy_(torch.randn_like(query))
        graph.replay()
        for one, other in zip(captured, step(), strict=True):
            assert torch.equal(one, other)

    def test_compiled_once_for_all_sizes(self):
        short_attention = module()

        def attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
            assert short_attention.supports(query, key, value, mask)
            return short_attention.short_attention(query, key, value, mask, False).transpose(1, 2).flatten(2) * 2

        compiled = torch.compile(attended, fullgraph=True, dynamic=True)
        for batch, sizes in ((5, (24, 40)), (6, (25, 30)), (7, (9, 33))):
            query, key, value, mask = inputs(batch, *sizes, 64, True, torch.bfloat16, "cuda")
            ours, theirs = compiled(query, key, value, mask), attended(query, key, value, mask)
            assert torch.equal(ours, theirs)
            gradient = torch.randn_like(ours)
            for one, other in zip(
                torch.autograd.grad(ours, (query, key, value), gradient),
                torch.autograd.grad(theirs, (query, key, value), gradient),
                strict=True,
            ):
                assert torch.equal(one, other)
