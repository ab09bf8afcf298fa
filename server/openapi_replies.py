"""What the API document says of replies: statuses, their headers and error bodies.

Knows nothing of requests.
"""

from collections.abc import Iterator, Mapping

from infinity_v3.server.input_schemas import named
from infinity_v3.server.negotiation import JSON_TYPE, MSGPACK_TYPES
from infinity_v3.server.operations import Operation, ReplyForm

Entry = dict[str, object]

_STATUSES = {
    "400": "Not a document, or an empty input",
    "401": "Missing or wrong API key",
    "404": "Unknown path or model",
    "405": "Another method is needed",
    "408": "The body or the queue took too long",
    "413": "The body is larger than --payload-limit",
    "415": "Unsupported media type or content coding",
    "422": "A field is missing, of the wrong type or out of range",
    "424": "The model cannot do this, or inference failed",
    "429": "Overloaded",
    "500": "Internal error",
    "503": "Not ready",
}
_WHOLE_NUMBER = {"type": "integer", "minimum": 0}


def _header(description: str, schema: Mapping[str, object], *, required: bool = True) -> Entry:
    return {"description": description, "required": required, "schema": dict(schema)}


_TEXT = {"type": "string"}
_COMMON: Entry = {
    "x-request-id": _header("The request's own, or a new one", _TEXT),
    "vary": _header("What a cache has to look at", _TEXT),
}
_COST: Entry = {
    "x-compute-type": _header(
        "Where it was computed", {"enum": ["cpu+optimized", "gpu+optimized"]}
    ),
    "x-compute-time": _header("Milliseconds of the whole request", _WHOLE_NUMBER),
    "x-total-time": _header("Same as x-compute-time", _WHOLE_NUMBER),
    "x-compute-characters": _header("Characters received; of ids, their count", _WHOLE_NUMBER),
    "x-compute-tokens": _header("Tokens fed to the model", _WHOLE_NUMBER),
    "x-tokenization-time": _header("Milliseconds, mean per item", _WHOLE_NUMBER),
    "x-queue-time": _header("Milliseconds, mean per item", _WHOLE_NUMBER),
    "x-inference-time": _header("Milliseconds, mean per item", _WHOLE_NUMBER),
}
_DEPRECATED: Entry = {
    "deprecation": _header("When the route was deprecated: '@' and seconds since 1970", _TEXT),
    "link": _header("What to use instead", _TEXT),
}
_RETRY: Entry = {
    "retry-after": _header("Seconds to wait", {"type": "integer", "minimum": 1, "maximum": 60})
}
_BY_STATUS: Mapping[str, Entry] = {
    "401": {"www-authenticate": _header("The scheme", {"const": "Bearer"})},
    "405": {"allow": _header("Methods of the path", _TEXT)},
    "415": {"accept-encoding": _header("Content codings of bodies", _TEXT, required=False)},
    "429": _RETRY,
    "503": _RETRY,
}


def responses(op: Operation, success: Mapping[str, object] | None) -> Entry:
    """Every status of an operation.

    Args:
        op: the operation.
        success: schema of the document of a 200; None = it has no body.
    """
    shown: Entry = {"200": _success(op, success)}
    for status in _statuses(op):
        error = op.unready if status == "503" and op.unready is not None else op.error
        headers = {**_headers(op), **_BY_STATUS.get(status, {})}
        if status == "503" and op.form is ReplyForm.PROBE:
            headers = _headers(op)
        shown[status] = {
            "description": _STATUSES[status],
            "headers": headers,
            "content": {JSON_TYPE: {"schema": dict(named(error.__name__))}},
        }
    return shown


_COSTLY = (ReplyForm.INFERENCE, ReplyForm.DECISION)


def _success(op: Operation, schema: Mapping[str, object] | None) -> Entry:
    entry: Entry = {
        "description": "Success",
        "headers": {**_headers(op), **(_COST if op.form in _COSTLY else {})},
    }
    if schema is not None:
        is_negotiated = op.form in {ReplyForm.INFERENCE, ReplyForm.DOCUMENT}
        types = (JSON_TYPE, *MSGPACK_TYPES) if is_negotiated else (op.reply_type,)
        entry["content"] = {name: {"schema": schema} for name in types}
    return entry


def _headers(op: Operation) -> Entry:
    return {**_COMMON, **(_DEPRECATED if op.is_deprecated else {})}


def _statuses(op: Operation) -> Iterator[str]:
    if op.method == "post":
        yield from _STATUSES
        return
    if not op.is_open:
        yield "401"
    if op.form is ReplyForm.DOCUMENT:
        yield "404"
    yield from ("405", "500")
    if op.form in {ReplyForm.DOCUMENT, ReplyForm.PROBE} or op.unready is not None:
        yield "503"
