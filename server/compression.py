"""Inflates request bodies under a limit and deflates replies. Knows nothing of HTTP headers."""

import zlib
from typing import Protocol

from infinity_v3.server.errors import malformed
from infinity_v3.server.negotiation import Coding

_WINDOW_BYTES = 8 * 1024 * 1024
# A zstd block of four bytes may inflate to 128 KiB: small pieces bound what one step can produce.
_ZSTD_PIECE_BYTES = 512


class TooLongError(Exception):
    """A body inflates to more than the limit."""


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


def inflate(data: bytes, coding: Coding, limit: int) -> bytes:
    """Undo a content coding.

    Raises:
        TooLongError: more than `limit` bytes come out; stops soon after the limit.
        HttpError: 400 for a broken stream, trailing bytes, or a zstd window over 8 MiB.
    """
    if coding is Coding.IDENTITY:
        return data
    return _inflate_gzip(data, limit) if coding is Coding.GZIP else _inflate_zstd(data, limit)


def _inflate_gzip(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        inflated = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise malformed(f"the gzip body is broken: {error}") from None
    if len(inflated) > limit:
        raise TooLongError
    _check_end(inflater, "gzip")
    return inflated


def _inflate_zstd(data: bytes, limit: int) -> bytes:
    import zstandard

    inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).decompressobj()
    pieces: list[bytes] = []
    total = 0
    try:
        for start in range(0, len(data), _ZSTD_PIECE_BYTES):
            if inflater.eof:
                raise malformed("the zstd body has bytes after its end")
            pieces.append(inflater.decompress(data[start : start + _ZSTD_PIECE_BYTES]))
            total += len(pieces[-1])
            if total > limit:
                raise TooLongError
    except zstandard.ZstdError as error:
        raise malformed(f"the zstd body is broken: {error}") from None
    _check_end(inflater, "zstd")
    return b"".join(pieces)


def _check_end(inflater: _Inflater, name: str) -> None:
    if not inflater.eof:
        raise malformed(f"the {name} body ends too early")
    if inflater.unused_data:
        raise malformed(f"the {name} body has bytes after its end")


def deflate(data: bytes, coding: Coding) -> bytes:
    """Apply a content coding at its fastest level."""
    if coding is Coding.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=1).compress(data)
    if coding is Coding.GZIP:
        return zlib.compress(data, level=1, wbits=31)
    return data
