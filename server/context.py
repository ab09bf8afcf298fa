"""What every route may use: configuration, models, state, metrics, logs. Built once per server."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from infinity_v3.server.body import EXTRA_BODIES, BodyGate, BodyReader
from infinity_v3.server.config import ServeConfig
from infinity_v3.server.lifecycle import Lifecycle, Phase
from infinity_v3.server.metrics import Metrics
from infinity_v3.server.process import give_memory_back
from infinity_v3.server.request_log import RequestLog
from infinity_v3.server.served import ModelTable


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """Event loop only.

    Attributes:
        models: empty until all models are ready.
        large_bodies: one thread: two would wait for one another's interpreter lock, and each keeps
            freed memory of its own.
    """

    config: ServeConfig
    gate: BodyGate
    reader: BodyReader
    lifecycle: Lifecycle
    metrics: Metrics
    request_log: RequestLog
    models: ModelTable = field(default_factory=ModelTable)
    large_bodies: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="infinity-bodies")
    )

    def give_memory_back(self) -> None:
        """Have the kernel get back what a large body took, now that it is gone."""
        with suppress(RuntimeError):  # the thread ends before the last request of a drain
            self.large_bodies.submit(give_memory_back)

    def close(self) -> None:
        """Close what belongs to no model."""
        self.large_bodies.shutdown(wait=False)
        self.request_log.close()

    def phase(self) -> Phase:
        """What the server as a whole is doing; reads cached states only."""
        phase = self.lifecycle.overall()
        is_up = phase in {Phase.READY, Phase.DRAINING}
        return Phase.FAILED if is_up and self.models.failed() else phase

    def is_answering(self) -> bool:
        """Whether some model takes requests; one whose engine is down does not stop the others."""
        return self.lifecycle.overall() is Phase.READY and self.models.has_one_up()

    def model_phases(self) -> dict[str, str]:
        """The same for each model."""
        phases = {name: phase.value for name, phase in self.lifecycle.model_phases().items()}
        return phases | dict.fromkeys(self.models.failed(), Phase.FAILED.value)


def make_context(config: ServeConfig) -> ServerContext:
    """The context of a server whose models are still to be loaded.

    Raises:
        RunFailedError: the request log cannot be opened.
    """
    lifecycle = Lifecycle()
    for model in config.models:
        lifecycle.set_phase(model.served_model_name or model.model_id, Phase.LOADING)
    slots = sum(model.max_concurrent_requests for model in config.models)
    context = ServerContext(
        config=config,
        gate=BodyGate(max_bodies=slots + EXTRA_BODIES),
        reader=BodyReader(limit_bytes=config.payload_limit, timeout_s=config.body_read_timeout_s),
        lifecycle=lifecycle,
        metrics=Metrics(),
        request_log=RequestLog(config.request_log),
    )
    context.metrics.ready.follow(lambda: float(context.phase() is Phase.READY))
    return context
