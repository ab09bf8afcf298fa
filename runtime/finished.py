"""A request whose items have all ended well: its rows, by form, and its times.

Knows nothing of queues or of what the rows mean.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.pending import PendingRequest
from infinity_v3.runtime.results import RequestTiming
from infinity_v3.runtime.work import Row, SparseRow


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What came of one request.

    Attributes:
        rows: one per item, in request order; all of one form.
        item_tokens: tokens that each item had.
    """

    rows: tuple[Row, ...]
    item_tokens: tuple[int, ...]
    timing: RequestTiming

    @classmethod
    def of(cls, pending: PendingRequest, tokenization_s: float) -> "FinishedRequest":
        """Read a request that has ended; `tokenization_s` is of all its items together."""
        count = len(pending.item_tokens)
        rows = tuple(row for row in pending.rows if row is not None)
        assert len(rows) == count, "a request ended before its items; this is a bug"
        return cls(
            rows=rows,
            item_tokens=pending.item_tokens,
            timing=RequestTiming(
                tokenization_s=tokenization_s / count,
                queue_s=pending.queue_s / count,
                inference_s=pending.inference_s / count,
            ),
        )

    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """The rows of a request for vectors or token matrices."""
        arrays = tuple(row for row in self.rows if not isinstance(row, SparseRow))
        assert len(arrays) == len(self.rows), "a sparse row among arrays; this is a bug"
        return arrays

    def sparse(self) -> tuple[SparseRow, ...]:
        """The rows of a request for sparse vectors."""
        rows = tuple(row for row in self.rows if isinstance(row, SparseRow))
        assert len(rows) == len(self.rows), "an array among sparse rows; this is a bug"
        return rows
