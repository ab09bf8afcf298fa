"""What changes attention scores before the softmax: biases by distance, and the soft-cap."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernel_calls import Kernels, assert_close, seeded

LENGTHS = [1, 2, 15, 31, 32, 33, 255, 256, 257, 300]
DTYPES = [(torch.float32, 3e-6), (torch.bfloat16, 1.5e-2)]
HEADS, KV_HEADS, DIM = 4, 2, 24


def random_qkv(lengths: list[int], dtype: torch.dtype) -> list[Tensor]:
    shapes = ((sum(lengths), heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
    return [seeded(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def alibi(slopes: list[float], reach: int) -> Tensor:
    distance = torch.arange(-reach, reach + 1).abs()
    return -torch.tensor(slopes)[:, None] * distance[None]


def definition(  # noqa: PLR0913 - the operator's arguments
    qkv: list[Tensor],
    lengths: list[int],
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    window: int = -1,
    softcap: float = 0.0,
    scale: float = DIM**-0.5,
) -> Tensor:
    """In float64, score by score, over a full matrix."""
    found = []
    for q, k, v in zip(*(torch.split(x.double(), lengths) for x in qkv), strict=True):
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        scores = scale * torch.einsum("ihd,jhd->hij", q, k)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        i, j = torch.arange(len(q))[:, None], torch.arange(len(q))[None]
        if bias is not None:
            reach = (bias.shape[1] - 1) // 2
            scores = scores + bias.double()[:, reach + (j - i).clamp(-reach, reach)]
        visible = j <= i if causal else torch.ones(len(q), len(q), dtype=torch.bool)
        if window >= 0:
            visible = visible & ((i - j < window) if causal else ((i - j).abs() <= window))
        scores = scores.masked_fill(~visible, float("-inf"))
        found.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v))
    return torch.cat(found)


@pytest.mark.parametrize("reach", [0, 1, 7, 40, 299, 500])
@pytest.mark.parametrize(("dtype", "atol"), DTYPES)
def test_biases_by_distance(kernels: Kernels, reach: int, dtype: torch.dtype, atol: float) -> None:
    qkv = random_qkv(LENGTHS, dtype)
    bias = seeded(HEADS, 2 * reach + 1, seed=9)
    found = kernels.attention(qkv, LENGTHS, bias=bias)
    assert_close(found, definition(qkv, LENGTHS, bias=bias), atol=atol)


@pytest.mark.parametrize("softcap", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), DTYPES)
def test_the_softcap_over_small_and_large_scores(
    kernels: Kernels, softcap: float, causal: bool, dtype: torch.dtype, atol: float
) -> None:
    qkv = random_qkv(LENGTHS, dtype)
    for scale in (0.05, 1.0, 20.0):
        found = kernels.attention(qkv, LENGTHS, softcap=softcap, causal=causal, scale=scale)
        expected = definition(qkv, LENGTHS, softcap=softcap, causal=causal, scale=scale)
        assert_close(found, expected, atol=atol * (4 if softcap > 3 else 1))


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    reach=st.one_of(st.none(), st.integers(0, 320)),
    softcap=st.sampled_from([0.0, 2.0]),
    causal=st.booleans(),
    window=st.sampled_from([-1, 1, 2, 31, 33, 256]),
)
def test_biases_softcap_windows_and_causality_together(
    kernels: Kernels,
    lengths: list[int],
    reach: int | None,
    softcap: float,
    causal: bool,
    window: int,
) -> None:
    qkv = random_qkv(lengths, torch.float32)
    bias = None if reach is None else seeded(HEADS, 2 * reach + 1, seed=9)
    found = kernels.attention(
        qkv, lengths, bias=bias, softcap=softcap, causal=causal, window=window
    )
    expected = definition(qkv, lengths, bias=bias, softcap=softcap, causal=causal, window=window)
    assert_close(found, expected, atol=3e-6)


def test_alibi_slopes_beyond_one_block_of_keys(kernels: Kernels) -> None:
    qkv = random_qkv([900], torch.float32)
    bias = alibi([0.5, 0.25, 0.0625, 0.00390625], 899)
    assert_close(
        kernels.attention(qkv, [900], bias=bias), definition(qkv, [900], bias=bias), atol=3e-6
    )


def test_an_absent_bias_or_softcap_is_seen(kernels: Kernels) -> None:
    qkv = random_qkv([65], torch.float32)
    plain = kernels.attention(qkv, [65])
    biased = kernels.attention(qkv, [65], bias=alibi([0.5, 0.25, 0.0625, 0.0039], 64))
    capped = kernels.attention(qkv, [65], softcap=1.0)
    for changed in (biased, capped):
        assert (changed - plain).abs().max() >= 1e-2


def test_a_bias_is_read_in_place_from_a_larger_table(kernels: Kernels) -> None:
    qkv = random_qkv([40], torch.float32)
    table = seeded(HEADS, 64, seed=3)
    found = kernels.attention(qkv, [40], bias=table[:, 8:29])
    assert_close(found, definition(qkv, [40], bias=table[:, 8:29]), atol=3e-6)


@pytest.mark.parametrize(
    "bias",
    [
        seeded(HEADS, 4),
        seeded(HEADS + 1, 5),
        seeded(HEADS, 5, dtype=torch.bfloat16),
        seeded(5, HEADS).T,
        seeded(5),
    ],
    ids=["even width", "another number of heads", "another dtype", "turned over", "another rank"],
)
def test_another_kind_of_bias_is_refused(kernels: Kernels, bias: Tensor) -> None:
    with pytest.raises(RuntimeError):
        kernels.attention(random_qkv([8], torch.float32), [8], bias=bias)
