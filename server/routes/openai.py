"""Routes in OpenAI's shape: /v1/embeddings, /v1/models and their aliases."""

import time
import uuid
from typing import TYPE_CHECKING

import msgspec

from infinity_v3.runtime.requests import EmbedRequest
from infinity_v3.server.context import ServerContext
from infinity_v3.server.endpoint import Call, require_loaded, schedule_of, text_options
from infinity_v3.server.errors import validation
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.items import Items, empty_list, parse_items
from infinity_v3.server.negotiation import reply_media_type
from infinity_v3.server.replies import (
    Encoder,
    accept_items,
    encoder_for,
    note_result,
    vector_reply,
)
from infinity_v3.server.routes.tei import refuse_conversations
from infinity_v3.server.schemas import EmbeddingsBody
from infinity_v3.server.served import ServedModel

if TYPE_CHECKING:
    from infinity_v3.runtime.results import EmbedResult


async def embeddings(call: Call[EmbeddingsBody]) -> Reply:
    """One normalised vector per item."""
    body, model = call.body, call.model
    items = _items(body)
    accept_items(call, items)
    model.service.check_can_embed()
    refuse_conversations(items)
    model.check_batch_size(items.num_items, "input")
    _check_truncation(body.truncate_prompt_tokens, model)
    request = EmbedRequest(
        items=items.items,
        is_list=items.is_list,
        options=text_options(body, truncate_prompt_tokens=body.truncate_prompt_tokens),
        schedule=schedule_of(call),
        dimensions=body.dimensions,
    )
    result = await model.service.embed(request)
    note_result(call, result)
    encoder = encoder_for(call, body.encoding_format)
    return vector_reply(call, items, encoder, _document(model, result, encoder))


def _items(body: EmbeddingsBody) -> Items:
    has_input = body.input is not msgspec.UNSET
    if has_input is (body.messages is not msgspec.UNSET):
        raise validation("exactly one of `input` and `messages` is required", param="input")
    if not isinstance(body.messages, msgspec.UnsetType):
        if not body.messages:
            raise empty_list("messages")
        return Items(items=(), is_list=False, num_items=1, has_conversation=True)
    assert not isinstance(body.input, msgspec.UnsetType), "input was checked; this is a bug"
    return parse_items(body.input, "input")


def _check_truncation(length: int | None, model: ServedModel) -> None:
    limit = model.info.max_input_tokens
    if length is not None and length != -1 and not 1 <= length <= limit:
        raise validation(
            f"`truncate_prompt_tokens` must be -1 or 1 to {limit}. Given: {length}",
            param="truncate_prompt_tokens",
        )


def _document(model: ServedModel, result: "EmbedResult", encoder: Encoder) -> dict[str, object]:
    num_tokens = result.num_tokens
    return {
        "object": "list",
        "id": f"infinity-{uuid.uuid4()}",
        "created": int(time.time()),
        "model": model.name,
        "data": [
            {"object": "embedding", "index": index, "embedding": encoder.row(row)}
            for index, row in enumerate(result.rows)
        ],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def list_models(context: ServerContext, exchange: Exchange) -> Reply:
    """All served models."""
    require_loaded(context)
    entries = [_entry(model) for model in context.models.all()]
    return _negotiated(exchange, {"object": "list", "models": [], "data": entries})


def show_model(context: ServerContext, exchange: Exchange) -> Reply:
    """One served model; its name is the rest of the path."""
    require_loaded(context)
    name = exchange.path.removeprefix("/v1/models/")
    return _negotiated(exchange, _entry(context.models.find(name)))


def _negotiated(exchange: Exchange, value: object) -> Reply:
    media_type = reply_media_type(exchange.header("accept"))
    return Reply(body=Encoder(media_type=media_type).document(value), content_type=media_type)


def _entry(model: ServedModel) -> dict[str, object]:
    info, stats = model.info, model.service.stats()
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "infinity",
        "backend": info.target_name,
        "capabilities": sorted(info.capabilities),
        "stats": {
            "queue_fraction": stats.num_pending_tokens / stats.max_queue_tokens,
            "queue_absolute": stats.num_queued_items,
            "results_pending": stats.num_pending_items,
            "batch_size": stats.last_batch_items,
        },
        "max_model_len": info.max_input_tokens,
        "artifact": {"id": info.artifact_id, "target": info.target_name},
    }
