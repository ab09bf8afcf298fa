"""/v1/score: how well the two texts of each pair go together."""

import uuid
from typing import TYPE_CHECKING

import msgspec

from infinity_v3.runtime.requests import ScoreRequest, TextPair
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.errors import validation
from infinity_v3.server.items import empty_list
from infinity_v3.server.replies import (
    Answer,
    accept,
    created_s,
    encoder_for,
    note_result,
    usage,
)
from infinity_v3.server.schemas import ScoreBody
from infinity_v3.server.text_options import cut_options

if TYPE_CHECKING:
    from infinity_v3.runtime.results import ScoreResult

_SIDES = (("text_1", "text_2"), ("queries", "documents"))


async def score(call: Call[ScoreBody]) -> Answer:
    """One score per pair, in the order of the pairs."""
    body, model = call.body, call.model
    left, right = _given_sides(body)
    pairs, is_list = _pairs(body, left, right)
    num_characters = sum(len(pair.query) + len(pair.document) for pair in pairs)
    accept(
        call,
        is_batch=is_list,
        num_items=len(pairs),
        num_characters=num_characters,
        is_scoring=True,
    )
    model.service.check_can_score()
    call.budget.take(len(pairs), right)
    request = ScoreRequest(
        pairs=pairs,
        is_list=is_list,
        options=cut_options(body, model.info),
        schedule=schedule_of(call),
    )
    result = await model.service.score(request)
    note_result(call, result)
    return Answer(value=_document(call, result), encoder=encoder_for(call))


def _given_sides(body: ScoreBody) -> tuple[str, str]:
    """The fields that hold the two sides."""
    given = {name for sides in _SIDES for name in sides if getattr(body, name) is not msgspec.UNSET}
    for sides in _SIDES:
        if given == set(sides):
            return sides
    raise validation(
        "either `text_1` and `text_2`, or `queries` and `documents` are required", param="text_1"
    )


def _pairs(body: ScoreBody, left: str, right: str) -> tuple[tuple[TextPair, ...], bool]:
    """The pairs, and whether the request has a list of them."""
    sides = {name: getattr(body, name) for name in (left, right)}
    first, second = (_texts(value, name) for name, value in sides.items())
    if len(first) not in {1, len(second)}:
        raise validation(
            f"`{left}`: expected one text, or as many as `{right}` has, {len(second)}. "
            f"Given: {len(first)}",
            param=left,
        )
    first = first * len(second) if len(first) == 1 else first
    pairs = (TextPair(query=a, document=b) for a, b in zip(first, second, strict=True))
    return tuple(pairs), any(isinstance(value, list) for value in sides.values())


def _texts(value: str | list[str], name: str) -> list[str]:
    if not value and isinstance(value, list):
        raise empty_list(name)
    return [value] if isinstance(value, str) else value


def _document(call: Call[ScoreBody], result: "ScoreResult") -> dict[str, object]:
    return {
        "id": f"score-{uuid.uuid4().hex}",
        "object": "list",
        "created": created_s(),
        "model": call.model.name,
        "data": [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(result.scores)
        ],
        "usage": usage(result),
    }
