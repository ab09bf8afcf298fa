"""Vectors in the shape of Text Embeddings Inference: /embed, /embed_all and /embed_sparse."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from infinity_v3.runtime.requests import EmbedRequest, EmbedSparseRequest, EmbedTokensRequest
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.intake import take_in
from infinity_v3.server.items import parse_items
from infinity_v3.server.replies import Answer, Encoder, encoder_for, note_result
from infinity_v3.server.schemas import EmbedAllBody, EmbedBody, EmbedSparseBody, InputsBody
from infinity_v3.server.text_options import text_options

if TYPE_CHECKING:
    from infinity_v3.runtime.results import SparseVector

_RequestT = TypeVar("_RequestT", EmbedRequest, EmbedTokensRequest, EmbedSparseRequest)
_BodyT = TypeVar("_BodyT", bound=InputsBody)


async def embed(call: Call[EmbedBody]) -> Answer:
    """One vector per item."""
    body, service = call.body, call.model.service
    kind = partial(EmbedRequest, normalize=body.normalize, dimensions=body.dimensions)
    result = await service.embed(_request(kind, call, service.check_can_embed))
    note_result(call, result)
    encoder = encoder_for(call, body.encoding_format)
    return Answer(value=[encoder.row(row) for row in result.rows], encoder=encoder)


async def embed_all(call: Call[EmbedAllBody]) -> Answer:
    """One matrix per item, a row for every token."""
    service = call.model.service
    request = _request(EmbedTokensRequest, call, service.check_can_embed_tokens)
    result = await service.embed_tokens(request)
    note_result(call, result)
    encoder = encoder_for(call, call.body.encoding_format)
    return Answer(value=[encoder.row(row) for row in result.rows], encoder=encoder)


async def embed_sparse(call: Call[EmbedSparseBody]) -> Answer:
    """The components of each item's vector that are not zero."""
    service = call.model.service
    request = _request(EmbedSparseRequest, call, service.check_can_embed_sparse)
    result = await service.embed_sparse(request)
    note_result(call, result)
    encoder = encoder_for(call)
    return Answer(value=[_entries(row, encoder) for row in result.vectors], encoder=encoder)


def _request(
    kind: Callable[..., _RequestT], call: Call[_BodyT], check_task: Callable[[], None]
) -> _RequestT:
    """What all three ask of the service."""
    parsed = parse_items(call.body.inputs, "inputs", max_items=call.budget.limit)
    items = take_in(call, parsed, check_task)
    return kind(
        items=items.items,
        is_list=items.is_list,
        options=text_options(call.body),
        schedule=schedule_of(call),
    )


def _entries(vector: "SparseVector", encoder: Encoder) -> list[dict[str, object]]:
    values = encoder.numbers(vector.values)
    return [
        {"index": index, "value": value}
        for index, value in zip(vector.indices, values, strict=True)
    ]
