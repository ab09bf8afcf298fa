"""One parsed and routed request, and when it may run. Knows nothing of routes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from infinity_v3.runtime.requests import Schedule
from infinity_v3.server.context import ServerContext
from infinity_v3.server.errors import validation
from infinity_v3.server.exchange import Exchange, Outcome
from infinity_v3.server.schemas import RoutedBody
from infinity_v3.server.served import ServedModel

BodyT = TypeVar("BodyT", bound=RoutedBody)


@dataclass(slots=True, kw_only=True)
class ItemBudget:
    """How many items a request may hold; `num_items` came already."""

    limit: int
    num_items: int = 0

    def take(self, num_items: int, field: str = "inputs") -> None:
        """Count items in that field.

        Raises:
            HttpError: 422, they are too many.
        """
        self.num_items += num_items
        if self.num_items > self.limit:
            raise validation(
                f"batch size {self.num_items} > maximum allowed batch size {self.limit} "
                f"(--max-client-batch-size)",
                code="batch_too_large",
                param=field,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[BodyT]):
    """What a route works on.

    Attributes:
        on_accepted: told once what the request holds.
        budget: how many items may come.
    """

    context: ServerContext
    exchange: Exchange
    model: ServedModel
    body: BodyT
    on_accepted: Callable[[Outcome], None]
    budget: ItemBudget


def schedule_of(call: Call[BodyT]) -> Schedule:
    """Priority of the body, deadline of the headers, and whether it is alone."""
    return Schedule(
        is_priority=call.body.service_tier == "priority",
        deadline_s=_deadline_s(call.exchange),
        is_alone=call.context.lifecycle.solitude.is_alone,
    )


def _deadline_s(exchange: Exchange) -> float | None:
    """The earlier of the two deadline headers, monotonic; malformed ones are ignored."""
    timeout_ms = _milliseconds(exchange.header("request-timeout-ms"))
    epoch_ms = _milliseconds(exchange.header("request-deadline-ms"))
    moments = []
    if timeout_ms is not None:
        moments.append(exchange.started_s + timeout_ms / 1e3)
    if epoch_ms is not None:
        moments.append(time.monotonic() + epoch_ms / 1e3 - time.time())
    return min(moments, default=None)


def _milliseconds(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 15
    return int(text) if is_number and text is not None else None
