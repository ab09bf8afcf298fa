"""Folding, against a trie: what is shared, where it is stored, and when it is worth it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_artifact import make_manifest
from infinity_v3.artifacts.manifest import Limits
from infinity_v3.runtime.batch import Batch, EncodedText, pack
from infinity_v3.runtime.engines.batch_checks import check_bounds
from infinity_v3.runtime.fold import MAX_STORED_SHARE, Ids, find_fold, fold, pack_folded

OFFSET = 2
INPUTS = frozenset({"input_ids", "position_ids", "cu_seqlens", "rows"})

few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=8)
batches = st.lists(few_tokens, min_size=1, max_size=12)


def as_ids(sequences: Sequence[Sequence[int]]) -> list[Ids]:
    return [np.array(sequence, dtype=np.int64) for sequence in sequences]


def make_folded(sequences: Sequence[Ids]) -> Batch:
    texts = [EncodedText(input_ids=ids) for ids in sequences]
    return pack_folded(texts, fold(sequences), position_offset=OFFSET)


def count_with_trie(sequences: Sequence[Sequence[int]]) -> int:
    """Nodes of a trie, and one more for each sequence whose last token would not be its own."""
    ordered = sorted(map(tuple, sequences))
    nodes = {sequence[: end + 1] for sequence in ordered for end in range(len(sequence))}
    return len(nodes) + len(ordered) - len(set(ordered))


@given(batches)
def test_as_many_tokens_are_shared_as_in_a_trie(sequences: list[list[int]]) -> None:
    found = fold(as_ids(sequences))
    assert len(found.stored) == count_with_trie(sequences)
    assert sorted(found.order.tolist()) == list(range(len(sequences)))
    assert found.num_shared.sum() == len(found.rows) - len(found.stored)


@given(batches)
def test_a_folded_batch_holds_the_tokens_of_the_plain_one(sequences: list[list[int]]) -> None:
    ids = as_ids(sequences)
    found, folded = fold(ids), make_folded(ids)
    ordered = [EncodedText(input_ids=ids[place]) for place in found.order]
    plain = pack(ordered, position_offset=OFFSET)
    np.testing.assert_array_equal(folded.cu_seqlens, plain.cu_seqlens)
    for name in ("input_ids", "position_ids", "token_type_ids"):
        stored, expected = getattr(folded, name), getattr(plain, name)
        np.testing.assert_array_equal(stored[folded.rows], expected)
        assert stored.dtype == expected.dtype
    assert (folded.num_tokens, folded.num_stored_tokens) == (plain.num_tokens, len(found.stored))


@given(batches)
def test_equal_rows_mean_equal_prefixes(sequences: list[list[int]]) -> None:
    ids = as_ids(sequences)
    found, folded = fold(ids), make_folded(ids)
    prefixes: dict[int, tuple[int, ...]] = {}
    for place, start in zip(found.order, folded.cu_seqlens[:-1], strict=True):
        for end, row in enumerate(folded.rows[start : start + len(ids[place])].tolist(), 1):
            prefix = tuple(sequences[place][:end])
            assert prefixes.setdefault(row, prefix) == prefix


@given(batches)
def test_engines_take_every_folded_batch(sequences: list[list[int]]) -> None:
    batch = make_folded(as_ids(sequences))
    facts = replace(make_manifest().model, position_offset=OFFSET)
    check_bounds(batch, facts, Limits(max_tokens=128, max_sequences=16), INPUTS)


@given(batches)
def test_folding_is_chosen_exactly_where_it_saves_enough(sequences: list[list[int]]) -> None:
    ids = as_ids(sequences)
    best = fold(ids)
    found = find_fold(ids)
    if len(best.stored) > MAX_STORED_SHARE * len(best.rows):
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(found.rows, best.rows)
        np.testing.assert_array_equal(found.order, best.order)


@pytest.mark.parametrize("num_shared", [0, 1, 15, 16, 17, 40])
def test_long_prefixes_are_found_to_their_end(num_shared: int) -> None:
    prefix = np.arange(num_shared) + 1000
    ids = [np.concatenate([prefix, np.arange(50) + 2000 * n]) for n in range(1, 5)]
    found = find_fold(ids)
    share = 1 - 3 * num_shared / (4 * (50 + num_shared))
    assert (found is not None) == (share <= MAX_STORED_SHARE)
    assert len(fold(ids).stored) == num_shared + 4 * 50


def test_the_order_is_that_of_numbers_not_of_their_bytes() -> None:
    ids = as_ids([[256, 5], [1, 7], [65536], [255], [1, 300, 4], [1, 300]])
    assert fold(ids).order.tolist() == [1, 5, 4, 3, 0, 2]


def test_copies_share_all_but_the_last_token() -> None:
    batch = make_folded(as_ids([[7, 8, 9]] * 3))
    assert batch.rows.tolist() == [0, 1, 2, 0, 1, 3, 0, 1, 4]
    assert batch.input_ids.tolist() == [7, 8, 9, 9, 9]
    assert batch.position_ids.tolist() == [2, 3, 4, 4, 4]


def test_a_text_that_another_one_goes_on_from_is_shared_whole() -> None:
    batch = make_folded(as_ids([[7, 8, 9, 4], [7, 8], [7, 8, 9, 5]]))
    assert batch.rows.tolist() == [0, 1, 0, 1, 2, 3, 0, 1, 2, 4]


@pytest.mark.parametrize("sequences", [[[7]], [[7], [7]], [[7, 8, 9]], [[1, 2, 3], [4, 2, 3]]])
def test_nothing_to_share_is_not_folded(sequences: list[list[int]]) -> None:
    assert find_fold(as_ids(sequences)) is None
