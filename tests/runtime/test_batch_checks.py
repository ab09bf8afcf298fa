"""What is kept away from native code: rows and key counts that would be read out of bounds."""

from collections.abc import Sequence

import numpy as np
import pytest

from fake_artifact import make_manifest
from infinity_v3.artifacts.manifest import Limits
from infinity_v3.runtime.batch import NO_READOUTS, Batch
from infinity_v3.runtime.engine import EngineError
from infinity_v3.runtime.engines.batch_checks import check_bounds

FOLDING = frozenset({"input_ids", "position_ids", "cu_seqlens", "rows"})
ENCODER = frozenset({"input_ids", "position_ids", "cu_seqlens"})
COUNTING = ENCODER | {"key_counts"}
BAD_ROWS = "its rows are not those of its stored tokens"
BAD_PREFIX = "a sequence shares tokens that are not its first ones"


def make_batch(
    num_stored: int,
    cu_seqlens: Sequence[int],
    *,
    rows: Sequence[int] | None = None,
    key_counts: Sequence[int] | None = None,
) -> Batch:
    zeros = np.zeros(num_stored, dtype=np.int64)
    return Batch(
        input_ids=zeros,
        position_ids=zeros,
        token_type_ids=zeros,
        cu_seqlens=np.array(cu_seqlens, dtype=np.int32),
        rows=np.array(range(num_stored) if rows is None else rows, dtype=np.int64),
        key_counts=np.array(
            np.diff(cu_seqlens) if key_counts is None else key_counts, dtype=np.int32
        ),
        readout_positions=NO_READOUTS,
        readout_bounds=np.zeros(len(cu_seqlens), dtype=np.int64),
    )


def check(batch: Batch, input_names: frozenset[str]) -> None:
    limits = Limits(max_tokens=16, max_sequences=8)
    check_bounds(batch, make_manifest().model, limits, input_names)


@pytest.mark.parametrize(
    ("num_stored", "cu_seqlens", "rows"),
    [
        (1, [0, 1], [0]),
        (5, [0, 2, 5], [0, 1, 2, 3, 4]),
        (4, [0, 3, 6], [0, 1, 2, 0, 1, 3]),
        (5, [0, 3, 6, 9], [0, 1, 2, 0, 1, 3, 0, 1, 4]),
        (5, [0, 2, 5, 8], [0, 1, 0, 1, 2, 0, 3, 4]),
    ],
)
def test_rows_as_folding_makes_them_are_taken(
    num_stored: int, cu_seqlens: list[int], rows: list[int]
) -> None:
    check(make_batch(num_stored, cu_seqlens, rows=rows), FOLDING)


@pytest.mark.parametrize(
    ("num_stored", "cu_seqlens", "rows", "reason"),
    [
        (3, [0, 3], [1, 2, 3], BAD_ROWS),
        (3, [0, 3], [0, 2, 2], BAD_ROWS),
        (3, [0, 3], [0, -1, 1], BAD_ROWS),
        (3, [0, 3], [-1, 0, 1], BAD_ROWS),
        (3, [0, 3], [0, 1, np.iinfo(np.int64).max], BAD_ROWS),
        (2, [0, 3], [0, 1, 2], BAD_ROWS),
        (4, [0, 3], [0, 1, 2], BAD_ROWS),
        (2, [0, 3], [0, 0, 1], BAD_PREFIX),
        (2, [0, 3], [0, 1, 0], BAD_PREFIX),
        (2, [0, 2, 4], [0, 1, 0, 1], BAD_PREFIX),
        (4, [0, 2, 5], [0, 1, 2, 0, 3], BAD_PREFIX),
        (3, [0, 2, 5], [0, 1, 0, 2, 2], BAD_PREFIX),
        (4, [0, 2, 5], [0, 1, 0, 2], "its arrays differ in length"),
        (2, [0, 2], [], "its arrays differ in length"),
    ],
)
def test_other_rows_are_refused(
    num_stored: int, cu_seqlens: list[int], rows: list[int], reason: str
) -> None:
    with pytest.raises(EngineError, match=reason):
        check(make_batch(num_stored, cu_seqlens, rows=rows), FOLDING)


def test_a_graph_without_rows_gets_no_folded_batch() -> None:
    with pytest.raises(EngineError, match="its arrays differ in length"):
        check(make_batch(4, [0, 3, 6], rows=[0, 1, 2, 0, 1, 3]), ENCODER)


@pytest.mark.parametrize("key_counts", [[1, 1], [2, 3], [2, 1]])
def test_key_counts_within_their_sequences_are_taken(key_counts: list[int]) -> None:
    check(make_batch(5, [0, 2, 5], key_counts=key_counts), COUNTING)


@pytest.mark.parametrize(
    ("key_counts", "reason"),
    [
        ([0, 1], "a key count lies outside 1..length"),
        ([3, 3], "a key count lies outside 1..length"),
        ([2, -1], "a key count lies outside 1..length"),
        ([2], "its key counts are not one per sequence"),
        ([2, 3, 1], "its key counts are not one per sequence"),
    ],
)
def test_other_key_counts_are_refused(key_counts: list[int], reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        check(make_batch(5, [0, 2, 5], key_counts=key_counts), COUNTING)
    check(make_batch(5, [0, 2, 5], key_counts=key_counts), ENCODER)


def test_bounds_so_far_apart_that_their_difference_overflows_are_refused() -> None:
    batch = make_batch(2, [0, 2**31 - 1, -5, 2], key_counts=[1, 1, 1])
    with pytest.raises(EngineError, match="a sequence is empty"):
        check(batch, ENCODER)
