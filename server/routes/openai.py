"""Routes in OpenAI's shape: /v1/embeddings, /v1/models and their aliases."""

import uuid
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.requests import EmbedRequest, EmbedTokensRequest, TextInput, TextOptions
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.context import ServerContext
from infinity_v3.server.conversations import read_conversation, shows_images
from infinity_v3.server.endpoint import require_loaded
from infinity_v3.server.errors import unsupported_task, validation
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.intake import take_in
from infinity_v3.server.items import Items, empty_list, parse_items, single
from infinity_v3.server.negotiation import reply_media_type
from infinity_v3.server.replies import (
    Answer,
    Encoder,
    created_s,
    encoder_for,
    note_result,
    usage,
)
from infinity_v3.server.schemas import EmbeddingsBody
from infinity_v3.server.served import ServedModel
from infinity_v3.server.text_options import cut_options

if TYPE_CHECKING:
    from infinity_v3.runtime.results import EmbedResult
    from infinity_v3.server.codec import FloatArray


async def embeddings(call: Call[EmbeddingsBody]) -> Answer:
    """One normalised vector per item; of late interaction, one vector per token."""
    body, model = call.body, call.model
    parsed = _items(body, call.budget.limit)
    items = take_in(call, parsed, lambda: _check_task(call), field="input")
    result = await _embed(call, items, cut_options(body, model.info))
    note_result(call, result)
    encoder = encoder_for(call, body.encoding_format)
    return Answer(value=_document(model, result, encoder), encoder=encoder)


def _items(body: EmbeddingsBody, max_items: int) -> Items[TextInput]:
    has_input = body.input is not msgspec.UNSET
    if has_input is (body.messages is not msgspec.UNSET):
        raise validation("exactly one of `input` and `messages` is required", param="input")
    if not isinstance(body.messages, msgspec.UnsetType):
        if not body.messages:
            raise empty_list("messages")
        conversation = read_conversation(body.messages)
        return single(conversation, has_images=shows_images(body.messages))
    assert not isinstance(body.input, msgspec.UnsetType), "input was checked; this is a bug"
    return parse_items(body.input, "input", max_items=max_items)


def _is_per_token(model: ServedModel) -> bool:
    return model.info.kind is Kind.LATE_INTERACTION


def _check_task(call: Call[EmbeddingsBody]) -> None:
    if not _is_per_token(call.model):
        call.model.service.check_can_embed()
        return
    call.model.service.check_can_embed_tokens()
    if call.body.dimensions is not None:
        raise unsupported_task("`dimensions`: the vectors of late interaction cannot be cut")


async def _embed(
    call: Call[EmbeddingsBody], items: Items[TextInput], options: TextOptions
) -> "EmbedResult":
    schedule = schedule_of(call)
    if _is_per_token(call.model):
        return await call.model.service.embed_tokens(
            EmbedTokensRequest(
                items=items.items, is_list=items.is_list, options=options, schedule=schedule
            )
        )
    return await call.model.service.embed(
        EmbedRequest(
            items=items.items,
            is_list=items.is_list,
            options=options,
            schedule=schedule,
            dimensions=call.body.dimensions,
        )
    )


def _document(model: ServedModel, result: "EmbedResult", encoder: Encoder) -> dict[str, object]:
    return {
        "object": "list",
        "id": f"infinity-{uuid.uuid4()}",
        "created": created_s(),
        "model": model.name,
        "data": [_embedding(index, row, encoder) for index, row in enumerate(result.rows)],
        "usage": usage(result),
    }


def _embedding(index: int, row: "FloatArray", encoder: Encoder) -> dict[str, object]:
    entry = {"object": "embedding", "index": index, "embedding": encoder.row(row)}
    if encoder.encoding == "base64" and len(row.shape) > 1:
        entry["shape"] = list(row.shape)
    return entry


def list_models(context: ServerContext, exchange: Exchange) -> Reply:
    """All served models."""
    require_loaded(context)
    entries = [_entry(model) for model in context.models.all()]
    deciding = [_decision_entry(model) for model in context.models.all() if model.info.decision]
    return _negotiated(exchange, {"object": "list", "models": deciding, "data": entries})


def show_model(context: ServerContext, exchange: Exchange) -> Reply:
    """One served model; its name is the rest of the path."""
    require_loaded(context)
    name = exchange.path.removeprefix("/v1/models/")
    return _negotiated(exchange, _entry(context.models.find(name)))


def _negotiated(exchange: Exchange, value: object) -> Reply:
    media_type = reply_media_type(exchange.header("accept"))
    return Reply(body=Encoder(media_type=media_type).document(value), content_type=media_type)


def _decision_entry(model: ServedModel) -> dict[str, object]:
    """As clients of typed decisions list models; the date is the one it is served since."""
    decision = model.info.decision
    assert decision is not None, "a decision model without its protocol; this is a bug"
    made = datetime.fromtimestamp(model.created_s, timezone.utc).date()
    return {
        "name": model.name,
        "description": f"{model.info.name}: typed decisions by the {decision.protocol.value} "
        f"protocol, up to {decision.limits.max_len} tokens a question",
        "release_date": made.isoformat(),
    }


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
