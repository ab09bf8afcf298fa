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
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.server.app import App, all_routes, metrics_routes
from infinity_v3.server.channel_watch import ChannelWatch
from infinity_v3.server.children import make_children
from infinity_v3.server.config import Configuration
from infinity_v3.server.context import make_context
from infinity_v3.server.decision_options import read_aliases
from infinity_v3.server.hosting import Hosting
from infinity_v3.server.hot_swap import HotSwap
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.notify import notify_ready, notify_stopping
from infinity_v3.server.process import seconds_since_process_start
from infinity_v3.server.ready_report import ready_line
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.serving import make_served
from infinity_v3.server.sockets import Listeners, shown_address
from infinity_v3.server.tool import Tool
from infinity_v3.server.transport import Transport

if TYPE_CHECKING:
    from infinity_v3.server.startup import ModelStarter, StartedModel

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
        self._tool = Tool()
        self._children = make_children(configuration.serve, self._tool)
        self._watches: list[ChannelWatch] = []
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
                starter, started = await self._load()
                self._publish(started)
            except InfinityError:
                if self._num_signals:
                    return 0  # what was loaded is not wanted any more
                raise
            self._watch_channels(starter, started)
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
        self._tool.stop()
        os._exit(0)

    async def _load(self) -> "tuple[ModelStarter, Sequence[StartedModel]]":
        from infinity_v3.server.startup import ModelStarter

        loop, lifecycle = asyncio.get_running_loop(), self._context.lifecycle

        def report(model: str, phase: Phase) -> None:
            loop.call_soon_threadsafe(lifecycle.set_phase, model, phase)

        starter = ModelStarter(self._configuration, self._children, report)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="infinity-start") as pool:
            return starter, await loop.run_in_executor(pool, starter.load_all)

    def _publish(self, started: "Sequence[StartedModel]") -> None:
        """Make the services and open the door."""
        context = self._context
        models = [self._serve_model(model) for model in started]
        context.models = ModelTable(models, read_aliases(context.config.decision_alias, models))
        for served in models:
            context.metrics.follow_model(served)
        context.lifecycle.replace_models(dict.fromkeys((m.name for m in models), Phase.READY))
        context.metrics.queue_size.follow(
            lambda: sum(model.service.stats().num_queued_items for model in context.models.all())
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

    def _serve_model(self, started: "StartedModel") -> ServedModel:
        return make_served(started, self._configuration.serve, self._context.metrics)

    def _watch_channels(self, starter: "ModelStarter", started: "Sequence[StartedModel]") -> None:
        """Follow the channels of the models that were asked to be kept up to date."""
        registry = self._children.registry
        for model in started:
            if not model.config.watch_channel or model.use is None or registry is None:
                continue
            artifact = model.use.artifact
            swap = HotSwap(self._context, model, starter.load_beside, self._serve_model)
            reference = Reference(name=artifact.name, channel=artifact.channel)
            self._watches.append(ChannelWatch(registry, reference, swap))
            self._watches[-1].start()

    async def _drain(self, transports: Sequence[Transport]) -> int:
        """Answer what was accepted, then wait until clients have read it; the exit code."""
        context = self._context
        timeout_s = context.config.drain_timeout_s
        context.lifecycle.begin_drain()
        for watch in self._watches:
            watch.stop()
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
        self._tool.stop()
        for watch in self._watches:
            watch.close()
        self._context.close()
        for model in self._context.models.all():
            model.service.close()


def _keep_collector_off_what_stays() -> None:
    """Requests make few cycles: the garbage collector looks for them seldom, and only at their own.

    What was loaded stays until the end.
    """
    gc.freeze()
    gc.set_threshold(COLLECTOR_THRESHOLD)
