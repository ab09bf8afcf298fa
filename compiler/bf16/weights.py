"""Linear weights in the order in which the bfloat16 kernels read them.

Knows nothing of modules or graphs.
"""

import torch
from torch import Tensor

PANEL = 32
"""Columns that lie together."""
DEPTH_BLOCK = 32
"""Rows of a panel that lie together."""
LANES = 16
"""Columns of a vector, and of a tile of the matrix unit."""


def packed_size(columns: int, depth: int) -> int:
    """How many numbers the packed weights of a layer are."""
    return -(-columns // PANEL) * PANEL * (-(-depth // DEPTH_BLOCK) * DEPTH_BLOCK)


def pack_weights(weight: Tensor) -> Tensor:
    """Pack the weights of a linear layer.

    Args:
        weight: (M, K) bfloat16.

    Returns:
        One-dimensional: panels of 32 columns, each in blocks of 32 rows, each as two halves of 16
        columns, each in pairs of rows, column by column. What is added to fill up is zero.
    """
    columns, depth = weight.shape
    full = torch.zeros(
        -(-columns // PANEL) * PANEL, -(-depth // DEPTH_BLOCK) * DEPTH_BLOCK, dtype=weight.dtype
    )
    full[:columns, :depth] = weight
    blocks = full.reshape(-1, 2, LANES, full.shape[1] // DEPTH_BLOCK, DEPTH_BLOCK // 2, 2)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(-1).contiguous()


def unpack_weights(packed: Tensor, columns: int, depth: int) -> Tensor:
    """(M, K) out of packed weights."""
    num_blocks = -(-depth // DEPTH_BLOCK)
    blocks = packed.reshape(-1, num_blocks, 2, DEPTH_BLOCK // 2, LANES, 2)
    rows = blocks.permute(0, 2, 4, 1, 3, 5).reshape(-1, num_blocks * DEPTH_BLOCK)
    return rows[:columns, :depth]
