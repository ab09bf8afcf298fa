"""The route table, and the application that granian calls. Knows nothing of models or start-up."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.server.context import ServerContext
from infinity_v3.server.decision_endpoint import DecisionEndpoint
from infinity_v3.server.decision_errors import decision_body, decision_status
from infinity_v3.server.endpoint import ClientGoneError, Endpoint, not_ready
from infinity_v3.server.errors import (
    Headers,
    HttpError,
    Shape,
    error_body,
    from_inference,
)
from infinity_v3.server.exchange import Exchange, HttpProtocol, Reply, Scope
from infinity_v3.server.guard import Guard
from infinity_v3.server.hosting import SIMILARITY_TASK, Hosting
from infinity_v3.server.kind_endpoint import KindEndpoint
from infinity_v3.server.router import Handler, Route, Router
from infinity_v3.server.routes import (
    classify,
    decisions,
    openai,
    ops,
    rerank,
    score,
    similarity,
    status,
    tokens,
    vectors,
)
from infinity_v3.server.schemas import (
    ClassifyBody,
    DecideBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    EmbeddingsBody,
    EmbedSparseBody,
    PredictBody,
    PredictTokensBody,
    RerankBody,
    ScoreBody,
    SimilarityBody,
    TokenizeBody,
)
from infinity_v3.server.sending import send
from infinity_v3.server.vertex import VertexEndpoint

_log = logging.getLogger("infinity_v3")


_DEPRECATION: Headers = (
    ("deprecation", "@1791590400"),
    ("link", '</v1/classify>; rel="successor-version"'),
)


def all_routes(hosting: Hosting | None = None) -> tuple[Route, ...]:
    """Every route of the server; what a platform names stands last, and so goes first."""
    hosting = hosting or Hosting()
    return (*_inference_routes(hosting), *_service_routes(hosting))


def _inference_routes(hosting: Hosting) -> Iterator[Route]:
    embeddings = Endpoint(body_type=EmbeddingsBody, work=openai.embeddings, items_field="input")
    embed = Endpoint(body_type=EmbedBody, work=vectors.embed)
    embed_all = Endpoint(body_type=EmbedAllBody, work=vectors.embed_all)
    embed_sparse = Endpoint(body_type=EmbedSparseBody, work=vectors.embed_sparse)
    compare = Endpoint(
        body_type=SimilarityBody, work=similarity.similarity, items_field=similarity.SENTENCES
    )
    rank = Endpoint(body_type=RerankBody, work=rerank.rerank)
    pairs = Endpoint(body_type=ScoreBody, work=score.score)
    predict = Endpoint(body_type=PredictBody, work=classify.predict)
    classes = Endpoint(body_type=ClassifyBody, work=classify.classify, items_field="input")
    predict_tokens = Endpoint(body_type=PredictTokensBody, work=tokens.predict_tokens)
    decide = DecisionEndpoint(body_type=DecideBody, work=decisions.decide, items_field="questions")
    tokenize = Endpoint(body_type=TokenizeBody, work=tokens.tokenize, is_inference=False)
    decode = Endpoint(
        body_type=DecodeBody, work=tokens.decode, items_field="ids", is_inference=False
    )
    # What hosted-inference clients post to.
    by_kind = KindEndpoint(
        default=compare if hosting.task == SIMILARITY_TASK else embed,
        by_kind={
            Kind.SPARSE: embed_sparse,
            Kind.LATE_INTERACTION: embed_all,
            Kind.CLASSIFIER: predict,
            Kind.RERANKER: rank,
            Kind.TOKEN_CLASSIFIER: predict_tokens,
            Kind.DECISION: decide,
        },
    )
    yield from _posts(embeddings.run, "/v1/embeddings", "/embeddings", shape=Shape.OPENAI)
    yield from _posts(embed.run, "/embed")
    yield from _posts(embed_all.run, "/embed_all")
    yield from _posts(embed_sparse.run, "/embed_sparse")
    yield from _posts(compare.run, "/similarity")
    yield from _posts(predict.run, "/predict", headers=_DEPRECATION)
    yield from _posts(classes.run, "/v1/classify", "/classify", shape=Shape.SGLANG)
    yield from _posts(rank.run, "/rerank")
    yield from _posts(rank.run, "/v1/rerank", "/v2/rerank", shape=Shape.OPENAI)
    yield from _posts(predict_tokens.run, "/predict_tokens")
    yield from _posts(decide.run, "/v1/systemone", "/v1/decide", shape=Shape.SYSTEMONE)
    yield from _posts(tokenize.run, "/tokenize")
    yield from _posts(decode.run, "/decode")
    yield from _posts(pairs.run, "/v1/score", shape=Shape.OPENAI)
    yield from _posts(by_kind.run, "/", "/invocations")
    vertex = VertexEndpoint(by_kind=by_kind, rank=rank)
    yield from _posts(vertex.run, "/vertex", *_given(hosting.predict_path))


def _given(path: str | None) -> tuple[str, ...]:
    return () if path is None else (path,)


def _posts(
    handler: Handler, *paths: str, shape: Shape = Shape.TEI, headers: Headers = ()
) -> Iterator[Route]:
    for path in paths:
        yield Route(
            method="POST",
            path=path,
            handler=handler,
            shape=shape,
            is_logged=True,
            headers=headers,
        )


def _service_routes(hosting: Hosting) -> tuple[Route, ...]:
    models, model = openai.list_models, openai.show_model
    return (
        Route(method="GET", path="/info", handler=ops.info),
        Route(method="GET", path="/models", handler=models, shape=Shape.OPENAI),
        Route(method="GET", path="/v1/models", handler=models, shape=Shape.OPENAI),
        Route(method="GET", path="/v1/models/*", handler=model, shape=Shape.OPENAI),
        Route(method="GET", path="/", handler=ops.health, is_open=True),
        Route(method="GET", path="/health", handler=ops.health, is_open=True),
        Route(method="GET", path="/ping", handler=ops.health, is_open=True),
        Route(method="GET", path="/ready", handler=ops.ready, is_open=True),
        Route(method="GET", path="/metrics", handler=ops.metrics, is_open=True),
        Route(method="GET", path="/status", handler=status.status),
        Route(method="GET", path="/status.json", handler=status.status_json),
        Route(method="GET", path="/docs", handler=ops.docs, is_open=True),
        Route(method="GET", path="/api-doc/openapi.json", handler=ops.openapi, is_open=True),
        *(
            Route(method="GET", path=path, handler=ops.health, is_open=True)
            for path in _given(hosting.health_path)
        ),
    )


def metrics_routes() -> tuple[Route, ...]:
    """Routes of the separate metrics listener."""
    return (Route(method="GET", path="/metrics", handler=ops.metrics, is_open=True),)


class App:
    """Answers every request with exactly one reply, or notes that the client left."""

    def __init__(self, context: ServerContext, routes: tuple[Route, ...]) -> None:
        self._context = context
        self._router = Router(routes)
        self._guard = Guard(context.config)

    async def __rsgi__(
        self, scope: Scope, protocol: HttpProtocol, body: Awaitable[bytes] | None = None
    ) -> None:
        """Serve one exchange; the transport's entry point.

        Args:
            scope: what is asked.
            protocol: the transport's side of it.
            body: one that is being read already.
        """
        exchange = Exchange.of(scope, protocol, body)
        try:
            await self._serve(exchange)
        finally:
            self._context.lifecycle.finish(exchange.task)
            if exchange.has_large_body:
                self._context.give_memory_back()

    async def _serve(self, exchange: Exchange) -> None:
        try:
            ending = await self._answer(exchange)
        except ClientGoneError:
            self._record_loss(exchange)
            return
        exchange.outcome.total_s = exchange.elapsed_s
        if ending.is_logged:
            # Before the reply: whoever has one finds its record.
            self._context.request_log.write(
                exchange, status=ending.reply.status, error_code=ending.error_code
            )
        try:
            is_reusable = await self._context.reader.discard(exchange)
            await self._send(exchange, ending.reply, is_reusable=is_reusable)
        finally:
            self._count(exchange, ending)

    async def _send(self, exchange: Exchange, reply: Reply, *, is_reusable: bool) -> None:
        is_last = self._context.lifecycle.is_draining or not is_reusable
        closing: Headers = (("connection", "close"),) if is_last else ()
        shape, of_path = self._router.replies_of(exchange.path)
        if shape is Shape.SYSTEMONE:
            of_path = (*of_path, *exchange.typed_id())
        headers = (*self._guard.cors_headers(exchange), *of_path, *closing)
        await send(exchange, reply, headers, self._context.config.response_compression_threshold)

    async def _answer(self, exchange: Exchange) -> "_Ending":
        """A reply in every case but a client that left."""
        try:
            if exchange.method == "OPTIONS":
                return _Ending(reply=self._guard.preflight())
            route = self._router.find(exchange.method, exchange.path)
            if not route.is_open:
                self._guard.check_key(exchange)
            return await self._run(route, exchange)
        except HttpError as error:
            return self._refuse(exchange, error)

    async def _run(self, route: Route, exchange: Exchange) -> "_Ending":
        try:
            outcome = route.handler(self._context, exchange)
            reply = outcome if isinstance(outcome, Reply) else await outcome
            return _Ending(reply=reply, is_logged=route.is_logged)
        except (HttpError, InferenceError) as found:
            error = found if isinstance(found, HttpError) else from_inference(found)
        except asyncio.CancelledError:
            if not self._context.lifecycle.is_out_of_time:
                raise
            error = not_ready("going down, the drain time is over")
        except ClientGoneError:
            raise
        except MemoryError:
            error = HttpError(
                ErrorKind.OVERLOADED,
                "Model is overloaded: no memory is left for this request",
                headers=(("retry-after", "1"),),
            )
        except Exception:
            # The last line of defence: a bug becomes a 500 without its text, and a traceback in the
            # log.
            _log.exception(
                "request %s on %s failed: this is a bug", exchange.request_id, route.path
            )
            error = _internal(exchange)
        ending = self._refuse(exchange, error, is_logged=route.is_logged)
        # Its traceback refers to this frame: the cycle would keep the body, and with it the
        # connection of a client that is still sending, until the next garbage collection.
        del error
        return ending

    def _refuse(
        self, exchange: Exchange, error: HttpError, *, is_logged: bool = False
    ) -> "_Ending":
        self._context.metrics.request_refused(exchange.outcome, error)
        shape, _ = self._router.replies_of(exchange.path)
        is_decision = shape is Shape.SYSTEMONE
        reply = Reply(
            status=decision_status(error) if is_decision else error.status,
            body=decision_body(error) if is_decision else error_body(error, shape),
            headers=error.headers,
            may_compress=False,
        )
        return _Ending(reply=reply, error_code=error.code, is_logged=is_logged)

    def _count(self, exchange: Exchange, ending: "_Ending") -> None:
        """Behind the reply, as its client need not wait for it; before the next one is read."""
        if exchange.outcome.is_counted and ending.error_code is None:
            self._context.metrics.request_succeeded(exchange.outcome)

    def _record_loss(self, exchange: Exchange) -> None:
        self._context.metrics.request_dropped(exchange.outcome)
        self._context.request_log.write(exchange, status=None, error_code="client_gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How a request is answered, and what is recorded of it."""

    reply: Reply
    error_code: str | None = None
    is_logged: bool = False


def _internal(exchange: Exchange) -> HttpError:
    return HttpError(ErrorKind.INTERNAL, f"internal error; request id {exchange.request_id}")
