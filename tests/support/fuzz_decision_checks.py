"""What an answer to typed questions must be like, worked out again from the request.

Knows nothing of the server's own arithmetic.
"""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from fuzz_requests import FuzzRequest
from infinity_v3.server.reply_schemas import DecideReply

DECISION_PATHS = ("/v1/systemone", "/v1/decide")
REPLY_KEYS = ["model", "answers", "usage"]
_TOLERANCE = 1e-9
"""Everything is computed in double from the probabilities that are sent."""
_KEYS: Mapping[str, Sequence[str]] = {
    "noul": ["type", "noul", "x_native_confidence"],
    "choice": ["type", "choice", "probabilities", "confidence", "x_native_confidence"],
    "score": ["type", "score", "legend", "probabilities", "confidence", "x_native_confidence"],
}


def decision_problem(request: FuzzRequest, reply: object) -> str | None:
    """What is wrong with a 200; None = nothing."""
    if not isinstance(reply, dict) or list(reply) != REPLY_KEYS:
        return "no reply to typed questions"
    try:
        msgspec.convert(reply, DecideReply, strict=True)
        body = _body(request)
        questions = body["questions"]
        if list(reply["answers"]) != list(questions):
            return "the answers are not those to the questions, in their order"
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError, OSError) as error:
        return f"the reply fits no request: {error!r}"
    usage = reply["usage"]
    if usage["input_tokens"] < len(questions) or usage["output_tokens"] != 0:
        return f"the usage is wrong: {usage}"
    for key, question in questions.items():
        problem = _answer_problem(question, reply["answers"][key])
        if problem is not None:
            return f"answer {key!r}: {problem}"
    return None


def _body(request: FuzzRequest) -> Any:  # noqa: ANN401  # whatever was sent
    headers, data = dict(request.headers), request.body
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in {"gzip", "x-gzip"}:
        data = gzip.decompress(data)
    elif coding == "zstd":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    try:
        return json.loads(data)
    except ValueError:
        return msgspec.msgpack.decode(data)


def _answer_problem(question: Any, answer: Any) -> str | None:  # noqa: ANN401  # documents
    kind = question["type"]
    found = [name for name in answer if name != "x_truncated"]
    if answer["type"] != kind or found != _KEYS[kind]:
        return f"fields {list(answer)} for a question of type {kind}"
    if answer.get("x_truncated", True) is not True:
        return "x_truncated is something else than true"
    expected: Mapping[str, float]
    if kind == "noul":
        p = answer["noul"]
        expected = {"x_native_confidence": max(p, 1 - p)}
        row = [1 - p, p]
    else:
        row = list(answer["probabilities"].values())
        names = list(question["criteria"]) if kind == "choice" else _numbers(len(row))
        if list(answer["probabilities"]) != names:
            return "the options are not those that were sent"
        expected = _expected_of(kind, row)
    if kind == "choice" and answer["choice"] != names[row.index(max(row))]:
        return "the choice is not the first of the likeliest"
    if kind == "score" and not _is_legend(answer["legend"], question["criteria"]):
        return "the levels are not those that were sent"
    if min(row) < 0 or abs(sum(row) - 1) > _TOLERANCE:
        return f"the probabilities add up to {sum(row)}"
    wrong = {name for name, value in expected.items() if abs(answer[name] - value) > _TOLERANCE}
    return f"{sorted(wrong)} should be {expected}, found {answer}" if wrong else None


def _expected_of(kind: str, row: Sequence[float]) -> Mapping[str, float]:
    """Confidences, and the score, of the probabilities that were sent."""
    n, most = len(row), max(row)
    entropy = -sum(p * math.log(p) for p in row if p > 0)
    native = 1.0 if n < 2 else min(1.0, max(0.0, 1 - entropy / math.log(n)))
    if kind == "choice":
        confidence = 1.0 if n == 1 else (most - 1 / n) / (1 - 1 / n)
        return {"confidence": confidence, "x_native_confidence": native}
    first = row.index(most)
    spread = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    distance = sum(p * abs(i - first) for i, p in enumerate(row))
    confidence = 1.0 if n == 1 else max(0.0, 1 - distance / spread)
    score = sum(i * p for i, p in enumerate(row))
    return {"score": score, "confidence": confidence, "x_native_confidence": native}


def _numbers(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def _is_legend(legend: Mapping[str, object], levels: Sequence[object]) -> bool:
    """Compared as text: 1, 1.0 and true are three levels."""
    expected = dict(zip(_numbers(len(levels)), levels, strict=True))
    return json.dumps(legend) == json.dumps(expected)
