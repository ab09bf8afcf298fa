"""What the grouped product computes, in plain torch, one group at a time.

For eager runs of exported graphs. Knows nothing of kernels and models.
"""

from itertools import pairwise

import torch
from torch import Tensor


def grouped_mm_reference(tokens: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group of rows by its own matrix.

    Args:
        tokens: (S, K), the rows of one group after those of the other.
        weights: (E, K, N), the dtype of tokens.
        ends: (E,) int32, the row behind each group; the last is S.

    Returns:
        (S, N), the dtype of tokens.
    """
    bounds = pairwise([0, *ends.tolist()])
    parts = [tokens[i:j] @ weight for (i, j), weight in zip(bounds, weights, strict=True)]
    return torch.cat(parts)
