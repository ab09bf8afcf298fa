"""What the pooling operators compute, in plain torch, one sequence at a time.

For eager runs of exported graphs. Knows nothing of kernels and models.
"""

from itertools import pairwise

import torch
from torch import Tensor

from infinity_v3.artifacts.manifest import PoolingMode

POOL_MODES = {
    PoolingMode.MEAN: 0,
    PoolingMode.MAX: 1,
    PoolingMode.MEAN_SQRT_LEN: 2,
    PoolingMode.WEIGHTED_MEAN: 3,
    PoolingMode.CLS: 4,
    PoolingMode.LAST_TOKEN: 5,
}
"""Codes shared with segment_pool.cpp."""
_GATHERED = {POOL_MODES[PoolingMode.CLS]: 0, POOL_MODES[PoolingMode.LAST_TOKEN]: -1}


def pool_reference(hidden: Tensor, cu_seqlens: Tensor, rows: Tensor | None, mode: int) -> Tensor:
    """Pool each sequence's tokens: (N, D) -> (B, D) float32, see POOL_MODES.

    Args:
        rows: (T,) int64, the row of each packed token, or None where token t lies in row t.

    An empty sequence yields zeros.
    """
    packed = hidden if rows is None else hidden[rows]
    bounds = pairwise(cu_seqlens.tolist())
    return torch.stack([_pool_one(packed[i:j].float(), mode) for i, j in bounds])


def _pool_one(tokens: Tensor, mode: int) -> Tensor:
    length = tokens.shape[0]
    if length == 0:
        return tokens.new_zeros(tokens.shape[1])
    if mode in _GATHERED:
        return tokens[_GATHERED[mode]]
    if mode == POOL_MODES[PoolingMode.MAX]:
        return tokens.amax(0)
    if mode == POOL_MODES[PoolingMode.WEIGHTED_MEAN]:
        weights = torch.arange(1, length + 1, dtype=torch.float32)[:, None]
        return (tokens * weights).sum(0) / weights.sum()
    divisor = float(length) if mode == POOL_MODES[PoolingMode.MEAN] else length**0.5
    return tokens.sum(0) / divisor


def splade_reference(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, cu_seqlens: Tensor
) -> Tensor:
    """Term weights of each sequence: the maximum over its tokens of log(1 + relu(logit)).

    Args:
        hidden: (T, D); weight: (V, D); bias: (V,) or None; of one dtype.
        cu_seqlens: (B + 1,) int32.

    Returns:
        (B, V) float32; an empty sequence yields zeros.
    """
    out = torch.zeros(len(cu_seqlens) - 1, weight.shape[0])
    for index, (start, stop) in enumerate(pairwise(cu_seqlens.tolist())):
        if stop > start:
            logits = hidden[start:stop].float() @ weight.float().T
            top = logits.amax(0) if bias is None else logits.amax(0) + bias.float()
            out[index] = top.relu().log1p()
    return out
