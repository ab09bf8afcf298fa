"""Filling batches up: sizes, and that nothing of the batch itself changes."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.engines.filling import MIN_SEQUENCES, fill_up, rounded_tokens


@given(st.integers(1, 1 << 20))
def test_rounding_adds_little_and_is_stable(num_tokens: int) -> None:
    rounded = rounded_tokens(num_tokens)
    assert num_tokens <= rounded <= max(num_tokens + num_tokens / 8, num_tokens + 7)
    assert rounded_tokens(rounded) == rounded


@pytest.mark.parametrize("size", [8, 32, 128, 1024, 4096, 16384])
def test_powers_of_two_stay(size: int) -> None:
    assert rounded_tokens(size) == size


def test_few_sizes_remain() -> None:
    assert len({rounded_tokens(size) for size in range(1, 4097)}) <= 60


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.integers(0, 64),
    st.integers(0, 64),
    st.integers(0, 3),
)
def test_filling_keeps_the_batch_and_adds_tokens_of_no_sequence(
    lengths: list[int], num_stored: int, num_tokens: int, offset: int
) -> None:
    texts = [EncodedText(input_ids=np.arange(5, 5 + n, dtype=np.int64)) for n in lengths]
    batch = pack(texts, position_offset=offset)
    filled = fill_up(batch, num_stored=num_stored, num_tokens=num_tokens, position_offset=offset)
    count = batch.num_tokens
    assert filled.num_stored_tokens == max(count, num_stored)
    assert filled.num_tokens == max(count, num_tokens)
    assert filled.num_sequences == max(MIN_SEQUENCES, batch.num_sequences)
    assert filled.cu_seqlens[-1] == count
    for field in fields(batch):
        before, after = getattr(batch, field.name), getattr(filled, field.name)
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after[: len(before)], before)
    assert (filled.position_ids[count:] == offset).all()
    for padded in (filled.input_ids, filled.token_type_ids, filled.rows):
        assert (padded[count:] == 0).all()
    assert filled.key_counts[len(lengths) :].tolist() == [0] * (filled.num_sequences - len(lengths))
