"""What this machine offers to a compile: C++ compiler, OpenMP, torch, the compile extra.

Looks things up without importing any of them. Knows nothing of requests and targets.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

INSTALL_EXTRA = "pip install 'infinity-v3[compile]'"
EXTRA_MODULES = ("huggingface_hub", "safetensors", "transformers")
TORCH_MINORS = ("2.11", "2.12", "2.13")
PYTHON_MINORS = ("3.10", "3.11", "3.12", "3.13")
PROBE_TIMEOUT_S = 60
OPENMP_PROBE = (
    "#include <omp.h>\n#include <vector>\nint main() { return omp_get_max_threads() > 0; }\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CxxCompiler:
    """The C++ compiler that builds engines; `version` is the first line of `--version`."""

    command: str
    version: str


def cxx_command() -> str:
    """Return the compiler that the build steps call: the variable CXX, else g++."""
    return os.environ.get("CXX") or "g++"


def find_cxx() -> CxxCompiler | None:
    """Return the C++ compiler, or None when it is not installed or does not start."""
    command = cxx_command()
    if shutil.which(command) is None:
        return None
    done = _run([command, "--version"], "")
    if done is None or done.returncode != 0:
        return None
    lines = done.stdout.splitlines()
    return CxxCompiler(command=command, version=lines[0].strip() if lines else command)


def accepts_flags(command: str, flags: Sequence[str]) -> bool:
    """Whether the compiler knows the flags, e.g. the `-march` of a newer CPU."""
    done = _run([command, *flags, "-fsyntax-only", "-x", "c++", "-"], "int main() { return 0; }\n")
    return done is not None and done.returncode == 0


def package_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_obstacles() -> tuple[str, ...]:
    """Return what keeps this machine from compiling, each with its remedy; empty = nothing does."""
    cxx = _cxx_obstacle()
    return (*find_reference_obstacles(), *(() if cxx is None else (cxx,)))


def find_reference_obstacles() -> tuple[str, ...]:
    """Return what keeps this machine from running a checkpoint's own model, if anything."""
    checks = (_python_obstacle(), _torch_obstacle(), _extra_obstacle())
    return tuple(obstacle for obstacle in checks if obstacle is not None)


def _python_obstacle() -> str | None:
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found in PYTHON_MINORS:
        return None
    return f"Python {found} is not supported; use Python {PYTHON_MINORS[0]} to {PYTHON_MINORS[-1]}"


def _torch_obstacle() -> str | None:
    expected = f"torch {TORCH_MINORS[0]} to {TORCH_MINORS[-1]}"
    version = package_version("torch")
    if version is None:
        return f"torch is not installed; expected {expected}"
    if ".".join(version.split(".")[:2]) not in TORCH_MINORS:
        return f"torch {version} is not supported; expected {expected}"
    return None


def _extra_obstacle() -> str | None:
    missing = [name for name in EXTRA_MODULES if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return (
        f"the compile extra is missing ({', '.join(missing)}); install it from "
        f"infinity_v3's source directory: {INSTALL_EXTRA}"
    )


def _cxx_obstacle() -> str | None:
    compiler = find_cxx()
    if compiler is None:
        return (
            f"no C++ compiler: {cxx_command()} not found or does not start; install g++ 11 or "
            "newer (Debian and Ubuntu: apt-get install g++) or name another one in CXX"
        )
    done = _run([compiler.command, "-fopenmp", "-fsyntax-only", "-x", "c++", "-"], OPENMP_PROBE)
    if done is None or done.returncode != 0:
        return (
            f"{compiler.command} cannot compile OpenMP (omp.h or the standard headers are "
            "missing); install g++ with its own headers (Debian and Ubuntu: apt-get install g++)"
        )
    return None


def _run(command: Sequence[str], source: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            input=source,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
