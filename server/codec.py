"""Documents in, documents out: strict JSON and MessagePack.

Owns syntax and nesting rules. Knows nothing of which fields a route has.
"""

import gc
import json
from collections.abc import Iterable
from typing import NoReturn, Protocol

import msgspec
import orjson

from infinity_v3.server.errors import HttpError, malformed
from infinity_v3.server.negotiation import JSON_TYPE

MAX_DEPTH = 64
_FLOAT32_TAG = 0xCA


class FloatArray(Protocol):
    """What is used of a float32 array: its bytes in a byte order, and its shape."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def tobytes(self) -> bytes: ...

    def byteswap(self) -> "FloatArray": ...

    def __getitem__(self, index: int) -> "FloatArray": ...


def decode(body: bytes, media_type: str) -> object:
    """Decode a request body. Strings may hold lone surrogates.

    Raises:
        HttpError: 400 if the bytes are no document of that type.
    """
    with collector_paused():
        return _decode_json(body) if media_type == JSON_TYPE else _decode_msgpack(body)


class collector_paused:  # noqa: N801  # used like a function; contextlib's way takes longer
    """Keep the garbage collector from looking through a document while it grows.

    One of millions of small lists would take four times as long, and all others would wait.
    """

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()


def _decode_json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return _decode_json_slowly(body, str(error))


def _decode_json_slowly(body: bytes, reason: str) -> object:
    """Fast decoders take a lone surrogate for bad JSON; this one tells the two apart."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not valid UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise malformed(f"the body is not valid JSON: {reason}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _decode_msgpack(body: bytes) -> object:
    try:
        return msgspec.msgpack.decode(body)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, ValueError, OverflowError, TypeError) as error:
        # TypeError: a map key that cannot be hashed.
        raise malformed(f"the body is not valid MessagePack: {error}") from None


def check_tree(value: object) -> None:
    """Refuse what a document may not hold: deep nesting, ext values, keys that are no strings.

    Raises:
        HttpError: 400.
    """
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _containers(node)]
        if not level:
            return
    raise too_deep()


def too_deep() -> HttpError:
    """The refusal of a document that is nested too deeply."""
    return malformed(f"the body is nested more than {MAX_DEPTH} levels deep")


def _containers(node: object) -> list[object]:
    children: Iterable[object] = ()
    if isinstance(node, dict):
        if not all(isinstance(key, str) for key in node):
            raise malformed("map keys must be strings")
        children = node.values()
    elif isinstance(node, list):
        children = node
    elif not isinstance(node, _PLAIN_TYPES):
        raise malformed("MessagePack ext values are not supported")
    return [child for child in children if not isinstance(child, _PLAIN_TYPES)]


_PLAIN_TYPES = (str, int, float, bool, bytes, type(None))


def encode_json(value: object) -> bytes:
    """JSON; float32 arrays become the shortest decimals that round-trip."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_msgpack(value: object) -> bytes:
    """MessagePack; float32 arrays become arrays of float 32."""
    return msgspec.msgpack.encode(value, enc_hook=_encode_array)


def _encode_array(value: FloatArray) -> msgspec.Raw:
    """Called for what MessagePack does not know: the arrays of a result."""
    return msgspec.Raw(pack_floats(value))


def pack_floats(array: FloatArray) -> bytes:
    """MessagePack arrays of float 32, nested as the array is.

    Args:
        array: 1-D or 2-D float32, C-contiguous, little-endian.
    """
    if len(array.shape) > 1:
        rows = (pack_floats(array[row]) for row in range(array.shape[0]))
        return _array_header(array.shape[0]) + b"".join(rows)
    count = array.shape[0]
    big_endian = array.byteswap().tobytes()
    packed = bytearray(5 * count)
    packed[0::5] = bytes((_FLOAT32_TAG,)) * count
    for byte in range(4):
        packed[byte + 1 :: 5] = big_endian[byte::4]
    return _array_header(count) + bytes(packed)


def _array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")
