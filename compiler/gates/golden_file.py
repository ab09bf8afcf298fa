"""Files of golden requests: one JSON object a line, read strictly. Asks nobody.

`{"path": "/embed", "body": {...}, "response": ..., "tolerance": 0.001}`; `tolerance` may be left
out, and `response` is what recording adds.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from infinity_v3.artifacts.spelling import nearest
from infinity_v3.artifacts.typed_json import (
    JsonObject,
    Location,
    canonical_bytes,
    check_object,
    parse,
    show,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    Attributes:
        line: where it stands in its file, from 1.
        tolerance: see `golden_answers.Tolerance`; None = the defaults.
    """

    line: int
    path: str
    body: object
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRequest:
    """A request and the answer that it was given."""

    request: Request
    response: object


def read_requests(data: bytes, name: str) -> tuple[Request, ...]:
    """Read a file of requests without answers; `name` stands in messages.

    Raises:
        RefusedError: names the line and the key at fault.
    """
    return tuple(
        _request(found, line, at)
        for line, found, at in _lines(data, name, required=("path", "body"))
    )


def read_golden(data: bytes, name: str) -> tuple[GoldenRequest, ...]:
    """Read a file of requests with answers; `name` stands in messages.

    Raises:
        RefusedError: names the line and the key at fault.
    """
    return tuple(
        GoldenRequest(request=_request(found, line, at), response=found["response"])
        for line, found, at in _lines(data, name, required=("path", "body", "response"))
    )


def write_golden(golden: Iterable[GoldenRequest]) -> bytes:
    """The bytes of a file that `read_golden` reads."""
    return b"".join(_line(item) for item in golden)


def _line(item: GoldenRequest) -> bytes:
    request = item.request
    document = {"path": request.path, "body": request.body, "response": item.response}
    if request.tolerance is not None:
        document["tolerance"] = request.tolerance
    return canonical_bytes(document, Location(f"request {request.line}"))


def _lines(
    data: bytes, name: str, required: tuple[str, ...]
) -> Iterator[tuple[int, JsonObject, Location]]:
    known = (*required, "tolerance")
    is_empty = True
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        is_empty = False
        at = Location(f"{name}: line {number}")
        found = check_object(parse(line, at), at)
        for key in found:
            if key not in known:
                raise at.key(key).refuse(
                    f"unknown key{nearest(key, known)}; known here: {', '.join(known)}"
                )
        for key in required:
            if key not in found:
                raise at.key(key).refuse("missing key")
        yield number, found, at
    if is_empty:
        raise Location(name).refuse("expected at least one request, found an empty file")


def _request(found: JsonObject, line: int, at: Location) -> Request:
    path, tolerance = found["path"], found.get("tolerance")
    if not isinstance(path, str) or not _is_path(path):
        raise at.key("path").refuse(
            f'expected the path of a route, such as "/embed", found {show(path)}'
        )
    return Request(
        line=line,
        path=path,
        body=found["body"],
        tolerance=None if tolerance is None else _tolerance(tolerance, at.key("tolerance")),
    )


def _is_path(path: str) -> bool:
    return path.startswith("/") and path.isascii() and path.isprintable() and " " not in path


def _tolerance(value: object, at: Location) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number by now
        raise at.refuse(f"expected a number from 0, found {json.dumps(value)[:80]}")
    return float(value)  # type: ignore[arg-type]  # see above
