"""Attention in which the last tokens of a sequence look at the others, and are not looked at."""

import pytest
import torch
from torch import Tensor

from infinity_v3.compiler.attention_reference import attention_reference
from kernel_calls import Kernels, cu_seqlens, seeded

HEADS, DIM = 3, 32
LENGTHS = [1, 5, 32, 33, 64, 300]
COUNTS = [1, 3, 32, 1, 40, 257]


def qkv(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (seeded(sum(LENGTHS), HEADS, DIM, seed=n, dtype=dtype) for n in range(3))
    return q, k, v


def counts(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def visible_alone(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """By definition: softmax over the keys that are there, one sequence at a time."""
    rows = []
    for start, length, count in zip(cu_seqlens(LENGTHS).tolist(), LENGTHS, COUNTS, strict=False):
        query = q[start : start + length].float().transpose(0, 1)
        key, value = (x[start : start + count].float().transpose(0, 1) for x in (k, v))
        scores = query @ key.transpose(1, 2) * DIM**-0.5
        distance = (torch.arange(length)[:, None] - torch.arange(count)[None]).abs()
        if window >= 0:
            scores = scores.masked_fill(distance > window, float("-inf"))
        rows.append((scores.softmax(-1).nan_to_num(0.0) @ value).transpose(0, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("window", [-1, 20])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_hidden_keys_count_for_nothing(
    kernels: Kernels, window: int, dtype: torch.dtype, atol: float
) -> None:
    q, k, v = qkv(dtype)
    found = kernels.attention((q, k, v), LENGTHS, key_counts=counts(COUNTS), window=window)
    expected = visible_alone(q, k, v, window)
    torch.testing.assert_close(found.float(), expected, rtol=0.0, atol=atol)
    whole = kernels.attention((q, k, v), LENGTHS, window=window)
    assert (whole.float() - expected).abs().max() > 0.1


@pytest.mark.parametrize("window", [-1, 20])
def test_the_reference_of_the_operator_says_the_same(window: int) -> None:
    q, k, v = qkv(torch.float32)
    found = attention_reference(
        q, k, v, cu_seqlens(LENGTHS), None, None, counts(COUNTS), False, window, DIM**-0.5, 0.0
    )
    torch.testing.assert_close(found, visible_alone(q, k, v, window), rtol=0.0, atol=2e-6)


def test_all_keys_visible_is_plain_attention(kernels: Kernels) -> None:
    q, k, v = qkv(torch.float32)
    found = kernels.attention((q, k, v), LENGTHS, key_counts=counts(LENGTHS))
    assert torch.equal(found, kernels.attention((q, k, v), LENGTHS))


@pytest.mark.parametrize("wrong", [[1, 5, 32, 33, 64, 301], [-1, 5, 32, 33, 64, 300], [1, 5]])
def test_counts_beyond_a_sequence_are_refused(kernels: Kernels, wrong: list[int]) -> None:
    with pytest.raises(RuntimeError):
        kernels.attention(qkv(torch.float32), LENGTHS, key_counts=counts(wrong))
