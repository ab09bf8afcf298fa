"""A POST route whose meaning depends on the kind of the artifact. Knows nothing of the meanings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.server.context import ServerContext
from infinity_v3.server.endpoint import (
    Endpoint,
    convert,
    read_document,
    receiving,
    route_model,
)
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.schemas import RoutedBody


@dataclass(frozen=True, slots=True, kw_only=True)
class KindEndpoint:
    """Hands a request to the endpoint of its model's kind, or to the default one."""

    by_kind: Mapping[Kind, Endpoint[Any]]
    default: Endpoint[Any]

    async def run(self, context: ServerContext, exchange: Exchange) -> Reply:
        """Answer one request.

        Raises:
            HttpError: any refusal of the contract.
            ClientGoneError: nobody is left to answer.
        """
        with receiving(context, exchange) as lease:
            document = await read_document(context, exchange, lease)
            routed = await document.run(convert, document.value, RoutedBody)
            model = route_model(context.models, routed, exchange)
            endpoint = self.of(model.info.kind)
            call = await endpoint.call(context, exchange, document)
        return await endpoint.answer(call)

    def of(self, kind: Kind) -> Endpoint[Any]:
        """The endpoint for models of a kind."""
        return self.by_kind.get(kind, self.default)
