"""The 8-bit linear kernel against its definition in plain torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from infinity_v3.compiler import kernel_library
from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.int8.reference import int8_linear_reference
from infinity_v3.compiler.int8.weights import PackedWeights, pack_weights
from kernel_calls import INT8_TARGETS, Kernels, assert_close, seeded

pytestmark = pytest.mark.skipif(
    not INT8_TARGETS, reason="this CPU lacks avx512_vnni or avx512_bf16, which 8-bit engines need"
)
BF16_STEP = 2**-8
"""Relative distance of neighbours in bfloat16: one rounding in another direction."""
FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
    Activation.RELU: functional.relu,
}


@pytest.fixture(scope="module")
def every_kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Kernels]:
    """Of each 8-bit target that runs here, best first; only what this file needs is built."""
    cache = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_library, "_SOURCES", ("int8_linear.cpp",))
        return [Kernels(target, cache) for target in INT8_TARGETS]


@pytest.fixture(scope="module")
def kernels(every_kernels: list[Kernels]) -> Kernels:
    return every_kernels[0]


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
@pytest.mark.parametrize(
    ("columns", "depth"), [(64, 4), (65, 36), (16, 384), (127, 20), (300, 64), (97, 132)]
)
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


@pytest.mark.parametrize("activation", list(Activation))
def test_functions_of_one_number(kernels: Kernels, activation: Activation) -> None:
    # One weight of 1 and one number in each row: a function of it and of nothing else.
    x = torch.zeros(4001, 4, dtype=torch.bfloat16)
    x[:, 0] = torch.linspace(-20.0, 20.0, len(x))
    x[-1, 0] = torch.nan
    packed = pack_weights(torch.eye(1, 4).repeat(64, 1))
    found = kernels.int8_linear(x, packed, activation=activation)
    expected = FUNCTIONS[activation](x[:, :1].double())[:-1]
    # Half a step of bfloat16 is at most this share of a number.
    assert ((found[:-1].double() - expected).abs() <= expected.abs() * BF16_STEP + 2e-5).all()
    assert found[-1].isnan().all()


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


@pytest.mark.skipif(len(INT8_TARGETS) < 2, reason="this CPU has no matrix unit for 8 bits")
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 32, 33, 300])
@pytest.mark.parametrize(("columns", "depth"), [(64, 64), (33, 4), (97, 132), (192, 1024)])
def test_all_instructions_give_the_same_bits(
    every_kernels: list[Kernels], rows: int, columns: int, depth: int
) -> None:
    x, packed = seeded(rows, depth, dtype=torch.bfloat16), layer(columns, depth)
    factors, bias = seeded(depth, seed=3).abs() + 0.1, seeded(columns, seed=2)
    for activation in (Activation.NONE, Activation.GELU):
        found = [
            kernels.int8_linear(x, packed, factors=factors, bias=bias, activation=activation)
            for kernels in every_kernels
        ]
        assert torch.equal(found[0], found[1])


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


def test_what_is_no_number_is_not_lost_in_a_long_row(kernels: Kernels) -> None:
    x = torch.ones(2, 200, dtype=torch.bfloat16)
    x[1, 3] = torch.nan
    found = kernels.int8_linear(x, layer(64, 200))
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


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
