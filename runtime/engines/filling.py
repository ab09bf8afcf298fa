"""Fills a packed batch up to a size that a compiled graph takes well. Knows nothing of engines.

Added tokens lie behind `cu_seqlens[-1]`, and behind the stored tokens that sequences read: they
belong to no sequence, attention skips them, no output row is made of them, and their own rows are
cut off again.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.batch import Batch

MIN_TOKENS = 2
MIN_SEQUENCES = 2
MIN_READOUTS = 2
"""Graphs are exported for at least this much."""
_MIN_STEP = 8
_Int = TypeVar("_Int", np.int32, np.int64)


def rounded_tokens(num_tokens: int) -> int:
    """Round up in eight steps per power of two, so by an eighth at most.

    The matrix library keeps compiled code for every number of rows it has met: without rounding,
    each new batch size costs milliseconds once and memory for good.
    """
    next_power = 1 << (num_tokens - 1).bit_length()
    step = max(_MIN_STEP, next_power // 16)
    return -(-num_tokens // step) * step


def fill_up(batch: Batch, *, num_stored: int, num_tokens: int, position_offset: int) -> Batch:
    """Append tokens of no sequence, and an empty sequence where a second one is missing.

    Where fewer tokens are read than graphs are exported for, the first one is read again.

    Args:
        batch: at least one sequence.
        num_stored, num_tokens: wanted numbers of stored and of packed tokens; where the batch has
            more, nothing is added.
        position_offset: a position that the model's table has.
    """
    num_missing = max(0, num_stored - batch.num_stored_tokens)
    is_alone = batch.num_sequences < MIN_SEQUENCES
    return Batch(
        input_ids=_append(batch.input_ids, 0, num_missing),
        position_ids=_append(batch.position_ids, position_offset, num_missing),
        token_type_ids=_append(batch.token_type_ids, 0, num_missing),
        cu_seqlens=_append(batch.cu_seqlens, int(batch.cu_seqlens[-1]), int(is_alone)),
        rows=_append(batch.rows, 0, max(0, num_tokens - batch.num_tokens)),
        key_counts=_append(batch.key_counts, 0, int(is_alone)),
        readout_positions=_append(
            batch.readout_positions, 0, max(0, MIN_READOUTS - len(batch.readout_positions))
        ),
        readout_bounds=batch.readout_bounds,
    )


def _append(array: NDArray[_Int], value: int, count: int) -> NDArray[_Int]:
    if count == 0:
        return array
    filled = np.empty(len(array) + count, dtype=array.dtype)
    filled[: len(array)] = array
    filled[len(array) :] = value
    return filled
