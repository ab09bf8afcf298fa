"""/vertex: several bodies in one request, which are answered together or not at all.

Each instance is what the path of its kind takes. Knows nothing of what the bodies mean.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from infinity_v3.runtime.errors import DisbandedError
from infinity_v3.server.call import Call, ItemBudget
from infinity_v3.server.context import ServerContext
from infinity_v3.server.endpoint import (
    ClientWatch,
    Endpoint,
    convert,
    read_document,
    receiving,
    route_model,
)
from infinity_v3.server.errors import HttpError, from_inference, validation
from infinity_v3.server.exchange import Exchange, Outcome, Reply
from infinity_v3.server.items import empty_list
from infinity_v3.server.kind_endpoint import KindEndpoint
from infinity_v3.server.replies import Answer, encoder_for, plain_reply
from infinity_v3.server.schemas import VertexBody
from infinity_v3.server.served import Joint, ServedModel

_COMMON = ("model", "service_tier")
"""What the request says once for all of its instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """One body, and the endpoint that answers it."""

    endpoint: Endpoint[Any]
    call: Call[Any]

    async def answer(self, joint: Joint) -> Answer:
        model = replace(self.call.model, service=joint.service)
        is_answered = False
        try:
            answer = await self.endpoint.compute(replace(self.call, model=model))
            is_answered = True
            return answer
        finally:
            if not is_answered:
                joint.leave()


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexEndpoint:
    """Hands each instance to the endpoint of its model's kind, or to the one that ranks."""

    by_kind: KindEndpoint
    rank: Endpoint[Any]

    async def run(self, context: ServerContext, exchange: Exchange) -> Reply:
        """Answer one request.

        Raises:
            HttpError: any refusal of the contract.
            ClientGoneError: nobody is left to answer.
        """
        with receiving(context, exchange) as lease:
            document = await read_document(context, exchange, lease)
            body = await document.run(convert, document.value, VertexBody)
            model = _route(context, exchange, body)
            exchange.outcome.is_inference = True
            instances = await document.run(self._instances, context, exchange, body, model)
        with ClientWatch(exchange):
            answers = await _answer_all(context, exchange, instances)
        value = {"predictions": [answer.value for answer in answers]}
        return plain_reply(Answer(value=value, encoder=encoder_for(instances[0].call)))

    def _instances(
        self, context: ServerContext, exchange: Exchange, body: VertexBody, model: ServedModel
    ) -> list[_Instance]:
        if not body.instances:
            raise empty_list("instances")
        limit = model.config.max_client_batch_size
        # No instance is without an item, so these are too many before they are looked at.
        ItemBudget(limit=limit).take(len(body.instances), "instances")
        budget = ItemBudget(limit=limit)
        common = {key: getattr(body, key) for key in _COMMON}
        found = []
        for index, instance in enumerate(body.instances):
            endpoint = self._endpoint(instance, model)
            try:
                parsed = convert({**common, **instance}, endpoint.body_type)
            except HttpError as error:
                raise error.within(index) from None
            call = Call(
                context=context,
                exchange=replace(exchange, outcome=Outcome(model=model.name)),
                model=model,
                body=parsed,
                on_accepted=_note_nothing,
                budget=budget,
            )
            found.append(_Instance(endpoint=endpoint, call=call))
        return found

    def _endpoint(self, instance: dict[str, Any], model: ServedModel) -> Endpoint[Any]:
        is_ranking = "query" in instance and ("texts" in instance or "documents" in instance)
        return self.rank if is_ranking else self.by_kind.of(model.info.kind)


def _note_nothing(outcome: Outcome) -> None:
    """The request is counted as a whole."""


def _route(context: ServerContext, exchange: Exchange, body: VertexBody) -> ServedModel:
    """The one model of all instances, which they may name in place of the request."""
    name = body.model
    for index, instance in enumerate(body.instances):
        named = instance.get("model")
        if not isinstance(named, str):
            continue
        if name is not None and name != named and len(context.models) > 1:
            raise validation(
                "`model`: all instances of a request go to one model", param="model"
            ).within(index)
        name = named
    return route_model(context.models, msgspec.structs.replace(body, model=name), exchange)


async def _answer_all(
    context: ServerContext, exchange: Exchange, instances: Sequence[_Instance]
) -> list[Answer]:
    """The answers in order.

    Raises:
        HttpError: of the first instance at fault, else the one of the request as a whole.
    """
    service = instances[0].call.model.service
    try:
        with service.joint(len(instances)) as joint:
            tasks = [asyncio.ensure_future(instance.answer(joint)) for instance in instances]
            found = await asyncio.gather(*tasks, return_exceptions=True)
            refusal = joint.refusal
    finally:
        # Also of a client that has left: it was accepted.
        _note_whole(exchange, instances)
        context.metrics.request_accepted(exchange.outcome)
    answers = [answer for answer in found if isinstance(answer, Answer)]
    if len(answers) < len(found):
        raise _first_error(found, None if refusal is None else from_inference(refusal))
    return answers


def _first_error(found: Sequence[object], refusal: HttpError | None) -> BaseException:
    """What is wrong with an instance goes before what refuses all of them."""
    for index, error in enumerate(found):
        if isinstance(error, HttpError):
            if refusal is None or error.message != refusal.message:
                return error.within(index)
        elif isinstance(error, BaseException) and not isinstance(error, DisbandedError):
            return error
    assert refusal is not None, "instances failed without a reason; this is a bug"
    return refusal


def _note_whole(exchange: Exchange, instances: Sequence[_Instance]) -> None:
    """What the request held and cost, all instances together."""
    outcome, parts = exchange.outcome, [instance.call.exchange.outcome for instance in instances]
    outcome.is_batch = True
    outcome.is_scoring = any(part.is_scoring for part in parts)
    outcome.num_items = sum(part.num_items for part in parts)
    outcome.num_characters = sum(part.num_characters for part in parts)
    outcome.num_tokens = sum(part.num_tokens for part in parts)
    count = max(outcome.num_items, 1)
    outcome.tokenization_s = sum(part.tokenization_s * part.num_items for part in parts) / count
    outcome.queue_s = sum(part.queue_s * part.num_items for part in parts) / count
    outcome.inference_s = sum(part.inference_s * part.num_items for part in parts) / count
