"""The key under which a compiled checkpoint is kept: everything that decides what a compile gives.

Reads the checkpoint's files; knows nothing of the cache or the compiler's code.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.cpu_class import CPU_CLASSES, CpuClass
from infinity_v3.artifacts.digest import FileState, sha256_beneath
from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.manifest import Backend
from infinity_v3.artifacts.memo import DigestMemo, memo_directory
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.model_source import ModelSource, SourceKind
from infinity_v3.server.product import product_version
from infinity_v3.server.target_options import asks_for_gpu, backend_choice, narrowing_options

_KEY_DIGITS = 32
_COMPILED_BACKENDS = (Backend.AOTI.value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOrder:
    """One compile: its source and the compiler's options; None = the compiler's default."""

    source: ModelSource
    target: str | None
    pooling: str | None


def compile_order(source: ModelSource, config: ModelConfig, host: HostCapabilities) -> CompileOrder:
    """The compile that serves this model on this host.

    Raises:
        RefusedError: nothing that can be built here would be chosen.
    """
    return CompileOrder(
        source=source,
        target=_target(config, host),
        pooling=None if config.pooling == "auto" else config.pooling,
    )


def _target(config: ModelConfig, host: HostCapabilities) -> str | None:
    """The one engine worth building here; None leaves the choice to the compiler."""
    backend = backend_choice(config, _COMPILED_BACKENDS)
    is_possible = backend in ("auto", *_COMPILED_BACKENDS) and not asks_for_gpu(config)
    if is_possible and host.arch != "x86_64":
        return None
    fitting = [cpu for cpu in CPU_CLASSES if cpu.fits(host.isa)]
    wanted = [cpu.name for cpu in fitting if _is_wanted(cpu, config.dtype)]
    if wanted and is_possible:
        return wanted[0]
    wishes = narrowing_options(config)
    if is_possible and not wishes:
        return None  # the compiler says what this host lacks
    offered = ", ".join(f"{cpu.name} ({cpu.precision.value})" for cpu in fitting) or "none"
    raise RefusedError(
        f"--model-id {config.model_id}: nothing that infinity-compile builds on this host fits "
        f"{' '.join(wishes)}; targets it builds here: {offered}"
    )


def _is_wanted(cpu: CpuClass, dtype: str) -> bool:
    return not cpu.is_asked_for if dtype == "auto" else dtype == cpu.precision.value


def cache_key(order: CompileOrder, host: HostCapabilities) -> str:
    """Hex digits that name the order's result on this host.

    Raises:
        RunFailedError: the checkpoint cannot be read.
    """
    parts = {
        "source": _source_identity(order.source),
        "target": order.target,
        "pooling": order.pooling,
        "torch": host.torch_minor,
        "kernels": _kernel_digest(),
        "arch": host.arch,
        "isa": sorted(host.isa),
        "product": product_version(),
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def _source_identity(source: ModelSource) -> object:
    if source.kind is SourceKind.HUB or source.path is None:
        return ["hub", source.model_id, source.revision]
    return ["directory", source.path.name, _content_digest(source.path.resolve())]


def _content_digest(root: Path) -> str:
    """Digest of names and contents; digests of unchanged files are remembered between starts."""
    memo = DigestMemo(hashlib.sha256(os.fsencode(root)).hexdigest(), memo_directory(os.environ))
    learned: dict[FileState, str] = {}
    whole = hashlib.sha256()
    try:
        for name in _files(root):
            whole.update(f"{name}\n{_file_digest(root, name, memo, learned)}\n".encode())
    except OSError as error:
        raise RunFailedError(f"{root}: cannot be read: {error.strerror}") from None
    memo.remember(learned)
    return whole.hexdigest()


def _files(root: Path) -> Iterator[str]:
    """Paths of regular files, sorted; hidden ones are no part of a checkpoint."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            yield relative.as_posix()


def _file_digest(root: Path, name: str, memo: DigestMemo, learned: dict[FileState, str]) -> str:
    # Hub snapshots are directories of links into a blob store: the file behind the link counts.
    path = (root / name).resolve()
    known = memo.recall(FileState.of(path.stat()))
    if known is not None:
        return known
    digest, state = sha256_beneath(path.parent, path.name)
    if state is not None:
        learned[state] = digest
    return digest


def _kernel_digest() -> str:
    """Digest of the installed kernel sources, which the compiler builds into every artifact."""
    spec = importlib.util.find_spec("infinity_v3.compiler")
    locations = spec.submodule_search_locations if spec is not None else None
    whole = hashlib.sha256()
    for location in locations or ():
        for path in sorted((Path(location) / "kernels").glob("*")):
            if path.suffix in {".cpp", ".h"}:
                whole.update(path.name.encode() + b"\n" + path.read_bytes())
    return whole.hexdigest()
