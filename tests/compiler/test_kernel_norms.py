"""The normalisation kernels against torch in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from infinity_v3.compiler.operators import define_operators
from kernel_calls import Kernels, assert_close, seeded

DTYPES = (torch.float32, torch.bfloat16)
WIDTHS = (1, 7, 16, 40, 384, 1000, 1024)
ROWS = (1, 3, 200)
"""The last one is work for a team."""
TABLE_ROWS = (50, 9, 2)


def exact(rows: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float = 1e-12) -> Tensor:
    """LayerNorm in float64."""
    offset = None if bias is None else bias.double()
    return functional.layer_norm(rows.double(), rows.shape[-1:], weight.double(), offset, epsilon)


def assert_rounded_once(found: Tensor, expected: Tensor) -> None:
    """In bfloat16 at most half of the distance to the next number, and a little of float32."""
    assert found.shape == expected.shape
    step = 2**-8 if found.dtype == torch.bfloat16 else 0.0
    allowed = expected.abs() * step + 4e-6 * float(expected.abs().max())
    excess = (found.double() - expected).abs() - allowed
    assert excess.max() <= 0, f"{excess.max():.3g} more than {allowed.max():.3g}"


def columns(width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return seeded(width, seed=1, dtype=dtype), seeded(width, seed=2, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_follow_their_definition(kernels: Kernels, width: int, dtype: torch.dtype) -> None:
    for num_rows in ROWS:
        x = (seeded(num_rows, width) * 2 + 3).to(dtype)
        other = seeded(num_rows, width, seed=3, dtype=dtype)
        for numbers in DTYPES:
            weight, bias = columns(width, numbers)
            for given, added in ((None, None), (bias, None), (None, other), (bias, other)):
                found = kernels.layer_norm(x, weight, given, other=added, epsilon=1e-3)
                assert found.dtype == dtype
                rows = x.double() if added is None else x.double() + added.double()
                assert_rounded_once(found, exact(rows, weight, given, 1e-3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_tables", [1, 2, 3])
@pytest.mark.parametrize("width", [7, 384])
def test_rows_of_tables_follow_their_definition(
    kernels: Kernels, width: int, num_tables: int, dtype: torch.dtype
) -> None:
    weight, bias = columns(width, dtype)
    tables = [seeded(rows, width, seed=rows, dtype=dtype) for rows in TABLE_ROWS[:num_tables]]
    for num_rows in ROWS:
        lookups = [(table, (torch.arange(num_rows) * 7 + 1) % len(table)) for table in tables]
        rows = torch.stack([table.double()[ids] for table, ids in lookups]).sum(0)
        for given in (None, bias):
            found = kernels.embedding_norm(lookups, weight, given)
            assert found.dtype == dtype
            assert_rounded_once(found, exact(rows, weight, given))


def test_large_means_cost_no_digits(kernels: Kernels) -> None:
    x = seeded(5, 384) + 1000
    weight, bias = columns(384, torch.float32)
    # The mean's own rounding, a 2^-24th of 1000, is all that is left of it.
    assert_close(kernels.layer_norm(x, weight, bias), exact(x, weight, bias), atol=1e-3)


def test_rows_and_ids_are_read_in_place(kernels: Kernels) -> None:
    wide, table = seeded(40, 100, dtype=torch.bfloat16), seeded(9, 60, dtype=torch.bfloat16)
    weight, bias = columns(36, torch.bfloat16)
    x, other = wide[:, 8:44], wide[:, 50:86]
    found = kernels.layer_norm(x, weight, bias, other=other)
    expected = kernels.layer_norm(x.contiguous(), weight, bias, other=other.contiguous())
    assert torch.equal(found, expected)
    part, one = table[:, 4:40], torch.tensor([8])
    apart, same = torch.arange(18)[::2] % 9, one.expand(9)
    found = kernels.embedding_norm([(part, apart), (part, same)], weight, bias)
    copied = [(part.contiguous(), ids.contiguous()) for ids in (apart, same)]
    assert torch.equal(found, kernels.embedding_norm(copied, weight, bias))


def test_a_row_has_the_same_bits_in_any_company(kernels: Kernels) -> None:
    x, table = seeded(300, 200, dtype=torch.bfloat16), seeded(50, 200, dtype=torch.bfloat16)
    weight, bias = columns(200, torch.bfloat16)
    ids = torch.arange(300) * 11 % 50
    usual, together = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            together.append(
                (
                    kernels.layer_norm(x, weight, bias),
                    kernels.embedding_norm([(table, ids)], weight, bias),
                )
            )
    finally:
        torch.set_num_threads(usual)
    for norms, embeddings in together:
        assert torch.equal(norms, together[0][0])
        assert torch.equal(embeddings, together[0][1])
        for row in (0, 17, 299):
            alone = slice(row, row + 1)
            assert torch.equal(kernels.layer_norm(x[alone], weight, bias), norms[alone])
            found = kernels.embedding_norm([(table, ids[alone])], weight, bias)
            assert torch.equal(found, embeddings[alone])


def test_what_is_no_number_stays_in_its_row(kernels: Kernels) -> None:
    x = seeded(3, 20, dtype=torch.bfloat16)
    x[1, 2], x[2, 3] = torch.inf, torch.nan
    weight, bias = columns(20, torch.bfloat16)
    found = kernels.layer_norm(x, weight, bias)
    assert_rounded_once(found[:1], exact(x[:1], weight, bias))
    assert found[1:].isnan().all()


def test_no_rows_give_none(kernels: Kernels) -> None:
    weight, _ = columns(16, torch.float32)
    assert kernels.layer_norm(seeded(0, 16), weight).shape == (0, 16)
    ids = torch.empty(0, dtype=torch.int64)
    assert kernels.embedding_norm([(seeded(3, 16), ids)], weight).shape == (0, 16)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong_id", [-1, 5, 2**40])
def test_ids_outside_their_table_are_refused(kernels: Kernels, place: int, wrong_id: int) -> None:
    weight, bias = columns(16, torch.bfloat16)
    table = seeded(5, 16, dtype=torch.bfloat16)
    lookups = [(table, torch.tensor([4, 0, 3])) for _ in range(3)]
    assert kernels.embedding_norm(lookups, weight, bias).shape == (3, 16)
    lookups[place] = (table, torch.tensor([4, 0, wrong_id]))
    with pytest.raises(RuntimeError):
        kernels.embedding_norm(lookups, weight, bias)


@pytest.mark.parametrize(
    "change",
    [
        {"x": seeded(4, 16).double()},
        {"x": seeded(16, 4).t()},
        {"x": seeded(4, 15)},
        {"x": seeded(4, 2, 16)},
        {"other": seeded(3, 16)},
        {"other": seeded(4, 17)},
        {"other": seeded(4, 16, dtype=torch.bfloat16)},
        {"weight": seeded(17)},
        {"weight": seeded(16).double()},
        {"weight": seeded(32)[::2]},
        {"bias": seeded(15)},
        {"bias": seeded(16).half()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_rows_are_refused(kernels: Kernels, change: dict[str, Tensor]) -> None:
    given = {"x": seeded(4, 16), "weight": seeded(16), "bias": seeded(16), "other": None}
    assert kernels.layer_norm(**given).shape == (4, 16)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        kernels.layer_norm(**(given | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "second",
    [
        (seeded(5, 17), torch.arange(4)),
        (seeded(5, 16, dtype=torch.bfloat16), torch.arange(4)),
        (seeded(16, 5).t(), torch.arange(4)),
        (seeded(5, 16), torch.arange(3)),
        (seeded(5, 16), torch.arange(4, dtype=torch.int32)),
        (seeded(5, 16), torch.zeros(4, 1, dtype=torch.int64)),
    ],
    ids=["width", "dtype", "columns", "length", "int32", "matrix"],
)
def test_other_tables_are_refused(kernels: Kernels, second: tuple[Tensor, Tensor]) -> None:
    first = (seeded(5, 16), torch.arange(4))
    assert kernels.embedding_norm([first, first], seeded(16)).shape == (4, 16)
    with pytest.raises(RuntimeError):
        kernels.embedding_norm([first, second], seeded(16))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_references_follow_the_definition(dtype: torch.dtype) -> None:
    define_operators()
    ops = torch.ops.infinity
    weight, bias = columns(40, dtype)
    x, other = (seeded(9, 40, seed=seed, dtype=dtype) for seed in (3, 4))
    for added, offset in ((None, None), (other, bias)):
        rows = x.double() if added is None else x.double() + added.double()
        found = ops.layer_norm(x, added, weight, offset, 1e-12)
        assert_rounded_once(found, exact(rows, weight, offset))
    ids, second_ids = torch.arange(8), torch.arange(8).flip(0)
    missing = (None, None)
    found = ops.embedding_norm(x, ids, *missing, *missing, weight, None, 1e-12)
    assert_rounded_once(found, exact(x[ids], weight, None))
    found = ops.embedding_norm(x, ids, other, second_ids, x, second_ids, weight, bias, 1e-12)
    rows = x.double()[ids] + other.double()[second_ids] + x.double()[second_ids]
    assert_rounded_once(found, exact(rows, weight, bias))
