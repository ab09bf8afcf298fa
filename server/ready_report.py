"""The one log line that says what is served, on which target, and how long the start took."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from infinity_v3.server.served import ServedModel

if TYPE_CHECKING:
    from infinity_v3.server.startup import StartedModel


def ready_line(
    address: str,
    seconds: Mapping[str, float],
    started: "Sequence[StartedModel]",
    served: Sequence[ServedModel],
) -> tuple[str, dict[str, object]]:
    """The sentence, and the same facts as fields for JSON logs."""
    models = [_facts(one, other) for one, other in zip(started, served, strict=True)]
    phases = {phase: round(value, 3) for phase, value in seconds.items()}
    parts = [f"ready on http://{address}", *map(_sentence, models), _times(phases)]
    return "; ".join(parts), {
        "event": "ready",
        "address": address,
        "models": models,
        "seconds": phases,
    }


def _facts(started: "StartedModel", served: ServedModel) -> dict[str, object]:
    info = served.info
    return {
        "model": served.name,
        "artifact": info.artifact_id,
        "revision": info.source_revision,
        "target": info.target_name,
        "why": list(started.selection.reasons),
        "limits": {
            "max_input_tokens": info.max_input_tokens,
            "max_batch_tokens": info.max_batch_tokens,
            "fill_tokens": info.fill_tokens,
            "max_queue_tokens": served.service.stats().max_queue_tokens,
            "max_concurrent_requests": served.config.max_concurrent_requests,
        },
        "notes": list(started.loaded.notes),
        "seconds": {phase: round(value, 3) for phase, value in started.seconds.items()},
    }


def _sentence(facts: Mapping[str, object]) -> str:
    limits, seconds, why = facts["limits"], facts["seconds"], facts["why"]
    assert isinstance(limits, dict), "limits are a table; this is a bug"
    assert isinstance(seconds, dict), "seconds are a table; this is a bug"
    assert isinstance(why, list), "reasons are a list; this is a bug"
    revision = f" of commit {facts['revision']}" if facts["revision"] else ""
    shown = " ".join(f"{name}={value}" for name, value in limits.items())
    return (
        f"model {facts['model']}: artifact {facts['artifact']}{revision} target {facts['target']} "
        f"({', '.join(why)}) {shown} {_times(seconds)}"
    )


def _times(seconds: Mapping[str, float]) -> str:
    return " ".join(f"{phase}={value:.3f}s" for phase, value in seconds.items())
