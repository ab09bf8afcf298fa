"""What the server measures, under the names of its contract. Label values never come from clients.

Everything here belongs to the event loop. Knows nothing of routes; `ModelObserver` is how the
runtime reports.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.server.activity import Activity
from infinity_v3.server.errors import HttpError
from infinity_v3.server.exchange import Outcome
from infinity_v3.server.metrics_text import Counter, Histogram, Registry
from infinity_v3.server.process import resident_bytes
from infinity_v3.server.registry_origin import RegistryOrigin

if TYPE_CHECKING:
    from infinity_v3.server.served import ServedModel

_SECONDS = tuple(1.5e-5 * 1.5**step for step in range(35))
_SIZES = tuple(2.0**step for step in range(13))
_TOKENS = tuple(2.0**step for step in range(21))
_OCCUPANCY = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_METHODS = {False: "single", True: "batch"}
_DEEDS = {False: "embed", True: "predict"}  # by Outcome.is_scoring
FAILURES = (
    "batch_size",
    "dropped",
    "inference",
    "missing_values",
    "model_type",
    "overloaded",
    "tokenization",
    "validation",
)
REJECTIONS = (
    "auth",
    "malformed",
    "payload",
    "media_type",
    "empty",
    "validation",
    "unsupported_task",
    "model_not_found",
    "requests_limit",
    "tokens_limit",
    "not_ready",
    "timeout",
)
SWAPS = ("switched", "failed", "superseded")
_UNROUTED = ""  # the model of a request whose model was not found yet


class Metrics:
    """All series that are not about one model; they exist from the start, at zero."""

    def __init__(self) -> None:
        self.registry = Registry()
        counter = self.registry.counter
        self._requests = {
            is_batch: counter("te_request_count", "Inference requests", method=method)
            for is_batch, method in _METHODS.items()
        }
        self._successes = {
            is_batch: counter("te_request_success", "Requests answered 200", method=method)
            for is_batch, method in _METHODS.items()
        }
        self._failures = {
            label: counter("te_request_failure", "Requests that failed", err=label)
            for label in FAILURES
        }
        self._items = {
            is_scoring: counter(f"te_{deed}_count", f"Items to {deed}")
            for is_scoring, deed in _DEEDS.items()
        }
        self._item_successes = {
            is_scoring: counter(f"te_{deed}_success", f"Items answered by {deed}")
            for is_scoring, deed in _DEEDS.items()
        }
        self._request_times = self._times("te_request", "per request")
        self._item_times = {
            is_scoring: self._times(f"te_{deed}", "per item") for is_scoring, deed in _DEEDS.items()
        }
        self.ready = self.registry.gauge("infinity_ready", "1 when /ready answers 200")
        self.queue_size = self.registry.gauge("te_queue_size", "Queued items")
        self.batch_sizes = self.registry.histogram("te_batch_next_size", "Items of a batch", _SIZES)
        self.batch_tokens = self.registry.histogram(
            "te_batch_next_tokens", "Tokens of a batch", _TOKENS
        )
        self.registry.gauge("process_resident_memory_bytes", "Resident memory").follow(
            resident_bytes
        )
        self._activities: dict[str, Activity] = {}
        self._artifacts: dict[str, dict[str, str]] = {}
        self._expect_rejections(_UNROUTED)

    def _times(self, prefix: str, unit: str) -> tuple[Histogram, Histogram, Histogram, Histogram]:
        def histogram(part: str) -> Histogram:
            name = "_".join(filter(None, (prefix, part, "duration")))
            return self.registry.histogram(name, f"Seconds {unit}", _SECONDS)

        return histogram(""), histogram("tokenization"), histogram("queue"), histogram("inference")

    def _rejected(self, model: str, reason: str) -> Counter:
        return self.registry.counter(
            "infinity_rejected_total",
            "Requests refused before inference",
            model=model,
            reason=reason,
        )

    def _expect_rejections(self, model: str) -> None:
        """Start at zero: the first refusal is an increase, and no traffic adds a series."""
        for reason in REJECTIONS:
            self._rejected(model, reason)

    def activity(self, model: str) -> Activity:
        """What that model, under its public name, did lately."""
        found = self._activities.get(model)
        if found is None:
            found = self._activities[model] = Activity()
        return found

    def rejections(self, model: str) -> Mapping[str, int]:
        """Requests refused so far by reason; reasons that never occurred are left out."""
        totals = {reason: int(self._rejected(model, reason).value) for reason in REJECTIONS}
        return {reason: total for reason, total in totals.items() if total}

    def request_accepted(self, outcome: Outcome) -> None:
        """Count an inference request that passed authentication and parsing."""
        outcome.is_counted = True
        self._requests[outcome.is_batch].add()
        self._items[outcome.is_scoring].add(outcome.num_items)

    def request_succeeded(self, outcome: Outcome) -> None:
        """Count a 200 of an inference route, with its times."""
        self._successes[outcome.is_batch].add()
        self._item_successes[outcome.is_scoring].add(outcome.num_items)
        parts = (outcome.total_s, outcome.tokenization_s, outcome.queue_s, outcome.inference_s)
        for per_request, per_item, seconds in zip(
            self._request_times, self._item_times[outcome.is_scoring], parts, strict=True
        ):
            per_request.observe(seconds)
            per_item.observe(seconds, outcome.num_items)
        self.activity(outcome.model).answered(outcome.total_s, outcome.num_items)

    def request_refused(self, outcome: Outcome, error: HttpError) -> None:
        """Count an error reply, of any route."""
        if outcome.is_inference and not outcome.is_counted and error.kind is ErrorKind.EMPTY:
            # An empty list has no items to accept, yet it was parsed.
            outcome.is_batch = True
            self.request_accepted(outcome)
        if error.rejection_label is not None:
            self._rejected(outcome.model, error.rejection_label).add()
        if outcome.is_counted and error.failure_label is not None:
            self._failures[error.failure_label].add()
        if outcome.model:
            self.activity(outcome.model).refused()

    def request_dropped(self, outcome: Outcome) -> None:
        """Count a request whose client left."""
        if outcome.is_counted:
            self._failures["dropped"].add()

    def follow_model(self, model: "ServedModel") -> None:
        """Publish what is loaded and how busy it is, in place of what had its name before."""
        gauge, service, name = self.registry.gauge, model.service, model.name
        self._expect_rejections(name)
        tokens = gauge("infinity_queue_tokens", "Admitted unfinished tokens", model=name)
        tokens.follow(lambda: service.stats().num_pending_tokens)
        limit = gauge("infinity_queue_tokens_limit", "Limit of admitted tokens", model=name)
        limit.set(service.stats().max_queue_tokens)
        in_flight = gauge("infinity_requests_in_flight", "Occupied request slots", model=name)
        in_flight.follow(lambda: service.stats().num_requests)
        self._show_artifact(name, model)
        for result in SWAPS:
            self._swaps(name, result)
        self.show_origin(name, model.origin)

    def _show_artifact(self, name: str, model: "ServedModel") -> None:
        if name in self._artifacts:
            self.registry.remove("infinity_artifact_info", **self._artifacts[name])
        self._artifacts[name] = {
            "model": name,
            "artifact_id": model.info.artifact_id,
            "target": model.info.target_name,
        }
        gauge = self.registry.gauge
        gauge("infinity_artifact_info", "What is loaded", **self._artifacts[name]).set(1)

    def show_origin(self, model: str, origin: RegistryOrigin | None) -> None:
        """Publish which move of its channel brought what is served, and whether it is behind."""
        gauge, event = self.registry.gauge, 0 if origin is None else origin.event
        gauge("infinity_channel_event", "Move of the channel that is served", model=model).set(
            event or 0
        )
        gauge("infinity_channel_behind", "1 while its channel points elsewhere", model=model).set(
            float(origin is not None and origin.is_behind)
        )

    def swapped(self, model: str, result: str) -> None:
        """Count the end of an attempt to swap an artifact; `result` is one of SWAPS."""
        self._swaps(model, result).add()

    def _swaps(self, model: str, result: str) -> Counter:
        return self.registry.counter(
            "infinity_channel_swaps_total",
            "Artifacts that a watched channel was moved to",
            model=model,
            result=result,
        )

    def startup_measured(self, model: str, seconds: Mapping[str, float]) -> None:
        """Publish start-up seconds by phase; `model` is "" for phases of the process."""
        for phase, value in seconds.items():
            self.registry.gauge(
                "infinity_startup_seconds", "Start-up time by phase", model=model, phase=phase
            ).set(round(value, 6))


class ModelObserver:
    """Receives what the runtime reports about one model. Event loop only."""

    def __init__(
        self, metrics: Metrics, *, model: str, max_input_tokens: int, max_batch_tokens: int
    ) -> None:
        registry = metrics.registry
        self._metrics = metrics
        self._activity = metrics.activity(model)
        self._max_batch_tokens = max_batch_tokens
        bounds = [bound for bound in _TOKENS if bound <= max_input_tokens]
        self._lengths = registry.histogram("te_request_input_length", "Tokens of an item", bounds)
        self._occupancy = registry.histogram(
            "infinity_batch_occupancy", "Batch tokens / max_batch_tokens", _OCCUPANCY, model=model
        )
        self._engine_s = registry.histogram(
            "infinity_engine_seconds", "Seconds of one engine call", _SECONDS, model=model
        )
        self._tokens = registry.counter("infinity_tokens_total", "Tokens computed", model=model)
        self._folded_tokens = registry.counter(
            "infinity_tokens_folded_total",
            "Tokens that shared the computation of an identical prefix in their batch",
            model=model,
        )

    def batch_formed(self, *, num_items: int, num_tokens: int) -> None:
        self._metrics.batch_sizes.observe(num_items)
        self._metrics.batch_tokens.observe(num_tokens)
        occupancy = num_tokens / self._max_batch_tokens
        self._occupancy.observe(occupancy)
        self._activity.batch_formed(num_items, occupancy)

    def batch_finished(self, *, engine_s: float, num_tokens: int, num_folded_tokens: int) -> None:
        self._engine_s.observe(engine_s)
        self._tokens.add(num_tokens)
        self._folded_tokens.add(num_folded_tokens)
        self._activity.batch_finished(num_tokens, engine_s)

    def item_finished(self, *, num_tokens: int) -> None:
        self._lengths.observe(num_tokens)
