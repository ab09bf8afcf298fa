"""Turns a loaded model into one that is served: its service, settings and figures.

Belongs to the event loop. Knows nothing of routes.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from infinity_v3.server.config import ServeConfig
from infinity_v3.server.metrics import Metrics, ModelObserver
from infinity_v3.server.registry_origin import RegistryOrigin
from infinity_v3.server.served import ServedModel

if TYPE_CHECKING:
    from infinity_v3.server.startup import StartedModel

ServeModel = Callable[["StartedModel"], ServedModel]


def make_served(started: "StartedModel", config: ServeConfig, metrics: Metrics) -> ServedModel:
    """Start the service of a loaded model; whoever publishes it closes the service."""
    from infinity_v3.runtime.service import InferenceService
    from infinity_v3.runtime.settings import ServiceSettings, default_tokenization_workers

    model, info = started.config, started.loaded.info
    workers = model.tokenization_workers or default_tokenization_workers()
    settings = ServiceSettings(
        max_concurrent_requests=model.max_concurrent_requests,
        max_queue_tokens=model.max_queue_tokens,
        max_batch_requests=model.max_batch_requests,
        priority_bonus_s=config.priority_queue_bonus_ms / 1e3,
        tokenization_workers=workers,
        is_truncating=model.auto_truncate,
    )
    observer = ModelObserver(
        metrics,
        model=started.name,
        max_input_tokens=info.max_input_tokens,
        max_batch_tokens=info.max_batch_tokens,
    )
    service = InferenceService(started.loaded, settings, observer)
    service.start()
    return ServedModel(
        name=started.name,
        service=service,
        info=info,
        config=model,
        num_tokenizer_threads=workers,
        created_s=int(time.time()),
        origin=_origin(started),
    )


def _origin(started: "StartedModel") -> RegistryOrigin | None:
    if started.use is None:
        return None
    config = started.config
    return RegistryOrigin.of(started.use.artifact, config.model_id, is_watched=config.watch_channel)
