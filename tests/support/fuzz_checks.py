"""What every answer must be like, whatever was asked. Knows nothing of how requests are made."""

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import zstandard

from fuzz_decision_checks import DECISION_PATHS, REPLY_KEYS, decision_problem
from fuzz_requests import JSON, FuzzRequest
from infinity_v3.server.errors import Shape

STATUSES = {200, 400, 404, 405, 408, 413, 415, 422, 424, 429}
MAX_ERROR_BYTES = 8000
_KEYS: Mapping[Shape, set[str]] = {
    Shape.TEI: {"error", "error_type"},
    Shape.OPENAI: {"error", "message", "type", "code"},
    Shape.SGLANG: {"object", "message", "type", "param", "code"},
    Shape.SYSTEMONE: {"detail"},
}
_NESTED_KEYS = {"message", "type", "param", "code"}
# What a sound engine never says of a request that passed every check.
_ENGINE_FAULTS = ("inference failed", "non-finite")


class FuzzFailure(AssertionError):  # noqa: N818  # hypothesis shrinks what fails
    """An answer that no request may get; the message ends with a reproducer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzAnswer:
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_answer(request: FuzzRequest, answer: FuzzAnswer, shape: Shape) -> None:
    """Check one answer.

    Raises:
        FuzzFailure: what is wrong, and how to see it again.
    """
    problem = _problem(request, answer, shape)
    if problem is not None:
        raise failure(request, answer, problem)


def failure(request: FuzzRequest, answer: FuzzAnswer | None, problem: str) -> FuzzFailure:
    """The failure of a request, with its reproducer."""
    came = "nothing" if answer is None else f"{answer.status} {dict(answer.headers)}"
    body = b"" if answer is None else answer.body[:1000]
    return FuzzFailure(f"{problem}\nanswer: {came}\n{body!r}\n{request.reproducer()}")


def _problem(request: FuzzRequest, answer: FuzzAnswer, shape: Shape) -> str | None:
    if answer.status not in STATUSES:
        return f"status {answer.status}"
    if not answer.headers.get("x-request-id"):
        return "no x-request-id"
    try:
        document = _document(answer)
    except (ValueError, msgspec.DecodeError, OSError, zstandard.ZstdError) as error:
        return f"the body cannot be read: {error}"
    if answer.status != 200:
        return _error_problem(answer, document, shape)
    if not _is_finite(document):
        return "a number is not finite"
    is_decision = isinstance(document, dict) and list(document) == REPLY_KEYS
    if is_decision or request.path in DECISION_PATHS:
        return decision_problem(request, document)
    return None


def _document(answer: FuzzAnswer) -> object:
    body = answer.body
    coding = answer.headers.get("content-encoding")
    if coding == "gzip":
        body = gzip.decompress(body)
    elif coding == "zstd":
        body = zstandard.decompress(body)
    if answer.headers.get("content-type", "").startswith(JSON):
        return json.loads(body, parse_constant=lambda name: math.nan)
    return msgspec.msgpack.decode(body)


def _error_problem(answer: FuzzAnswer, document: object, shape: Shape) -> str | None:
    if answer.headers.get("content-type") != JSON:
        return f"an error of type {answer.headers.get('content-type')}"
    if not isinstance(document, dict) or set(document) != _KEYS[shape]:
        return f"an error in another shape than {shape.value}"
    if shape is Shape.SYSTEMONE:
        return _detail_problem(document["detail"], len(answer.body), answer)
    if shape is Shape.OPENAI and set(document["error"]) != _NESTED_KEYS:
        return "a nested error in another shape"
    if shape is not Shape.TEI and document["code"] != answer.status:
        return "the error says another status"
    message = document["error"] if shape is Shape.TEI else document["message"]
    return _message_problem(message, len(answer.body), answer)


def _detail_problem(detail: object, num_bytes: int, answer: FuzzAnswer) -> str | None:
    """Decision routes give one object, or for a 422 a list of what is wrong where."""
    is_list = isinstance(detail, list)
    parts: list[Any] = detail if isinstance(detail, list) else [detail]
    keys = {"loc", "msg", "type"} if is_list else {"error_type", "message"}
    if not parts or any(not isinstance(part, dict) or set(part) != keys for part in parts):
        return "a detail in another shape"
    if is_list is not (answer.status == 422):
        return f"a {'list' if is_list else 'single'} detail with status {answer.status}"
    messages = [part["msg" if is_list else "message"] for part in parts]
    problems = (_message_problem(message, num_bytes, answer) for message in messages)
    return next((problem for problem in problems if problem is not None), None)


def _message_problem(message: object, num_bytes: int, answer: FuzzAnswer) -> str | None:
    if not isinstance(message, str) or not message.strip():
        return "an error without a message"
    if num_bytes > MAX_ERROR_BYTES:
        return f"an error of {num_bytes} bytes"
    if "Traceback" in message or any(fault in message for fault in _ENGINE_FAULTS):
        return "the message tells of a fault of ours"
    if answer.status == 429 and not answer.headers.get("retry-after"):
        return "429 without Retry-After"
    return None


def _is_finite(node: object) -> bool:
    if isinstance(node, dict):
        return all(map(_is_finite, node.values()))
    if isinstance(node, list):
        return all(map(_is_finite, node))
    return not isinstance(node, float) or math.isfinite(node)
