"""One linear layer of bfloat16 numbers as two prepared calls: our operator's, the matrix library's.

Both are called as an engine calls them, with weights packed ahead of time. Knows nothing of time.
"""

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.weights import pack_weights
from infinity_v3.compiler.operators import BF16_LINEAR
from kernel_calls import Kernels, OptionalTensor, PreparedCall, seeded

_WEIGHT_BYTES = 8 << 20
"""Of all copies of a layer's weights: more than the second-level cache holds, as in an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A linear layer with bias, (rows, depth) to (rows, columns)."""

    depth: int
    columns: int
    has_gelu: bool = False
    has_residual: bool = False

    @property
    def label(self) -> str:
        more = (" + gelu" if self.has_gelu else "") + (" + add" if self.has_residual else "")
        return f"{self.depth}x{self.columns}{more}"

    def flops(self, rows: int) -> int:
        return 2 * rows * self.depth * self.columns


LAYERS = tuple(
    layer
    for hidden in (384, 768)
    for layer in (
        Layer(depth=hidden, columns=3 * hidden),
        Layer(depth=hidden, columns=hidden, has_residual=True),
        Layer(depth=hidden, columns=4 * hidden, has_gelu=True),
        Layer(depth=4 * hidden, columns=hidden, has_residual=True),
    )
)
"""Those of encoders of the widths 384 and 768."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCalls:
    """One call per copy of the weights, of each kind."""

    ours: Sequence[PreparedCall]
    library: Sequence[PreparedCall]


@contextmanager
def layer_calls(kernels: Kernels, layer: Layer, rows: int) -> Iterator[LayerCalls]:
    """Random numbers, the same for both.

    Raises:
        SystemExit: the two results are not alike.
    """
    operands = _Operands.of(layer, rows)
    copies = max(1, _WEIGHT_BYTES // operands.weight.nbytes)
    calls = LayerCalls(
        ours=[_ours(kernels, operands) for _ in range(copies)],
        library=[_library(operands) for _ in range(copies)],
    )
    try:
        _refuse_other_numbers(layer, calls)
        yield calls
    finally:
        for call in (*calls.ours, *calls.library):
            call.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    x: Tensor
    weight: Tensor
    bias: Tensor
    residual: Tensor | None
    has_gelu: bool

    @staticmethod
    def of(layer: Layer, rows: int) -> "_Operands":
        weight = seeded(layer.columns, layer.depth, seed=1) / math.sqrt(layer.depth)
        residual = seeded(rows, layer.columns, seed=3, dtype=torch.bfloat16)
        return _Operands(
            x=seeded(rows, layer.depth, dtype=torch.bfloat16),
            weight=weight.bfloat16(),
            bias=seeded(layer.columns, seed=2).bfloat16(),
            residual=residual if layer.has_residual else None,
            has_gelu=layer.has_gelu,
        )


def _ours(kernels: Kernels, operands: _Operands) -> PreparedCall:
    activation = Activation.GELU if operands.has_gelu else Activation.NONE
    return PreparedCall(
        kernels.entry(BF16_LINEAR),
        *(operands.x, pack_weights(operands.weight), ctypes.c_int64(operands.weight.shape[0])),
        *(OptionalTensor(operands.bias.float()), OptionalTensor(operands.residual)),
        ctypes.c_int64(activation),
    )


def _library(operands: _Operands) -> PreparedCall:
    torch_cpu = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    weight = torch.ops.mkldnn._reorder_linear_weight(operands.weight, operands.x.shape[0])
    bias = OptionalTensor(operands.bias)
    if operands.residual is not None:
        return PreparedCall(
            torch_cpu.aoti_torch_cpu__linear_pointwise_binary,
            *(operands.x, operands.residual, weight, bias, b"add"),
        )
    return PreparedCall(
        torch_cpu.aoti_torch_cpu__linear_pointwise,
        *(operands.x, weight, bias, b"gelu" if operands.has_gelu else b"none"),
        *(None, ctypes.c_int64(0), ctypes.pointer(ctypes.c_char_p(b"none"))),
    )


def _refuse_other_numbers(layer: Layer, calls: LayerCalls) -> None:
    ours, library = calls.ours[0].result().double(), calls.library[0].result().double()
    difference, size = float((ours - library).abs().max()), float(library.abs().max())
    if not difference <= size * 2**-6:
        raise SystemExit(
            f"{layer.label}: expected the numbers of both to differ by at most a 64th of the "
            f"largest, {size:.3g}, found {difference:.3g}"
        )
