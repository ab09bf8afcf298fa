"""The models being served, by public name, and what routes need. Knows nothing of HTTP messages."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infinity_v3.server.config import ModelConfig
from infinity_v3.server.errors import HttpError, HttpErrorKind, echoed, validation
from infinity_v3.server.registry_origin import RegistryOrigin

if TYPE_CHECKING:  # these modules load numpy, which the start-up loads beside the server
    from infinity_v3.runtime.decisions.question import DecideRequest
    from infinity_v3.runtime.errors import InferenceError
    from infinity_v3.runtime.model_info import ModelInfo
    from infinity_v3.runtime.requests import (
        ClassifyRequest,
        ClassifyTokensRequest,
        DecodeRequest,
        EmbedRequest,
        EmbedSparseRequest,
        EmbedTokensRequest,
        RankRequest,
        ScoreRequest,
        SimilarityRequest,
        TokenizeRequest,
    )
    from infinity_v3.runtime.results import (
        ClassifyResult,
        ClassifyTokensResult,
        DecideResult,
        EmbedResult,
        RankResult,
        ScoreResult,
        SimilarityResult,
        SparseResult,
    )
    from infinity_v3.runtime.state import ServiceState, ServiceStats
    from infinity_v3.runtime.tokens import TokenPiece


DEFAULT_ALIASES = ("jev-latest", "jev-preview")
"""What clients of typed decisions ask for unless they are told otherwise."""


class Service(Protocol):
    """What routes use of `runtime.service.InferenceService`.

    Obligations: called on the event loop; a cancelled call drops its queued items; errors of a
    request are `InferenceError`. Every call takes one request slot while it runs. The `check_can_*`
    methods refuse what the model cannot do, before anything is spent on it.
    """

    @property
    def state(self) -> "ServiceState": ...

    def check_can_embed(self) -> None: ...

    def check_can_embed_tokens(self) -> None: ...

    def check_can_embed_sparse(self) -> None: ...

    def check_can_compare(self) -> None: ...

    def check_can_rank(self) -> None: ...

    def check_can_score(self) -> None: ...

    def check_can_classify(self) -> None: ...

    def check_can_classify_tokens(self) -> None: ...

    def check_can_decide(self) -> None: ...

    def check_can_converse(self) -> None: ...

    async def embed(self, request: "EmbedRequest") -> "EmbedResult": ...

    async def embed_tokens(self, request: "EmbedTokensRequest") -> "EmbedResult": ...

    async def embed_sparse(self, request: "EmbedSparseRequest") -> "SparseResult": ...

    async def similarity(self, request: "SimilarityRequest") -> "SimilarityResult": ...

    async def rank(self, request: "RankRequest") -> "RankResult": ...

    async def score(self, request: "ScoreRequest") -> "ScoreResult": ...

    async def classify(self, request: "ClassifyRequest") -> "ClassifyResult": ...

    async def classify_tokens(self, request: "ClassifyTokensRequest") -> "ClassifyTokensResult": ...

    async def decide(self, request: "DecideRequest") -> "DecideResult": ...

    async def tokenize(
        self, request: "TokenizeRequest"
    ) -> "tuple[tuple[TokenPiece, ...], ...]": ...

    async def decode(self, request: "DecodeRequest") -> tuple[str, ...]: ...

    def joint(self, num_requests: int) -> AbstractContextManager["Joint"]: ...

    def stats(self) -> "ServiceStats": ...

    def close(self) -> bool: ...

    async def retire(self) -> bool: ...


class Joint(Protocol):
    """Requests that share one slot and one admission decision.

    Obligations: `service` is used for as many requests as were announced; for each that fails
    `leave` is called, also when it never came to the service.
    """

    @property
    def service(self) -> Service: ...

    @property
    def refusal(self) -> "InferenceError | None": ...

    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model under its public name.

    Attributes:
        num_tokenizer_threads: the number in force.
        created_s: when it became ready, seconds since the epoch.
        origin: None = no registry gave it.
    """

    name: str
    service: Service
    info: "ModelInfo"
    config: ModelConfig
    num_tokenizer_threads: int
    created_s: int
    origin: RegistryOrigin | None = None

    @property
    def is_down(self) -> bool:
        """Its engine has failed."""
        return self.service.state == "failed"


class ModelTable:
    """Models in the order of the configuration; empty until all are ready.

    `aliases`: further names on the decision routes, each of a served name.
    """

    def __init__(
        self, models: Sequence[ServedModel] = (), aliases: Mapping[str, str] | None = None
    ) -> None:
        self._by_name = {model.name: model for model in models}
        self._aliases = dict(aliases or {})

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> tuple[ServedModel, ...]:
        """Every model, first configured first."""
        return tuple(self._by_name.values())

    def with_model(self, model: ServedModel) -> "ModelTable":
        """The same with one model in place of the one of its name."""
        models = {**self._by_name, model.name: model}
        return ModelTable(tuple(models.values()), self._aliases)

    def failed(self) -> tuple[str, ...]:
        """Names of models whose engine is down."""
        return tuple(name for name, model in self._by_name.items() if model.is_down)

    def has_one_up(self) -> bool:
        """Whether the engine of some model is up."""
        return not all(model.is_down for model in self._by_name.values())

    def find(self, name: str) -> ServedModel:
        """The model of that public name.

        Raises:
            HttpError: 404.
        """
        if name not in self._by_name:
            raise HttpError(
                HttpErrorKind.NOT_FOUND,
                f"model {echoed(name)!r} is not served here; served: {self._names()}",
                code="model_not_found",
                param="model",
            )
        return self._by_name[name]

    def route(self, name: str | None) -> ServedModel:
        """The model a request means. With one model any name is accepted.

        Raises:
            HttpError: 422 when several are served and none is named, 404 for an unknown name.
        """
        if len(self._by_name) == 1:
            return next(iter(self._by_name.values()))
        if name is None:
            raise validation(
                f"`model` is required, several models are served: {self._names()}", param="model"
            )
        return self.find(name)

    def route_decision(self, name: str | None) -> ServedModel:
        """The model that a decision request means: by its own name or by an alias.

        Raises:
            HttpError: 422 when several are served and none is named, 404 for an unknown name.
        """
        if name is None:
            return self.route(None)
        if name in self._by_name:
            return self._by_name[name]
        if name in self._aliases:
            return self.find(self._aliases[name])
        if name in DEFAULT_ALIASES:
            return self._first_decision()
        return self.find(name)

    def _first_decision(self) -> ServedModel:
        """The first model that decides, else the first one, which will say that it does not."""
        models = self.all()
        return next((model for model in models if model.info.decision is not None), models[0])

    def _names(self) -> str:
        return ", ".join(self._by_name)
