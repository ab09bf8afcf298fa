"""Fills a packed batch up to a size that a compiled graph takes well. Knows nothing of engines.

Added tokens lie behind `cu_seqlens[-1]`: they belong to no sequence, attention skips them, no
output row is made of them, and their own rows are cut off again.
"""

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.batch import Batch

MIN_TOKENS = 2
MIN_SEQUENCES = 2
"""Graphs are exported for at least this much."""
_MIN_STEP = 8


def rounded_tokens(num_tokens: int) -> int:
    """Round up in eight steps per power of two, so by an eighth at most.

    The matrix library keeps compiled code for every number of rows it has met: without rounding,
    each new batch size costs milliseconds once and memory for good.
    """
    next_power = 1 << (num_tokens - 1).bit_length()
    step = max(_MIN_STEP, next_power // 16)
    return -(-num_tokens // step) * step


def fill_up(batch: Batch, num_tokens: int, position_offset: int) -> Batch:
    """Append tokens of no sequence, and an empty sequence where a second one is missing.

    Args:
        batch: at least one sequence.
        num_tokens: wanted size; a smaller one than the batch's adds nothing.
        position_offset: a position that the model's table has.
    """
    missing = max(0, num_tokens - batch.num_tokens)
    has_enough = batch.num_sequences >= MIN_SEQUENCES
    return Batch(
        input_ids=_append(batch.input_ids, 0, missing),
        position_ids=_append(batch.position_ids, position_offset, missing),
        token_type_ids=_append(batch.token_type_ids, 0, missing),
        cu_seqlens=batch.cu_seqlens
        if has_enough
        else np.append(batch.cu_seqlens, batch.cu_seqlens[-1]),
    )


def _append(array: NDArray[np.int64], value: int, count: int) -> NDArray[np.int64]:
    if count == 0:
        return array
    filled = np.full(len(array) + count, value, dtype=np.int64)
    filled[: len(array)] = array
    return filled
