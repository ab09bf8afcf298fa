"""The one object the server talks to: requests in, results or typed errors out.

Created and called on the event loop thread. Knows nothing of HTTP.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.checks import check_dimensions, check_items, check_max_tokens
from infinity_v3.runtime.dispatcher import Dispatcher
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.runtime.loading import HIDDEN_OUTPUT, LoadedModel
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.observer import Observer
from infinity_v3.runtime.pending import PendingRequest, not_ready
from infinity_v3.runtime.requests import (
    DecodeRequest,
    EmbedRequest,
    EmbedTokensRequest,
    TextOptions,
    TokenizeRequest,
)
from infinity_v3.runtime.results import EmbedResult, RequestTiming
from infinity_v3.runtime.settings import ServiceSettings, default_tokenization_workers
from infinity_v3.runtime.state import ServiceState, ServiceStats
from infinity_v3.runtime.text_pool import TextPool
from infinity_v3.runtime.tokens import TokenPiece
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.work import Readout

CLOSE_TIMEOUT_S = 5.0


class InferenceService:
    """Serves one loaded model. Every accepted request ends exactly once.

    All methods belong to the event loop thread. A request whose task is cancelled leaves the queue
    at once.
    """

    def __init__(self, model: LoadedModel, settings: ServiceSettings, observer: Observer) -> None:
        self._model = model
        self._settings = settings
        workers = settings.tokenization_workers or default_tokenization_workers()
        self._texts = TextPool(model.tokenizer, num_workers=workers)
        self._dispatcher = Dispatcher(model, settings, observer)

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
        """Refuse what this model cannot do.

        Raises:
            InferenceError: BACKEND, code unsupported_task.
        """
        if "embed" not in self.info.capabilities:
            hints = {Kind.LATE_INTERACTION: "; use /embed_all", Kind.SPARSE: "; use /embed_sparse"}
            raise _unsupported("Model is not an embedding model" + hints.get(self.info.kind, ""))

    def check_can_embed_tokens(self) -> None:
        """Refuse what this model cannot do.

        Raises:
            InferenceError: BACKEND, code unsupported_task.
        """
        if "embed_all" in self.info.capabilities:
            return
        if self.info.kind is Kind.SPARSE:
            raise _unsupported("`embed_all` is not available for SPLADE models")
        if self.info.kind is not Kind.EMBEDDING:
            raise _unsupported("Model is not an embedding model")
        raise _unsupported(
            "the artifact has no token output; "
            "compile it again: infinity-compile model --task embedding"
        )

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        """Turn each item into one vector.

        Raises:
            InferenceError: refused, or failed as a whole.
        """
        self._check_ready()
        self.check_can_embed()
        output, width = self._model.pooled_output, self.info.width
        assert output is not None, "an embedding model without pooled output; this is a bug"
        assert width is not None, "an embedding model without width; this is a bug"
        check_dimensions(request.dimensions, width)
        readout = Readout(output=output, normalize=request.normalize, dimensions=request.dimensions)
        return await self._infer(request, readout)

    async def embed_tokens(self, request: EmbedTokensRequest) -> EmbedResult:
        """Turn each item into one row per token, special tokens included, not normalised.

        Raises:
            InferenceError: refused, or failed as a whole.
        """
        self._check_ready()
        self.check_can_embed_tokens()
        return await self._infer(request, Readout(output=HIDDEN_OUTPUT, is_per_token=True))

    async def tokenize(self, request: TokenizeRequest) -> tuple[tuple[TokenPiece, ...], ...]:
        """Show how prompt and text split into tokens.

        Raises:
            InferenceError: refused.
        """
        self._check_ready()
        with _located(is_list=request.is_list):
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
        with _located(is_list=request.is_list):
            _check_id_lists(request.id_lists)
            with self._dispatcher.slot():
                return tuple(
                    await self._texts.decode(
                        request.id_lists, skip_special_tokens=request.skip_special_tokens
                    )
                )

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

    async def _infer(
        self, request: EmbedRequest | EmbedTokensRequest, readout: Readout
    ) -> EmbedResult:
        with _located(is_list=request.is_list):
            options = request.options
            truncation = self._truncation(options)
            prompt = self._model.prompts.text(options.prompt_name)
            check_items(request.items, has_prompt_name=options.prompt_name is not None)
            with self._dispatcher.slot():
                started_s = time.monotonic()
                encoded = await self._texts.encode(request.items, truncation, prompt)
                tokenization_s = time.monotonic() - started_s
                done = await self._dispatcher.run(encoded, request.schedule, readout)
        return _result(done, tokenization_s)

    def _truncation(self, options: TextOptions) -> Truncation:
        check_max_tokens(options.max_tokens, self.info.max_input_tokens)
        default = self._settings.is_truncating or options.max_tokens is not None
        return Truncation(
            max_tokens=options.max_tokens or self.info.max_input_tokens,
            is_allowed=default if options.truncate is None else options.truncate,
            side=options.truncation_side,
        )

    def _check_ready(self) -> None:
        state = self.state
        if state is not ServiceState.READY:
            raise not_ready(f"the model is not ready: {state.value}")


@contextmanager
def _located(*, is_list: bool) -> Iterator[None]:
    """A bare input has no position, so its errors carry none."""
    try:
        yield
    except InferenceError as error:
        if not is_list:
            error.item = None
        raise


def _result(done: PendingRequest, tokenization_s: float) -> EmbedResult:
    count = len(done.item_tokens)
    rows = tuple(row for row in done.rows if row is not None)
    assert len(rows) == count, "a request ended before its items; this is a bug"
    return EmbedResult(
        rows=rows,
        item_tokens=done.item_tokens,
        timing=RequestTiming(
            tokenization_s=tokenization_s / count,
            queue_s=done.queue_s / count,
            inference_s=done.inference_s / count,
        ),
    )


def _check_id_lists(id_lists: Sequence[Sequence[int]]) -> None:
    if id_lists and all(id_lists):
        return
    position = next((index for index, ids in enumerate(id_lists) if not ids), None)
    message = "`input_ids` cannot be empty"
    raise InferenceError(ErrorKind.EMPTY, "empty_input", message, item=position, field=ITEMS_FIELD)


def _unsupported(message: str) -> InferenceError:
    return InferenceError(ErrorKind.BACKEND, "unsupported_task", message)
