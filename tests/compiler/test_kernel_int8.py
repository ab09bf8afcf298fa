"""The 8-bit linear kernel against its definition in plain torch."""

import pytest
import torch
from torch import Tensor

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.int8.reference import int8_linear_reference
from infinity_v3.compiler.int8.weights import PackedWeights, pack_weights
from kernel_calls import INT8_TARGETS, Kernels, assert_close, seeded

pytestmark = pytest.mark.skipif(
    not INT8_TARGETS, reason="this CPU lacks avx512_vnni or avx512_bf16, which 8-bit engines need"
)
BF16_STEP = 2**-8
"""Relative distance of neighbours in bfloat16: one rounding in another direction."""


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(INT8_TARGETS[0], tmp_path_factory.mktemp("kernels"))


def layer(columns: int, depth: int) -> PackedWeights:
    return pack_weights(seeded(columns, depth, seed=1) * depth**-0.5)


def definition(
    x: Tensor,
    packed: PackedWeights,
    factors: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation = Activation.NONE,
) -> Tensor:
    return int8_linear_reference(
        x, factors, packed.values, packed.sums, packed.scales, bias, activation
    )


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 23, 24, 200, 400])
@pytest.mark.parametrize(("columns", "depth"), [(64, 4), (65, 36), (16, 384), (127, 20), (300, 64)])
def test_products_follow_their_definition(
    kernels: Kernels, rows: int, columns: int, depth: int
) -> None:
    x, packed = seeded(rows, depth, dtype=torch.bfloat16), layer(columns, depth)
    factors = seeded(depth, seed=3).abs() + 0.1
    bias = seeded(columns, seed=2)
    for given in ((None, None), (factors, None), (None, bias), (factors, bias)):
        found = kernels.int8_linear(x, packed, factors=given[0], bias=given[1])
        assert found.dtype == torch.bfloat16
        expected = definition(x, packed, *given)
        # A number halfway between two may be rounded either way: one step of one factor.
        step = float(packed.scales.max()) * float(x.abs().max()) * 2 + BF16_STEP * float(
            expected.abs().max()
        )
        assert_close(found, expected, atol=step)
        assert (found == expected).double().mean() >= 0.99


@pytest.mark.parametrize("activation", list(Activation))
def test_what_follows_a_product(kernels: Kernels, activation: Activation) -> None:
    x, packed = seeded(50, 32, dtype=torch.bfloat16) * 3, layer(80, 32)
    found = kernels.int8_linear(x, packed, activation=activation)
    expected = definition(x, packed, activation=activation)
    assert_close(found, expected, atol=3e-2)
    assert (found.double() - expected.double()).abs().mean() <= 4e-4


def test_the_layer_is_near_the_exact_one(kernels: Kernels) -> None:
    x, weight = seeded(64, 256, dtype=torch.bfloat16), seeded(128, 256, seed=1)
    found = kernels.int8_linear(x, pack_weights(weight)).double()
    exact = x.double() @ weight.double().T
    cosines = torch.nn.functional.cosine_similarity(found, exact)
    assert cosines.min() >= 0.9995


def test_a_text_has_the_same_numbers_in_any_company(kernels: Kernels) -> None:
    x, packed = seeded(900, 64, dtype=torch.bfloat16), layer(200, 64)
    together = kernels.int8_linear(x, packed)
    for first, end in ((0, 1), (17, 23), (100, 350), (890, 900)):
        alone = kernels.int8_linear(x[first:end].contiguous(), packed)
        assert torch.equal(alone, together[first:end])


def test_rows_are_read_in_place(kernels: Kernels) -> None:
    wide, packed = seeded(30, 100, dtype=torch.bfloat16), layer(64, 36)
    view = wide[:, 8:44]
    assert torch.equal(
        kernels.int8_linear(view, packed), kernels.int8_linear(view.contiguous(), packed)
    )


def test_rows_of_zeros_and_of_what_is_no_number(kernels: Kernels) -> None:
    packed = layer(64, 8)
    x = torch.zeros(3, 8, dtype=torch.bfloat16)
    x[1, 2], x[2, 3] = torch.inf, torch.nan
    found = kernels.int8_linear(x, packed, bias=torch.ones(64))
    assert found[0].eq(1).all()
    assert not found[1].isfinite().any()
    assert not found[2].isfinite().any()


@pytest.mark.parametrize(
    "change",
    [
        {"x": seeded(4, 12, dtype=torch.bfloat16)},
        {"x": seeded(4, 16)},
        {"factors": seeded(15)},
        {"factors": seeded(16, dtype=torch.bfloat16)},
        {"bias": seeded(63)},
        {"bias": seeded(64, dtype=torch.bfloat16)},
    ],
    ids=["depth", "dtype", "factors", "factors' dtype", "bias", "bias' dtype"],
)
def test_other_operands_are_refused(kernels: Kernels, change: dict[str, Tensor]) -> None:
    arguments = {"x": seeded(4, 16, dtype=torch.bfloat16), **change}
    with pytest.raises(RuntimeError):
        kernels.int8_linear(packed=layer(64, 16), **arguments)  # type: ignore[arg-type]
