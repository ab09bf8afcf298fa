"""The steps that every POST route shares, in the order of the contract; not a route's own work."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, ParamSpec, TypeVar

import msgspec

from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.server.body import Lease, RawBody
from infinity_v3.server.body_weight import refuse_crowded
from infinity_v3.server.call import BodyT, Call, ItemBudget
from infinity_v3.server.choices import choices_at
from infinity_v3.server.codec import check_tree, collector_paused, decode
from infinity_v3.server.context import ServerContext
from infinity_v3.server.errors import HttpError, echoed, from_inference, malformed, validation
from infinity_v3.server.exchange import DisconnectWatch, Exchange, Reply
from infinity_v3.server.json_words import in_json_words
from infinity_v3.server.replies import Answer, inference_reply, plain_reply
from infinity_v3.server.schemas import RoutedBody
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.text_options import with_reason

RETRY_NOT_READY_S = 2
LARGE_BODY_BYTES = 256 * 1024
"""Bodies up to this are decoded and checked at once, in a few milliseconds at the worst."""
UNWATCHED_S = 0.1
"""How long a request is under way before its client is watched."""


_P = ParamSpec("_P")
_T = TypeVar("_T")


class ClientGoneError(Exception):
    """The client left before it was answered."""


_TAKES_IDS = re.compile(r"Expected `[^`]*\binteger\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[BodyT]):
    """A POST route: its body type, its work, and the field that holds its items.

    `is_inference`: its replies say what they cost.
    """

    body_type: type[BodyT]
    work: Callable[[Call[BodyT]], Awaitable[Answer]]
    items_field: str = "inputs"
    is_inference: bool = True

    async def run(self, context: ServerContext, exchange: Exchange) -> Reply:
        """Answer one request.

        Raises:
            HttpError: any refusal of the contract.
            ClientGoneError: nobody is left to answer.
        """
        with receiving(context, exchange) as lease:
            document = await read_document(context, exchange, lease)
            call = await self.call(context, exchange, document)
        return await self.answer(call)

    async def call(
        self, context: ServerContext, exchange: Exchange, document: "Document"
    ) -> Call[BodyT]:
        """Check a document and find its model.

        Raises:
            HttpError: 400, 404 or 422.
        """
        body = await document.run(convert, document.value, self.body_type)
        return self.call_of(context, exchange, context.models.route(body.model), body)

    def call_of(
        self, context: ServerContext, exchange: Exchange, model: ServedModel, body: BodyT
    ) -> Call[BodyT]:
        """A checked body and the model that it means; the exchange remembers its name.

        Raises:
            HttpError: 503 while the model's engine is down.
        """
        note_model(model, exchange)
        exchange.outcome.is_inference = self.is_inference
        return Call(
            context=context,
            exchange=exchange,
            model=model,
            body=body,
            on_accepted=context.metrics.request_accepted,
            budget=ItemBudget(limit=model.config.max_client_batch_size),
        )

    async def answer(self, call: Call[BodyT]) -> Reply:
        """Do the work while somebody waits for it.

        Raises:
            HttpError: any refusal of the contract.
            ClientGoneError: nobody is left to answer.
        """
        with ClientWatch(call.exchange):
            answer = await self.compute(call)
        return inference_reply(call, answer) if self.is_inference else plain_reply(answer)

    async def compute(self, call: Call[BodyT]) -> Answer:
        """Do the work itself.

        Raises:
            HttpError: any refusal of the contract.
        """
        try:
            return await self.work(call)
        except InferenceError as error:
            raise from_inference(with_reason(error, call.body), self.items_field) from None


def receiving(context: ServerContext, exchange: Exchange) -> Lease:
    """Admit a request to a ready server; its body counts until the lease ends.

    Raises:
        HttpError: 503, or 429.
    """
    require_ready(context)
    context.lifecycle.admit(exchange.task)
    return context.gate.enter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A decoded body.

    Attributes:
        raw: the body that it was decoded from.
        pool: where work on a large one is done, as other requests would wait for it; None = it is
            small.
    """

    value: object
    raw: RawBody | None = None
    pool: Executor | None = None

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do work on it: beside the event loop where it is large, at once else."""
        if self.pool is None:
            return work(*args, **kwargs)
        bound = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.pool, bound)


async def read_document(context: ServerContext, exchange: Exchange, lease: Lease) -> Document:
    """The document of a request's body.

    Raises:
        HttpError: 400, 408, 413, 415 or 429.
    """
    raw = await context.reader.read(exchange, lease)
    exchange.has_large_body = len(raw.data) > LARGE_BODY_BYTES
    if not exchange.has_large_body:
        return Document(value=decode(raw.data, raw.media_type), raw=raw)
    document = Document(value=None, raw=raw, pool=context.large_bodies)
    await document.run(refuse_crowded, raw.data, raw.media_type)
    value = await document.run(decode, raw.data, raw.media_type)
    return replace(document, value=value)


def require_ready(context: ServerContext) -> None:
    """Refuse inference unless some model takes requests.

    Raises:
        HttpError: 503.
    """
    if not context.is_answering():
        raise not_ready(context.phase().value)


def require_loaded(context: ServerContext) -> None:
    """Refuse facts about models before there are any.

    Raises:
        HttpError: 503.
    """
    if not context.models:
        raise not_ready(context.phase().value)


def not_ready(state: str) -> HttpError:
    """The 503 of a server that cannot take requests now."""
    return HttpError(
        ErrorKind.UNHEALTHY,
        f"the server is not ready: {state}",
        headers=(("retry-after", str(RETRY_NOT_READY_S)),),
    )


def route_model(models: ModelTable, body: RoutedBody, exchange: Exchange) -> ServedModel:
    """The model that a body means; the exchange remembers its name.

    Raises:
        HttpError: 404 or 422; 503 while its engine is down.
    """
    model = models.route(body.model)
    note_model(model, exchange)
    return model


def note_model(model: ServedModel, exchange: Exchange) -> None:
    """Have the exchange remember the name of its model.

    Raises:
        HttpError: 503 while the model's engine is down.
    """
    exchange.outcome.model = model.name
    if model.is_down:
        raise not_ready(f"the engine of model {model.name} is down")


def convert(value: object, body_type: type[BodyT]) -> BodyT:
    """Check a document against a body type, strictly.

    Raises:
        HttpError: 422 naming the field path; 400 where the document itself is not allowed.
    """
    try:
        with collector_paused():
            body = msgspec.convert(value, body_type, strict=True)
    except msgspec.ValidationError as error:
        check_tree(value)
        raise _type_error(str(error), value, body_type) from None
    except UnicodeEncodeError:
        raise validation("the body holds a lone surrogate; send valid Unicode") from None
    assert isinstance(value, dict), "a body type is an object; this is a bug"
    known = body_type.__struct_fields__
    for key, extra in value.items():
        if key not in known:
            if not isinstance(key, str):
                raise malformed("map keys must be strings")
            check_tree([extra])
    return body


def _type_error(message: str, value: object, body_type: type[BodyT]) -> HttpError:
    # The path comes last: what stands before it may quote the client.
    reason, mark, path = message.rpartition(" - at ")
    path = path.strip("`").removeprefix("$").removeprefix(".") if mark else ""
    reason = in_json_words(echoed(reason if mark else message))
    if not path:
        return validation(f"the body does not fit: {reason}")
    if reason.startswith("Invalid enum value"):
        choices = ", ".join(choices_at(body_type, path))
        return validation(f"`{path}`: {reason}, expected one of {choices}", param=path)
    if _TAKES_IDS.search(reason) and _is_huge_id(path, value):
        return validation(
            f"`{path}`: expected an integer of the vocabulary, found a number beyond 64 bits",
            code="invalid_token_id",
            param=path,
        )
    return validation(f"`{path}`: {reason}", param=path)


def _is_huge_id(path: str, value: object) -> bool:
    """Whether an array element is a whole number that JSON decoders hand over as a float."""
    field, *indices = re.findall(r"[^][]+", path)
    found = value.get(field) if isinstance(value, dict) and indices else None
    for index in indices:
        if not isinstance(found, list) or not index.isdigit() or int(index) >= len(found):
            return False
        found = found[int(index)]
    return isinstance(found, float) and abs(found) >= 2.0**63


class ClientWatch:
    """Cancels the task of a request when the client leaves, and says so with ClientGoneError.

    The transport is asked only after a while: most requests are answered by then.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._watch: DisconnectWatch | None = None
        self._is_gone = False

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(UNWATCHED_S, self._begin)
        self._is_watching = True

    def _begin(self) -> None:
        def leave(_: object) -> None:
            if self._is_watching:
                self._is_gone = True
                self._exchange.task.cancel()

        self._watch = self._exchange.protocol.client_disconnect()
        self._watch.add_done_callback(leave)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_watching = False
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        # The watch keeps its callback and so this object. The garbage collector does not see into
        # the transport's watch: a cycle would keep every request for good.
        self._watch = None
        if self._is_gone:
            raise ClientGoneError("the client closed the connection") from None
