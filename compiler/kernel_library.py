"""Builds the library of our own operators for one CPU class, once per source and flags.

Knows nothing of models.
"""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from uuid import uuid4

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.scratch import TEMPORARY, scratch_folder
from infinity_v3.compiler.toolchain import find_cxx

KERNEL_ABI = "6"
"""Raised when the operators' signatures or their meaning change."""

_SOURCES = (
    "bf16_linear.cpp",
    "bf16_mlp.cpp",
    "disentangled_attention.cpp",
    "embedding_norm.cpp",
    "grouped_mm.cpp",
    "int8_linear.cpp",
    "layer_norm.cpp",
    "segment_pool.cpp",
    "splade_pool.cpp",
    "varlen_attention.cpp",
)
_HEADERS = (
    "activation.h",
    "amx.h",
    "amx_attention.h",
    "amx_operands.h",
    "amx_softmax.h",
    "attention_problem.h",
    "bf16_epilogue.h",
    "bf16_layer.h",
    "bf16_matrix.h",
    "bf16_tile.h",
    "bf16_worker.h",
    "gelu_table.h",
    "int8_columns.h",
    "int8_matrix.h",
    "int8_rows.h",
    "int8_tile.h",
    "kernel_common.h",
    "norm_rows.h",
    "position_table.h",
    "score_adjustment.h",
    "scratch.h",
    "shares.h",
    "softmax.h",
    "tensor_view.h",
    "tile.h",
    "vector_attention.h",
)
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-s",
    "-Wl,--build-id=none",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLibrary:
    """A built library; `digest` is part of its file name, SONAME and every exported symbol."""

    path: Path
    digest: str

    @property
    def link_name(self) -> str:
        return f"infinity-kernels-{self.digest}"


def kernel_flags(target: CpuTarget) -> tuple[str, ...]:
    """Flags that change the code of the library."""
    return (*_FLAGS, f"-march={target.flags.march}", *target.flags.kernel_flags)


def build_kernel_library(target: CpuTarget, torch_root: Path, cache: Path) -> KernelLibrary:
    """Return the library of a CPU class, compiling it unless the cache holds it.

    Args:
        torch_root: directory of the torch package (headers and libraries).
        cache: directory for built libraries; created when absent.

    Raises:
        RunFailedError: the compiler failed; the message ends with its last lines.
    """
    digest = kernel_digest(target)
    library = KernelLibrary(path=cache / digest / f"libinfinity-kernels-{digest}.so", digest=digest)
    if not library.path.exists():
        _compile(target, library, torch_root)
    return library


def kernel_digest(target: CpuTarget) -> str:
    """Return the 12 hex digits that name a library: of its sources, flags and compiler."""
    sources = resources.files("infinity_v3.compiler.kernels")
    hasher = hashlib.sha256(KERNEL_ABI.encode())
    for name in (*_HEADERS, *_SOURCES):
        hasher.update(sources.joinpath(name).read_bytes())
    hasher.update("\0".join(kernel_flags(target)).encode())
    compiler = find_cxx()  # other compilers give other bytes, which must not share a name
    hasher.update(b"" if compiler is None else compiler.version.encode())
    return hasher.hexdigest()[:12]


def _compile(target: CpuTarget, library: KernelLibrary, torch_root: Path) -> None:
    library.path.parent.mkdir(parents=True, exist_ok=True)
    with (
        resources.as_file(resources.files("infinity_v3.compiler.kernels")) as sources,
        scratch_folder(library.path.parent / uuid4().hex) as scratch,
    ):
        built = scratch / library.path.name
        _run_compiler(_command(target, library, torch_root, sources, built), scratch)
        # Another process may have been as fast: same bytes, either may win.
        built.replace(library.path)


def _command(
    target: CpuTarget, library: KernelLibrary, torch_root: Path, sources: Path, built: Path
) -> list[str]:
    return [
        os.environ.get("CXX", "g++"),
        *kernel_flags(target),
        f"-DINFINITY_DIGEST={library.digest}",
        f"-ffile-prefix-map={sources}=.",
        f"-Wl,-soname,{library.path.name}",
        f"-I{torch_root / 'include'}",
        *(str(sources / name) for name in _SOURCES),
        "-o",
        str(built),
        f"-L{torch_root / 'lib'}",
        "-ltorch_cpu",
    ]


def _run_compiler(command: list[str], scratch: Path) -> None:
    environment = os.environ | {TEMPORARY: str(scratch)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise RunFailedError(
            f"the C++ compiler failed with exit code {done.returncode} on the kernel library; "
            f"its last lines:\n{tail}"
        )
