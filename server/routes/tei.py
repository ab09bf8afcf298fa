"""Routes in the shape of Text Embeddings Inference: /embed, /embed_all, /tokenize, /decode."""

from infinity_v3.runtime.requests import (
    DecodeRequest,
    EmbedRequest,
    EmbedTokensRequest,
    TokenizeRequest,
)
from infinity_v3.server.endpoint import Call, schedule_of, text_options
from infinity_v3.server.errors import unsupported_task, validation
from infinity_v3.server.exchange import Reply
from infinity_v3.server.items import Items, empty_list, parse_items
from infinity_v3.server.replies import accept_items, encoder_for, note_result, vector_reply
from infinity_v3.server.schemas import DecodeBody, EmbedAllBody, EmbedBody, TokenizeBody


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
    return vector_reply(call, items, encoder, [encoder.row(row) for row in result.rows])


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
    return vector_reply(call, items, encoder, [encoder.row(row) for row in result.rows])


def refuse_conversations(items: Items) -> None:
    """Refuse conversations: no artifact of this release carries a chat template.

    Raises:
        HttpError: 424.
    """
    if items.has_conversation:
        raise unsupported_task(
            "the artifact has no chat template: conversations cannot be embedded"
        )


async def tokenize(call: Call[TokenizeBody]) -> Reply:
    """The tokens of each text; offsets count characters of prompt + text."""
    body, model = call.body, call.model
    is_list = isinstance(body.inputs, list)
    texts = tuple(body.inputs) if isinstance(body.inputs, list) else (body.inputs,)
    if not texts:
        raise empty_list("inputs")
    _note_items(call, len(texts))
    request = TokenizeRequest(
        texts=texts,
        is_list=is_list,
        add_special_tokens=body.add_special_tokens,
        prompt_name=body.prompt_name,
    )
    rows = await model.service.tokenize(request)
    encoder = encoder_for(call)
    document = [
        [
            {
                "id": piece.token_id,
                "text": piece.text,
                "special": piece.is_special,
                "start": piece.start,
                "stop": piece.stop,
            }
            for piece in row
        ]
        for row in rows
    ]
    return Reply(body=encoder.document(document), content_type=encoder.media_type)


async def decode(call: Call[DecodeBody]) -> Reply:
    """The text of each list of ids."""
    body, model = call.body, call.model
    id_lists, is_list = _id_lists(body.ids)
    _note_items(call, len(id_lists))
    request = DecodeRequest(
        id_lists=id_lists, is_list=is_list, skip_special_tokens=body.skip_special_tokens
    )
    texts = await model.service.decode(request)
    encoder = encoder_for(call)
    return Reply(body=encoder.document(texts), content_type=encoder.media_type)


def _note_items(call: Call[TokenizeBody] | Call[DecodeBody], num_items: int) -> None:
    call.exchange.outcome.num_items = num_items
    call.model.check_batch_size(num_items)


def _id_lists(ids: list[int | list[int]]) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """The lists of ids, and whether the field was a list of lists."""
    if not ids:
        raise empty_list("input_ids")
    bare = tuple(element for element in ids if isinstance(element, int))
    nested = tuple(tuple(element) for element in ids if not isinstance(element, int))
    if bare and nested:
        index = next(i for i, e in enumerate(ids) if isinstance(e, int) != isinstance(ids[0], int))
        raise validation(
            f"`ids[{index}]`: expected all ids or all lists of ids", param=f"ids[{index}]"
        )
    return (nested, True) if nested else ((bare,), False)
