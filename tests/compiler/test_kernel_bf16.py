"""The bfloat16 linear kernel against its definition in plain torch."""

import math

import pytest
import torch
from torch import Tensor

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.reference import bf16_linear_reference
from infinity_v3.compiler.bf16.weights import pack_weights, packed_size, unpack_weights
from kernel_calls import BF16_TARGETS, Kernels, seeded

pytestmark = pytest.mark.skipif(not BF16_TARGETS, reason="this CPU lacks avx512_bf16")
SUMS_ATOL, GELU_ATOL = 2**-16, 3e-5
"""Before rounding: sums of up to 1536 float32 numbers in another order; gelu from a table."""
ROWS = (1, 2, 15, 16, 17, 33, 200)
SHAPES = ((64, 32), (1000, 1536), (70, 34), (127, 300), (96, 384), (65, 2))


@pytest.fixture(scope="session", params=BF16_TARGETS, ids=lambda target: target.name)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(request.param, tmp_path_factory.mktemp("kernels"))


def assert_within_a_step(found: Tensor, expected: Tensor, *, atol: float) -> None:
    """Fail unless each number is the expected one or, rounded another way, a neighbour of it.

    Args:
        atol: what may differ before rounding, which decides where numbers are close to zero.
    """
    _, exponents = expected.double().frexp()  # of magnitudes from 2^(e - 1) to 2^e, with 8 bits
    steps = torch.ldexp(expected.ne(0).double(), exponents - 8)
    excess = (found.double() - expected.double()).abs() - steps
    assert found.shape == expected.shape
    assert excess.max() <= atol, f"{excess.max():.3g} beyond a step of bfloat16, allowed {atol:g}"


def layer(columns: int, depth: int) -> Tensor:
    return (seeded(columns, depth, seed=1) / math.sqrt(depth)).bfloat16()


def bfloat16(*shape: int, seed: int = 0) -> Tensor:
    return seeded(*shape, seed=seed, dtype=torch.bfloat16)


@pytest.mark.parametrize(("columns", "depth"), SHAPES)
def test_weights_come_back(columns: int, depth: int) -> None:
    weight = layer(columns, depth)
    packed = pack_weights(weight)
    assert packed.shape == (packed_size(columns, depth),)
    assert torch.equal(unpack_weights(packed, columns, depth), weight)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("columns", "depth"), SHAPES)
def test_products_follow_their_definition(
    kernels: Kernels, rows: int, columns: int, depth: int
) -> None:
    x, packed = bfloat16(rows, depth), pack_weights(layer(columns, depth))
    bias, residual = seeded(columns, seed=2), bfloat16(rows, columns, seed=3)
    for given in ((None, None), (bias, None), (None, residual), (bias, residual)):
        found = kernels.bf16_linear(x, packed, columns, bias=given[0], residual=given[1])
        assert found.dtype == torch.bfloat16
        expected = bf16_linear_reference(x, packed, columns, given[0], given[1], 0)
        assert_within_a_step(found, expected, atol=SUMS_ATOL)
        # Sums in another order differ in their last bits, which seldom rounds another way.
        assert (found == expected).double().mean() >= 0.98


@pytest.mark.parametrize("activation", list(Activation))
def test_what_follows_a_product(kernels: Kernels, activation: Activation) -> None:
    x, packed = bfloat16(50, 32) * 3, pack_weights(layer(80, 32))
    residual = bfloat16(50, 80, seed=3)
    for other in (None, residual):
        found = kernels.bf16_linear(x, packed, 80, residual=other, activation=activation)
        expected = bf16_linear_reference(x, packed, 80, None, other, activation)
        assert_within_a_step(found, expected, atol=SUMS_ATOL + GELU_ATOL)
        assert (found.double() - expected.double()).abs().mean() <= 4e-4


def test_a_text_has_the_same_bits_in_any_company(kernels: Kernels) -> None:
    x, packed = bfloat16(900, 384), pack_weights(layer(200, 384))
    together = kernels.bf16_linear(x, packed, 200)
    for first, end in ((0, 1), (17, 23), (100, 350), (890, 900)):
        alone = kernels.bf16_linear(x[first:end].contiguous(), packed, 200)
        assert torch.equal(alone, together[first:end])


def test_threads_change_no_bit(kernels: Kernels) -> None:
    packed, usual = pack_weights(layer(200, 96)), torch.get_num_threads()
    try:
        for rows in (7, 40, 600):
            found = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found.append(kernels.bf16_linear(bfloat16(rows, 96), packed, 200))
            assert torch.equal(found[0], found[1])
            assert torch.equal(found[0], found[2])
    finally:
        torch.set_num_threads(usual)


def test_rows_are_read_in_place(kernels: Kernels) -> None:
    wide, other = bfloat16(40, 100), bfloat16(40, 200, seed=1)
    packed = pack_weights(layer(64, 36))
    found = kernels.bf16_linear(wide[:, 8:44], packed, 64, residual=other[:, 20:84])
    expected = kernels.bf16_linear(
        wide[:, 8:44].contiguous(), packed, 64, residual=other[:, 20:84].contiguous()
    )
    assert torch.equal(found, expected)


def test_what_is_no_number_stays_in_its_row(kernels: Kernels) -> None:
    packed, x = pack_weights(layer(64, 8)), torch.zeros(3, 8, dtype=torch.bfloat16)
    x[1, 2], x[2, 3] = torch.inf, torch.nan
    found = kernels.bf16_linear(x, packed, 64, bias=torch.ones(64))
    assert found[0].eq(1).all()
    assert not found[1].isfinite().any()
    assert not found[2].isfinite().any()


@pytest.mark.parametrize(
    "change",
    [
        {"x": bfloat16(4, 18)},
        {"x": bfloat16(4, 15)},
        {"x": seeded(4, 16)},
        {"packed": seeded(packed_size(64, 16))},
        {"columns": 100},
        {"bias": seeded(63)},
        {"bias": bfloat16(64)},
        {"residual": bfloat16(4, 63)},
        {"residual": bfloat16(3, 64)},
        {"residual": seeded(4, 64)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_operands_are_refused(kernels: Kernels, change: dict[str, object]) -> None:
    arguments = {
        "x": bfloat16(4, 16),
        "packed": pack_weights(layer(64, 16)),
        "columns": 64,
        **change,
    }
    if change.keys() == {"x"} and arguments["x"].shape[1] == 18:  # type: ignore[attr-defined]
        arguments["packed"] = torch.zeros(packed_size(64, 48), dtype=torch.bfloat16)
    with pytest.raises(RuntimeError):
        kernels.bf16_linear(**arguments)  # type: ignore[arg-type]
