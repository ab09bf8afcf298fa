"""Term weights of SPLADE against their definition over full logits."""

import pytest
import torch
from torch import Tensor

from kernel_calls import Kernels, assert_close, seeded

LENGTHS = [1, 0, 2, 47, 48, 49, 0, 130]
# A product of float32 that rounds in another order; and of bfloat16 pairs.
DTYPES = [(torch.float32, 3e-6), (torch.bfloat16, 3e-6)]


def definition(hidden: Tensor, weight: Tensor, bias: Tensor | None, lengths: list[int]) -> Tensor:
    logits = hidden.double() @ weight.double().T
    if bias is not None:
        logits = logits + bias.double()
    terms = torch.log1p(torch.relu(logits))
    zeros = terms.new_zeros(1, weight.shape[0])
    return torch.stack([torch.cat([zeros, x]).amax(0) for x in torch.split(terms, lengths)])


@pytest.mark.parametrize("vocabulary", [1, 15, 127, 128, 129, 700])
@pytest.mark.parametrize("dim", [8, 33, 64])
@pytest.mark.parametrize(("dtype", "atol"), DTYPES)
def test_terms_follow_their_definition(
    kernels: Kernels, vocabulary: int, dim: int, dtype: torch.dtype, atol: float
) -> None:
    hidden = seeded(sum(LENGTHS), dim, dtype=dtype)
    weight = (seeded(vocabulary, dim, seed=1) * dim**-0.5).to(dtype)
    bias = seeded(vocabulary, seed=2, dtype=dtype)
    for given in (bias, None):
        found = kernels.splade(hidden, weight, given, LENGTHS)
        assert found.dtype == torch.float32
        assert_close(found, definition(hidden, weight, given, LENGTHS), atol=atol)
        assert found[[1, 6]].eq(0).all()


def test_terms_below_zero_are_absent_and_large_ones_stay_exact(kernels: Kernels) -> None:
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    weight = torch.tensor([[-1.0, -2.0], [3.0, 1e6], [0.0, -1.0], [1e-7, 0.0]])
    found = kernels.splade(hidden, weight, None, [2])
    expected = torch.tensor([[0.0, 1e6, 0.0, 1e-7]]).double().log1p()
    torch.testing.assert_close(found.double(), expected, atol=0, rtol=1e-6)


def test_operands_are_read_in_place(kernels: Kernels) -> None:
    wide, table = seeded(20, 3 * 32), seeded(90, 64, seed=1)
    hidden, weight = wide[:, 32:64], table[:, 16:48]
    found = kernels.splade(hidden, weight, None, [7, 13])
    assert_close(found, definition(hidden, weight, None, [7, 13]), atol=5e-6)


def test_a_dropped_bias_is_seen(kernels: Kernels) -> None:
    hidden, weight = seeded(9, 16), seeded(40, 16, seed=1)
    bias = seeded(40, seed=2)
    with_bias = kernels.splade(hidden, weight, bias, [9])
    assert (with_bias - kernels.splade(hidden, weight, None, [9])).abs().max() >= 0.1


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        (seeded(40, 15), None),
        (seeded(40, 16, dtype=torch.bfloat16), None),
        (seeded(40, 16), seeded(39)),
        (seeded(40, 16), seeded(40, dtype=torch.bfloat16)),
        (seeded(16, 40).T, None),
    ],
    ids=["width", "dtype", "bias width", "bias dtype", "turned over"],
)
def test_other_operands_are_refused(kernels: Kernels, weight: Tensor, bias: Tensor | None) -> None:
    with pytest.raises(RuntimeError):
        kernels.splade(seeded(9, 16), weight, bias, [9])
