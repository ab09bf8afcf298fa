"""The decision routes' way of reading a body: exactly as it was sent. Knows nothing of answers."""

from dataclasses import dataclass

import msgspec

from infinity_v3.server.call import Call
from infinity_v3.server.context import ServerContext
from infinity_v3.server.decision_errors import invalid
from infinity_v3.server.endpoint import (
    LARGE_BODY_BYTES,
    Document,
    Endpoint,
    receiving,
)
from infinity_v3.server.errors import HttpError, HttpErrorKind
from infinity_v3.server.exact_json import parse_exact
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.json_words import in_json_words, kind_of
from infinity_v3.server.negotiation import JSON_TYPE
from infinity_v3.server.schemas import DecideBody, RoutedBody
from infinity_v3.server.served import ModelTable, ServedModel

_REQUIRED = ("state", "questions")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEndpoint(Endpoint[DecideBody]):
    """See Endpoint; bodies are JSON only, and any model has to be named by one of its names."""

    async def run(self, context: ServerContext, exchange: Exchange) -> Reply:
        with receiving(context, exchange) as lease:
            raw = await context.reader.read(exchange, lease)
            if raw.media_type != JSON_TYPE:
                raise HttpError(
                    HttpErrorKind.UNSUPPORTED_MEDIA_TYPE,
                    f"Content-Type must be {JSON_TYPE} on this route; found {raw.media_type}",
                )
            exchange.has_large_body = len(raw.data) > LARGE_BODY_BYTES
            pool = context.large_bodies if exchange.has_large_body else None
            document = Document(value=raw, pool=pool)
            value = await document.run(parse_exact, raw.data)
            body = await document.run(read_body, value)
            model = context.models.route_decision(body.model)
            call = self.call_of(context, exchange, model, body)
        return await self.answer(call)

    async def call(
        self, context: ServerContext, exchange: Exchange, document: Document
    ) -> Call[DecideBody]:
        """The same from a path whose meaning depends on the model, which was found already."""
        value = document.value
        if document.raw is not None and document.raw.media_type == JSON_TYPE:
            value = await document.run(parse_exact, document.raw.data)
        body = await document.run(read_body, value)
        return self.call_of(context, exchange, _routed(context.models, body), body)


def _routed(models: ModelTable, body: RoutedBody) -> ServedModel:
    return models.route(body.model)


def read_body(value: object) -> DecideBody:
    """Check what names the model; the rest is checked against it.

    Raises:
        HttpError: 422.
    """
    if not isinstance(value, dict):
        raise invalid(f"expected an object, found {kind_of(value)}", "object_type")
    for name in _REQUIRED:
        if name not in value:
            raise invalid("the field is missing", "missing", name)
    common = {name: value[name] for name in RoutedBody.__struct_fields__ if name in value}
    try:
        msgspec.convert(common, RoutedBody, strict=True)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).rpartition(" - at ")
        name = path.strip("`").removeprefix("$.")
        raise invalid(in_json_words(reason), "value_error", name) from None
    known = {name: value[name] for name in DecideBody.__struct_fields__ if name in value}
    return DecideBody(**known)
