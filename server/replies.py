"""Builds the replies of inference routes: numbers in the encoding asked for, timing headers.

Knows nothing of how results come about.
"""

import time
from binascii import b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from infinity_v3.server import float32
from infinity_v3.server.call import BodyT, Call
from infinity_v3.server.codec import FloatArray, encode_json, encode_msgpack
from infinity_v3.server.errors import Headers
from infinity_v3.server.exchange import Reply
from infinity_v3.server.items import Items, ItemT
from infinity_v3.server.negotiation import JSON_TYPE, reply_media_type

if TYPE_CHECKING:
    from infinity_v3.runtime.results import RequestTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Writes rows in one encoding, for one media type."""

    media_type: str
    encoding: str = "float"

    @property
    def is_json(self) -> bool:
        return self.media_type == JSON_TYPE

    def row(self, array: FloatArray) -> object:
        """One vector or matrix, ready for the document."""
        if self.encoding == "float":
            return array
        data = array.tobytes()
        if self.encoding == "base64":
            return _base64(data)
        shape = list(array.shape)
        return {
            "dtype": "float32",
            "shape": shape,
            "data": _base64(data) if self.is_json else data,
        }

    def numbers(self, values: Sequence[float]) -> list[object]:
        """Numbers for the document; those that were float32 are written as float32."""
        if self.is_json:
            return list(float32.shortest(values))
        packed = map(float32.pack, values)
        return [
            value if data is None else msgspec.Raw(data)
            for value, data in zip(values, packed, strict=True)
        ]

    def document(self, value: object) -> bytes:
        """The whole body."""
        return encode_json(value) if self.is_json else encode_msgpack(value)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def encoder_for(call: Call[BodyT], encoding: str | None = None) -> Encoder:
    """The encoder that the request's Accept header and field ask for."""
    media_type = reply_media_type(call.exchange.header("accept"))
    return Encoder(media_type=media_type, encoding=encoding or "float")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a route has to say: a document, and how it is to be written."""

    value: object
    encoder: Encoder


class Measured(Protocol):
    """What every result says of its cost."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def timing(self) -> "RequestTiming": ...


def accept(
    call: Call[BodyT],
    *,
    is_batch: bool,
    num_items: int,
    num_characters: int,
    is_scoring: bool = False,
) -> None:
    """Note what the request holds, for headers, metrics and the request log."""
    outcome = call.exchange.outcome
    outcome.is_batch = is_batch
    outcome.is_scoring = is_scoring
    outcome.num_items = num_items
    outcome.num_characters = num_characters
    call.on_accepted(outcome)


def accept_items(call: Call[BodyT], items: Items[ItemT], *, is_scoring: bool = False) -> None:
    """The same for items."""
    accept(
        call,
        is_batch=items.is_list,
        num_items=items.num_items,
        num_characters=items.num_characters,
        is_scoring=is_scoring,
    )


def note_result(call: Call[BodyT], result: Measured) -> None:
    """Note what the request cost."""
    outcome = call.exchange.outcome
    outcome.num_tokens = result.num_tokens
    outcome.tokenization_s = result.timing.tokenization_s
    outcome.queue_s = result.timing.queue_s
    outcome.inference_s = result.timing.inference_s


def usage(result: Measured) -> dict[str, object]:
    """Tokens fed to the model; nothing else is counted."""
    return {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens}


def created_s() -> int:
    """When a reply is made, seconds since the epoch."""
    return int(time.time())


def plain_reply(answer: Answer) -> Reply:
    """A 200 that says nothing of its cost."""
    encoder = answer.encoder
    return Reply(body=encoder.document(answer.value), content_type=encoder.media_type)


def inference_reply(call: Call[BodyT], answer: Answer) -> Reply:
    """The 200 of an inference route."""
    encoder = answer.encoder
    body = encoder.document(answer.value)
    return Reply(body=body, content_type=encoder.media_type, headers=_timing_headers(call))


def _timing_headers(call: Call[BodyT]) -> Headers:
    """The `x-compute-*` and `x-*-time` headers; made last, they hold the whole time."""
    outcome = call.exchange.outcome
    total_ms = _milliseconds(call.exchange.elapsed_s)
    kind = "gpu" if call.model.info.device == "cuda" else "cpu"
    return (
        ("x-compute-type", f"{kind}+optimized"),
        ("x-compute-time", total_ms),
        ("x-total-time", total_ms),
        ("x-compute-characters", str(outcome.num_characters)),
        ("x-compute-tokens", str(outcome.num_tokens)),
        ("x-tokenization-time", _milliseconds(outcome.tokenization_s)),
        ("x-queue-time", _milliseconds(outcome.queue_s)),
        ("x-inference-time", _milliseconds(outcome.inference_s)),
    )


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1e3))
