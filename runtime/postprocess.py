"""Engine outputs to the rows that requests get: cut, normalised, checked.

Knows nothing of queues or threads.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.work import Readout, Row


def read_rows(
    tensors: Mapping[str, NDArray[np.float32]],
    cu_seqlens: NDArray[np.int32],
    readouts: Sequence[Readout],
) -> list[Row | None]:
    """Give each item of a batch its numbers.

    Args:
        tensors: engine outputs by name, (B, D) or (T, D) float32.
        cu_seqlens: (B + 1,) int32, token bounds of the items.
        readouts: B of them, in batch order.

    Returns:
        B rows, float32 and C-contiguous; None where the engine's numbers are not all finite.
        Vectors may share one buffer, which no one else holds.
    """
    rows: list[Row | None] = [None] * len(readouts)
    for readout, positions in _group(readouts).items():
        tensor = tensors[readout.output]
        if readout.is_per_token:
            _read_tokens(tensor, cu_seqlens, positions, rows)
        else:
            _read_vectors(tensor, readout, positions, rows)
    return rows


def l2_normalize(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (B, D) finite float32 vectors to length 1, in float64; a zero vector stays zero."""
    wide = values.astype(np.float64)
    norms = np.sqrt(np.einsum("bd,bd->b", wide, wide))
    norms[norms == 0.0] = 1.0
    wide /= norms[:, np.newaxis]
    return wide.astype(np.float32)


def _group(readouts: Sequence[Readout]) -> dict[Readout, list[int]]:
    groups: dict[Readout, list[int]] = {}
    for position, readout in enumerate(readouts):
        groups.setdefault(readout, []).append(position)
    return groups


def _read_vectors(
    tensor: NDArray[np.float32], readout: Readout, positions: list[int], rows: list[Row | None]
) -> None:
    values = tensor if len(positions) == len(rows) else tensor[positions]
    finite: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(values), axis=1)
    if not finite.all():
        # Zeros in their place keep the arithmetic below free of NaN; these rows are not read.
        values = np.where(finite[:, np.newaxis], values, np.float32(0.0))
    values = values[:, : readout.dimensions]
    result = l2_normalize(values) if readout.normalize else np.ascontiguousarray(values)
    for position, row, is_finite in zip(positions, result, finite.tolist(), strict=True):
        if is_finite:
            rows[position] = row


def _read_tokens(
    tensor: NDArray[np.float32],
    cu_seqlens: NDArray[np.int32],
    positions: list[int],
    rows: list[Row | None],
) -> None:
    for position in positions:
        matrix = tensor[cu_seqlens[position] : cu_seqlens[position + 1]]
        if np.isfinite(matrix).all():
            # A view would keep the whole batch alive for as long as its slowest reader.
            rows[position] = matrix if len(rows) == 1 else matrix.copy()
