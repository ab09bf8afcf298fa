"""Our kernel library: its names, and plain attention and pooling against torch.

For every CPU class that this host can run.
"""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.kernel_library import build_kernel_library
from infinity_v3.compiler.operators import (
    BF16_LINEAR,
    BF16_MLP,
    INT8_LINEAR,
    POOL_MODES,
    define_operators,
)
from kernel_calls import Kernels, assert_close

RAGGED = [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256, 257, 300]
F32_ATOL = 2e-6
BF16_ATOL = 1.5e-2


def random_qkv(
    lengths: list[int], heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths) * 31 + dim)
    total = sum(lengths)
    return [
        torch.randn(total, h, dim, generator=generator).to(dtype)
        for h in (heads, kv_heads, kv_heads)
    ]


def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: list[int], *, causal: bool = False, window: int = -1
) -> Tensor:
    """Softmax over an explicit mask, in float64, one sequence at a time."""
    rows, start = [], 0
    for length in lengths:
        x, y, z = (t[start : start + length].double().transpose(0, 1) for t in (q, k, v))
        y, z = (t.repeat_interleave(q.shape[1] // k.shape[1], 0) for t in (y, z))
        distance = torch.arange(length)[:, None] - torch.arange(length)[None]
        hidden = torch.zeros(length, length, dtype=torch.bool)
        if causal:
            hidden |= distance < 0
            hidden |= (distance >= window) if window >= 0 else hidden
        elif window >= 0:
            hidden |= distance.abs() > window
        scores = (x @ y.transpose(1, 2) * q.shape[-1] ** -0.5).masked_fill(hidden, float("-inf"))
        rows.append((scores.softmax(-1) @ z).transpose(0, 1))
        start += length
    return torch.cat(rows)


@pytest.mark.parametrize("dim", [8, 20, 32, 64, 80, 128])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, F32_ATOL), (torch.bfloat16, BF16_ATOL)]
)
def test_attention_over_head_sizes(
    kernels: Kernels, dim: int, dtype: torch.dtype, atol: float
) -> None:
    q, k, v = random_qkv(RAGGED, 3, 3, dim, dtype)
    assert_close(kernels.attention((q, k, v), RAGGED), torch_attention(q, k, v, RAGGED), atol=atol)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [-1, 1, 7, 64, 256, 1000])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, F32_ATOL), (torch.bfloat16, BF16_ATOL)]
)
def test_attention_masks_and_grouped_heads(
    kernels: Kernels, causal: bool, window: int, dtype: torch.dtype, atol: float
) -> None:
    lengths = [1, 7, 8, 9, 65, 257, 600]
    q, k, v = random_qkv(lengths, 4, 2, 32, dtype)
    found = kernels.attention((q, k, v), lengths, causal=causal, window=window)
    assert_close(found, torch_attention(q, k, v, lengths, causal=causal, window=window), atol=atol)


def test_switching_the_window_off_is_seen(kernels: Kernels) -> None:
    lengths = [257]
    q, k, v = random_qkv(lengths, 2, 2, 32, torch.float32)
    windowed = kernels.attention((q, k, v), lengths, window=16)
    plain = kernels.attention((q, k, v), lengths)
    assert (windowed - plain).abs().max() >= 100 * F32_ATOL


def test_attention_reads_fused_projections_in_place(kernels: Kernels) -> None:
    lengths, heads, dim = [5, 130, 33], 4, 32
    fused = torch.randn(sum(lengths), 3 * heads * dim, generator=torch.Generator().manual_seed(0))
    q, k, v = (part.view(-1, heads, dim) for part in torch.split(fused, heads * dim, dim=1))
    assert not q.is_contiguous()
    assert_close(
        kernels.attention((q, k, v), lengths), torch_attention(q, k, v, lengths), atol=F32_ATOL
    )


