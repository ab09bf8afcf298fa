"""/embed_sparse: weights over the vocabulary."""

from typing import TYPE_CHECKING

from infinity_v3.runtime.requests import EmbedSparseRequest
from infinity_v3.server.endpoint import Call, schedule_of
from infinity_v3.server.exchange import Reply
from infinity_v3.server.items import parse_items, refuse_conversations
from infinity_v3.server.replies import (
    Encoder,
    accept_items,
    encoder_for,
    inference_reply,
    note_result,
)
from infinity_v3.server.schemas import EmbedSparseBody
from infinity_v3.server.text_options import text_options

if TYPE_CHECKING:
    from infinity_v3.runtime.results import SparseVector


async def embed_sparse(call: Call[EmbedSparseBody]) -> Reply:
    """The components of each item's vector that are not zero."""
    body, model = call.body, call.model
    items = parse_items(body.inputs, "inputs")
    accept_items(call, items)
    model.service.check_can_embed_sparse()
    refuse_conversations(items)
    model.check_batch_size(items.num_items)
    request = EmbedSparseRequest(
        items=items.items,
        is_list=items.is_list,
        options=text_options(body),
        schedule=schedule_of(call),
    )
    result = await model.service.embed_sparse(request)
    note_result(call, result)
    encoder = encoder_for(call)
    return inference_reply(call, encoder, [_entries(row, encoder) for row in result.vectors])


def _entries(vector: "SparseVector", encoder: Encoder) -> list[dict[str, object]]:
    values = encoder.numbers(vector.values)
    return [
        {"index": index, "value": value}
        for index, value in zip(vector.indices, values, strict=True)
    ]
