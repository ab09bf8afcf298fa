"""What the API document says about each route. Knows nothing of how the document is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from infinity_v3.server import error_schemas, reply_schemas, schemas, status_reply
from infinity_v3.server.negotiation import JSON_TYPE


class ReplyForm(str, Enum):
    """What a 200 of a route is.

    Attributes:
        INFERENCE: a document in JSON or MessagePack, with headers that say what it cost.
        DECISION: as INFERENCE, in JSON only.
        DOCUMENT: a document in JSON or MessagePack.
        PROBE: the state of the server, which may be that it is not ready.
        PAGE: one media type, always.
    """

    INFERENCE = "inference"
    DECISION = "decision"
    DOCUMENT = "document"
    PROBE = "probe"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route; of several bodies or replies any is possible.

    Attributes:
        reply_type: media type of a page.
        unready: body of a 503 where it is not the usual one.
    """

    method: str
    path: str
    summary: str
    form: ReplyForm
    bodies: tuple[type[msgspec.Struct], ...] = ()
    replies: tuple[Any, ...] = ()
    reply_type: str = JSON_TYPE
    error: type[msgspec.Struct] = error_schemas.TeiError
    unready: type[msgspec.Struct] | None = None
    is_open: bool = False
    is_deprecated: bool = False
    parameters: Sequence[Mapping[str, object]] = field(default_factory=tuple)


def operations() -> tuple[Operation, ...]:
    """Every documented route."""
    return (
        *_vector_operations(),
        *_score_operations(),
        *_decision_operations(),
        *_token_operations(),
        *_kind_operations(),
        *_model_operations(),
        *_service_operations(),
    )


_VECTORS = list[list[float] | str | reply_schemas.TensorData]
_MATRICES = list[list[list[float]] | reply_schemas.TensorData]
_SPARSE = list[list[reply_schemas.SparseEntry]]
_LABELS = (list[reply_schemas.LabelScore], list[list[reply_schemas.LabelScore]])
_RANKED = (list[reply_schemas.RankEntry], reply_schemas.RerankReply)
_ENTITIES = list[list[reply_schemas.EntityReply]]

KIND_BODIES = (
    schemas.EmbedBody,
    schemas.EmbedAllBody,
    schemas.EmbedSparseBody,
    schemas.SimilarityBody,
    schemas.PredictBody,
    schemas.RerankBody,
    schemas.PredictTokensBody,
    schemas.DecideBody,
)
"""Bodies of the paths whose meaning depends on the kind of the model, and of instances."""
KIND_REPLIES = (
    _VECTORS,
    _MATRICES,
    _SPARSE,
    list[float],
    *_LABELS,
    *_RANKED,
    _ENTITIES,
    reply_schemas.DecideReply,
)
"""What they are answered with."""


def _parameter(name: str, place: str, description: str, **schema: object) -> Mapping[str, object]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": "string", **schema},
    }


_DEADLINES = (
    _parameter("request-timeout-ms", "header", "Whole milliseconds that the client waits"),
    _parameter("request-deadline-ms", "header", "When it stops waiting: milliseconds since 1970"),
)


def _post(
    path: str,
    summary: str,
    body: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...],
    *replies: object,
    error: type[msgspec.Struct] = error_schemas.TeiError,
    form: ReplyForm = ReplyForm.INFERENCE,
) -> Operation:
    return Operation(
        method="post",
        path=path,
        summary=summary,
        form=form,
        bodies=body if isinstance(body, tuple) else (body,),
        replies=replies,
        error=error,
        is_deprecated=path == "/predict",
        parameters=_DEADLINES,
    )


def _vector_operations() -> Iterator[Operation]:
    for path, summary in {
        "/v1/embeddings": "Embed texts (OpenAI)",
        "/embeddings": "Same as /v1/embeddings",
    }.items():
        yield _post(
            path,
            summary,
            schemas.EmbeddingsBody,
            reply_schemas.EmbeddingsReply,
            error=error_schemas.OpenAIError,
        )
    yield _post("/embed", "Embed texts: one vector per item", schemas.EmbedBody, _VECTORS)
    yield _post(
        "/embed_all", "Embed every token: one matrix per item", schemas.EmbedAllBody, _MATRICES
    )
    yield _post(
        "/embed_sparse",
        "Weights over the vocabulary, zeros left out",
        schemas.EmbedSparseBody,
        _SPARSE,
    )
    yield _post("/similarity", "Compare one text with others", schemas.SimilarityBody, list[float])


