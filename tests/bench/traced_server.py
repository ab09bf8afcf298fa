"""Runs the server unchanged but for stopwatches; writes what they showed at its end.

Usage: traced_server.py (engine | stages) FIGURES_FILE PROGRAM [ARGUMENT ...]

With one around each engine call it writes the seconds of every call, with one around each stage of
a request the median of each stage.
"""

import functools
import json
import runpy
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from infinity_v3.server.server import Server

P = ParamSpec("P")
R = TypeVar("R")

Stopwatches = tuple[tuple[object, str, str], ...]
"""Who owns a function, its name, and the stage that it is."""

_seconds: dict[str, list[float]] = defaultdict(list)


@contextmanager
def _stopwatch(stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    _seconds[stage].append(time.perf_counter() - started)


def timed(stage: str, function: Callable[P, R]) -> Callable[P, R]:
    """Time every call."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _stopwatch(stage):
            return function(*args, **kwargs)

    return call


def timed_async(stage: str, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Time every call until it has been awaited."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _stopwatch(stage):
            return await function(*args, **kwargs)

    return call


def time_engine(figures: Path) -> None:
    """Wrap engine calls; write the seconds of each when the server ends."""
    from infinity_v3.runtime.engines.aoti_cpu import AotiCpuEngine

    setattr(AotiCpuEngine, "run", timed("engine", AotiCpuEngine.run))  # noqa: B010  # not for checkers
    _write_at_the_end(lambda: figures.write_text(json.dumps(_seconds["engine"])))


def time_stages(figures: Path) -> None:
    """Wrap the stages of a request, where the server looks them up; write them when it ends."""
    from infinity_v3.runtime.dispatcher import Dispatcher
    from infinity_v3.runtime.engines.aoti_cpu import AotiCpuEngine
    from infinity_v3.runtime.service import InferenceService
    from infinity_v3.runtime.text_pool import TextPool
    from infinity_v3.runtime.worker import EngineWorker
    from infinity_v3.server import app, endpoint
    from infinity_v3.server.replies import Encoder

    calls: Stopwatches = (
        (Encoder, "document", "serialise"),
        (app.App, "_count", "count"),
        (EngineWorker, "_compute", "batch"),
        (AotiCpuEngine, "run", "engine"),
    )
    for owner, name, stage in calls:
        setattr(owner, name, timed(stage, getattr(owner, name)))
    awaited: Stopwatches = (
        (endpoint, "read_document", "read"),
        (endpoint.Endpoint, "call", "check"),
        (app, "send", "send"),
        (TextPool, "encode", "tokenise"),
        (Dispatcher, "run", "wait"),
        (InferenceService, "embed", "service"),
        (app.App, "_serve", "server"),
    )
    for owner, name, stage in awaited:
        setattr(owner, name, timed_async(stage, getattr(owner, name)))
    _write_at_the_end(lambda: write_medians(figures))


def _write_at_the_end(write: Callable[[], object]) -> None:
    from infinity_v3.server.server import Server

    server: object = Server
    setattr(server, "run", written_after(Server.run, write))  # noqa: B010  # not for checkers


def written_after(
    run: Callable[["Server"], Awaitable[int]], write: Callable[[], object]
) -> Callable[..., Any]:
    """Write the figures when the server has ended: the process leaves without cleaning up."""

    @functools.wraps(run)
    async def call(server: "Server") -> int:
        code = await run(server)
        write()
        return code

    return call


def write_medians(path: Path) -> None:
    """Write the median seconds of each stage; start-up and the first calls are left out."""
    kept = {stage: times[len(times) // 10 :] for stage, times in _seconds.items()}
    path.write_text(json.dumps({name: statistics.median(times) for name, times in kept.items()}))


def main() -> None:
    what, figures = sys.argv[1], Path(sys.argv[2])
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    {"engine": time_engine, "stages": time_stages}[what](figures)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
