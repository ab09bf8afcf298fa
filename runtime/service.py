"""The one object the server talks to: requests in, results or typed errors out.

Created and called on the event loop thread. Knows nothing of HTTP.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime import capabilities
from infinity_v3.runtime.blame import located
from infinity_v3.runtime.checks import check_id_lists, check_items
from infinity_v3.runtime.decision_tasks import DecisionTasks
from infinity_v3.runtime.decisions.protocol import open_format
from infinity_v3.runtime.decisions.question import DecideRequest
from infinity_v3.runtime.dispatcher import Dispatcher
from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.joint import JointQueue
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.observer import Observer
from infinity_v3.runtime.pending import not_ready
from infinity_v3.runtime.pipeline import Queue, TextPipeline, TextRules
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
from infinity_v3.runtime.score_tasks import ScoreTasks
from infinity_v3.runtime.settings import ServiceSettings, default_tokenization_workers
from infinity_v3.runtime.state import ServiceState, ServiceStats
from infinity_v3.runtime.text_pool import TextPool
from infinity_v3.runtime.tokens import TokenPiece
from infinity_v3.runtime.vector_tasks import VectorTasks

CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """A group of requests in the making."""

    service: "InferenceService"
    queue: JointQueue

    @property
    def refusal(self) -> InferenceError | None:
        """Why the group as a whole was not admitted, if it was not."""
        return self.queue.refusal

    def leave(self) -> None:
        """Say that one of the requests has failed; those that wait in the queue end."""
        self.queue.leave()


class InferenceService:
    """Serves one loaded model. Every accepted request ends exactly once.

    All methods belong to the event loop thread. A request whose task is cancelled leaves the queue
    at once. The tasks raise InferenceError for what is refused or fails as a whole; `check_can_...`
    raises the one that a task raises on a model of another kind: BACKEND, code unsupported_task.
    """

    def __init__(self, model: LoadedModel, settings: ServiceSettings, observer: Observer) -> None:
        self._model = model
        self._settings = settings
        workers = settings.tokenization_workers or default_tokenization_workers()
        self._texts = TextPool(model.tokenizer, num_workers=workers)
        self._dispatcher = Dispatcher(model, settings, observer)
        self._bind(self._dispatcher)

    def _bind(self, queue: Queue) -> None:
        """Have the tasks done through a queue."""
        rules = TextRules(
            max_input_tokens=self.info.max_input_tokens,
            is_truncating=self._settings.is_truncating,
            prompts=self._model.prompts,
        )
        pipeline = TextPipeline(rules, self._texts, queue)
        self._vectors = VectorTasks(self._model, pipeline)
        self._scores = ScoreTasks(self._model, pipeline)
        self._decisions = None
        if self.info.decision is not None:
            decisions = open_format(
                self.info.decision,
                self._model.tokenizer,
                max_tokens=self.info.max_input_tokens,
                is_truncating=self._settings.is_truncating,
            )
            self._decisions = DecisionTasks(self._model, pipeline, decisions)

    @property
    def info(self) -> ModelInfo:
        """Frozen facts about the model."""
        return self._model.info

    @property
    def state(self) -> ServiceState:
        """Cached state; reading it never waits."""
        if self._dispatcher.is_down:
            return ServiceState.FAILED
        if self._dispatcher.is_draining:
            return ServiceState.DRAINING
        return ServiceState.READY if self._dispatcher.is_started else ServiceState.LOADING

    def start(self) -> None:
        """Start the engine thread; called once, on the running event loop."""
        self._dispatcher.start()

    def check_can_embed(self) -> None:
        """Refuse models that do not give one vector per input."""
        capabilities.check_can_embed(self.info)

    def check_can_embed_tokens(self) -> None:
        """Refuse models that do not give vectors for tokens."""
        capabilities.check_can_embed_tokens(self.info)

    def check_can_embed_sparse(self) -> None:
        """Refuse models whose vectors are not sparse."""
        capabilities.check_can_embed_sparse(self.info)

    def check_can_compare(self) -> None:
        """Refuse models whose vectors cannot be compared by their cosine."""
        capabilities.check_can_compare(self.info)

    def check_can_rank(self) -> None:
        """Refuse models that do not score pairs."""
        capabilities.check_can_rank(self.info)

    def check_can_score(self) -> None:
        """Refuse models that neither score pairs nor give vectors to compare."""
        capabilities.check_can_score(self.info)

    def check_can_classify(self) -> None:
        """Refuse models without labels for texts."""
        capabilities.check_can_classify(self.info)

    def check_can_classify_tokens(self) -> None:
        """Refuse models without labels for tokens."""
        capabilities.check_can_classify_tokens(self.info)

    def check_can_decide(self) -> None:
        """Refuse models that answer no typed questions."""
        capabilities.check_can_decide(self.info)

    def check_can_converse(self) -> None:
        """Refuse models that make no text of a conversation."""
        capabilities.check_can_converse(self.info)

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        """Turn each item into one vector."""
        self._check_ready()
        self.check_can_embed()
        return await self._vectors.embed(request)

    async def embed_tokens(self, request: EmbedTokensRequest) -> EmbedResult:
        """Turn each item into one row per token.

        Embedding models give every token a row, special tokens included, not normalised.
        Late-interaction models give projected vectors, and none for the tokens they skip.
        """
        self._check_ready()
        self.check_can_embed_tokens()
        return await self._vectors.embed_tokens(request)

    async def embed_sparse(self, request: EmbedSparseRequest) -> SparseResult:
        """Turn each item into one sparse vector over the vocabulary."""
        self._check_ready()
        self.check_can_embed_sparse()
        return await self._vectors.embed_sparse(request)

    async def similarity(self, request: SimilarityRequest) -> SimilarityResult:
        """Compare one text with each of some others; errors of the first end with its field."""
        self._check_ready()
        self.check_can_compare()
        return await self._vectors.compare(request)

    async def rank(self, request: RankRequest) -> RankResult:
        """Order documents by their relevance to a query; equal documents get equal scores."""
        self._check_ready()
        self.check_can_rank()
        return await self._scores.rank(request)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score each pair: by a reranker as `rank` does, else by the cosine of its texts."""
        self._check_ready()
        self.check_can_score()
        is_reranker = self.info.kind is Kind.RERANKER
        return await (self._scores if is_reranker else self._vectors).score(request)

    async def classify(self, request: ClassifyRequest) -> ClassifyResult:
        """Score each item by every label."""
        self._check_ready()
        self.check_can_classify()
        return await self._scores.classify(request)

    async def classify_tokens(self, request: ClassifyTokensRequest) -> ClassifyTokensResult:
        """Label the tokens of each text, or the entities they make up."""
        self._check_ready()
        self.check_can_classify_tokens()
        return await self._scores.classify_tokens(request)

    async def decide(self, request: DecideRequest) -> DecideResult:
        """Answer typed questions about a state; errors of one carry its position."""
        self._check_ready()
        self.check_can_decide()
        assert self._decisions is not None, "a decision model without its protocol; this is a bug"
        return await self._decisions.decide(request)

    async def tokenize(self, request: TokenizeRequest) -> tuple[tuple[TokenPiece, ...], ...]:
        """Show how prompt and text split into tokens.

        Raises:
            InferenceError: refused.
        """
        self._check_ready()
        with located(is_list=request.is_list):
            prompt = self._model.prompts.text(request.prompt_name)
            check_items(request.texts, has_prompt_name=False)
            with self._dispatcher.slot():
                return tuple(
                    await self._texts.pieces(
                        [prompt + text for text in request.texts],
                        add_special_tokens=request.add_special_tokens,
                    )
                )

    async def decode(self, request: DecodeRequest) -> tuple[str, ...]:
        """Turn ids back into texts.

        Raises:
            InferenceError: refused.
        """
        self._check_ready()
        with located(is_list=request.is_list):
            check_id_lists(request.id_lists)
            with self._dispatcher.slot():
                return tuple(
                    await self._texts.decode(
                        request.id_lists, skip_special_tokens=request.skip_special_tokens
                    )
                )

    @contextmanager
    def joint(self, num_requests: int) -> Iterator[Joint]:
        """Give a service for so many requests that share one slot and one admission decision."""
        queue = JointQueue(self._dispatcher, num_requests=num_requests)
        view = copy(self)
        view._bind(queue)
        try:
            yield Joint(service=view, queue=queue)
        finally:
            queue.close()

    def stats(self) -> ServiceStats:
        """A snapshot of load, for metrics and status pages."""
        return self._dispatcher.stats()

    def begin_drain(self) -> None:
        """Admit nothing more; requests that hold a slot are finished."""
        self._dispatcher.begin_drain()

    async def wait_drained(self, timeout_s: float) -> bool:
        """Wait until the last admitted request has ended; False when the time is over."""
        return await self._dispatcher.wait_drained(timeout_s)

    def abort_pending(self) -> None:
        """End every request in the queue or the engine with UNHEALTHY, at once."""
        self._dispatcher.abort_pending()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """End what runs and close the engine; False when a call outlasts the timeout.

        The engine thread closes the engine, so it is not freed under a running call.
        """
        self._texts.close()
        if self._dispatcher.is_started:
            return self._dispatcher.close(timeout_s)
        self._model.engine.close()
        return True

    async def retire(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """As `close`, while another service answers: the event loop does not wait for the engine.

        Called when no request is under way.
        """
        self._texts.close()
        self._dispatcher.stop()
        return await asyncio.to_thread(self._dispatcher.join, timeout_s)

    def _check_ready(self) -> None:
        state = self.state
        if state is not ServiceState.READY:
            raise not_ready(f"the model is not ready: {state.value}")
