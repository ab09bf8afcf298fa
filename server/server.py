"""The life of a bound server: load, serve, drain. Knows nothing of what routes do."""

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.server.app import App, all_routes, metrics_routes
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import Configuration
from infinity_v3.server.context import make_context
from infinity_v3.server.decision_options import read_aliases
from infinity_v3.server.hosting import Hosting
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.metrics import Metrics
from infinity_v3.server.notify import notify_ready, notify_stopping
from infinity_v3.server.process import seconds_since_process_start
from infinity_v3.server.ready_report import ready_line
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.sockets import Listeners, shown_address
from infinity_v3.server.transport import Transport

if TYPE_CHECKING:
    from infinity_v3.server.startup import StartedModel

_log = logging.getLogger("infinity_v3")
_STOP_TIMEOUT_S = 3.0
_FORCED_ANSWER_S = 1.0
COLLECTOR_THRESHOLD = 20_000
"""Container objects more than before, at which the youngest of them are looked through."""


class Server:
    """One process's server. `run` is called once, on a fresh event loop."""

    def __init__(
        self, configuration: Configuration, listeners: Listeners, seconds: Mapping[str, float]
    ) -> None:
        self._configuration = configuration
        self._seconds = dict(seconds)
        self._address = shown_address(listeners.main)
        self._child = CompileChild(configuration.serve.huggingface_hub_cache)
        self._context = make_context(configuration.serve)
        self._listeners = listeners
        self._stop = asyncio.Event()
        self._num_signals = 0
        self._is_loading = True

    async def run(self) -> int:
        """Serve until a signal; returns the exit code."""
        transports = self._start_transports()
        self._install_signals()
        try:
            try:
                self._publish(await self._load())
            except InfinityError:
                if self._num_signals:
                    return 0  # what was loaded is not wanted any more
                raise
            await self._stop.wait()
            return await self._drain(transports)
        finally:
            for transport in transports:
                await transport.stop(_STOP_TIMEOUT_S)
            self._close()

    def _start_transports(self) -> list[Transport]:
        context, listeners = self._context, self._listeners
        listening = [(all_routes(Hosting.from_environment(os.environ)), listeners.main)]
        if listeners.metrics is not None:
            listening.append((metrics_routes(), listeners.metrics))
        transports = [
            Transport(
                App(context, routes),
                listener,
                with_http2=context.config.http2,
                max_requests=context.gate.max_bodies,
            )
            for routes, listener in listening
        ]
        for transport in transports:
            transport.start()
        return transports

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        """The first drains, the second ends at once; while loading there is nothing to drain."""
        self._num_signals += 1
        if self._num_signals > 1:
            os._exit(128 + number)
        _log.info("%s: shutting down", number.name)
        notify_stopping(os.environ, f"{number.name}: answering what was accepted")
        if self._is_loading:
            # In a thread, so that a second signal is heard while a compile cleans up.
            threading.Thread(target=self._end_loading, daemon=True).start()
        else:
            self._stop.set()

    def _end_loading(self) -> None:
        self._child.stop()
        os._exit(0)

    async def _load(self) -> "Sequence[StartedModel]":
        from infinity_v3.server.startup import ModelStarter

        loop, lifecycle = asyncio.get_running_loop(), self._context.lifecycle

        def report(model: str, phase: Phase) -> None:
            loop.call_soon_threadsafe(lifecycle.set_phase, model, phase)

        starter = ModelStarter(self._configuration, self._child, report)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="infinity-start") as pool:
            return await loop.run_in_executor(pool, starter.load_all)

    def _publish(self, started: "Sequence[StartedModel]") -> None:
        """Make the services and open the door."""
        context = self._context
        models = [_make_served(model, self._configuration, context.metrics) for model in started]
        context.models = ModelTable(models, read_aliases(context.config.decision_alias, models))
        context.lifecycle.replace_models(dict.fromkeys((m.name for m in models), Phase.READY))
        context.metrics.queue_size.follow(
            lambda: sum(model.service.stats().num_queued_items for model in models)
        )
        self._is_loading = False
        self._seconds["total"] = seconds_since_process_start()
        context.metrics.startup_measured("", self._seconds)
        for model in started:
            context.metrics.startup_measured(model.name, model.seconds)
            for note in model.loaded.notes:
                _log.warning("model %s: %s", model.name, note)
        text, fields = ready_line(self._address, self._seconds, started, models)
        _log.info("%s", text, extra={"fields": fields})
        _keep_collector_off_what_stays()
        notify_ready(os.environ, f"{len(models)} model(s) ready on http://{self._address}")

    async def _drain(self, transports: Sequence[Transport]) -> int:
        """Answer what was accepted, then wait until clients have read it; the exit code."""
        context = self._context
        timeout_s = context.config.drain_timeout_s
        context.lifecycle.begin_drain()
        begun_s = time.monotonic()
        is_drained = await context.lifecycle.wait_idle(timeout_s)
        if not is_drained:
            _log.error(
                "%d requests unfinished after %g s", context.lifecycle.num_admitted, timeout_s
            )
            context.lifecycle.end_admitted()
            await context.lifecycle.wait_idle(_FORCED_ANSWER_S)
        for transport in transports:
            remaining_s = timeout_s - (time.monotonic() - begun_s)
            if not await transport.stop(max(_STOP_TIMEOUT_S, remaining_s)):
                _log.error("replies unread after %g s: their connections are cut", timeout_s)
                is_drained = False
        _log.info("drained in %.3f s", time.monotonic() - begun_s)
        return 0 if is_drained else 1

    def _close(self) -> None:
        self._child.stop()
        self._context.close()
        for model in self._context.models.all():
            model.service.close()


def _keep_collector_off_what_stays() -> None:
    """Requests make few cycles: the garbage collector looks for them seldom, and only at their own.

    What was loaded stays until the end.
    """
    gc.freeze()
    gc.set_threshold(COLLECTOR_THRESHOLD)


def _make_served(
    started: "StartedModel", configuration: Configuration, metrics: Metrics
) -> ServedModel:
    from infinity_v3.runtime.service import InferenceService
    from infinity_v3.runtime.settings import ServiceSettings, default_tokenization_workers
    from infinity_v3.server.metrics import ModelObserver

    config, info = started.config, started.loaded.info
    workers = config.tokenization_workers or default_tokenization_workers()
    settings = ServiceSettings(
        max_concurrent_requests=config.max_concurrent_requests,
        max_queue_tokens=config.max_queue_tokens,
        max_batch_requests=config.max_batch_requests,
        priority_bonus_s=configuration.serve.priority_queue_bonus_ms / 1e3,
        tokenization_workers=workers,
        is_truncating=config.auto_truncate,
    )
    observer = ModelObserver(
        metrics,
        model=started.name,
        max_input_tokens=info.max_input_tokens,
        max_batch_tokens=info.max_batch_tokens,
    )
    service = InferenceService(started.loaded, settings, observer)
    service.start()
    served = ServedModel(
        name=started.name,
        service=service,
        info=info,
        config=config,
        num_tokenizer_threads=workers,
        created_s=int(time.time()),
    )
    metrics.follow_model(served)
    return served
