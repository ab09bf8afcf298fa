"""An open-loop client: requests leave at their planned times, however the server fares.

A latency counts from the planned time, so that a late sender cannot hide a slow server, and the
lateness itself is recorded. Knows nothing of processes or of what the figures should be.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from load_connection import LoadConnection, LostError, RawAnswer, request_bytes
from load_plan import LoadMix, LoadRequest

ANSWER_TIMEOUT_S = 60.0
MAX_IN_FLIGHT = 4000
_MAX_IDLE_S = 5.0
UNANSWERED, LOST, SKIPPED = 0, -1, -2


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one planned request.

    Attributes:
        planned_s: seconds from the start of the run.
        late_s: how much later it left.
        latency_s: from the planned time to the last byte of the answer.
        status: of the answer; UNANSWERED in time, LOST with its connection, SKIPPED because the
            client itself had too many under way.
        is_right: a 200 with the right vectors, or a refusal that says when to come back.
    """

    number: int
    planned_s: float
    late_s: float
    latency_s: float
    status: int
    is_right: bool


@dataclass(slots=True, kw_only=True)
class LoadClient:
    """Sends a mix to a port; one event loop."""

    mix: LoadMix
    port: int
    name: str
    num_surplus_bytes: int = 0
    num_in_flight: int = 0
    _idle: list[LoadConnection] = field(default_factory=list)

    async def open_loop(
        self, times: Sequence[float], picked: Sequence[int], progress: Callable[[int], None]
    ) -> list[Sent]:
        """Send request `picked[i]` of the mix at `times[i]`, seconds from now."""
        begun_s = time.monotonic()
        tasks = []
        for number, (planned_s, index) in enumerate(zip(times, picked, strict=True)):
            delay_s = begun_s + planned_s - time.monotonic()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            elif number % 50 == 0:
                await asyncio.sleep(0)  # late, but answers must be read
            request = self.mix.requests[index]
            tasks.append(asyncio.create_task(self._send(number, begun_s, planned_s, request)))
            if number % 500 == 0:
                progress(number)
        sent = [await task for task in tasks]
        self.close()
        return sent

    async def closed_loop(self, *, num_clients: int, duration_s: float) -> tuple[int, int]:
        """Keep that many requests under way; gives (answers with 200, wrong or lost ones)."""
        deadline_s = time.monotonic() + duration_s
        counts = await asyncio.gather(
            *(self._repeat(first, num_clients, deadline_s) for first in range(num_clients))
        )
        self.close()
        return sum(right for right, _ in counts), sum(wrong for _, wrong in counts)

    def close(self) -> None:
        for connection in self._idle:
            self._forget(connection)
        self._idle.clear()

    async def _repeat(self, first: int, step: int, deadline_s: float) -> tuple[int, int]:
        right = wrong = 0
        number = first
        while time.monotonic() < deadline_s:
            request = self.mix.requests[number % len(self.mix.requests)]
            sent = await self._send(number, time.monotonic(), 0.0, request)
            right += sent.status == 200 and sent.is_right
            wrong += not sent.is_right
            number += step
        return right, wrong

    async def _send(
        self, number: int, begun_s: float, planned_s: float, request: LoadRequest
    ) -> Sent:
        late_s = time.monotonic() - begun_s - planned_s
        status, is_right = SKIPPED, False
        if self.num_in_flight < MAX_IN_FLIGHT:
            with self._counted():
                status, is_right = await self._ask(number, request)
        latency_s = time.monotonic() - begun_s - planned_s
        return Sent(number, planned_s, late_s, latency_s, status, is_right)

    async def _ask(self, number: int, request: LoadRequest) -> tuple[int, bool]:
        data = request_bytes(request.path, request.body, request.headers, f"{self.name}-{number}")
        try:
            connection = await self._connection()
            answer = await asyncio.wait_for(connection.ask(data), ANSWER_TIMEOUT_S)
        except asyncio.TimeoutError:
            return UNANSWERED, False
        except (LostError, OSError):
            return LOST, False
        self._put_back(connection)
        is_own = answer.headers.get("x-request-id") == f"{self.name}-{number}"
        return answer.status, is_own and self._is_right(request, answer)

    def _is_right(self, request: LoadRequest, answer: RawAnswer) -> bool:
        if answer.status == 200:
            return self.mix.is_right(request, answer.body)
        retry_after = answer.headers.get("retry-after", "")
        return answer.status == 429 and retry_after.isdigit() and 1 <= int(retry_after) <= 60

    async def _connection(self) -> LoadConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since_s < _MAX_IDLE_S:
                return connection
            self._forget(connection)
        return await LoadConnection.open(self.port)

    def _put_back(self, connection: LoadConnection) -> None:
        if connection.is_open:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)
        else:
            self._forget(connection)

    def _forget(self, connection: LoadConnection) -> None:
        self.num_surplus_bytes += connection.num_surplus_bytes
        connection.num_surplus_bytes = 0
        connection.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.num_in_flight += 1
        try:
            yield
        finally:
            self.num_in_flight -= 1
