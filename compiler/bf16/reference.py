"""What `infinity::bf16_linear` computes, in plain torch, for eager runs."""

import torch
from torch import Tensor
from torch.nn import functional

from infinity_v3.compiler.activations import ACTIVATIONS, Activation
from infinity_v3.compiler.bf16.weights import unpack_weights


def bf16_linear_reference(
    x: Tensor,
    weights: Tensor,
    columns: int,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: int,
) -> Tensor:
    """Multiply with packed weights in float32, finish, round once.

    Args:
        x: (N, K) bfloat16.
        weights: see pack_weights.
        columns: M.
        bias: (M,) float32.
        residual: (N, M) bfloat16, added last.
        activation: an Activation.

    Returns:
        (N, M) bfloat16.
    """
    weight = unpack_weights(weights, columns, x.shape[1]).float()
    values = ACTIVATIONS[Activation(activation)](functional.linear(x.float(), weight, bias))
    if residual is not None:
        values = values + residual.float()
    return values.to(torch.bfloat16)
