"""The server's application called in process, over the real inference service and a fake engine.

Everything but the transport and the numbers is the real thing. Knows nothing of strategies.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fake_engine import FakeEngine
from fuzz_checks import FuzzAnswer, failure
from fuzz_requests import FuzzRequest
from infinity_v3.artifacts.manifest import Heads, Kind, ScoreActivation
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.outputs import MAIN_OUTPUTS
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.server.app import App, all_routes
from infinity_v3.server.config import ModelConfig, ServeConfig
from infinity_v3.server.context import make_context
from infinity_v3.server.exchange import DisconnectWatch, ScopeHeaders
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.served import ModelTable, ServedModel
from tiny_models import fake_model

TIMEOUT_S = 20.0
PAYLOAD_LIMIT = 1 << 20
KINDS = (
    Kind.EMBEDDING,
    Kind.SPARSE,
    Kind.LATE_INTERACTION,
    Kind.CLASSIFIER,
    Kind.RERANKER,
    Kind.TOKEN_CLASSIFIER,
    Kind.DECISION,
)
_LABELS: Mapping[Kind, tuple[str, ...]] = {
    Kind.RERANKER: ("LABEL_0",),
    Kind.CLASSIFIER: ("bad", "so-so", "good"),
    Kind.TOKEN_CLASSIFIER: ("O", "B-X", "I-X"),
}
_ACTIVATIONS = {Kind.RERANKER: ScoreActivation.SIGMOID, Kind.CLASSIFIER: ScoreActivation.SOFTMAX}


class _Watch:
    """The client never leaves."""

    def add_done_callback(self, callback: object) -> None: ...

    def cancel(self) -> bool:
        return True


@dataclass(slots=True, kw_only=True)
class _Protocol:
    """One exchange; takes exactly one answer."""

    body: bytes
    answers: list[FuzzAnswer] = field(default_factory=list)

    async def __call__(self) -> bytes:
        return self.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), 65536):
            yield self.body[start : start + 65536]

    def client_disconnect(self) -> DisconnectWatch:
        return _Watch()

    def response_empty(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.response_bytes(status, headers, b"")

    def response_bytes(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self.answers.append(FuzzAnswer(status=status, headers=dict(headers), body=body))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Headers:
    """Names in lower case."""

    values: Mapping[str, str]

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)


@dataclass(slots=True, kw_only=True)
class _Scope:
    path: str
    headers: ScopeHeaders
    proto: str = "http"
    method: str = "POST"
    query_string: str = ""


class FuzzApp:
    """One model of one kind behind the whole application, on an event loop of its own."""

    def __init__(self, kind: Kind) -> None:
        self._loop = asyncio.new_event_loop()
        config = ModelConfig(model_id="fuzzed", max_client_batch_size=32)
        serve = ServeConfig(models=(config,), payload_limit=PAYLOAD_LIMIT)
        context = make_context(serve)
        model = _make_decider() if kind is Kind.DECISION else _make_model(kind)
        self._service: InferenceService = self._loop.run_until_complete(_start(model))
        served = ServedModel(
            name="fuzzed",
            service=self._service,
            info=self._service.info,
            config=config,
            num_tokenizer_threads=1,
            created_s=1,
        )
        context.models = ModelTable([served])
        context.lifecycle.replace_models({"fuzzed": Phase.READY})
        self._app = App(context, all_routes())

    def ask(self, requests: Sequence[FuzzRequest]) -> list[FuzzAnswer]:
        """Send requests at the same time.

        Raises:
            FuzzFailure: one of them got no answer in time, or several.
        """
        return self._loop.run_until_complete(self._ask_all(requests))

    def close(self) -> None:
        self._service.close()
        self._loop.close()

    async def _ask_all(self, requests: Sequence[FuzzRequest]) -> list[FuzzAnswer]:
        return list(await asyncio.gather(*map(self._ask, requests)))

    async def _ask(self, request: FuzzRequest) -> FuzzAnswer:
        protocol = _Protocol(body=request.body)
        length = ("content-length", str(len(request.body)))
        headers = _Headers(values=dict((*request.headers, length)))
        scope = _Scope(path=request.path, headers=headers)
        try:
            await asyncio.wait_for(self._app.__rsgi__(scope, protocol), TIMEOUT_S)
        except asyncio.TimeoutError:
            raise failure(request, None, f"no answer within {TIMEOUT_S:g} s") from None
        except Exception as error:
            raise failure(request, None, f"{type(error).__name__} left the application") from error
        if len(protocol.answers) != 1:
            raise failure(request, None, f"{len(protocol.answers)} answers")
        return protocol.answers[0]


def _make_decider() -> LoadedModel:
    """A tiny Laya checkpoint with everything but the compiled code."""
    # Torch and transformers: only where a model decides.
    from eager_laya import EagerLaya
    from tiny_laya import LayaRecipe, make_laya_checkpoint

    recipe = LayaRecipe(key="fuzzed", num_layers=1, head_layers=1, max_len=320, head_max_len=192)
    with tempfile.TemporaryDirectory(prefix="infinity-fuzz-") as folder:
        return EagerLaya(make_laya_checkpoint(Path(folder) / recipe.key, recipe)).loaded()


def _make_model(kind: Kind) -> LoadedModel:
    """A model of that kind over an engine that computes nothing."""
    labels = _LABELS.get(kind, ())
    outputs = (MAIN_OUTPUTS[kind], "hidden") if kind is Kind.EMBEDDING else (MAIN_OUTPUTS[kind],)
    return fake_model(
        FakeEngine(outputs=outputs, width=len(labels) or 8),
        kind=kind,
        heads=Heads(labels=labels, activation=_ACTIVATIONS.get(kind)),
        prompts=PromptTable(named={"query": "w7 "}),
    )


async def _start(model: LoadedModel) -> InferenceService:
    settings = ServiceSettings(max_queue_tokens=1 << 20, tokenization_workers=1)
    service = InferenceService(model, settings, SilentObserver())
    service.start()
    return service