def _score_operations() -> Iterator[Operation]:
    yield _post("/predict", "Labels, best first; see /v1/classify", schemas.PredictBody, *_LABELS)
    for path, summary in {
        "/v1/classify": "Scores of all labels",
        "/classify": "Same as /v1/classify",
    }.items():
        yield _post(
            path,
            summary,
            schemas.ClassifyBody,
            reply_schemas.ClassifyReply,
            error=error_schemas.SglangError,
        )
    yield _post("/rerank", "Order documents by relevance", schemas.RerankBody, *_RANKED)
    for path in ("/v1/rerank", "/v2/rerank"):
        yield _post(
            path,
            "Same as /rerank",
            schemas.RerankBody,
            *_RANKED,
            error=error_schemas.OpenAIError,
        )
    yield _post(
        "/v1/score",
        "How well two texts go together",
        schemas.ScoreBody,
        reply_schemas.ScoreReply,
        error=error_schemas.OpenAIError,
    )


def _decision_operations() -> Iterator[Operation]:
    for path, summary in {
        "/v1/systemone": "Answer typed questions about a state",
        "/v1/decide": "Same as /v1/systemone",
    }.items():
        yield _post(
            path,
            summary,
            schemas.DecideBody,
            reply_schemas.DecideReply,
            error=error_schemas.DecisionError,
            form=ReplyForm.DECISION,
        )


def _token_operations() -> Iterator[Operation]:
    yield _post("/predict_tokens", "Label tokens", schemas.PredictTokensBody, _ENTITIES)
    yield _post(
        "/tokenize",
        "Split texts into tokens; offsets count characters",
        schemas.TokenizeBody,
        list[list[reply_schemas.TokenReply]],
        form=ReplyForm.DOCUMENT,
    )
    yield _post(
        "/decode",
        "Turn token ids back into text",
        schemas.DecodeBody,
        list[str],
        form=ReplyForm.DOCUMENT,
    )


def _kind_operations() -> Iterator[Operation]:
    summary = (
        "What the model is for: embed, embed_sparse, embed_all, similarity, predict, rerank, "
        "predict_tokens or systemone"
    )
    for path in ("/", "/invocations"):
        yield _post(path, summary, KIND_BODIES, *KIND_REPLIES)
    yield _post(
        "/vertex",
        "Several bodies of / in one request, answered together or not at all",
        schemas.VertexBody,
        reply_schemas.VertexReply,
        form=ReplyForm.DOCUMENT,
    )


def _model_operations() -> Iterator[Operation]:
    model = _parameter("model", "query", "A served name; by default the first one")
    yield _get("/info", "Facts about one model", reply_schemas.InfoReply, parameters=(model,))
    for path, summary in {"/v1/models": "Served models", "/models": "Same as /v1/models"}.items():
        yield _get(path, summary, reply_schemas.ModelList, error=error_schemas.OpenAIError)
    yield _get(
        "/v1/models/{id}",
        "One served model; the id may contain '/'",
        reply_schemas.ModelEntry,
        error=error_schemas.OpenAIError,
        parameters=(_parameter("id", "path", "A served name", minLength=1),),
    )


def _get(
    path: str,
    summary: str,
    *replies: object,
    form: ReplyForm = ReplyForm.DOCUMENT,
    **facts: Any,  # noqa: ANN401  # fields of Operation
) -> Operation:
    return Operation(method="get", path=path, summary=summary, form=form, replies=replies, **facts)


def _service_operations() -> Iterator[Operation]:
    page, probe = ReplyForm.PAGE, ReplyForm.PROBE
    for path, summary in {
        "/": "Same as /health",
        "/health": "Are the engines up?",
        "/ping": "Same as /health",
    }.items():
        yield _get(path, summary, form=probe, is_open=True)
    yield _get(
        "/ready",
        "Are new requests welcome?",
        reply_schemas.ReadyReply,
        form=page,
        unready=reply_schemas.NotReadyReply,
        is_open=True,
    )
    text, html = "text/plain", "text/html"
    yield _get("/metrics", "Prometheus metrics", str, form=page, reply_type=text, is_open=True)
    yield _get("/status", "Live page", str, form=page, reply_type=html)
    yield _get("/status.json", "What the live page draws", status_reply.StatusReply, form=page)
    yield _get("/docs", "Interactive page", str, form=page, reply_type=html, is_open=True)
    yield _get("/api-doc/openapi.json", "This document", dict[str, Any], form=page, is_open=True)
