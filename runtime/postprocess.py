"""Engine outputs to the rows that requests get: cut, normalised, thinned out, checked.

Knows nothing of queues or threads.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.batch import Batch
from infinity_v3.runtime.work import Readout, Row, RowForm, SparseRow


def read_rows(
    tensors: Mapping[str, NDArray[np.float32]],
    batch: Batch,
    readouts: Sequence[Readout],
) -> list[Row | None]:
    """Give each item of a batch its numbers.

    Args:
        tensors: engine outputs by name, (B, D), (T, D), (B, V) or (M, C) float32.
        batch: what they are of.
        readouts: B of them, in batch order.

    Returns:
        B rows, float32 and C-contiguous, or sparse; None where the engine's numbers are not all
        finite.
        Vectors may share one buffer, which no one else holds.
    """
    rows: list[Row | None] = [None] * len(readouts)
    for readout, positions in _group(readouts).items():
        part = _Part(
            tensor=tensors[readout.output],
            batch=batch,
            readout=readout,
            positions=positions,
        )
        _READERS[readout.form](part, rows)
    return rows


def l2_normalize(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (B, D) finite float32 vectors to length 1, in float64; a zero vector stays zero."""
    wide = values.astype(np.float64)
    return _scale(wide, _squares(wide))


def _squares(wide: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums (B,) of squares of (B, D); float64 holds those of all float32 numbers."""
    squares: NDArray[np.float64] = np.einsum("bd,bd->b", wide, wide)
    return squares


def _scale(wide: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float32]:
    norms = np.sqrt(squares)
    norms[norms == 0.0] = 1.0
    return (wide / norms[:, np.newaxis]).astype(np.float32)


def _group(readouts: Sequence[Readout]) -> dict[Readout, list[int]]:
    groups: dict[Readout, list[int]] = {}
    for position, readout in enumerate(readouts):
        groups.setdefault(readout, []).append(position)
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The items of a batch that are read alike."""

    tensor: NDArray[np.float32]
    batch: Batch
    readout: Readout
    positions: list[int]


def _read_vectors(part: _Part, rows: list[Row | None]) -> None:
    if len(rows) == 1:
        rows[0] = _read_lone_vector(part.tensor, part.readout)
        return
    values = part.tensor if len(part.positions) == len(rows) else part.tensor[part.positions]
    wide, dimensions = values.astype(np.float64), part.readout.dimensions
    squares = _squares(wide)
    is_finite = np.isfinite(squares)
    if not is_finite.all():
        # Zeros in their place keep the arithmetic below free of NaN; these rows are not read.
        wide[~is_finite] = squares[~is_finite] = 0.0
    if not part.readout.normalize:
        result = np.ascontiguousarray(values[:, :dimensions])
    elif dimensions is None:
        result = _scale(wide, squares)
    else:
        wide = wide[:, :dimensions]
        result = _scale(wide, _squares(wide))
    for position, row, is_whole in zip(part.positions, result, is_finite.tolist(), strict=True):
        if is_whole:
            rows[position] = row


def _read_lone_vector(values: NDArray[np.float32], readout: Readout) -> NDArray[np.float32] | None:
    """The same, number for number, for a batch of one, in half the time."""
    wide = values.astype(np.float64)
    squares = float(_squares(wide)[0])
    if not math.isfinite(squares):
        return None
    if not readout.normalize:
        return np.ascontiguousarray(values[0, : readout.dimensions])
    if readout.dimensions is not None:
        wide = wide[:, : readout.dimensions]
        squares = float(_squares(wide)[0])
    unit: NDArray[np.float32] = (wide[0] / (math.sqrt(squares) or 1.0)).astype(np.float32)
    return unit


def _read_tokens(part: _Part, rows: list[Row | None]) -> None:
    _read_matrices(part, part.batch.cu_seqlens, rows)


def _read_readouts(part: _Part, rows: list[Row | None]) -> None:
    _read_matrices(part, part.batch.readout_bounds, rows)


def _read_matrices(
    part: _Part, bounds: NDArray[np.int32] | NDArray[np.int64], rows: list[Row | None]
) -> None:
    for position in part.positions:
        matrix = part.tensor[bounds[position] : bounds[position + 1]]
        if not np.isfinite(matrix).all():
            continue
        if part.readout.normalize:
            rows[position] = l2_normalize(matrix)
        else:
            # A view would keep the whole batch alive for as long as its slowest reader.
            rows[position] = matrix if len(rows) == 1 else matrix.copy()


def _read_sparse(part: _Part, rows: list[Row | None]) -> None:
    for position in part.positions:
        row = part.tensor[position]
        if np.isfinite(row).all():
            indices = np.flatnonzero(row > 0.0)
            rows[position] = SparseRow(indices=indices, values=row[indices])


_READERS: dict[RowForm, Callable[[_Part, list[Row | None]], None]] = {
    RowForm.VECTOR: _read_vectors,
    RowForm.TOKENS: _read_tokens,
    RowForm.SPARSE: _read_sparse,
    RowForm.READOUTS: _read_readouts,
}
