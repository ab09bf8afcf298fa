"""Builds the replies of inference routes: vectors in the encoding asked for, timing headers.

Knows nothing of how results come about.
"""

from binascii import b2a_base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infinity_v3.server.codec import FloatArray, encode_json, encode_msgpack
from infinity_v3.server.endpoint import BodyT, Call
from infinity_v3.server.errors import Headers
from infinity_v3.server.exchange import Reply
from infinity_v3.server.items import Items
from infinity_v3.server.negotiation import JSON_TYPE, reply_media_type

if TYPE_CHECKING:
    from infinity_v3.runtime.results import EmbedResult


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

    def document(self, value: object) -> bytes:
        """The whole body."""
        return encode_json(value) if self.is_json else encode_msgpack(value)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def encoder_for(call: Call[BodyT], encoding: str | None = None) -> Encoder:
    """The encoder that the request's Accept header and field ask for."""
    media_type = reply_media_type(call.exchange.header("accept"))
    return Encoder(media_type=media_type, encoding=encoding or "float")


def accept_items(call: Call[BodyT], items: Items) -> None:
    """Note what the request holds, for metrics and the request log."""
    outcome = call.exchange.outcome
    outcome.is_batch = items.is_list
    outcome.num_items = items.num_items
    call.context.metrics.request_accepted(outcome)


def note_result(call: Call[BodyT], result: "EmbedResult") -> None:
    """Note what the request cost."""
    outcome = call.exchange.outcome
    outcome.num_tokens = result.num_tokens
    outcome.tokenization_s = result.timing.tokenization_s
    outcome.queue_s = result.timing.queue_s
    outcome.inference_s = result.timing.inference_s


def timing_headers(call: Call[BodyT], items: Items) -> Headers:
    """The `x-compute-*` and `x-*-time` headers; call it last, it takes the time."""
    outcome = call.exchange.outcome
    total_s = call.exchange.elapsed_s
    call.context.metrics.request_succeeded(outcome, total_s)
    total_ms = _milliseconds(total_s)
    kind = "gpu" if call.model.info.device.value == "cuda" else "cpu"
    return (
        ("x-compute-type", f"{kind}+optimized"),
        ("x-compute-time", total_ms),
        ("x-total-time", total_ms),
        ("x-compute-characters", str(items.num_characters)),
        ("x-compute-tokens", str(outcome.num_tokens)),
        ("x-tokenization-time", _milliseconds(outcome.tokenization_s)),
        ("x-queue-time", _milliseconds(outcome.queue_s)),
        ("x-inference-time", _milliseconds(outcome.inference_s)),
    )


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1e3))


def vector_reply(call: Call[BodyT], items: Items, encoder: Encoder, value: object) -> Reply:
    """The 200 of a route that returns vectors."""
    body = encoder.document(value)
    return Reply(body=body, content_type=encoder.media_type, headers=timing_headers(call, items))
