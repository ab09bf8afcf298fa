"""Heads that live inside the graph: pooling and dense projections.

Normalisation stays outside, in post-processing. Pooling and dense layers run in float32 whatever
the precision of the encoder: they touch one row per text.
"""

from collections.abc import Sequence

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.loaded_weights import refuse_not_finite, refuse_whole_numbers
from infinity_v3.compiler.operators import POOL, POOL_MODES
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.safetensors_header import read_tensor_headers
from infinity_v3.model_specs.dense_config import Activation, DenseLayer

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    Activation.IDENTITY: nn.Identity,
    Activation.TANH: nn.Tanh,
    Activation.RELU: nn.ReLU,
    Activation.GELU: nn.GELU,
    Activation.SIGMOID: nn.Sigmoid,
    Activation.SILU: nn.SiLU,
}


class PoolingHead(nn.Module):
    """One pooled output per entry of `poolings`.

    The modes of an entry are concatenated, then projected.
    """

    def __init__(
        self, poolings: Sequence[tuple[PoolingMode, ...]], dense: Sequence[nn.Module]
    ) -> None:
        super().__init__()
        self.poolings = tuple(poolings)
        self.dense = nn.Sequential(*dense)

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        """(N, D) -> one (B, D') float32 per pooling, then every token's vector (T, D)."""
        pooled = (self.dense(self._pool(hidden, packing, modes)) for modes in self.poolings)
        return (*pooled, packing.unfolded(hidden))

    def _pool(self, hidden: Tensor, packing: Packing, modes: tuple[PoolingMode, ...]) -> Tensor:
        pooled = [pool(hidden, packing, mode) for mode in modes]
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)


def pool(hidden: Tensor, packing: Packing, mode: PoolingMode) -> Tensor:
    """One vector per text: (N, D) -> (B, D) float32."""
    operator = getattr(torch.ops.infinity, POOL)
    pooled: Tensor = operator(hidden, packing.cu_seqlens, packing.rows, POOL_MODES[mode])
    return pooled


def pool_single(hidden: Tensor, mode: PoolingMode) -> Tensor:
    """Pool one text, written from the definitions of sentence-transformers: (S, D) -> (D,) float32.

    The reference side of parity; shares no code with the packed path.
    """
    hidden = hidden.float()
    positions = torch.arange(1, len(hidden) + 1, dtype=torch.float32)
    pooled: dict[PoolingMode, Tensor] = {
        PoolingMode.CLS: hidden[0],
        PoolingMode.LAST_TOKEN: hidden[-1],
        PoolingMode.MEAN: hidden.mean(0),
        PoolingMode.MAX: hidden.max(0).values,
        PoolingMode.MEAN_SQRT_LEN: hidden.sum(0) / len(hidden) ** 0.5,
        PoolingMode.WEIGHTED_MEAN: positions @ hidden / positions.sum(),
    }
    return pooled[mode]


def load_dense(layer: DenseLayer) -> nn.Module:
    """A dense module of a sentence-transformers checkpoint, in float32.

    Raises:
        UsageError: the weights are not those that its config.json announces, finite and
            floating-point.
    """
    weights = load_file(layer.weights)
    expected: dict[str, tuple[int, ...]] = {
        "linear.weight": (layer.out_features, layer.in_features)
    }
    if layer.has_bias:
        expected["linear.bias"] = (layer.out_features,)
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if found != expected:
        raise UsageError(
            f"{layer.weights}: expected the tensors {expected}, found {found}; "
            "take both files from one checkpoint"
        )
    refuse_whole_numbers(
        layer.weights,
        {entry.name: entry.dtype for entry in read_tensor_headers(layer.weights)},
    )
    refuse_not_finite(layer.weights, weights.items())
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.has_bias)
    linear.load_state_dict(
        {name.removeprefix("linear."): tensor.float() for name, tensor in weights.items()}
    )
    return nn.Sequential(linear, _ACTIVATIONS[layer.activation]()).eval().requires_grad_(False)
