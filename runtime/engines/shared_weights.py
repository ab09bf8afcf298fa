"""Maps a safetensors file once and hands out addresses of its tensors. Knows nothing of models.

The header is read by hand (8 bytes of length, then JSON), because serving needs addresses and no
library.
"""

import ctypes
import json
import mmap
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.runtime.engine_errors import EngineLoadError

_DTYPES = {
    "F32": ("float32", 4),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I8": ("int8", 1),
}
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedTensor:
    """Where a tensor lies in this process; valid as long as its SharedWeights."""

    address: int
    shape: tuple[int, ...]
    dtype: str


class SharedWeights:
    """A read-only, private mapping: processes share its pages, which are read when first used."""

    def __init__(self, path: Path) -> None:
        """Map `path`.

        Raises:
            EngineLoadError: the file is not a safetensors file of known dtypes.
        """
        with path.open("rb") as file:
            # Copy-on-write, as ctypes takes addresses of writable buffers only; nothing writes.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.tensors = self._read_header(path)

    def _read_header(self, path: Path) -> dict[str, MappedTensor]:
        header_bytes = int.from_bytes(self._map[:_LENGTH_BYTES], "little")
        start = _LENGTH_BYTES + header_bytes
        if start > len(self._map):
            raise EngineLoadError(f"{path.name}: the header is longer than the file")
        header = json.loads(self._map[_LENGTH_BYTES:start])
        header.pop("__metadata__", None)
        return {name: self._locate(path, name, entry, start) for name, entry in header.items()}

    def _locate(self, path: Path, name: str, entry: dict[str, object], start: int) -> MappedTensor:
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if code not in _DTYPES or not isinstance(shape, list) or not isinstance(offsets, list):
            raise EngineLoadError(
                f"{path.name}: {name}: dtype {code} is not one of {', '.join(sorted(_DTYPES))}"
            )
        dtype, item_bytes = _DTYPES[str(code)]
        num_bytes = item_bytes
        for size in shape:
            num_bytes *= size
        if offsets[1] - offsets[0] != num_bytes or start + offsets[1] > len(self._map):
            raise EngineLoadError(
                f"{path.name}: {name}: its bytes do not fit its shape or the file"
            )
        return MappedTensor(
            address=self._base + start + offsets[0], shape=tuple(shape), dtype=dtype
        )
