"""Runs the load client in a process of its own, on CPUs that the server does not use.

Knows nothing of what the figures should be.
"""

import asyncio
import multiprocessing
import os
import random
import resource
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from load_client import LoadClient, Sent
from load_plan import LoadMix, poisson_times

Progress = Callable[[str], None]
Work = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShare:
    """Which CPUs the server has and which the load generator; equal where there is only one."""

    server: frozenset[int]
    client: frozenset[int]

    @property
    def sentence(self) -> str:
        if self.server == self.client:
            return f"server and load generator share CPU {_names(self.server)}"
        return (
            f"server on CPU {_names(self.server)}, load generator and observer on CPU "
            f"{_names(self.client)}"
        )


def split_cpus() -> CpuShare:
    """The last CPU of this process for the generator, all others for the server."""
    *first, last = sorted(os.sched_getaffinity(0))
    return CpuShare(server=frozenset(first or [last]), client=frozenset((last,)))


@contextmanager
def on_cpus(cpus: frozenset[int]) -> Iterator[None]:
    """Processes started inside the block run on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_capacity(
    mix: LoadMix, port: int, *, num_clients: int, seconds: float, cpus: frozenset[int]
) -> float:
    """Right answers per second while that many clients ask without a pause.

    Raises:
        AssertionError: an answer was wrong or lost.
    """
    right, wrong = _in_process(_closed, (mix, port, num_clients, seconds), cpus, _ignore)
    assert wrong == 0, f"{wrong} wrong or lost answers while measuring"
    return float(right / seconds)


def run_open_loop(  # noqa: PLR0913  # a run's facts
    mix: LoadMix,
    port: int,
    *,
    rate_per_s: float,
    duration_s: float,
    seed: int,
    cpus: frozenset[int],
    progress: Progress,
) -> tuple[Sequence[Sent], int]:
    """Poisson arrivals at a rate; gives what became of each, and bytes that nobody asked for."""
    arguments = (mix, port, rate_per_s, duration_s, seed)
    sent, num_surplus = _in_process(_open, arguments, cpus, progress)
    return sent, num_surplus


def _in_process(
    work: Work,
    arguments: tuple[object, ...],
    cpus: frozenset[int],
    progress: Progress,
) -> Any:  # noqa: ANN401  # what the work gives
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_guarded, args=(work, arguments, cpus, there))
    process.start()
    there.close()
    try:
        while True:
            kind, value = here.recv()
            if kind == "progress":
                progress(value)
            elif kind == "failed":
                raise RuntimeError(f"the load generator failed: {value}")
            else:
                return value
    finally:
        process.join()


def _guarded(
    work: Work, arguments: tuple[object, ...], cpus: frozenset[int], pipe: "Connection[Any, Any]"
) -> None:
    os.sched_setaffinity(0, cpus)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        value = asyncio.run(work(*arguments, lambda text: pipe.send(("progress", text))))
    except BaseException as error:
        pipe.send(("failed", repr(error)))
        raise
    pipe.send(("done", value))


async def _closed(
    mix: LoadMix, port: int, num_clients: int, seconds: float, progress: Progress
) -> tuple[int, int]:
    client = LoadClient(mix=mix, port=port, name="c")
    return await client.closed_loop(num_clients=num_clients, duration_s=seconds)


async def _open(
    mix: LoadMix, port: int, rate_per_s: float, duration_s: float, seed: int, progress: Progress
) -> tuple[Sequence[Sent], int]:
    client = LoadClient(mix=mix, port=port, name=f"o{seed}")
    times = poisson_times(seed, rate_per_s=rate_per_s, duration_s=duration_s)
    choice = random.Random(seed + 1)
    picked = choice.choices(range(len(mix.requests)), k=len(times))

    def report(number: int) -> None:
        progress(f"{number}/{len(times)} sent, {client.num_in_flight} under way")

    sent = await client.open_loop(times, picked, report)
    return sent, client.num_surplus_bytes


def _ignore(text: str) -> None: ...


def _names(cpus: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))
