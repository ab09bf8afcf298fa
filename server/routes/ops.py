"""Routes about the server itself: probes, /info, /metrics, /docs and the OpenAPI document."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import orjson

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.server.context import ServerContext
from infinity_v3.server.endpoint import RETRY_NOT_READY_S, require_loaded
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.metrics_text import CONTENT_TYPE
from infinity_v3.server.negotiation import reply_media_type
from infinity_v3.server.pages import page
from infinity_v3.server.product import product_version
from infinity_v3.server.replies import Encoder
from infinity_v3.server.served import ServedModel

if TYPE_CHECKING:
    from infinity_v3.runtime.model_info import ModelInfo

_LABELLED_KINDS = frozenset({Kind.CLASSIFIER, Kind.RERANKER, Kind.TOKEN_CLASSIFIER})


def health(context: ServerContext, exchange: Exchange) -> Reply:
    """200 while the engines are up, also in overload and while draining."""
    if context.phase() in {Phase.READY, Phase.DRAINING}:
        return Reply()
    return _unhealthy({})


def ready(context: ServerContext, exchange: Exchange) -> Reply:
    """200 while new requests are welcome."""
    phase, models = context.phase(), context.model_phases()
    if phase is Phase.READY:
        return Reply(body=orjson.dumps({"status": "ready", "models": models}))
    return _unhealthy({"status": phase.value, "models": models})


def _unhealthy(more: Mapping[str, object]) -> Reply:
    """A probe's 503: an answer like any other, not a refused request."""
    body = {"error": "unhealthy", "error_type": ErrorKind.UNHEALTHY.value, **more}
    headers = (("retry-after", str(RETRY_NOT_READY_S)),)
    return Reply(status=503, body=orjson.dumps(body), headers=headers, may_compress=False)


def info(context: ServerContext, exchange: Exchange) -> Reply:
    """Facts about one model, the first unless `?model=` names another."""
    require_loaded(context)
    names = parse_qs(exchange.query).get("model")
    model = context.models.find(names[-1]) if names else context.models.all()[0]
    media_type = reply_media_type(exchange.header("accept"))
    body = Encoder(media_type=media_type).document(_info(model))
    return Reply(body=body, content_type=media_type)


def _info(model: ServedModel) -> dict[str, object]:
    info, config = model.info, model.config
    return {
        "model_id": config.model_id,
        "model_sha": info.source_revision,
        "model_dtype": info.precision.value,
        "served_model_name": model.name,
        "model_type": _model_type(info),
        "max_concurrent_requests": config.max_concurrent_requests,
        "max_input_length": info.max_input_tokens,
        "max_batch_tokens": info.max_batch_tokens,
        "max_batch_requests": config.max_batch_requests,
        "max_client_batch_size": config.max_client_batch_size,
        "max_queue_tokens": model.service.stats().max_queue_tokens,
        "auto_truncate": config.auto_truncate,
        "tokenization_workers": model.num_tokenizer_threads,
        "version": product_version(),
        "sha": None,
        "docker_label": None,
        "prompts": list(info.prompt_names),
        "artifact": {
            "id": info.artifact_id,
            "name": info.name,
            "target": info.target_name,
            "format_version": info.format_version,
        },
        "registry": None if model.origin is None else model.origin.as_document(),
    }


def _model_type(info: "ModelInfo") -> dict[str, object]:
    """What the model does, in TEI's words."""
    if info.kind in _LABELLED_KINDS:
        id2label = {str(index): label for index, label in enumerate(info.labels)}
        label2id = {label: index for index, label in enumerate(info.labels)}
        return {info.kind.value: {"id2label": id2label, "label2id": label2id}}
    if info.decision is not None:
        return {"decision": {"protocol": info.decision.protocol.value}}
    pooling = "+".join(mode.value for mode in info.pooling).replace("-", "_") or "none"
    return {"embedding": {"pooling": pooling}}


def metrics(context: ServerContext, exchange: Exchange) -> Reply:
    """Everything measured, as Prometheus text."""
    body = context.metrics.registry.render()
    return Reply(body=body, content_type=CONTENT_TYPE)


def docs(context: ServerContext, exchange: Exchange) -> Reply:
    """The interactive page; it loads nothing from anywhere else."""
    return page("docs.html")


def openapi(context: ServerContext, exchange: Exchange) -> Reply:
    """The OpenAPI document of all routes."""
    from infinity_v3.server.openapi import openapi_document

    return Reply(body=openapi_document())
