"""Replaces a model by another artifact while it is served.

The new one is loaded beside the old one and takes all requests from one moment on; the old one
answers what it has and is closed. Belongs to the event loop. Knows nothing of registries.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.server.context import ServerContext
from infinity_v3.server.pulled import PulledArtifact, remove_unused
from infinity_v3.server.registry_origin import NextArtifact, NextState, RegistryOrigin
from infinity_v3.server.served import ServedModel
from infinity_v3.server.serving import ServeModel

if TYPE_CHECKING:
    from infinity_v3.server.startup import StartedModel

_log = logging.getLogger("infinity_v3")

LoadBeside = Callable[["StartedModel", PulledArtifact], "StartedModel"]


class HotSwap:
    """Swaps one model, one artifact after the other.

    Args:
        context: holds the model under its public name.
        first: what is served now; it was pulled.
        load: blocking; raises InfinityError where the artifact cannot take over.
        serve: starts the service of what was loaded.
    """

    def __init__(
        self, context: ServerContext, first: "StartedModel", load: LoadBeside, serve: ServeModel
    ) -> None:
        self._context = context
        self._current = first
        self._load = load
        self._serve = serve
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="infinity-swap")
        self._retiring: ServedModel | None = None
        artifact = _artifact_of(first)
        self._pulled = {artifact.id: artifact}
        self._kept_ids: tuple[str, ...] = (artifact.id,)

    async def to(self, pulled: PulledArtifact, is_outdated: Callable[[], bool]) -> None:
        """Serve an artifact from now on, or say why the one before goes on.

        Returns when the one before is closed.

        Args:
            pulled: lies in the cache.
            is_outdated: another one has been asked for since.
        """
        if pulled.id == _artifact_of(self._current).id:
            self._show(replace(self._origin_of(pulled), next=None))
            return
        self._pulled[pulled.id] = pulled
        self._show(replace(self._origin, next=NextArtifact.of(pulled, NextState.LOADING)))
        _log.info("model %s: loading %s", self._name, pulled.shown)
        started = await self._try_load(pulled)
        if started is None:
            pass
        elif is_outdated():
            await self._discard(started)
        else:
            await self._switch(started, pulled)
        await asyncio.get_running_loop().run_in_executor(self._pool, self._remove_old)

    def refuse(self, sentence: str) -> None:
        """Note that what the channel points to must not even be pulled."""
        self._context.metrics.swapped(self._name, "failed")
        _log.error(
            "model %s: %s; the artifact before is served on",
            self._name,
            sentence,
            extra={"fields": {"event": "swap", "model": self._name, "result": "failed"}},
        )

    def show_trouble(self, sentence: str | None) -> None:
        """Have /info say why the channel cannot be followed; None = it can."""
        if self._origin.trouble != sentence:
            self._show(replace(self._origin, trouble=sentence))

    def close(self) -> None:
        """Close what has been replaced and was not closed yet."""
        self._pool.shutdown(wait=False)
        retiring, self._retiring = self._retiring, None
        if retiring is not None:
            retiring.service.close()

    @property
    def _name(self) -> str:
        return self._current.name

    @property
    def _origin(self) -> RegistryOrigin:
        origin = self._context.models.find(self._name).origin
        assert origin is not None, "what is swapped was pulled; this is a bug"
        return origin

    def _origin_of(self, pulled: PulledArtifact) -> RegistryOrigin:
        before = self._origin
        origin = RegistryOrigin.of(pulled, before.reference, is_watched=True)
        return replace(origin, trouble=before.trouble)

    def _show(self, origin: RegistryOrigin) -> None:
        context = self._context
        model = replace(context.models.find(self._name), origin=origin)
        context.models = context.models.with_model(model)
        context.metrics.show_origin(self._name, origin)

    async def _try_load(self, pulled: PulledArtifact) -> "StartedModel | None":
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._load, self._current, pulled)
        except InfinityError as error:
            reason = str(error)
        except Exception:
            # The last line of defence: what is served must not depend on what was to come.
            _log.exception("model %s: loading %s failed: this is a bug", self._name, pulled.shown)
            reason = "internal error, see the log"
        self._show(replace(self._origin, next=NextArtifact.of(pulled, NextState.FAILED, reason)))
        self.refuse(f"{pulled.shown} cannot be served: {reason}")
        return None

    async def _discard(self, started: "StartedModel") -> None:
        """Close what was loaded in vain."""
        self._context.metrics.swapped(self._name, "superseded")
        _log.info("model %s: %s is outdated already", self._name, _artifact_of(started).shown)
        close = started.loaded.engine.close
        await asyncio.get_running_loop().run_in_executor(self._pool, close)
        _end_use(started)

    async def _switch(self, started: "StartedModel", pulled: PulledArtifact) -> None:
        context, before = self._context, self._current
        served = replace(self._serve(started), origin=self._origin_of(pulled))
        old = context.models.find(self._name)
        # Whoever was admitted may have been routed to the old one; nobody who comes later is.
        answered = context.lifecycle.answered()
        context.models = context.models.with_model(served)
        context.metrics.follow_model(served)
        context.metrics.swapped(self._name, "switched")
        self._kept_ids = (pulled.id, _artifact_of(before).id)
        self._current, self._retiring = started, old
        self._log_switch(started, old)
        begun_s = time.monotonic()
        await answered.wait()
        drained_s = time.monotonic()
        if not await old.service.retire():
            _log.warning("model %s: the engine of the artifact before is still busy", self._name)
        self._retiring = None
        _end_use(before)
        context.give_memory_back()
        seconds = {"drain": drained_s - begun_s, "close": time.monotonic() - drained_s}
        _log.info("model %s: closed %s; %s", self._name, old.info.artifact_id, _times(seconds))

    def _log_switch(self, started: "StartedModel", old: ServedModel) -> None:
        info, selection = started.loaded.info, started.selection
        _log.info(
            "model %s: switched to %s target %s (%s); %s",
            self._name,
            _artifact_of(started).shown,
            info.target_name,
            ", ".join(selection.reasons),
            _times(started.seconds),
            extra={
                "fields": {
                    "event": "swap",
                    "model": self._name,
                    "result": "switched",
                    "artifact": info.artifact_id,
                    "replaced": old.info.artifact_id,
                    "target": info.target_name,
                    "seconds": {name: round(s, 3) for name, s in started.seconds.items()},
                }
            },
        )
        for note in started.loaded.notes:
            _log.warning("model %s: %s", self._name, note)

    def _remove_old(self) -> None:
        """Keep what is served and what was served before, so that a way back costs no download."""
        for identity in tuple(self._pulled):
            if identity not in self._kept_ids and remove_unused(self._pulled[identity]):
                _log.info("model %s: removed %s", self._name, self._pulled.pop(identity).path)


def _artifact_of(started: "StartedModel") -> PulledArtifact:
    assert started.use is not None, "what is swapped was pulled; this is a bug"
    return started.use.artifact


def _end_use(started: "StartedModel") -> None:
    if started.use is not None:
        started.use.end()


def _times(seconds: Mapping[str, float]) -> str:
    return " ".join(f"{phase}={value:.3f}s" for phase, value in seconds.items())
