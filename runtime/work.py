"""One item of a request on its way through the queue.

Knows nothing of threads, engines or futures.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.batch import EncodedText


class RowForm(str, Enum):
    """What one item gets of an engine output.

    Attributes:
        VECTOR: its row of a (B, D) output.
        TOKENS: its own (S, D) of a (T, D) output.
        SPARSE: the positive entries of its row of a (B, V) output.
        READOUTS: its own (K, C) of a (M, C) output.
    """

    VECTOR = "vector"
    TOKENS = "tokens"
    SPARSE = "sparse"
    READOUTS = "readouts"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseRow:
    """The positive entries of one vector.

    Attributes:
        indices: (N,) int64, ascending.
        values: (N,) float32.
    """

    indices: NDArray[np.int64]
    values: NDArray[np.float32]


Row = NDArray[np.float32] | SparseRow
"""The numbers of one item: (D,) for a vector, (S, D) for token vectors, (K, C), or sparse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """What becomes of an engine output.

    Attributes:
        output: name of the output, e.g. "pooled".
        form: what of it one item gets.
        normalize: divide each vector, or each token's vector, by its L2 norm.
        dimensions: keep the first that many components of a vector, before normalising; None = all.
    """

    output: str
    form: RowForm = RowForm.VECTOR
    normalize: bool = False
    dimensions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """What all items of one request share. Both moments are on the clock of time.monotonic()."""

    readout: Readout
    arrival_s: float
    is_priority: bool = False
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailure:
    """Why an item has no numbers: the wire's error code and a sentence without request text."""

    code: str
    message: str


class ItemReceiver(Protocol):
    """Where an item's end is reported.

    Obligations: called on the event loop thread only; exactly one of these methods per item, once.
    """

    def item_done(
        self, item: "WorkItem", row: Row, *, queue_s: float, inference_s: float
    ) -> None: ...

    def item_failed(self, item: "WorkItem", failure: ItemFailure) -> None: ...

    def item_expired(self, item: "WorkItem") -> None: ...

    def item_dropped(self, item: "WorkItem") -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class WorkItem:
    """One tokenised item; compared by identity.

    Attributes:
        position: place in the request's list.
        is_taken: it left the queue inside a batch. Written by the batcher only.
        is_dropped: it left the queue without one. Written by the batcher only.
    """

    encoded: EncodedText
    position: int
    order: WorkOrder
    receiver: ItemReceiver
    is_taken: bool = False
    is_dropped: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.encoded.input_ids)
