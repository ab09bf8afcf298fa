"""Reads and checks the header of a safetensors file, strictly. Knows nothing of models.

A file that passes has every byte of its data section claimed by exactly one tensor.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError, UsageError

LENGTH_BYTES = 8
# The format's own bound on its header.
MAX_HEADER_BYTES = 100_000_000
# No real tensor comes near; keeps products of hostile shapes small.
MAX_RANK = 64
GIT_LFS_POINTER = b"version https://git-lfs.github.com/spec/"

ELEMENT_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}
FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})
NARROW_FLOAT_PREFIXES = ("F4", "F6", "F8")


class CheckpointError(UsageError):
    """The checkpoint is incomplete, damaged or of a kind that is not compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """One tensor: `begin` and `end` are byte offsets into the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)


def read_tensor_headers(path: Path) -> tuple[TensorHeader, ...]:
    """Read the header of a safetensors file and check it against the file's size.

    Args:
        path: the file.

    Returns:
        The tensors in the order of their bytes.

    Raises:
        CheckpointError: the file is truncated, damaged, or holds a dtype that is not compiled.
        RunFailedError: the file cannot be read.
    """
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(LENGTH_BYTES)
            header_bytes = _header_length(path, start, num_bytes)
            header = file.read(header_bytes)
    except OSError as error:
        raise RunFailedError(f"{path}: cannot be read: {error.strerror or error}") from error
    tensors = parse_header(str(path), header)
    _check_layout(str(path), tensors, num_bytes - LENGTH_BYTES - header_bytes)
    return tensors


def parse_header(where: str, header: bytes) -> tuple[TensorHeader, ...]:
    """Parse the JSON of a header.

    Args:
        where: named in errors.
        header: the header's bytes, without the length in front.

    Returns:
        The tensors in the order of their bytes; the layout as a whole is not checked yet.

    Raises:
        CheckpointError: not the JSON that the format defines.
    """
    entries = _parse_json(where, header)
    tensors = [
        _parse_tensor(f"{where}: tensor {_shown(name)}", name, entry)
        for name, entry in entries.items()
        if name != "__metadata__"
    ]
    _check_metadata(where, entries.get("__metadata__", {}))
    return tuple(sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)))


def _header_length(path: Path, start: bytes, num_bytes: int) -> int:
    if start == GIT_LFS_POINTER[:LENGTH_BYTES]:
        raise CheckpointError(
            f"{path}: is a git-lfs pointer, not the weights; fetch them with 'git lfs pull'"
        )
    if len(start) < LENGTH_BYTES:
        raise CheckpointError(f"{path}: truncated: expected a header, found {num_bytes} bytes")
    length = int.from_bytes(start, "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path}: not a safetensors file: its header claims {length} bytes, expected at most "
            f"{MAX_HEADER_BYTES}"
        )
    if length > num_bytes - LENGTH_BYTES:
        raise CheckpointError(
            f"{path}: truncated: its header needs {length} bytes, found "
            f"{num_bytes - LENGTH_BYTES}; fetch the file again"
        )
    return length


def _parse_json(where: str, header: bytes) -> dict[str, object]:
    if not header.startswith(b"{"):
        raise CheckpointError(
            f"{where}: not a safetensors file: its header does not start with '{{'"
        )
    try:
        parsed = json.loads(
            header.decode("utf-8"), object_pairs_hook=_unique_pairs, parse_constant=_no_constant
        )
    # ValueError covers bad JSON, bad UTF-8 and integers beyond Python's digit limit.
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: damaged header: {error}; fetch the file again") from error
    assert isinstance(parsed, dict), "JSON that starts with a brace is an object; this is a bug"
    return parsed


def _unique_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    unique: dict[str, object] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError(f"{_shown(key)} is named twice")
        unique[key] = value
    return unique


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON value")


def _check_metadata(where: str, metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise CheckpointError(f"{where}: damaged header: __metadata__ must be an object of strings")


def _parse_tensor(where: str, name: str, entry: object) -> TensorHeader:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: expected exactly dtype, shape and data_offsets")
    dtype = _checked_dtype(where, entry["dtype"])
    shape = _sizes(where, "shape", entry["shape"])
    offsets = _sizes(where, "data_offsets", entry["data_offsets"])
    if len(offsets) != 2:
        raise CheckpointError(f"{where}: data_offsets: expected two numbers, found {len(offsets)}")
    tensor = TensorHeader(name=name, dtype=dtype, shape=shape, begin=offsets[0], end=offsets[1])
    expected = tensor.num_elements * ELEMENT_BYTES[dtype]
    if tensor.end - tensor.begin != expected:
        raise CheckpointError(
            f"{where}: its shape and dtype need {_shown_size(expected)} bytes, "
            f"its offsets span {_shown_size(tensor.end - tensor.begin)}"
        )
    return tensor


def _checked_dtype(where: str, dtype: object) -> str:
    if not isinstance(dtype, str):
        raise CheckpointError(f"{where}: dtype: expected a string")
    if dtype.startswith(NARROW_FLOAT_PREFIXES) and dtype not in ELEMENT_BYTES:
        raise CheckpointError(
            f"{where}: {_shown(dtype)} weights are not compiled; use the checkpoint in float32, "
            "float16 or bfloat16"
        )
    if dtype not in ELEMENT_BYTES:
        raise CheckpointError(
            f"{where}: unknown dtype {_shown(dtype)}; expected one of {', '.join(ELEMENT_BYTES)}"
        )
    return dtype


def _sizes(where: str, key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise CheckpointError(f"{where}: {key}: expected an array of at most {MAX_RANK} numbers")
    for size in value:
        if type(size) is not int or not 0 <= size < 2**63:
            raise CheckpointError(f"{where}: {key}: expected whole numbers from 0 to 2^63 - 1")
    return tuple(value)


def _check_layout(where: str, tensors: Iterable[TensorHeader], data_bytes: int) -> None:
    position = 0
    for tensor in tensors:
        if tensor.begin != position:
            kind = "a gap" if tensor.begin > position else "an overlap"
            raise CheckpointError(
                f"{where}: tensor {_shown(tensor.name)}: {kind} in the data: "
                f"expected offset {position}, found {tensor.begin}"
            )
        position = tensor.end
    if position > data_bytes:
        raise CheckpointError(
            f"{where}: truncated: its tensors need {position} bytes, found {data_bytes}; fetch "
            "the file again"
        )
    if position < data_bytes:
        raise CheckpointError(
            f"{where}: {data_bytes - position} bytes follow the last tensor; expected none"
        )


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 100 else text[:97] + "...")


def _shown_size(size: int) -> str:
    return str(size) if size < 2**64 else "far too many"
