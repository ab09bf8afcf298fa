"""What the server as a whole is doing, and which requests it still owes an answer.

Event loop only. Knows nothing of HTTP or signals.
"""

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from infinity_v3.server.solitude import Solitude


class Phase(str, Enum):
    """State of a model, or of the server as a whole."""

    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Answered:
    """Waits for the requests that were admitted when it was made; later ones do not matter."""

    def __init__(self, admitted: Iterable["asyncio.Task[Any]"]) -> None:
        self._waiting_for = set(admitted)
        self._is_done = asyncio.Event()
        self._note()

    @property
    def is_done(self) -> bool:
        return self._is_done.is_set()

    def discard(self, task: "asyncio.Task[Any]") -> None:
        """That request has been answered."""
        self._waiting_for.discard(task)
        self._note()

    async def wait(self) -> None:
        """Return when the last of them has been answered."""
        await self._is_done.wait()

    def _note(self) -> None:
        if not self._waiting_for:
            self._is_done.set()


class Lifecycle:
    """Phases of the models and the set of admitted requests."""

    def __init__(self) -> None:
        self._phases: dict[str, Phase] = {}
        self._least_ready = _least_ready({})
        self._is_draining = False
        self._admitted: set[asyncio.Task[Any]] = set()
        self._answered: list[Answered] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_out_of_time = False
        self.solitude = Solitude(lambda: len(self._admitted))

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def num_admitted(self) -> int:
        return len(self._admitted)

    def set_phase(self, model: str, phase: Phase) -> None:
        """Record what a model is doing."""
        self.replace_models({**self._phases, model: phase})

    def replace_models(self, phases: Mapping[str, Phase]) -> None:
        """Forget the models known so far; used when their public names are known."""
        self._phases = dict(phases)
        self._least_ready = _least_ready(phases)

    def model_phases(self) -> Mapping[str, Phase]:
        """Phase by model name."""
        if self._is_draining:
            return dict.fromkeys(self._phases, Phase.DRAINING)
        return dict(self._phases)

    def overall(self) -> Phase:
        """The phase that decides about readiness: draining, else the least ready model's."""
        return Phase.DRAINING if self._is_draining else self._least_ready

    def admit(self, task: "asyncio.Task[Any]") -> None:
        """Owe the request of a task an answer until `finish`."""
        self._admitted.add(task)
        self._idle.clear()

    def finish(self, task: "asyncio.Task[Any]") -> None:
        """A task has answered, admitted or not."""
        if task in self._admitted:
            self._admitted.discard(task)
            self.solitude.ended()
            if self._answered:
                self._note_answered(task)
        if not self._admitted:
            self._idle.set()

    def _note_answered(self, task: "asyncio.Task[Any]") -> None:
        for answered in self._answered:
            answered.discard(task)
        self._answered = [answered for answered in self._answered if not answered.is_done]

    def answered(self) -> Answered:
        """What waits until every request admitted so far has been answered."""
        answered = Answered(self._admitted)
        if not answered.is_done:
            self._answered.append(answered)
        return answered

    def begin_drain(self) -> None:
        """Admit nothing more."""
        self._is_draining = True

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until every admitted request is answered; False when time is over."""
        if not self._admitted:
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    def end_admitted(self) -> None:
        """Cancel the requests that are still under way; each answers that time is over."""
        self.is_out_of_time = True
        for task in tuple(self._admitted):
            task.cancel()


def _least_ready(phases: Mapping[str, Phase]) -> Phase:
    order = (Phase.FAILED, Phase.LOADING, Phase.WARMING)
    present = set(phases.values())
    return next((phase for phase in order if phase in present or not present), Phase.READY)
