"""Finds the installed torch by looking at files: importing it would cost over a second."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_MINOR = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchInstall:
    """One installed torch: its full version ("2.13.0+cpu") and its folder of shared libraries."""

    version: str
    lib_dir: Path | None


def find_torch() -> TorchInstall | None:
    """Return the torch that `import torch` would find, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return read_torch_install(Path(spec.origin).parent)


def read_torch_install(package_dir: Path) -> TorchInstall | None:
    """Read the version of the torch package in `package_dir`; None when it has no readable one."""
    try:
        match = _VERSION.search((package_dir / "version.py").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if match is None:
        return None
    lib_dir = package_dir / "lib"
    return TorchInstall(version=match[1], lib_dir=lib_dir if lib_dir.is_dir() else None)


def minor_of(version: str) -> str | None:
    """Return "2.13" for "2.13.0+cpu", None for what is no version."""
    match = _MINOR.match(version)
    return f"{match[1]}.{match[2]}" if match else None
