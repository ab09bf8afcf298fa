"""The C interface of torch's CPU library and of compiled models, without `import torch`.

Owns loading, prototypes and error texts. Knows nothing of artifacts or batches. The calls go
through ctypes, which releases the GIL for every one of them.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.torch_install import find_torch
from infinity_v3.runtime.engine_errors import EngineError, EngineLoadError

Handle = ctypes.c_void_p
_HandleArray = ctypes.POINTER(Handle)
_SUCCESS = 0
_PAUSE_SOFT = 1
"""omp_pause_soft of OpenMP 5.0: settings stay."""


class ConstantPair(ctypes.Structure):
    """AOTInductorConstantMapEntry: a constant's internal name and the tensor to use for it."""

    _fields_ = (("name", ctypes.c_char_p), ("handle", Handle))


def find_torch_libraries() -> Path:
    """Directory of the torch wheel's shared libraries.

    Raises:
        EngineLoadError: torch is not installed.
    """
    torch = find_torch()
    if torch is None or torch.lib_dir is None:
        raise EngineLoadError(
            "torch is not installed, its CPU libraries run the engines: pip install 'infinity-v3'"
        )
    return torch.lib_dir


class LibTorch:
    """torch's CPU library: tensors over memory that Python owns.

    Loading twice in one process is cheap: the dynamic loader hands out the same library.
    """

    def __init__(self, libraries: Path) -> None:
        try:
            ctypes.CDLL(str(libraries / "libc10.so"), mode=ctypes.RTLD_GLOBAL)
            self._lib = ctypes.CDLL(str(libraries / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
            self._openmp = ctypes.CDLL("libgomp.so.1")
        except OSError as error:
            raise EngineLoadError(f"torch's CPU libraries could not be loaded: {error}") from error
        self._declare()
        self._cpu = self._lib.aoti_torch_device_type_cpu()
        self._codes: dict[np.dtype[np.generic] | str, int] = {
            np.dtype(np.int64): self._lib.aoti_torch_dtype_int64(),
            np.dtype(np.int32): self._lib.aoti_torch_dtype_int32(),
            "float32": self._lib.aoti_torch_dtype_float32(),
            "bfloat16": self._lib.aoti_torch_dtype_bfloat16(),
            "int64": self._lib.aoti_torch_dtype_int64(),
            "int32": self._lib.aoti_torch_dtype_int32(),
            "int8": self._lib.aoti_torch_dtype_int8(),
        }

    def _declare(self) -> None:
        lib, pointer = self._lib, ctypes.POINTER
        lib.aoti_torch_create_tensor_from_blob.argtypes = (
            ctypes.c_void_p,
            ctypes.c_int64,
            pointer(ctypes.c_int64),
            pointer(ctypes.c_int64),
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_int32,
            pointer(Handle),
        )
        lib.aoti_torch_delete_tensor_object.argtypes = (Handle,)
        lib.aoti_torch_get_data_ptr.argtypes = (Handle, pointer(ctypes.c_void_p))
        lib.aoti_torch_get_sizes.argtypes = (Handle, pointer(pointer(ctypes.c_int64)))
        lib.aoti_torch_get_strides.argtypes = (Handle, pointer(pointer(ctypes.c_int64)))

    def set_num_threads(self, num_threads: int) -> None:
        """Size of the OpenMP team of calls made by the calling thread."""
        self._openmp.omp_set_num_threads(ctypes.c_int(num_threads))

    def release_threads(self) -> None:
        """End the OpenMP threads that wait for calls of the calling thread.

        While more threads wait than there are CPUs, the library lets all of them sleep between the
        regions of a call, which then takes several times as long.
        """
        self._openmp.omp_pause_resource_all(_PAUSE_SOFT)

    def wrap_vector(self, array: NDArray[np.int64] | NDArray[np.int32]) -> Handle:
        """A 1-D tensor over `array`'s memory, which must outlive the tensor."""
        is_vector = array.ndim == 1 and array.flags.c_contiguous
        assert is_vector, "engine inputs are contiguous vectors; this is a bug"
        return self.wrap_memory(array.ctypes.data, array.shape, self._codes[array.dtype])

    def wrap_constant(self, address: int, shape: Sequence[int], dtype: str) -> Handle:
        """A contiguous tensor over memory that outlives it; dtype by its torch name."""
        return self.wrap_memory(address, shape, self._codes[dtype])

    def wrap_memory(self, address: int, shape: Sequence[int], dtype_code: int) -> Handle:
        num_dims = len(shape)
        strides = [1] * num_dims
        for dim in range(num_dims - 2, -1, -1):
            strides[dim] = strides[dim + 1] * shape[dim + 1]
        dims_type, handle = ctypes.c_int64 * num_dims, Handle()
        status = self._lib.aoti_torch_create_tensor_from_blob(
            address,
            num_dims,
            dims_type(*shape),
            dims_type(*strides),
            0,
            dtype_code,
            self._cpu,
            0,
            ctypes.byref(handle),
        )
        if status != _SUCCESS:
            raise EngineError("torch could not wrap an input tensor")
        return handle

    def release(self, handle: Handle) -> None:
        """Give a tensor back."""
        self._lib.aoti_torch_delete_tensor_object(handle)

    def copy_matrix(
        self, handle: Handle, num_rows: int, num_columns: int, dtype: str
    ) -> NDArray[np.float32]:
        """Copy a contiguous (num_rows, num_columns) tensor into a new float32 array.

        The tensor is float32 or bfloat16.

        Raises:
            EngineError: the tensor has another shape or layout than the manifest declares.
        """
        sizes, strides = ctypes.POINTER(ctypes.c_int64)(), ctypes.POINTER(ctypes.c_int64)()
        data = ctypes.c_void_p()
        for function, out in (
            (self._lib.aoti_torch_get_sizes, sizes),
            (self._lib.aoti_torch_get_strides, strides),
            (self._lib.aoti_torch_get_data_ptr, data),
        ):
            if function(handle, ctypes.byref(out)) != _SUCCESS:
                raise EngineError("torch could not describe an output tensor")
        found = (sizes[0], sizes[1])
        if found != (num_rows, num_columns) or strides[1] != 1 or strides[0] != num_columns:
            raise EngineError(
                f"expected a contiguous output of {(num_rows, num_columns)}, found {found}"
            )
        return _copy_floats(data.value or 0, num_rows, num_columns, dtype)


def _copy_floats(address: int, num_rows: int, num_columns: int, dtype: str) -> NDArray[np.float32]:
    count = num_rows * num_columns
    if dtype == "float32":
        floats = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))
        return floats.reshape(num_rows, num_columns).copy()
    halves = np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(address))
    widened: NDArray[np.float32] = (halves.astype(np.uint32) << 16).view(np.float32)
    return widened.reshape(num_rows, num_columns)


