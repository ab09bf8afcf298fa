"""The grouped product: kernel and reference against one product for each group."""

import pytest
import torch

from infinity_v3.compiler.operators import GROUPED_MM, grouped_mm_reference
from kernel_calls import Kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_each_group_meets_its_own_matrix(
    kernels: Kernels, dtype: torch.dtype, is_transposed: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(37, 48, generator=generator).to(dtype)
    shape = (5, 24, 48) if is_transposed else (5, 48, 24)
    weights = torch.randn(shape, generator=generator).to(dtype)
    weights = weights.transpose(1, 2) if is_transposed else weights
    ends = torch.tensor([4, 4, 20, 20, 37], dtype=torch.int32)

    got = kernels._call(GROUPED_MM, tokens, weights, ends)

    assert got.dtype == dtype
    assert torch.allclose(got, grouped_mm_reference(tokens, weights, ends), atol=1e-5, rtol=1e-2)
    assert torch.allclose(got[4:20], tokens[4:20] @ weights[2], atol=1e-5, rtol=1e-2)