def test_attention_with_large_scores_stays_finite(kernels: Kernels) -> None:
    lengths = [300, 4]
    q, k, v = random_qkv(lengths, 2, 2, 32, torch.float32)
    found = kernels.attention((q * 300, k * 300, v), lengths)
    assert_close(found, torch_attention(q * 300, k * 300, v, lengths), atol=5e-3)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=9),
    causal=st.booleans(),
    window=st.integers(-1, 40),
)
def test_a_sequence_never_sees_its_neighbours(
    kernels: Kernels, lengths: list[int], causal: bool, window: int
) -> None:
    window = -1 if window == 0 else window
    q, k, v = random_qkv(lengths, 2, 1, 16, torch.float32)
    packed = kernels.attention((q, k, v), lengths, causal=causal, window=window)
    start = 0
    for length in lengths:
        stop = start + length
        alone = kernels.attention(
            [x[start:stop] for x in (q, k, v)], [length], causal=causal, window=window
        )
        assert packed[start:stop].equal(alone)
        start = stop


def test_tokens_of_no_sequence_yield_zeros_and_are_not_seen(kernels: Kernels) -> None:
    q, k, v = random_qkv([7, 9, 5], 2, 2, 16, torch.float32)
    found = kernels.attention((q, k, v), [7, 9])
    assert found[16:].eq(0).all()
    assert_close(found[:16], torch_attention(q, k, v, [7, 9]), atol=F32_ATOL)


def test_attention_refuses_another_dtype(kernels: Kernels) -> None:
    q, k, v = random_qkv([4], 2, 2, 16, torch.float16)
    with pytest.raises(RuntimeError):
        kernels.attention((q, k, v), [4])


def pooled_by_definition(tokens: Tensor, mode: PoolingMode) -> Tensor:
    positions = torch.arange(1, len(tokens) + 1, dtype=torch.float64)
    pooled: dict[PoolingMode, Tensor] = {
        PoolingMode.CLS: tokens[0],
        PoolingMode.LAST_TOKEN: tokens[-1],
        PoolingMode.MEAN: tokens.mean(0),
        PoolingMode.MAX: tokens.amax(0),
        PoolingMode.MEAN_SQRT_LEN: tokens.sum(0) / len(tokens) ** 0.5,
        PoolingMode.WEIGHTED_MEAN: (positions[:, None] * tokens).sum(0) / positions.sum(),
    }
    return pooled[mode]


@pytest.mark.parametrize("mode", list(POOL_MODES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pooling_follows_its_definition(
    kernels: Kernels, mode: PoolingMode, dtype: torch.dtype
) -> None:
    hidden = torch.randn(sum(RAGGED), 48, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = [
        pooled_by_definition(tokens.double(), mode) for tokens in torch.split(hidden, RAGGED)
    ]
    assert_close(kernels.pool(hidden, RAGGED, mode), torch.stack(expected), atol=3e-6)


@pytest.mark.parametrize("mode", list(POOL_MODES))
def test_an_empty_sequence_pools_to_zeros(kernels: Kernels, mode: PoolingMode) -> None:
    hidden = torch.randn(3, 16, generator=torch.Generator().manual_seed(2))
    found = kernels.pool(hidden, [3, 0], mode)
    assert found[1].eq(0).all()
    assert_close(found[:1], pooled_by_definition(hidden.double(), mode)[None], atol=1e-6)


def test_the_digest_names_file_soname_and_symbols(kernels: Kernels) -> None:
    digest = kernels.library.digest
    assert kernels.library.path.name == f"libinfinity-kernels-{digest}.so"
    content = kernels.library.path.read_bytes()
    for name in (
        f"libinfinity-kernels-{digest}.so",
        *(
            f"aoti_torch_cpu_{base}_{digest}"
            for base in define_operators()
            # In libraries of their own targets only.
            if base not in {BF16_LINEAR, BF16_MLP, INT8_LINEAR}
        ),
    ):
        assert name.encode() in content


def test_a_built_library_is_taken_from_the_cache(kernels: Kernels) -> None:
    cache = kernels.library.path.parent.parent
    before = kernels.library.path.stat().st_mtime_ns
    again = build_kernel_library(kernels.target, Path(torch.__file__).parent, cache)
    assert again.path.stat().st_mtime_ns == before
