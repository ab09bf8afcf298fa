"""The W3C trace context of a request, as it arrives in `traceparent`. Knows nothing of logs."""

import re
from dataclasses import dataclass

_VERSION_0 = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
)
_LENGTH = 55


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """Where a request belongs.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: the caller's span, 16 hexadecimal digits.
        is_sampled: the caller keeps this trace.
    """

    trace_id: str
    span_id: str
    is_sampled: bool


def parse_traceparent(header: str | None) -> TraceContext | None:
    """Read the header; None when there is none, or one that the standard calls invalid.

    Later versions may append fields, which are ignored.
    """
    found = _VERSION_0.match(header or "")
    if header is None or found is None or found["version"] == "ff":
        return None
    more = header[_LENGTH:]
    if more and (found["version"] == "00" or not more.startswith("-")):
        return None
    if not found["trace"].strip("0") or not found["span"].strip("0"):
        return None
    is_sampled = bool(int(found["flags"], 16) & 1)
    return TraceContext(trace_id=found["trace"], span_id=found["span"], is_sampled=is_sampled)
