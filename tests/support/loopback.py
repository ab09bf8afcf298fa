"""A server on loopback over a service without a model. Knows nothing of artifacts or engines."""

import asyncio
import http.client
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Backend, Device, Kind, PoolingMode, Precision
from infinity_v3.runtime.checks import check_dimensions, check_ids, check_items, check_max_tokens
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.limits import Admission, ThroughputMeter
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.requests import (
    DecodeRequest,
    EmbedRequest,
    EmbedTokensRequest,
    TextInput,
    TokenizeRequest,
)
from infinity_v3.runtime.results import EmbedResult, RequestTiming
from infinity_v3.runtime.state import ServiceState, ServiceStats
from infinity_v3.runtime.tokens import TokenPiece
from infinity_v3.server.app import App, all_routes
from infinity_v3.server.config import ModelConfig, ServeConfig
from infinity_v3.server.context import ServerContext, make_context
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.transport import Transport

WIDTH = 8
VOCAB = 1000
LIMIT = 16


def vector_of(item: TextInput) -> NDArray[np.float32]:
    """The raw vector that the service without a model gives to a text or to ids."""
    seed = zlib.crc32(repr(item).encode("utf-8", "backslashreplace"))
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


class FakeService:
    """Behaves like the inference service with one token per word; `gate` holds requests back."""

    def __init__(self, max_requests: int = 512, max_queue_tokens: int = 1000) -> None:
        self.state = ServiceState.READY
        self.admission = Admission(
            max_requests=max_requests,
            max_queue_tokens=max_queue_tokens,
            throughput=ThroughputMeter(),
        )
        self.gate: asyncio.Event | None = None
        self.num_embedded = 0
        self.num_cancelled = 0
        self.last_request: EmbedRequest | EmbedTokensRequest | None = None
        self.failure: Exception | None = None
        self.can_embed = True

    @property
    def request(self) -> EmbedRequest | EmbedTokensRequest:
        """The latest request."""
        assert self.last_request is not None
        return self.last_request

    def check_can_embed(self) -> None:
        if not self.can_embed:
            raise InferenceError(
                ErrorKind.BACKEND, "unsupported_task", "Model is not an embedding model"
            )

    check_can_embed_tokens = check_can_embed

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        check_dimensions(request.dimensions, WIDTH)
        counts = await self._infer(request)
        return _result([self._vector(item, request) for item in request.items], counts)

    async def embed_tokens(self, request: EmbedTokensRequest) -> EmbedResult:
        counts = await self._infer(request)
        rows = [np.stack([vector_of((position,)) for position in range(count)]) for count in counts]
        return _result(rows, counts)

    def _vector(self, item: TextInput, request: EmbedRequest) -> NDArray[np.float32]:
        vector = vector_of(item)[: request.dimensions]
        if not request.normalize:
            return vector
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    async def _infer(self, request: EmbedRequest | EmbedTokensRequest) -> list[int]:
        self.last_request = request
        try:
            check_max_tokens(request.options.max_tokens, LIMIT)
            if request.options.prompt_name not in {None, "query"}:
                raise InferenceError(
                    ErrorKind.VALIDATION,
                    "unknown_prompt",
                    "no such prompt; available: query",
                    field="prompt_name",
                )
            check_items(request.items, has_prompt_name=request.options.prompt_name is not None)
            return await self._run(request.items)
        except InferenceError as error:
            if not request.is_list:
                error.item = None
            raise

    async def _run(self, items: tuple[TextInput, ...]) -> list[int]:
        counts = [len(item.split()) + 2 if isinstance(item, str) else len(item) for item in items]
        self.admission.take_slot()
        try:
            for position, item in enumerate(items):
                if not isinstance(item, str):
                    check_ids(item, VOCAB, position)
            self.admission.admit_tokens(sum(counts))
            try:
                if self.gate is not None:
                    await self.gate.wait()
                if self.failure is not None:
                    raise self.failure
            finally:
                self.admission.release_tokens(sum(counts))
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.admission.release_slot()
        self.num_embedded += len(items)
        return counts

    async def tokenize(self, request: TokenizeRequest) -> tuple[tuple[TokenPiece, ...], ...]:
        check_items(request.texts, has_prompt_name=False)
        return tuple(
            (TokenPiece(token_id=7, text=text, is_special=False, start=0, stop=len(text)),)
            for text in request.texts
        )

    async def decode(self, request: DecodeRequest) -> tuple[str, ...]:
        for position, ids in enumerate(request.id_lists):
            if not ids:
                raise InferenceError(
                    ErrorKind.EMPTY, "empty_input", "`input_ids` cannot be empty", item=position
                )
            check_ids(ids, VOCAB, position)
        return tuple(" ".join(map(str, ids)) for ids in request.id_lists)

    def stats(self) -> ServiceStats:
        return ServiceStats(
            num_requests=self.admission.num_requests,
            max_requests=self.admission.max_requests,
            num_queued_items=0,
            num_pending_items=0,
            num_pending_tokens=self.admission.num_tokens,
            max_queue_tokens=self.admission.max_queue_tokens,
            tokens_per_s=None,
            last_batch_items=0,
            last_batch_tokens=0,
        )

    def close(self) -> bool:
        return True


