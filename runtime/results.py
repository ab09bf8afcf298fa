"""Results as the service gives them. Arrays are float32, C-contiguous and owned by the receiver."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """Mean seconds per item."""

    tokenization_s: float
    queue_s: float
    inference_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """One row per item, in request order: (D,) for vectors, (S, D) for token matrices.

    `num_tokens` counts the tokens fed to the model: prompt and special tokens included, after
    truncation. `item_tokens` is the same per item.
    """

    rows: tuple[NDArray[np.float32], ...]
    item_tokens: tuple[int, ...]
    timing: RequestTiming

    @property
    def num_tokens(self) -> int:
        return sum(self.item_tokens)
