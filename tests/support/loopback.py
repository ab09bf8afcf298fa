"""A server on loopback over a service without a model. Knows nothing of artifacts or engines."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fake_service import FakeService, model_info
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.server.app import App, all_routes
from infinity_v3.server.config import ModelConfig, ServeConfig
from infinity_v3.server.context import ServerContext, make_context
from infinity_v3.server.hosting import Hosting
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.transport import Transport

MSGPACK = "application/msgpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply as a client sees it; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # whatever was sent
        return json.loads(self.body)

    @property
    def msgpack(self) -> Any:  # noqa: ANN401  # whatever was sent
        return msgspec.msgpack.decode(self.body)


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

    def pack(self, path: str, value: object, **headers: str) -> Answer:
        """Send MessagePack and ask for it."""
        types = {"content-type": MSGPACK, "accept": MSGPACK}
        body = msgspec.msgpack.encode(value)
        return self.request("POST", path, body, {**types, **_dashed(headers)})

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
            info=model_info(name, service.kind),
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

    def __init__(
        self,
        context: ServerContext,
        *,
        task: str | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._task = task
        self._prepare = prepare
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

        self._prepare()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._stop = asyncio.Event()
        config = self._context.config
        transport = Transport(
            App(self._context, all_routes(Hosting(task=self._task))),
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
    kind: Kind = Kind.EMBEDDING,
    task: str | None = None,
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
            kind=kind,
        )
        for name in names
    }
    context = _make_context(config, services, is_ready=is_ready)
    with ServerThread(context, task=task) as server:
        yield Client(port=server.port, context=context, loop=server.loop, services=services)
    context.close()


@contextmanager
def running_model(
    make_model: Callable[[], LoadedModel],
    settings: ServiceSettings | None = None,
    **model: Any,  # noqa: ANN401  # fields of ModelConfig
) -> Iterator[Client]:
    """A server over the real inference service of one model."""
    config = ModelConfig(model_id="tiny-source", **model)
    context = make_context(ServeConfig(models=(config,)))
    services: list[InferenceService] = []

    def prepare() -> None:
        service = InferenceService(make_model(), settings or ServiceSettings(), SilentObserver())
        service.start()
        services.append(service)
        served = ServedModel(
            name="tiny",
            service=service,
            info=service.info,
            config=config,
            num_tokenizer_threads=1,
            created_s=1,
        )
        context.models = ModelTable([served])
        context.lifecycle.replace_models({"tiny": Phase.READY})

    with ServerThread(context, prepare=prepare) as server:
        client = Client(port=server.port, context=context, loop=server.loop)
        try:
            yield client
        finally:
            client.call(services[0].close)


@contextmanager
def running_kinds(make_model: Callable[[Kind], LoadedModel]) -> "Iterator[ClientOf]":
    """A server per kind of model, started when it is first asked for."""
    clients: dict[Kind, Client] = {}
    with ExitStack() as stack:

        def client_of(kind: Kind) -> Client:
            if kind not in clients:
                clients[kind] = stack.enter_context(running_model(lambda: make_model(kind)))
            return clients[kind]

        yield client_of


StartServer = Callable[..., AbstractContextManager[Client]]
VectorOf = Callable[[object], NDArray[np.float32]]
ClientOf = Callable[[Kind], Client]