def _result(rows: list[NDArray[np.float32]], counts: list[int]) -> EmbedResult:
    timing = RequestTiming(tokenization_s=0.001, queue_s=0.002, inference_s=0.003)
    return EmbedResult(rows=tuple(rows), item_tokens=tuple(counts), timing=timing)


def model_info(name: str) -> ModelInfo:
    """Facts that match the service without a model."""
    return ModelInfo(
        name=name,
        kind=Kind.EMBEDDING,
        artifact_id="sha256:" + "0" * 64,
        format_version=1,
        target_name="cpu-x86_64-avx2-f32",
        backend=Backend.AOTI,
        device=Device.CPU,
        precision=Precision.FLOAT32,
        vocab_size=VOCAB,
        max_input_tokens=LIMIT,
        max_batch_tokens=256,
        fill_tokens=256,
        max_batch_items=64,
        width=WIDTH,
        pooling=(PoolingMode.LAST_TOKEN,),
        prompt_names=("query",),
        capabilities=frozenset({"embed", "embed_all", "tokenize"}),
        source_revision=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply as a client sees it; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # whatever was sent
        return json.loads(self.body)


@dataclass(slots=True, kw_only=True)
class Client:
    """Sends requests to the server under test, one connection each."""

    port: int
    context: ServerContext
    loop: asyncio.AbstractEventLoop
    services: Mapping[str, FakeService] = field(default_factory=dict)

    @property
    def service(self) -> FakeService:
        return next(iter(self.services.values()))

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}))
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(status=reply.status, headers=found, body=reply.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=_dashed(headers))

    def post(self, path: str, value: object, **headers: str) -> Answer:
        """Send JSON; bytes are sent as they are."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.request(
            "POST", path, body, {"content-type": "application/json", **_dashed(headers)}
        )

    def call(self, function: Callable[[], object]) -> None:
        """Run something on the server's event loop and wait for it."""
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(10)

    def hold(self, service: FakeService | None = None) -> Callable[[], None]:
        """Make requests wait inside the service; returns what lets them go."""
        gate = asyncio.Event()
        (service or self.service).gate = gate
        return lambda: self.call(gate.set)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_true():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.005)


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _make_context(
    config: ServeConfig, services: Mapping[str, FakeService], *, is_ready: bool
) -> ServerContext:
    context = make_context(config)
    context.lifecycle.replace_models(
        dict.fromkeys(services, Phase.READY if is_ready else Phase.LOADING)
    )
    models = [
        ServedModel(
            name=name,
            service=service,
            info=model_info(name),
            config=config.models[0],
            num_tokenizer_threads=1,
            created_s=1,
        )
        for name, service in services.items()
    ]
    if is_ready:
        context.models = ModelTable(models)
        for model in models:
            context.metrics.follow_model(model)
    return context


class ServerThread:
    """An event loop in a thread with one transport on a free loopback port."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._stop is not None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        import socket

        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._stop = asyncio.Event()
        config = self._context.config
        transport = Transport(
            App(self._context, all_routes()),
            listener,
            with_http2=config.http2,
            max_requests=self._context.gate.max_bodies,
        )
        transport.start()
        self._started.set()
        await self._stop.wait()
        await transport.stop(2)


@contextmanager
def running(
    names: tuple[str, ...] = ("tiny",),
    *,
    is_ready: bool = True,
    service: FakeService | None = None,
    model: Mapping[str, Any] | None = None,
    **serve: Any,  # noqa: ANN401  # fields of ServeConfig
) -> Iterator[Client]:
    config = ServeConfig(models=(), **serve)
    model_config = ModelConfig(model_id="tiny-source", **(model or {}))
    config = replace(config, models=tuple(model_config for _ in names))
    services = {
        name: service
        or FakeService(
            max_requests=model_config.max_concurrent_requests,
            max_queue_tokens=model_config.max_queue_tokens or 1000,
        )
        for name in names
    }
    context = _make_context(config, services, is_ready=is_ready)
    with ServerThread(context) as server:
        yield Client(port=server.port, context=context, loop=server.loop, services=services)
    context.request_log.close()


StartServer = Callable[..., AbstractContextManager[Client]]
VectorOf = Callable[[TextInput], NDArray[np.float32]]
