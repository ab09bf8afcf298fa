"""Opens a checkpoint: finds it on disk or on the hub, checks its weights, hashes what is read.

Knows nothing of architectures, and loads no tensor.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.artifacts.manifest import SourceFile
from infinity_v3.compiler.checkpoint_files import (
    CONFIG,
    HUB_PATTERNS,
    README,
    WEIGHTS,
    WEIGHTS_INDEX,
    CheckpointFiles,
    find_files,
    read_weight_map,
)
from infinity_v3.compiler.hub import fetch_snapshot
from infinity_v3.compiler.progress import Progress, Stage
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.safetensors_header import (
    FLOAT_DTYPES,
    CheckpointError,
    TensorHeader,
    read_tensor_headers,
)

LOCAL_REPOSITORY = "local"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
PATH_PREFIXES = ("/", "./", "../", "~")
HASH_CHUNK_BYTES = 1 << 20
LICENSE_LINE = re.compile(r"license:\s*['\"]?([^'\"#\n]{1,100}?)['\"]?\s*(#.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor; `file` is relative to the checkpoint, `dtype` as safetensors writes it."""

    file: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose weight files are whole.

    Attributes:
        path: its directory.
        repository: hub id, or "local".
        revision: commit of the hub id; None for a local directory.
        files: every file that may be read, with its digest, sorted by path.
        license: the licence that its README declares.
        weight_files: safetensors files of the model itself, relative to `path`.
        tensors: all tensors by name; those of later modules carry their folder in front
            ("2_Dense/linear.weight").
        num_parameters: elements of all floating-point tensors.
    """

    path: Path
    repository: str
    revision: str | None
    files: tuple[SourceFile, ...]
    license: str | None
    weight_files: tuple[str, ...]
    tensors: Mapping[str, TensorEntry]
    num_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Location:
    path: Path
    repository: str
    revision: str | None


def open_checkpoint(request: CompileRequest, progress: Progress) -> Checkpoint:
    """Find, check and hash the checkpoint of a request.

    Raises:
        UsageError: not found, incomplete, damaged, or in a format that is not read
            (`CheckpointError`).
        RunFailedError: a file cannot be read, or the hub cannot be reached.
    """
    location = _locate(request, progress)
    try:
        files = find_files(location.path)
    except OSError as error:
        raise RunFailedError(
            f"{location.path}: cannot be read: {error.strerror or error}"
        ) from error
    tensors = _read_tensors(location.path, files)
    return Checkpoint(
        path=location.path,
        repository=location.repository,
        revision=location.revision,
        files=_hash_files(location.path, files.read, progress),
        license=read_license(location.path / README),
        weight_files=files.weights,
        tensors=tensors,
        num_parameters=_count_parameters(tensors.values()),
    )


def refuse_beyond_weights(checkpoint: Checkpoint, config: Path, sizes: Mapping[str, int]) -> None:
    """Refuse tables and layers that no tensor of the checkpoint could fill, before any is made.

    Args:
        checkpoint: the opened checkpoint.
        config: config.json, as sentences name it.
        sizes: rows of tables by their key in config.json.

    Raises:
        CheckpointError: naming the key.
    """
    rows = max(tensor.shape[0] for tensor in checkpoint.tensors.values() if tensor.shape)
    for key, size in sizes.items():
        if size > rows:
            raise CheckpointError(
                f"{config}: {key}: expected at most {rows}, the rows of the largest table in the "
                f"weights, found {size}; {CONFIG} and the weights must come from one checkpoint"
            )


def is_hub_id(checkpoint: str) -> bool:
    """Whether a value that is no directory may be looked up on the hub."""
    return not checkpoint.startswith(PATH_PREFIXES) and HUB_ID.fullmatch(checkpoint) is not None


def check_source(request: CompileRequest) -> None:
    """Refuse what is neither a directory nor a hub id.

    Raises:
        UsageError: it is not, or a revision was given with a directory.
    """
    path = Path(request.checkpoint).expanduser()
    if path.is_dir():
        if request.revision is not None:
            raise UsageError(
                f"--revision {request.revision}: belongs to a hub id, and {request.checkpoint} is "
                "a directory; leave it out"
            )
    elif path.exists():
        raise UsageError(f"{request.checkpoint}: is a file; expected a checkpoint directory")
    elif not is_hub_id(request.checkpoint):
        raise UsageError(f"{request.checkpoint}: no such directory, and not a hub id (org/name)")


def _locate(request: CompileRequest, progress: Progress) -> _Location:
    check_source(request)
    path = Path(request.checkpoint).expanduser()
    if path.is_dir():
        return _Location(path=path.resolve(), repository=LOCAL_REPOSITORY, revision=None)
    with progress.stage(f"download {request.checkpoint}"):
        snapshot = fetch_snapshot(request.checkpoint, request.revision, HUB_PATTERNS)
    return _Location(path=snapshot.path, repository=request.checkpoint, revision=snapshot.commit)


def _read_tensors(folder: Path, files: CheckpointFiles) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    for file in files.weights:
        _add_tensors(tensors, file, "", read_tensor_headers(folder / file))
    if WEIGHTS_INDEX in files.read:
        _check_index(folder, tensors)
    if not tensors:
        raise CheckpointError(f"{folder}: its weight files hold no tensors")
    for file in files.module_weights:
        prefix = file.removesuffix(WEIGHTS)
        _add_tensors(tensors, file, prefix, read_tensor_headers(folder / file))
    return tensors


def _add_tensors(
    tensors: dict[str, TensorEntry], file: str, prefix: str, headers: Iterable[TensorHeader]
) -> None:
    for header in headers:
        name = prefix + header.name
        if name in tensors:
            raise CheckpointError(
                f"tensor {name!r} is in two files, {tensors[name].file} and {file}; expected "
                "each tensor once: remove the file that does not belong to the checkpoint, or "
                "fetch it again"
            )
        tensors[name] = TensorEntry(file=file, dtype=header.dtype, shape=header.shape)


def _check_index(folder: Path, tensors: Mapping[str, TensorEntry]) -> None:
    for name, file in read_weight_map(folder).items():
        if name not in tensors or tensors[name].file != file:
            raise CheckpointError(
                f"{folder / WEIGHTS_INDEX}: says that tensor {name!r} is in {file}, which does "
                "not hold it"
            )


def _count_parameters(tensors: Iterable[TensorEntry]) -> int:
    total = 0
    for tensor in tensors:
        if tensor.dtype in FLOAT_DTYPES:
            count = 1
            for size in tensor.shape:
                count *= size
            total += count
    return total


def _hash_files(folder: Path, names: Iterable[str], progress: Progress) -> tuple[SourceFile, ...]:
    paths = [(name, folder / name) for name in names]
    try:
        num_bytes = sum(path.stat().st_size for _, path in paths)
        with progress.stage("hash checkpoint", num_bytes) as stage:
            return tuple(
                SourceFile(path=name, sha256=_hash_file(path, stage)) for name, path in paths
            )
    except OSError as error:
        raise RunFailedError(f"{folder}: cannot be read: {error.strerror or error}") from error


def _hash_file(path: Path, stage: Stage) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
            stage.advance(len(chunk))
    return digest.hexdigest()


def read_license(readme: Path) -> str | None:
    """Return the `license` of the YAML block in front of a model card."""
    try:
        lines = readme.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # a model card is optional
        return None
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        if line.strip() == "---":
            return None
        if match := LICENSE_LINE.fullmatch(line):
            return match.group(1).strip() or None
    return None
