"""What /status.json says. Types only; `activity.Recent` explains the recent numbers."""

from msgspec import Struct

from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.registry_origin import NextState


class StatusArtifact(Struct, kw_only=True):
    """What is loaded."""

    id: str
    name: str
    target: str
    kind: str
    revision: str | None


class StatusNext(Struct, kw_only=True):
    """What a watched channel points to while something else is served."""

    id: str
    version: str | None
    state: NextState
    reason: str | None


class StatusRegistry(Struct, kw_only=True):
    """Where it was pulled from; `error` says why a watched channel cannot be followed just now."""

    reference: str
    version: str | None
    event: int | None
    watched: bool
    error: str | None
    next: StatusNext | None


class StatusLimits(Struct, kw_only=True):
    """Limits in force."""

    max_input_tokens: int
    max_batch_tokens: int
    fill_tokens: int
    max_queue_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int


class StatusQueue(Struct, kw_only=True):
    """Items waiting for a batch, and admitted tokens without a result."""

    items: int
    tokens: int
    tokens_limit: int


class StatusRequests(Struct, kw_only=True):
    """Requests; `refused` counts those refused before inference since the start, by reason."""

    in_flight: int
    in_flight_limit: int
    answers_per_s: float
    errors_per_s: float
    items_per_s: float
    refused: dict[str, int]


class StatusBatches(Struct, kw_only=True):
    """Engine batches: `occupancy` is tokens / max_batch_tokens, `busy` a share of the time."""

    per_s: float
    items: float | None
    occupancy: float | None
    busy: float
    last_items: int
    last_tokens: int


class StatusTokens(Struct, kw_only=True):
    """Tokens computed per second: of wall-clock time, and of engine time."""

    per_s: float
    engine_per_s: float | None


class StatusLatency(Struct, kw_only=True):
    """Of whole requests that were answered 200; null without one."""

    p50_ms: float | None
    p99_ms: float | None
    requests: int


class StatusLoad(Struct, kw_only=True):
    """How busy a model is."""

    queue: StatusQueue
    requests: StatusRequests
    batches: StatusBatches
    tokens: StatusTokens
    latency: StatusLatency


class StatusModel(Struct, kw_only=True):
    """One model; the last four are null until it is loaded, `registry` also when none gave it."""

    name: str
    state: Phase
    artifact: StatusArtifact | None = None
    limits: StatusLimits | None = None
    load: StatusLoad | None = None
    registry: StatusRegistry | None = None


class StatusReply(Struct, kw_only=True):
    """Reply of /status.json; rates are averages over `rate_window_s`."""

    state: Phase
    version: str
    time: float
    uptime_s: float
    resident_memory_bytes: int
    requests_admitted: int
    rate_window_s: int
    latency_window_s: int
    models: list[StatusModel]
