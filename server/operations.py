"""What the API document says about each route. Knows nothing of how the document is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from infinity_v3.server import reply_schemas, schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route; of several bodies or replies any is possible."""

    method: str
    path: str
    summary: str
    bodies: tuple[Any, ...] = ()
    replies: tuple[Any, ...] = ()
    reply_type: str = "application/json"
    error: type[msgspec.Struct] = reply_schemas.TeiError
    is_open: bool = False
    parameters: Sequence[Mapping[str, object]] = field(default_factory=tuple)


def operations() -> tuple[Operation, ...]:
    """Every documented route."""
    return (
        *_vector_operations(),
        *_score_operations(),
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


def _vector_operations() -> Iterator[Operation]:
    for path, summary in {
        "/v1/embeddings": "Embed texts (OpenAI)",
        "/embeddings": "Same as /v1/embeddings",
    }.items():
        yield Operation(
            method="post",
            path=path,
            summary=summary,
            bodies=(schemas.EmbeddingsBody,),
            replies=(reply_schemas.EmbeddingsReply,),
            error=reply_schemas.OpenAIError,
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


def _post(path: str, summary: str, body: type[msgspec.Struct], *replies: object) -> Operation:
    return Operation(method="post", path=path, summary=summary, bodies=(body,), replies=replies)


def _score_operations() -> Iterator[Operation]:
    yield _post("/predict", "Labels, best first; see /v1/classify", schemas.PredictBody, *_LABELS)
    for path, summary in {
        "/v1/classify": "Scores of all labels",
        "/classify": "Same as /v1/classify",
    }.items():
        yield Operation(
            method="post",
            path=path,
            summary=summary,
            bodies=(schemas.ClassifyBody,),
            replies=(reply_schemas.ClassifyReply,),
            error=reply_schemas.SglangError,
        )
    yield _post("/rerank", "Order documents by relevance", schemas.RerankBody, *_RANKED)
    for path in ("/v1/rerank", "/v2/rerank"):
        yield Operation(
            method="post",
            path=path,
            summary="Same as /rerank",
            bodies=(schemas.RerankBody,),
            replies=_RANKED,
            error=reply_schemas.OpenAIError,
        )


def _token_operations() -> Iterator[Operation]:
    yield _post("/predict_tokens", "Label tokens", schemas.PredictTokensBody, _ENTITIES)
    yield _post(
        "/tokenize",
        "Split texts into tokens; offsets count characters",
        schemas.TokenizeBody,
        list[list[reply_schemas.TokenReply]],
    )
    yield _post("/decode", "Turn token ids back into text", schemas.DecodeBody, list[str])


def _kind_operations() -> Iterator[Operation]:
    for path in ("/", "/invocations"):
        yield Operation(
            method="post",
            path=path,
            summary="What the model is for: embed, embed_sparse, embed_all, similarity, predict, "
            "rerank or predict_tokens",
            bodies=(
                schemas.EmbedBody,
                schemas.EmbedAllBody,
                schemas.EmbedSparseBody,
                schemas.SimilarityBody,
                schemas.PredictBody,
                schemas.RerankBody,
                schemas.PredictTokensBody,
            ),
            replies=(_VECTORS, _MATRICES, _SPARSE, list[float], *_LABELS, *_RANKED, _ENTITIES),
        )


def _model_operations() -> Iterator[Operation]:
    yield Operation(
        method="get",
        path="/info",
        summary="Facts about one model",
        replies=(reply_schemas.InfoReply,),
        parameters=(_parameter("model", "query"),),
    )
    for path, summary in {"/v1/models": "Served models", "/models": "Same as /v1/models"}.items():
        yield Operation(
            method="get",
            path=path,
            summary=summary,
            replies=(reply_schemas.ModelList,),
            error=reply_schemas.OpenAIError,
        )
    yield Operation(
        method="get",
        path="/v1/models/{id}",
        summary="One served model; the id may contain '/'",
        replies=(reply_schemas.ModelEntry,),
        error=reply_schemas.OpenAIError,
        parameters=(_parameter("id", "path"),),
    )


def _parameter(name: str, place: str) -> dict[str, object]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _service_operations() -> Iterator[Operation]:
    yield _open("/", "Same as /health")
    yield _open("/health", "Are the engines up?")
    yield _open("/ping", "Same as /health")
    yield _open("/ready", "Are new requests welcome?", reply_schemas.ReadyReply)
    yield _open("/metrics", "Prometheus metrics", str, reply_type="text/plain")
    yield _open("/docs", "Interactive page", str, reply_type="text/html")
    yield _open("/api-doc/openapi.json", "This document", dict[str, Any])


def _open(
    path: str, summary: str, *replies: object, reply_type: str = "application/json"
) -> Operation:
    return Operation(
        method="get",
        path=path,
        summary=summary,
        replies=replies,
        reply_type=reply_type,
        is_open=True,
    )