class CompiledModel:
    """One AOTInductor model container, through its C interface."""

    def __init__(self, path: str, folder: Path, *, num_instances: int) -> None:
        """Open the library.

        Args:
            path: file to load; a `/proc/self/fd` path is fine.
            folder: directory of the target, for files the model looks up itself.
            num_instances: runs that can be under way at once; they share the constants.

        Raises:
            EngineLoadError: with the loader's or the model's own text.
        """
        try:
            self._lib = ctypes.CDLL(path)
            self._declare()
        except (OSError, AttributeError) as error:
            # AttributeError: a library without the interface.
            raise EngineLoadError(f"the compiled model could not be loaded: {error}") from error
        self._container = Handle()
        status = self._lib.AOTInductorModelContainerCreateWithDevice(
            ctypes.byref(self._container), num_instances, b"cpu", os.fsencode(folder)
        )
        if status != _SUCCESS:
            raise EngineLoadError(f"the compiled model could not be started: {self._last_error()}")

    def _declare(self) -> None:
        lib = self._lib
        lib.AOTInductorModelContainerCreateWithDevice.argtypes = (
            ctypes.POINTER(Handle),
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_char_p,
        )
        lib.AOTInductorModelContainerDelete.argtypes = (Handle,)
        lib.AOTInductorModelContainerRun.argtypes = (
            Handle,
            _HandleArray,
            ctypes.c_size_t,
            _HandleArray,
            ctypes.c_size_t,
            Handle,
            Handle,
        )
        lib.AOTInductorModelContainerGetNumConstants.argtypes = (
            Handle,
            ctypes.POINTER(ctypes.c_size_t),
        )
        for name in ("GetConstantName", "GetConstantOriginalFQN"):
            getattr(lib, f"AOTInductorModelContainer{name}").argtypes = (
                Handle,
                ctypes.c_size_t,
                ctypes.POINTER(ctypes.c_char_p),
            )
        for name in ("GetNumInputs", "GetNumOutputs"):
            getattr(lib, f"AOTInductorModelContainer{name}").argtypes = (
                Handle,
                ctypes.POINTER(ctypes.c_size_t),
            )
        lib.AOTInductorModelContainerUpdateUserManagedConstantBufferPairs.argtypes = (
            Handle,
            ctypes.POINTER(ConstantPair),
            ctypes.c_size_t,
            ctypes.c_bool,
            ctypes.c_bool,
        )

    def _last_error(self) -> str:
        """The model's own text for the last failure on this thread."""
        text = ctypes.c_char_p()
        # Absent from models built before torch 2.13.
        if hasattr(self._lib, "AOTInductorGetLastError"):
            self._lib.AOTInductorGetLastError(ctypes.byref(text))
        return (text.value or b"the model gave no reason").decode(errors="replace").strip()

    def _check(self, status: int, doing: str) -> None:
        if status != _SUCCESS:
            raise EngineLoadError(f"{doing} failed: {self._last_error()}")

    def count(self, what: str) -> int:
        """Number of "Inputs", "Outputs" or "Constants"."""
        number = ctypes.c_size_t()
        function = getattr(self._lib, f"AOTInductorModelContainerGetNum{what}")
        self._check(function(self._container, ctypes.byref(number)), f"counting {what.lower()}")
        return number.value

    def constant_names(self) -> dict[str, str]:
        """Internal names of the constants by their original names."""
        return {
            self._constant_text("GetConstantOriginalFQN", index): self._constant_text(
                "GetConstantName", index
            )
            for index in range(self.count("Constants"))
        }

    def _constant_text(self, function: str, index: int) -> str:
        text = ctypes.c_char_p()
        status = getattr(self._lib, f"AOTInductorModelContainer{function}")(
            self._container, index, ctypes.byref(text)
        )
        self._check(status, "naming a constant")
        return (text.value or b"").decode()

    def use_constants(self, tensors: dict[str, Handle]) -> None:
        """Let the model read its constants from tensors by internal name, without copying them."""
        entries = [ConstantPair(name.encode(), tensor) for name, tensor in tensors.items()]
        pairs = (ConstantPair * len(entries))(*entries)
        status = self._lib.AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(
            self._container, pairs, len(tensors), False, True
        )
        self._check(status, "supplying the shared weights")

    def run(self, inputs: Sequence[Handle], num_outputs: int) -> list[Handle]:
        """Run once. The inputs are consumed; the outputs belong to the caller.

        Raises:
            EngineError: with the model's own text.
        """
        outputs = (Handle * num_outputs)()
        status = self._lib.AOTInductorModelContainerRun(
            self._container,
            (Handle * len(inputs))(*inputs),
            len(inputs),
            outputs,
            num_outputs,
            None,
            None,
        )
        if status != _SUCCESS:
            raise EngineError(f"the compiled model failed: {self._last_error()}")
        return [Handle(output) for output in outputs]

    def close(self) -> None:
        """Free the container.

        The library itself stays mapped, because its code may still be on other stacks.
        """
        container, self._container = self._container, Handle()
        if container.value is not None:
            self._lib.AOTInductorModelContainerDelete(container)
