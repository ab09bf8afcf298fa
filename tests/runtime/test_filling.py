"""Filling batches up: sizes, and that nothing of the batch itself changes."""

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


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 64), st.integers(0, 3))
def test_filling_keeps_the_batch_and_adds_tokens_of_no_sequence(
    lengths: list[int], num_tokens: int, offset: int
) -> None:
    texts = [EncodedText(input_ids=np.arange(5, 5 + n, dtype=np.int64)) for n in lengths]
    batch = pack(texts, position_offset=offset)
    filled = fill_up(batch, num_tokens, offset)
    count = batch.num_tokens
    assert filled.num_tokens == max(count, num_tokens)
    assert filled.num_sequences == max(MIN_SEQUENCES, batch.num_sequences)
    assert filled.cu_seqlens[-1] == count
    np.testing.assert_array_equal(filled.cu_seqlens[: len(lengths) + 1], batch.cu_seqlens)
    for name in ("input_ids", "position_ids", "token_type_ids"):
        np.testing.assert_array_equal(getattr(filled, name)[:count], getattr(batch, name))
    assert (filled.position_ids[count:] == offset).all()
    assert (filled.input_ids[count:] == 0).all()
