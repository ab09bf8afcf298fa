"""What `infinity::bf16_linear` and `infinity::bf16_mlp` compute, in plain torch, for eager runs."""

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


def bf16_mlp_reference(  # noqa: PLR0913 - the operator's schema
    x: Tensor,
    up: Tensor,
    hidden: int,
    up_bias: Tensor | None,
    activation: int,
    down: Tensor,
    columns: int,
    down_bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    """Two layers one behind the other; what the first one gives is rounded.

    Args:
        x: (N, K) bfloat16.
        up, down: packed weights of H = hidden and of M = columns columns.
        up_bias, down_bias: (H,) and (M,) float32.
        activation: an Activation, behind the first layer.
        residual: (N, M) bfloat16, added last.

    Returns:
        (N, M) bfloat16.
    """
    between = bf16_linear_reference(x, up, hidden, up_bias, None, activation)
    none = int(Activation.NONE)
    return bf16_linear_reference(between, down, columns, down_bias, residual, none)
