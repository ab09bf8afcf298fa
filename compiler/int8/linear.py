"""Linear layers whose products are of 8-bit numbers; everything around them stays as it is.

Layers that read the same tensor, such as those for queries, keys and values, are one product. Their
inputs are first balanced against their weights: SmoothQuant, Xiao et al. 2023.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.int8.calibration import LinearGroup
from infinity_v3.compiler.int8.weights import pack_weights
from infinity_v3.compiler.operators import INT8_LINEAR

BALANCE = 0.55
"""SmoothQuant's alpha: how much of the spread of the inputs goes over to the weights."""
LEAST_SHARE = 0.01
"""Of the largest one: what calibration hardly saw may be larger while serving."""


class JointInt8Linear(nn.Module):
    """Several linear layers of one input as one product."""

    def __init__(self, group: LinearGroup) -> None:
        super().__init__()
        linears = group.linears
        weight = torch.cat([linear.weight.detach().float() for linear in linears])
        divisors = balance(weight, group.largest_inputs)
        packed = pack_weights(weight * divisors)
        self.register_buffer("factors", 1.0 / divisors)
        self.register_buffer("weights", packed.values)
        self.register_buffer("column_sums", packed.sums)
        self.register_buffer("column_scales", packed.scales)
        self.register_buffer("bias", _joint_bias(linears))
        self._sizes = [linear.out_features for linear in linears]
        self._input: Tensor | None = None
        self._outputs: list[Tensor] = []

    def part(self, x: Tensor, place: int) -> Tensor:
        """(..., K) -> (..., M) of one of the layers; the first that asks has all computed."""
        if len(self._sizes) == 1:
            return self._compute(x)
        if self._input is not x:
            self._input, self._outputs = x, list(torch.split(self._compute(x), self._sizes, dim=-1))
        found = self._outputs[place]
        if place == len(self._sizes) - 1:
            self._input, self._outputs = None, []
        return found

    def _compute(self, x: Tensor) -> Tensor:
        operator = getattr(torch.ops.infinity, INT8_LINEAR)
        found: Tensor = operator(
            x.reshape(-1, x.shape[-1]),
            self.factors,
            self.weights,
            self.column_sums,
            self.column_scales,
            self.bias,
            int(Activation.NONE),
        )
        return found.reshape(*x.shape[:-1], sum(self._sizes))


class Int8Linear(nn.Module):
    """In place of one of the layers. (..., K) bfloat16 -> (..., M) bfloat16."""

    def __init__(self, joint: JointInt8Linear, place: int) -> None:
        super().__init__()
        self.joint = joint
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        """Give this layer's part of the product."""
        return self.joint.part(x, self.place)


def balance(weight: Tensor, largest_inputs: Tensor) -> Tensor:
    """(K,) divisors of the inputs, and factors of the weights, that leave neither with outliers.

    Args:
        weight: (M, K) float32.
        largest_inputs: (K,) float32, the largest absolute value of each input that was seen.
    """
    inputs = largest_inputs.clamp_min(float(largest_inputs.max()) * LEAST_SHARE)
    weights = weight.abs().amax(dim=0)
    weights = weights.clamp_min(float(weights.max()) * LEAST_SHARE)
    if float(inputs.min()) <= 0.0 or float(weights.min()) <= 0.0:
        return torch.ones_like(inputs)
    return inputs**BALANCE / weights ** (1.0 - BALANCE)


def replace_linears(model: nn.Module, groups: Sequence[LinearGroup]) -> None:
    """Put 8-bit layers in place of the linear layers of each group."""
    layers: dict[nn.Module, Int8Linear] = {}
    for group in groups:
        joint = JointInt8Linear(group)
        layers |= {linear: Int8Linear(joint, i) for i, linear in enumerate(group.linears)}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child in layers:
                setattr(module, name, layers[child])


def _joint_bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    biases: list[Tensor | None] = [linear.bias for linear in linears]
    if all(bias is None for bias in biases):
        return None
    parts = [
        torch.zeros(linear.out_features) if bias is None else bias.detach().float()
        for linear, bias in zip(linears, biases, strict=True)
    ]
    return torch.cat(parts)
