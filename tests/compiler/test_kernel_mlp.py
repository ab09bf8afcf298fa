"""The kernel of two bfloat16 layers against the one of single layers, whose numbers it has."""

import pytest
import torch
from torch import Tensor

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.reference import bf16_mlp_reference
from infinity_v3.compiler.bf16.weights import pack_weights
from kernel_calls import BF16_TARGETS, Kernels, seeded

pytestmark = pytest.mark.skipif(not BF16_TARGETS, reason="this CPU lacks avx512_bf16")
ROWS = (0, 1, 15, 16, 17, 33, 79, 80, 200, 700)
SHAPES = ((32, 64, 32), (34, 96, 70), (300, 512, 127), (384, 1536, 384))
"""Numbers of a row, of what lies between the layers, and of a result."""


@pytest.fixture(scope="session", params=BF16_TARGETS, ids=lambda target: target.name)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(request.param, tmp_path_factory.mktemp("kernels"))


def bfloat16(*shape: int, seed: int = 0) -> Tensor:
    return seeded(*shape, seed=seed, dtype=torch.bfloat16)


def layer(columns: int, depth: int, seed: int) -> tuple[Tensor, Tensor, int]:
    weight = (seeded(columns, depth, seed=seed) * depth**-0.5).bfloat16()
    return pack_weights(weight), seeded(columns, seed=seed + 1), columns


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("depth", "hidden", "columns"), SHAPES)
def test_the_numbers_are_those_of_two_layers(
    kernels: Kernels, rows: int, depth: int, hidden: int, columns: int
) -> None:
    x, residual = bfloat16(rows, depth), bfloat16(rows, columns, seed=3)
    up, down = layer(hidden, depth, 5), layer(columns, hidden, 7)
    for other, biases in ((None, True), (residual, True), (residual, False)):
        up_bias, down_bias = (up[1], down[1]) if biases else (None, None)
        found = kernels.bf16_mlp(
            x,
            (up[0], up_bias, hidden),
            (down[0], down_bias, columns),
            residual=other,
            activation=Activation.GELU,
        )
        between = kernels.bf16_linear(x, up[0], hidden, bias=up_bias, activation=Activation.GELU)
        expected = kernels.bf16_linear(between, down[0], columns, bias=down_bias, residual=other)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("activation", list(Activation))
def test_both_layers_follow_their_definition(kernels: Kernels, activation: Activation) -> None:
    x, residual = bfloat16(50, 64), bfloat16(50, 70, seed=3)
    up, down = layer(96, 64, 5), layer(70, 96, 7)
    found = kernels.bf16_mlp(x, up, down, residual=residual, activation=activation)
    expected = bf16_mlp_reference(x, *_swapped(up), activation, *_swapped(down), residual)
    assert found.dtype == torch.bfloat16
    # Sums of 96 numbers, some of which were rounded to 8 bits in another direction.
    torch.testing.assert_close(found.float(), expected.float(), rtol=2**-7, atol=2**-7)
    assert (found == expected).double().mean() >= 0.97


def _swapped(layer: tuple[Tensor, Tensor, int]) -> tuple[Tensor, int, Tensor]:
    weights, bias, columns = layer
    return weights, columns, bias


def test_threads_and_company_change_no_bit(kernels: Kernels) -> None:
    up, down = layer(256, 96, 5), layer(200, 256, 7)
    x, usual = bfloat16(900, 96), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = kernels.bf16_mlp(x, up, down)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for first, end in ((0, 1), (17, 23), (40, 140), (100, 350), (0, 900)):
                found = kernels.bf16_mlp(x[first:end].contiguous(), up, down)
                assert torch.equal(found, expected[first:end])
    finally:
        torch.set_num_threads(usual)


def test_rows_are_read_in_place(kernels: Kernels) -> None:
    wide, other = bfloat16(40, 100), bfloat16(40, 200, seed=1)
    up, down = layer(64, 36, 5), layer(64, 64, 7)
    found = kernels.bf16_mlp(wide[:, 8:44], up, down, residual=other[:, 20:84])
    expected = kernels.bf16_mlp(
        wide[:, 8:44].contiguous(), up, down, residual=other[:, 20:84].contiguous()
    )
    assert torch.equal(found, expected)


def test_what_is_no_number_stays_in_its_row(kernels: Kernels) -> None:
    up, down = layer(64, 8, 5), layer(64, 64, 7)
    x = torch.zeros(35, 8, dtype=torch.bfloat16)
    x[1, 2], x[33, 3] = torch.inf, torch.nan
    found = kernels.bf16_mlp(x, up, down)
    lost = torch.tensor([1, 33])
    assert not found[lost].isfinite().all()
    kept = torch.ones(35, dtype=torch.bool).index_fill(0, lost, False)
    assert found[kept].isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        {"x": bfloat16(4, 15)},
        {"x": seeded(4, 16)},
        {"up": (torch.zeros(96 * 32, dtype=torch.bfloat16), None, 70)},
        {"up": (seeded(64 * 32), None, 64)},
        {"up": layer(96, 16, 5)},
        {"down": layer(70, 32, 7)},
        {"down": (layer(70, 64, 7)[0], seeded(69), 70)},
        {"residual": bfloat16(4, 69)},
        {"residual": bfloat16(3, 70)},
        {"residual": seeded(4, 70)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_operands_are_refused(kernels: Kernels, change: dict[str, object]) -> None:
    arguments = {"x": bfloat16(4, 16), "up": layer(64, 16, 5), "down": layer(70, 64, 7), **change}
    with pytest.raises(RuntimeError):
        kernels.bf16_mlp(**arguments)  # type: ignore[arg-type]
