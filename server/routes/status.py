"""What the server is doing right now: a page for people, and the numbers that it draws.

Knows nothing of how they are measured.
"""

import time
from typing import TYPE_CHECKING

import msgspec

from infinity_v3.server.activity import LATENCY_WINDOW_S, RATE_WINDOW_S, Recent
from infinity_v3.server.context import ServerContext
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.pages import page
from infinity_v3.server.process import resident_bytes, seconds_since_process_start
from infinity_v3.server.product import product_version
from infinity_v3.server.registry_origin import RegistryOrigin
from infinity_v3.server.served import ServedModel
from infinity_v3.server.status_reply import (
    StatusArtifact,
    StatusBatches,
    StatusLatency,
    StatusLimits,
    StatusLoad,
    StatusModel,
    StatusNext,
    StatusQueue,
    StatusRegistry,
    StatusReply,
    StatusRequests,
    StatusTokens,
)

if TYPE_CHECKING:
    from infinity_v3.runtime.state import ServiceStats


def status(context: ServerContext, exchange: Exchange) -> Reply:
    """The page."""
    return page("status.html")


def status_json(context: ServerContext, exchange: Exchange) -> Reply:
    """The numbers; in every state, so that a start can be watched."""
    loaded = {model.name: model for model in context.models.all()}
    reply = StatusReply(
        state=context.phase(),
        version=product_version(),
        time=round(time.time(), 3),
        uptime_s=round(seconds_since_process_start(), 2),
        resident_memory_bytes=resident_bytes(),
        requests_admitted=context.lifecycle.num_admitted,
        rate_window_s=RATE_WINDOW_S,
        latency_window_s=LATENCY_WINDOW_S,
        models=[
            _model(context, name, state, loaded.get(name))
            for name, state in context.model_phases().items()
        ],
    )
    return Reply(body=msgspec.json.encode(reply), headers=(("cache-control", "no-store"),))


def _model(context: ServerContext, name: str, state: str, model: ServedModel | None) -> StatusModel:
    shown = StatusModel(name=name, state=Phase(state))
    if model is not None:
        info = model.info
        shown.artifact = StatusArtifact(
            id=info.artifact_id,
            name=info.name,
            target=info.target_name,
            kind=info.kind.value,
            revision=info.source_revision,
        )
        shown.limits = _limits(model)
        shown.load = _load(context, model)
        shown.registry = None if model.origin is None else _registry(model.origin)
    return shown


def _registry(origin: RegistryOrigin) -> StatusRegistry:
    following = origin.next
    return StatusRegistry(
        reference=origin.reference,
        version=origin.version,
        event=origin.event,
        watched=origin.is_watched,
        error=origin.trouble,
        next=None
        if following is None
        else StatusNext(
            id=following.id,
            version=following.version,
            state=following.state,
            reason=following.reason,
        ),
    )


def _limits(model: ServedModel) -> StatusLimits:
    info, config = model.info, model.config
    return StatusLimits(
        max_input_tokens=info.max_input_tokens,
        max_batch_tokens=info.max_batch_tokens,
        fill_tokens=info.fill_tokens,
        max_queue_tokens=model.service.stats().max_queue_tokens,
        max_concurrent_requests=config.max_concurrent_requests,
        max_client_batch_size=config.max_client_batch_size,
    )


def _load(context: ServerContext, model: ServedModel) -> StatusLoad:
    stats = model.service.stats()
    recent = context.metrics.activity(model.name).recent()
    return StatusLoad(
        queue=StatusQueue(
            items=stats.num_queued_items,
            tokens=stats.num_pending_tokens,
            tokens_limit=stats.max_queue_tokens,
        ),
        requests=StatusRequests(
            in_flight=stats.num_requests,
            in_flight_limit=stats.max_requests,
            answers_per_s=_rounded(recent.answers_per_s),
            errors_per_s=_rounded(recent.refusals_per_s),
            items_per_s=_rounded(recent.items_per_s),
            refused=dict(context.metrics.rejections(model.name)),
        ),
        batches=_batches(stats, recent),
        tokens=StatusTokens(
            per_s=_rounded(recent.tokens_per_s),
            engine_per_s=None if stats.tokens_per_s is None else _rounded(stats.tokens_per_s),
        ),
        latency=StatusLatency(
            p50_ms=_milliseconds(recent.p50_s),
            p99_ms=_milliseconds(recent.p99_s),
            requests=recent.num_latencies,
        ),
    )


def _batches(stats: "ServiceStats", recent: Recent) -> StatusBatches:
    occupancy = recent.mean_occupancy
    return StatusBatches(
        per_s=_rounded(recent.batches_per_s),
        items=None if recent.mean_batch_items is None else _rounded(recent.mean_batch_items),
        occupancy=None if occupancy is None else round(occupancy, 6),
        busy=_rounded(recent.busy_fraction),
        last_items=stats.last_batch_items,
        last_tokens=stats.last_batch_tokens,
    )


def _rounded(value: float) -> float:
    return round(value, 3)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
