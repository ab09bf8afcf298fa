"""Linear weights as 8-bit numbers in the order in which the kernel reads them.

Each output has a scale of its own: symmetric quantization per channel, Jacob et al. 2018,
"Quantization and training of neural networks for efficient integer-arithmetic-only inference",
section 2. Knows nothing of modules or graphs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

PANEL = 64
"""Columns that lie together."""
STEP = 4
"""Numbers of one column that lie together: what one instruction multiplies."""
LARGEST = 127
ZERO = 128
"""Rows are unsigned; this is their zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """The weights of one linear layer, (M, K) -> (N, K) x (K, M).

    Attributes:
        values: (M rounded up to PANEL, times K) int8: panels of columns, each in steps of rows,
            each column by column.
        sums: (M,) int32: ZERO times the sum of each column.
        scales: (M,) float32: what one step of a number is worth, by column.
    """

    values: Tensor
    sums: Tensor
    scales: Tensor


def pack_weights(weight: Tensor) -> PackedWeights:
    """Quantize and pack the weights of a linear layer.

    Args:
        weight: (M, K) of any float type; K is a multiple of STEP.
    """
    exact = weight.float()
    scales = scales_of(exact)
    numbers = (exact / scales[:, None]).round().to(torch.int8)
    columns, depth = numbers.shape
    padded = -(-columns // PANEL) * PANEL
    full = torch.zeros(padded, depth, dtype=torch.int8)
    full[:columns] = numbers
    panels = full.reshape(padded // PANEL, PANEL, depth // STEP, STEP).transpose(1, 2)
    return PackedWeights(
        values=panels.reshape(-1).contiguous(),
        sums=numbers.sum(dim=1, dtype=torch.int32) * ZERO,
        scales=scales,
    )


def unpack_values(values: Tensor, num_columns: int, depth: int) -> Tensor:
    """(M, K) int8 out of packed values."""
    panels = values.reshape(-1, depth // STEP, PANEL, STEP).transpose(1, 2)
    return panels.reshape(-1, depth)[:num_columns]


def scales_of(rows: Tensor) -> Tensor:
    """(N,) float32: what one step is worth in each row of (N, K), so that its largest number fits.

    A row of zeros has the smallest scale there is, and stays zeros.
    """
    largest = rows.abs().amax(dim=-1)
    return largest.clamp_min(torch.finfo(torch.float32).tiny * LARGEST) / LARGEST
