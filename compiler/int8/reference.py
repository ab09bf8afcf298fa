"""What `infinity::int8_linear` computes, in plain torch, for eager runs."""

import torch
from torch import Tensor

from infinity_v3.compiler.activations import ACTIVATIONS, Activation
from infinity_v3.compiler.int8.weights import LARGEST, scales_of, unpack_values


def int8_linear_reference(  # noqa: PLR0913 - the operator's schema
    x: Tensor,
    factors: Tensor | None,
    weights: Tensor,
    column_sums: Tensor,
    column_scales: Tensor,
    bias: Tensor | None,
    activation: int,
) -> Tensor:
    """Quantize each row, multiply with packed weights, finish.

    Args:
        x: (N, K).
        factors: (K,) float32, multiplied to x first.
        weights, column_sums, column_scales: see PackedWeights.
        bias: (M,) float32.
        activation: an Activation.

    Returns:
        (N, M) bfloat16.
    """
    rows = x.float() if factors is None else x.float() * factors
    scales = scales_of(rows)
    # The kernel multiplies by the inverse, too: a division would round some numbers elsewhere.
    numbers = (rows * (1.0 / scales)[:, None]).round().clamp(-LARGEST, LARGEST)
    columns = unpack_values(weights, len(column_scales), x.shape[1])
    # Sums of integers: below 2^53, so exact in float64.
    sums = numbers.double() @ columns.double().T
    values = sums.float() * (scales[:, None] * column_scales)
    if bias is not None:
        values = values + bias
    return ACTIVATIONS[Activation(activation)](values).to(torch.bfloat16)
