"""Compiles an exported model into an AOTInductor library for one CPU class.

The only file that imports torch._inductor. Knows nothing of checkpoints, heads or manifests.
"""

import os
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch._inductor import codecache, cpu_vec_isa, ir, lowering
from torch._inductor.codegen import cpp
from torch._inductor.exc import InductorError
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils.cpp_extension import include_paths

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.compiler.backends.aligned_constants import aligned_constants_flags
from infinity_v3.compiler.backends.lean_headers import lean_header_flags
from infinity_v3.compiler.cpu_targets import BuildFlags, CpuTarget
from infinity_v3.compiler.disk_full import is_disk_full
from infinity_v3.compiler.export import ExportedModel
from infinity_v3.compiler.kernel_library import KernelLibrary
from infinity_v3.compiler.operators import define_operators, shim_declaration
from infinity_v3.compiler.scratch import TEMPORARY, scratch_folder

ENTRY = "model.so"
_REPRODUCIBLE = "-s -Wno-builtin-macro-redefined '-D__FILE__=\"model\"' -D__LINE__=0"
"""Keeps paths of the build out of the library, so that the same inputs give the same bytes; and
lines of generated source, which nobody has: a kept program has one less where two sizes are one."""
_BF16_FLAG = "-mavx512bf16"
_ASSUMED_THREADS = 8
"""How many threads Inductor thinks of when it decides which loops to share out among as many as
there are: a number of its own would make the library depend on the host's CPUs."""
_NO_EXECUTABLE_STACK = "-Wa,--noexecstack"
"""The embedded weights come from an assembler file that says nothing about the stack: the library
would ask for an executable one, which hardened hosts and glibc from 2.41 on refuse."""
_PRECOMPILED = "*.gch"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_TABLE_OPERATORS = (torch.ops.aten.cos.default, torch.ops.aten.sin.default)
_VECTOR_ISAS = {
    "amx": cpu_vec_isa.VecAMX,
    "avx512": cpu_vec_isa.VecAVX512,
    "avx2": cpu_vec_isa.VecAVX2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine:
    """Files of one target, relative to its folder; the model library is `entry`."""

    target: CpuTarget
    entry: str
    files: tuple[str, ...]
    shares_weights: bool
    flags: tuple[str, ...]


def build_cpu_engine(
    exported: ExportedModel,
    target: CpuTarget,
    kernel: KernelLibrary,
    folder: Path,
    *,
    share_weights: bool,
) -> BuiltEngine:
    """Compile `exported` for a CPU class into `folder`.

    Args:
        folder: created; receives the model library and the kernel library.
        share_weights: leave the constants out of the library; the runtime maps them from a
            safetensors file.

    Raises:
        RunFailedError: code generation or the C++ compiler failed.
    """
    folder.mkdir(parents=True)
    options = _options(target, kernel, share_weights=share_weights)
    with (
        # Outermost: what it cleans up must not be written any more.
        _header_cache(_header_folder(kernel)),
        scratch_folder(folder / "scratch") as scratch,
        _environment(kernel, scratch),
        _vector_isa(target.flags),
        _names_without_addresses(),
        _assumed_threads(),
        _tables_made_once(),
    ):
        with _renamed_operators(exported.program, kernel.digest):
            package = _compile(exported.program, options, scratch)
        _extract_library(package, folder / ENTRY, target)
    shutil.copyfile(kernel.path, folder / kernel.path.name)
    return BuiltEngine(
        target=target,
        entry=ENTRY,
        files=(ENTRY, kernel.path.name),
        shares_weights=share_weights,
        flags=_flags(target, options),
    )


def _options(target: CpuTarget, kernel: KernelLibrary, *, share_weights: bool) -> dict[str, Any]:
    if not hasattr(torch._inductor.config.cpp, "march"):
        raise UsageError(
            f"target {target.name} needs torch 2.13 to build, found {torch.__version__}: older "
            "releases compile for the building machine only; install torch==2.13.0"
        )
    overloads = define_operators(kernel.digest)
    shims = {op: [shim_declaration(base, kernel.digest)] for base, op in overloads.items()}
    return {
        "freezing": target.flags.freeze and not share_weights,
        "aot_inductor.custom_ops_to_c_shims": shims,
        "aot_inductor.custom_op_libs": [kernel.link_name],
        "aot_inductor.package_constants_in_so": not share_weights,
        "cpp.dynamic_threads": True,
        # Layers of one input and one size, as for queries, keys and values, are one product.
        "cpp.enable_concat_linear": True,
        # The option is pasted into the compiler's command line, which has no other place for flags.
        "cpp.march": " ".join(
            [
                target.flags.march,
                _REPRODUCIBLE,
                _NO_EXECUTABLE_STACK,
                lean_header_flags(include_paths()),
                aligned_constants_flags(include_paths(), _header_folder(kernel) / "aligned"),
            ]
        ),
        "aot_inductor.enable_line_tables": False,
        # The host's flags were checked before; the probe compiles dozens of programs.
        "cpp.vec_isa_ok": True,
    }


def _header_folder(kernel: KernelLibrary) -> Path:
    """Beside the kernel libraries, what the compiler needs again in the next build."""
    return kernel.path.parent.parent / "headers"


def _flags(target: CpuTarget, options: dict[str, Any]) -> tuple[str, ...]:
    shown = [f"{name}={options[name]}" for name in ("freezing", "cpp.dynamic_threads")]
    return (*shown, f"cpp.march={target.flags.march}", f"capability={target.flags.capability}")


def constant_tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants by the names that the compiled model asks for them by."""
    constants = {
        name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)
    }
    return {**program.state_dict, **constants}


@contextmanager
def _vector_isa(flags: BuildFlags) -> Iterator[None]:
    """Let Inductor generate for exactly this vector width and these extensions.

    By itself it takes the widest of the host, and adds extensions that the host has to the first
    library that a process builds: what is built depends on neither here.
    """
    usual = cpu_vec_isa.valid_vec_isa_list
    chosen = _given(_VECTOR_ISAS[flags.capability])
    extensions = {
        "_is_avx512_bf16_supported": _BF16_FLAG in flags.kernel_flags,
        "_is_amx_fp16_supported": False,
    }
    for name, has_it in extensions.items():
        setattr(chosen, name, has_it)
    cpu_vec_isa.valid_vec_isa_list = lambda: [chosen]  # type: ignore[assignment]
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = usual


def _given(isa: type[cpu_vec_isa.VecISA]) -> cpu_vec_isa.VecISA:
    """A vector extension that is there, whatever the building host has.

    By itself it compiles and loads up to four programs to find out, in every process.
    """

    class Given(isa):  # type: ignore[misc, valid-type]  # a class that is only known now
        def __bool__(self) -> bool:
            return True

        __hash__ = isa.__hash__

    return Given()


@contextmanager
def _names_without_addresses() -> Iterator[None]:
    """Keep addresses of Python objects, which differ by process, out of the library.

    Inductor writes the name of an operator into its size checks; that of a fused one is a repr.
    """
    usual = ir.ExternKernel.get_op_name

    def get_op_name(kernel: ir.ExternKernel) -> str:
        return _ADDRESS.sub("", usual(kernel))

    ir.ExternKernel.get_op_name = get_op_name  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ir.ExternKernel.get_op_name = usual  # type: ignore[method-assign]


@contextmanager
def _assumed_threads() -> Iterator[None]:
    """Let loops be shared out the same way on every host."""
    usual = cpp.parallel_num_threads  # type: ignore[attr-defined]  # imported there
    cpp.parallel_num_threads = lambda: _ASSUMED_THREADS  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cpp.parallel_num_threads = usual  # type: ignore[attr-defined]


@contextmanager
def _tables_made_once() -> Iterator[None]:
    """Let the rotary tables of a graph be stored, for all layers to read.

    By itself Inductor computes them in every layer: it takes exponentials for too heavy to be
    computed again by each reader, but not sines and cosines.
    """
    lowerings: Any = lowering.lowerings
    usual = {operator: lowerings[operator] for operator in _TABLE_OPERATORS}
    lowerings.update({operator: _stored(lower) for operator, lower in usual.items()})
    try:
        yield
    finally:
        lowerings.update(usual)


def _stored(lower: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(lower)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the graph passes
        result = lower(*args, **kwargs)
        result.realize()
        return result

    return call


@contextmanager
def _header_cache(folder: Path) -> Iterator[None]:
    """Keep precompiled headers, half of a small build, beside the kernels instead of in /tmp."""
    usual = codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR
    codecache._HEADER_DIR = str(folder)
    codecache._HEADER_LOCK_DIR = str(folder / "locks")
    whole = set(folder.glob(_PRECOMPILED))
    try:
        yield
    except BaseException:
        # The last one may be cut short, which would fail every later compile.
        for header in set(folder.glob(_PRECOMPILED)) - whole:
            header.unlink(missing_ok=True)
        raise
    finally:
        codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = usual


@contextmanager
def _environment(kernel: KernelLibrary, scratch: Path) -> Iterator[None]:
    """What Inductor and the linker read from the environment, for the length of one build."""
    values = {
        "LIBRARY_PATH": str(kernel.path.parent),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch),
        TEMPORARY: str(scratch),
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    usual = tempfile.tempdir  # Python looks at the variable only once
    tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = usual
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _renamed_operators(program: ExportedProgram, digest: str) -> Iterator[None]:
    """Let the graph call the operators of one kernel library.

    So the generated symbols carry its digest.
    """
    named = define_operators(digest)
    generic = {overload: named[base] for base, overload in define_operators().items()}
    changed: list[tuple[Node, Any]] = []
    for node in program.graph.nodes:
        if node.target in generic:
            changed.append((node, node.target))
            node.target = generic[node.target]
    try:
        yield
    finally:
        for node, target in changed:
            node.target = target


def _compile(program: ExportedProgram, options: dict[str, Any], scratch: Path) -> Path:
    path = scratch / "model.pt2"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # raised inside torch, about torch
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(path), inductor_configs=options
            )
    except InductorError as error:  # wraps whatever went wrong below it
        if is_disk_full(error):
            raise
        reason = str(error).strip().splitlines()
        raise RunFailedError(
            f"the model could not be compiled: {reason[0] if reason else type(error).__name__}; "
            f"its last line: {reason[-1] if reason else 'none'}"
        ) from error
    return path


def _extract_library(package: Path, out: Path, target: CpuTarget) -> None:
    with zipfile.ZipFile(package) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        if len(libraries) != 1:
            raise RunFailedError(
                f"target {target.name}: expected one library in the compiled package, found "
                f"{len(libraries)}; this torch release packs models differently"
            )
        with archive.open(libraries[0]) as source, out.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    out.chmod(0o644)
