"""Dense vectors in the shape of Text Embeddings Inference: /embed and /embed_all."""

from infinity_v3.runtime.requests import EmbedRequest, EmbedTokensRequest
from infinity_v3.server.endpoint import Call, schedule_of
from infinity_v3.server.exchange import Reply
from infinity_v3.server.items import parse_items, refuse_conversations
from infinity_v3.server.replies import accept_items, encoder_for, inference_reply, note_result
from infinity_v3.server.schemas import EmbedAllBody, EmbedBody
from infinity_v3.server.text_options import text_options


async def embed(call: Call[EmbedBody]) -> Reply:
    """One vector per item."""
    body, model = call.body, call.model
    items = parse_items(body.inputs, "inputs")
    accept_items(call, items)
    model.service.check_can_embed()
    refuse_conversations(items)
    model.check_batch_size(items.num_items)
    request = EmbedRequest(
        items=items.items,
        is_list=items.is_list,
        options=text_options(body),
        schedule=schedule_of(call),
        normalize=body.normalize,
        dimensions=body.dimensions,
    )
    result = await model.service.embed(request)
    note_result(call, result)
    encoder = encoder_for(call, body.encoding_format)
    return inference_reply(call, encoder, [encoder.row(row) for row in result.rows])


async def embed_all(call: Call[EmbedAllBody]) -> Reply:
    """One matrix per item, a row for every token."""
    body, model = call.body, call.model
    items = parse_items(body.inputs, "inputs")
    accept_items(call, items)
    model.service.check_can_embed_tokens()
    refuse_conversations(items)
    model.check_batch_size(items.num_items)
    request = EmbedTokensRequest(
        items=items.items,
        is_list=items.is_list,
        options=text_options(body),
        schedule=schedule_of(call),
    )
    result = await model.service.embed_tokens(request)
    note_result(call, result)
    encoder = encoder_for(call, body.encoding_format)
    return inference_reply(call, encoder, [encoder.row(row) for row in result.rows])
