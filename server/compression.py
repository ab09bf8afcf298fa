"""Inflates request bodies under a limit and deflates replies. Knows nothing of HTTP headers."""

import zlib

from infinity_v3.server.errors import HttpError, malformed
from infinity_v3.server.negotiation import Coding

_WINDOW_BYTES = 8 * 1024 * 1024
# A zstd block of four bytes may inflate to 128 KiB: small pieces bound what one step can produce.
_ZSTD_PIECE_BYTES = 512
_MAX_FRAMES = 64  # of one body; each costs a little, however small it is
_GZIP_MAGIC = b"\x1f\x8b"


class TooLongError(Exception):
    """A body inflates to more than the limit."""


def inflate(data: bytes, coding: Coding, limit: int) -> bytes:
    """Undo a content coding.

    Raises:
        TooLongError: more than `limit` bytes come out; stops soon after the limit.
        HttpError: 400 for a broken stream, bytes behind it, or a zstd window over 8 MiB.
    """
    if coding is Coding.IDENTITY:
        return data
    return _inflate_gzip(data, limit) if coding is Coding.GZIP else _inflate_zstd(data, limit)


def _inflate_gzip(data: bytes, limit: int) -> bytes:
    """All members of a stream, RFC 1952."""
    inflated = b""
    for _ in range(_MAX_FRAMES):
        inflater = zlib.decompressobj(wbits=31)
        try:
            inflated += inflater.decompress(data, limit + 1 - len(inflated))
        except zlib.error as error:
            raise malformed(f"the gzip body is broken: {error}") from None
        if len(inflated) > limit:
            raise TooLongError
        if not inflater.eof:
            raise malformed("the gzip body ends too early")
        data = inflater.unused_data
        if not data:
            return inflated
        if not data.startswith(_GZIP_MAGIC):
            raise malformed("the gzip body has bytes after its end")
    raise _too_many_frames("gzip", "members")


def _inflate_zstd(data: bytes, limit: int) -> bytes:
    """All frames of a stream, RFC 8878."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    inflater = decompressor.decompressobj()
    pieces: list[bytes] = []
    total = start = 0
    num_frames = 1
    try:
        while start < len(data):
            piece = data[start : start + _ZSTD_PIECE_BYTES]
            if inflater.eof:
                num_frames += 1
                if num_frames > _MAX_FRAMES:
                    raise _too_many_frames("zstd", "frames")
                inflater = decompressor.decompressobj()
            pieces.append(inflater.decompress(piece))
            start += len(piece) - len(inflater.unused_data)
            total += len(pieces[-1])
            if total > limit:
                raise TooLongError
    except zstandard.ZstdError as error:
        raise malformed(f"the zstd body is broken: {error}") from None
    if not inflater.eof:
        raise malformed("the zstd body ends too early")
    return b"".join(pieces)


def _too_many_frames(name: str, unit: str) -> HttpError:
    return malformed(f"the {name} body has more than {_MAX_FRAMES} {unit}; send one")


def deflate(data: bytes, coding: Coding) -> bytes:
    """Apply a content coding at its fastest level."""
    if coding is Coding.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=1).compress(data)
    if coding is Coding.GZIP:
        return zlib.compress(data, level=1, wbits=31)
    return data
