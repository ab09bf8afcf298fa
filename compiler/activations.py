"""The functions that our linear operators apply to their products. Knows nothing of graphs."""

from collections.abc import Callable
from enum import IntEnum

from torch import Tensor
from torch.nn import functional


class Activation(IntEnum):
    """What follows a product, as the kernels number it."""

    NONE = 0
    GELU = 1
    GELU_TANH = 2
    SILU = 3
    RELU = 4


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
    Activation.RELU: functional.relu,
}
