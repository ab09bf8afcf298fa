"""Post-processing against the same arithmetic in longhand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.postprocess import l2_normalize, read_rows
from infinity_v3.runtime.work import Readout, RowForm, SparseRow

RAW = Readout(output="pooled")
UNIT = Readout(output="pooled", normalize=True)
TOKENS = Readout(output="hidden", form=RowForm.TOKENS)
SPARSE = Readout(output="sparse", form=RowForm.SPARSE)
READOUTS = Readout(output="option_logits", form=RowForm.READOUTS)
CU_SEQLENS = np.array([0, 2, 3, 7], dtype=np.int32)
READ = ([1], [0], [0, 1, 3])
BATCH = pack(
    [
        EncodedText(
            input_ids=np.zeros(length, dtype=np.int64),
            readout_positions=np.array(places, dtype=np.int64),
        )
        for length, places in zip(np.diff(CU_SEQLENS).tolist(), READ, strict=True)
    ],
    position_offset=0,
)

LONE = pack([EncodedText(input_ids=np.zeros(2, dtype=np.int64))], position_offset=0)


@pytest.fixture
def tensors() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return {
        "pooled": rng.normal(size=(3, 16)).astype(np.float32),
        "hidden": rng.normal(size=(7, 5)).astype(np.float32),
    }


def read(
    tensors: dict[str, NDArray[np.float32]], readouts: list[Readout]
) -> list[NDArray[np.float32] | None]:
    """Rows that are not sparse."""
    rows = read_rows(tensors, BATCH, readouts)
    return [None if isinstance(row, SparseRow) else row for row in rows]


def test_vectors_have_length_one_in_float64(tensors: dict[str, NDArray[np.float32]]) -> None:
    rows = read(tensors, [UNIT] * 3)
    for row, raw in zip(rows, tensors["pooled"], strict=True):
        assert row is not None
        assert row.dtype == np.float32
        wide = raw.astype(np.float64)
        np.testing.assert_array_equal(row, (wide / np.sqrt((wide**2).sum())).astype(np.float32))


def test_cut_comes_before_normalising(tensors: dict[str, NDArray[np.float32]]) -> None:
    readout = Readout(output="pooled", normalize=True, dimensions=4)
    row = read(tensors, [readout] * 3)[1]
    assert row is not None
    assert row.shape == (4,)
    assert np.linalg.norm(row.astype(np.float64)) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(
        row * np.linalg.norm(tensors["pooled"][1, :4]), tensors["pooled"][1, :4], atol=1e-6
    )


def test_cut_without_normalising_does_not_rescale(tensors: dict[str, NDArray[np.float32]]) -> None:
    row = read(tensors, [Readout(output="pooled", dimensions=3)] * 3)[2]
    assert row is not None
    np.testing.assert_array_equal(row, tensors["pooled"][2, :3])
    assert row.flags.c_contiguous


def test_one_dimension_gives_plus_or_minus_one(tensors: dict[str, NDArray[np.float32]]) -> None:
    readout = Readout(output="pooled", normalize=True, dimensions=1)
    rows = read(tensors, [readout] * 3)
    assert [abs(float(row[0])) for row in rows if row is not None] == [1.0, 1.0, 1.0]


def test_mixed_readouts_of_one_batch(tensors: dict[str, NDArray[np.float32]]) -> None:
    first, second, third = read(tensors, [UNIT, TOKENS, RAW])
    assert first is not None
    assert second is not None
    assert third is not None
    np.testing.assert_array_equal(first, l2_normalize(tensors["pooled"][:1])[0])
    np.testing.assert_array_equal(second, tensors["hidden"][2:3])
    np.testing.assert_array_equal(third, tensors["pooled"][2])


def test_token_vectors_may_be_normalised_each(tensors: dict[str, NDArray[np.float32]]) -> None:
    readout = Readout(output="hidden", form=RowForm.TOKENS, normalize=True)
    for row, start, stop in zip(
        read(tensors, [readout] * 3), CU_SEQLENS, CU_SEQLENS[1:], strict=False
    ):
        assert isinstance(row, np.ndarray)
        np.testing.assert_array_equal(row, l2_normalize(tensors["hidden"][start:stop]))


def test_sparse_rows_hold_positive_entries_only() -> None:
    tensor = np.array([[0, 2, 0, 0.5], [0, 0, 0, 0], [1e-40, 0, 3, 0]], np.float32)
    rows = read_rows({"sparse": tensor}, BATCH, [SPARSE] * 3)
    found = [
        (row.indices.tolist(), row.values.tolist()) for row in rows if isinstance(row, SparseRow)
    ]
    assert found == [([1, 3], [2.0, 0.5]), ([], []), ([0, 2], [float(tensor[2, 0]), 3.0])]


def test_sparse_rows_do_not_keep_the_batch_alive() -> None:
    tensor = np.ones((3, 4), np.float32)
    for row in read_rows({"sparse": tensor}, BATCH, [SPARSE] * 3):
        assert isinstance(row, SparseRow)
        assert row.values.base is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_sparse_rows_spoil_only_their_item(bad: float) -> None:
    tensor = np.ones((3, 4), np.float32)
    tensor[1, 2] = bad
    rows = read_rows({"sparse": tensor}, BATCH, [SPARSE] * 3)
    assert [row is None for row in rows] == [False, True, False]


def test_token_matrices_do_not_keep_the_batch_alive(
    tensors: dict[str, NDArray[np.float32]],
) -> None:
    rows = read(tensors, [TOKENS] * 3)
    assert [row.shape for row in rows if row is not None] == [(2, 5), (1, 5), (4, 5)]
    assert all(row.base is None for row in rows if row is not None)


def test_a_zero_vector_stays_zero() -> None:
    np.testing.assert_array_equal(l2_normalize(np.zeros((2, 4), np.float32)), np.zeros((2, 4)))


@pytest.mark.parametrize("scale", [1e-30, 1e30, 3e38, 1e-44])
def test_norms_neither_overflow_nor_underflow(scale: float) -> None:
    row = l2_normalize(np.full((1, 4), scale, dtype=np.float32))
    np.testing.assert_allclose(row, 0.5, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("readout", [UNIT, RAW, Readout(output="pooled", dimensions=2)])
def test_non_finite_numbers_spoil_only_their_item(
    tensors: dict[str, NDArray[np.float32]], bad: float, readout: Readout
) -> None:
    clean = read(tensors, [readout] * 3)
    tensors["pooled"][1, -1] = bad
    rows = read(tensors, [readout] * 3)
    assert rows[1] is None
    for row, expected in ((rows[0], clean[0]), (rows[2], clean[2])):
        assert row is not None
        assert expected is not None
        np.testing.assert_array_equal(row, expected)


def test_non_finite_token_spoils_only_its_item(tensors: dict[str, NDArray[np.float32]]) -> None:
    tensors["hidden"][3, 0] = np.nan
    rows = read(tensors, [TOKENS] * 3)
    assert [row is None for row in rows] == [False, False, True]


@pytest.mark.parametrize("spoilt", [None, 0.0, np.nan, -np.inf, 3e38, 1e-44])
@pytest.mark.parametrize(
    "readout",
    [
        UNIT,
        RAW,
        Readout(output="pooled", dimensions=2),
        Readout(output="pooled", normalize=True, dimensions=2),
    ],
)
def test_a_vector_is_the_same_alone_and_in_a_batch(
    tensors: dict[str, NDArray[np.float32]], readout: Readout, spoilt: float | None
) -> None:
    if spoilt is not None:
        tensors["pooled"][1] = spoilt
    together = read(tensors, [readout] * 3)
    for index, row in enumerate(together):
        alone = {"pooled": tensors["pooled"][index : index + 1]}
        (lone,) = read_rows(alone, LONE, [readout])
        np.testing.assert_array_equal(lone, row, strict=True)


def test_each_item_gets_the_rows_of_the_tokens_that_are_read_of_it() -> None:
    tensor = np.arange(5, dtype=np.float32)[:, np.newaxis]
    rows = read({"option_logits": tensor}, [READOUTS] * 3)
    assert [row is not None and row.tolist() for row in rows] == [
        [[0.0]],
        [[1.0]],
        [[2.0], [3.0], [4.0]],
    ]
    assert BATCH.readout_positions.tolist() == [1, 2, 3, 4, 6]
