"""Our kernels, called with torch tensors through the same C entry points as in an engine."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import PoolingMode, Precision
from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.cpu_targets import CPU_TARGETS, CpuTarget
from infinity_v3.compiler.int8.weights import PackedWeights
from infinity_v3.compiler.kernel_library import KernelLibrary, build_kernel_library
from infinity_v3.compiler.operators import (
    ATTENTION,
    BF16_LINEAR,
    BF16_MLP,
    DISENTANGLED,
    EMBEDDING_NORM,
    INT8_LINEAR,
    LAYER_NORM,
    POOL,
    POOL_MODES,
    SPLADE,
)

_RUNNABLE = [target for target in CPU_TARGETS if target.cpu.fits(detect_host().isa)]
HOST_TARGETS = [target for target in _RUNNABLE if not target.cpu.is_asked_for]
INT8_TARGETS = [target for target in _RUNNABLE if target.precision is Precision.INT8]
"""Their other kernels are those of the bfloat16 target."""
BF16_TARGETS = [target for target in HOST_TARGETS if target.precision is Precision.BFLOAT16]
_aoti = torch._C._aoti
_TORCH = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


class OptionalTensor:
    """A tensor that the C entry point takes as a pointer to a handle, or as a null pointer."""

    def __init__(self, tensor: Tensor | None) -> None:
        self.tensor = tensor


class PreparedCall:
    """A C entry point with its arguments ready, to be timed: what is measured is the call alone.

    Args:
        entry: takes the arguments, and a pointer to the handle of its one result.
        arguments: tensors, OptionalTensor, or what ctypes passes. The tensors live until `release`.
    """

    def __init__(self, entry: Callable[..., int], *arguments: object) -> None:
        self._entry = entry
        self._handles: list[ctypes.c_void_p] = []
        self._passed = [_passed(argument, self._handles) for argument in arguments]

    def run(self) -> None:
        """Call once and free the result.

        Raises:
            RuntimeError: the entry point refused its arguments.
        """
        _TORCH.aoti_torch_delete_tensor_object(self._result())

    def result(self) -> Tensor:
        """Call once; see `run`."""
        (out,) = _aoti.alloc_tensors_by_stealing_from_void_ptrs([_capsule(self._result().value)])
        return out

    def release(self) -> None:
        """Let go of the tensors: the last call was made."""
        _aoti.alloc_tensors_by_stealing_from_void_ptrs(self._handles)

    def _result(self) -> ctypes.c_void_p:
        result = ctypes.c_void_p()
        if self._entry(*self._passed, ctypes.byref(result)) != 0:
            raise RuntimeError("the kernel refused its arguments")
        return result


class Kernels:
    """The library of one CPU class."""

    def __init__(self, target: CpuTarget, cache: Path) -> None:
        self.target = target
        self.library: KernelLibrary = build_kernel_library(
            target, Path(torch.__file__).parent, cache
        )
        self._lib = ctypes.CDLL(str(self.library.path))

    def attention(  # noqa: PLR0913 - the operator's arguments
        self,
        qkv: Sequence[Tensor],
        lengths: list[int],
        *,
        bias: Tensor | None = None,
        rows: Tensor | None = None,
        key_counts: Tensor | None = None,
        causal: bool = False,
        window: int = -1,
        scale: float | None = None,
        softcap: float = 0.0,
    ) -> Tensor:
        return self._call(
            ATTENTION,
            *(*qkv, cu_seqlens(lengths)),
            *(OptionalTensor(bias), OptionalTensor(rows), OptionalTensor(key_counts)),
            ctypes.c_int32(causal),
            ctypes.c_int64(window),
            ctypes.c_double(qkv[0].shape[-1] ** -0.5 if scale is None else scale),
            ctypes.c_double(softcap),
        )

    def disentangled(
        self,
        qkv: Sequence[Tensor],
        lengths: list[int],
        *,
        delta: Tensor,
        pos_key: Tensor | None = None,
        pos_query: Tensor | None = None,
        scale: float,
    ) -> Tensor:
        return self._call(
            DISENTANGLED,
            *(*qkv, OptionalTensor(pos_key), OptionalTensor(pos_query)),
            *(delta, cu_seqlens(lengths)),
            ctypes.c_double(scale),
        )

    def pool(
        self, hidden: Tensor, lengths: list[int], mode: PoolingMode, rows: Tensor | None = None
    ) -> Tensor:
        code = ctypes.c_int64(POOL_MODES[mode])
        return self._call(POOL, hidden, cu_seqlens(lengths), OptionalTensor(rows), code)

    def splade(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, lengths: list[int]
    ) -> Tensor:
        return self._call(SPLADE, hidden, weight, OptionalTensor(bias), cu_seqlens(lengths))

    def int8_linear(
        self,
        x: Tensor,
        packed: PackedWeights,
        *,
        factors: Tensor | None = None,
        bias: Tensor | None = None,
        activation: Activation = Activation.NONE,
    ) -> Tensor:
        return self._call(
            INT8_LINEAR,
            *(x, OptionalTensor(factors), packed.values, packed.sums, packed.scales),
            OptionalTensor(bias),
            ctypes.c_int64(activation),
        )

    def bf16_linear(
        self,
        x: Tensor,
        packed: Tensor,
        columns: int,
        *,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: Activation = Activation.NONE,
    ) -> Tensor:
        return self._call(
            BF16_LINEAR,
            *(x, packed, ctypes.c_int64(columns), OptionalTensor(bias), OptionalTensor(residual)),
            ctypes.c_int64(activation),
        )

    def bf16_mlp(
        self,
        x: Tensor,
        up: tuple[Tensor, Tensor | None, int],
        down: tuple[Tensor, Tensor | None, int],
        *,
        residual: Tensor | None = None,
        activation: Activation = Activation.NONE,
    ) -> Tensor:
        """Each layer is its packed weights, its bias and how many columns it has."""
        weights, bias, hidden = up
        down_weights, down_bias, columns = down
        return self._call(
            BF16_MLP,
            *(x, weights, ctypes.c_int64(hidden), OptionalTensor(bias), ctypes.c_int64(activation)),
            *(down_weights, ctypes.c_int64(columns), OptionalTensor(down_bias)),
            OptionalTensor(residual),
        )

    def layer_norm(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        other: Tensor | None = None,
        epsilon: float = 1e-12,
    ) -> Tensor:
        return self._call(
            LAYER_NORM,
            *(x, OptionalTensor(other), weight, OptionalTensor(bias), ctypes.c_double(epsilon)),
        )

    def embedding_norm(
        self,
        lookups: Sequence[tuple[Tensor, Tensor]],
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        epsilon: float = 1e-12,
    ) -> Tensor:
        """Each lookup is a table and its ids; one to three of them."""
        (table, ids), *others = lookups
        missing = (None,) * (4 - 2 * len(others))
        optional = (*(tensor for other in others for tensor in other), *missing)
        return self._call(
            EMBEDDING_NORM,
            *(table, ids, *(OptionalTensor(tensor) for tensor in optional)),
            *(weight, OptionalTensor(bias), ctypes.c_double(epsilon)),
        )

    def entry(self, name: str) -> Callable[..., int]:
        """The C function of an operator."""
        function: Callable[..., int] = getattr(
            self._lib, f"aoti_torch_cpu_{name}_{self.library.digest}"
        )
        return function

    def _call(self, name: str, *arguments: object) -> Tensor:
        call = PreparedCall(self.entry(name), *arguments)
        try:
            return call.result()
        finally:
            call.release()


def _passed(argument: object, handles: list[ctypes.c_void_p]) -> object:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(_handle(argument, handles))
    if not isinstance(argument, OptionalTensor):
        return argument
    if argument.tensor is None:
        return None
    return ctypes.pointer(ctypes.c_void_p(_handle(argument.tensor, handles)))


def _handle(tensor: Tensor, handles: list[ctypes.c_void_p]) -> int:
    """Address of a new handle of the tensor, whose capsule joins `handles`."""
    (capsule,) = _aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
    handles.append(capsule)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, None))


def _capsule(address: int | None) -> ctypes.c_void_p:
    """A PyCapsule, which torch's own annotations call c_void_p."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    capsule: ctypes.c_void_p = new(address, None, None)
    return capsule


def cu_seqlens(lengths: list[int]) -> Tensor:
    """Bounds of sequences of these lengths, (B + 1,) int32."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers, the same on every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(found: Tensor, expected: Tensor, *, atol: float) -> None:
    """Fail with the figures unless all elements agree; NaN agrees with nothing."""
    difference = (found.double() - expected.double()).abs()
    assert found.shape == expected.shape
    assert difference.max() <= atol, (
        f"max {difference.max():.3g}, mean {difference.mean():.3g}, allowed {atol:g}"
    )
