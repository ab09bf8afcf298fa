"""Signals to a busy server: drain, second signal, time over. Knows nothing of capacity."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fault_claims import Scenario
from fault_target import EMBED, JSON_TYPE, SLOW_IDS
from http_metrics import wait_for
from load_connection import LoadConnection, LostError, request_bytes
from load_plan import LoadMix, LoadRequest
from raw_http import RawHttp, post_bytes
from server_process import ServerProcess

_RATE_PER_S = 60.0
_AFTER_S = 1.0


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One request of the drain scenario; `status` is None when the connection was refused."""

    sent_s: float
    request: LoadRequest
    status: int | None = None
    is_right: bool = True
    is_lost: bool = False


def drains(
    artifact: Path, scenario: Scenario, mix: LoadMix, *, before_s: float, options: tuple[str, ...]
) -> None:
    """SIGTERM under load: whatever was sent before it is answered; exit 0."""
    with ServerProcess(artifact, *options) as server:
        asked, signal_s = asyncio.run(_ask_through(server, mix, before_s))
        scenario.claim_equal("exit code", server.process.wait(60), 0)
    early = [one for one in asked if one.sent_s < signal_s - 0.005]
    late = [one for one in asked if one.sent_s >= signal_s - 0.005]
    scenario.claim_equal("requests sent before the signal", _ends(early), {"200": len(early)})
    refused = {"503", "200", "refused"}
    scenario.claim(
        "requests sent after it: 200, 503 or refused", set(_ends(late)) <= refused, _ends(late)
    )
    scenario.claim_equal("lost replies", sum(one.is_lost for one in asked), 0)
    scenario.claim_equal("wrong answers", sum(not one.is_right for one in asked), 0)
    scenario.claim("the log says that it drained", "drained in" in server.log, "")


async def _ask_through(
    server: ServerProcess, mix: LoadMix, before_s: float
) -> tuple[Sequence[_Asked], float]:
    """Ask at a steady rate, each request on its own connection, until a while after the signal."""
    port = int(server.base_url.rpartition(":")[2])
    begun_s, signal_s = time.monotonic(), 0.0
    asked: list[_Asked] = []
    tasks = []
    while not signal_s or time.monotonic() < signal_s + _AFTER_S:
        one = _Asked(sent_s=time.monotonic(), request=mix.requests[len(asked) % len(mix.requests)])
        asked.append(one)
        tasks.append(asyncio.create_task(_ask(port, mix, one)))
        await asyncio.sleep(1 / _RATE_PER_S)
        if not signal_s and time.monotonic() > begun_s + before_s:
            signal_s = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    return asked, signal_s


async def _ask(port: int, mix: LoadMix, one: _Asked) -> None:
    try:
        connection = await LoadConnection.open(port)
    except OSError:
        return
    one.sent_s = time.monotonic()
    data = request_bytes(one.request.path, one.request.body, one.request.headers, "drain")
    try:
        answer = await asyncio.wait_for(connection.ask(data), 60)
    except LostError as error:
        # A connection that was still in the listener's backlog ends without having been read.
        one.is_lost = error.num_bytes > 0
        return
    finally:
        connection.close()
    one.status = answer.status
    if answer.status == 200:
        one.is_right = mix.is_right(one.request, answer.body)


def _ends(asked: Sequence[_Asked]) -> dict[str, int]:
    return dict(Counter("refused" if one.status is None else str(one.status) for one in asked))


def second_signal(artifact: Path, scenario: Scenario, options: tuple[str, ...]) -> None:
    """A second signal ends the process at once."""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with ServerProcess(artifact, *options) as server, _busy(server):
            server.process.send_signal(signal.SIGTERM)
            _wait_until_draining(server)
            begun_s = time.monotonic()
            found = server.stop(stop_signal=number)
            spent_s = time.monotonic() - begun_s
            scenario.claim_equal(f"exit code after SIGTERM and {number.name}", found, code)
            scenario.claim_below("... which takes", spent_s, 5.0, "s")


def drain_timeout(artifact: Path, scenario: Scenario, options: tuple[str, ...]) -> None:
    """When the drain time is over, the requests that are left are told so."""
    with ServerProcess(artifact, "--drain-timeout", "0.2", *options) as server:
        with _busy(server) as connection:
            server.process.send_signal(signal.SIGTERM)
            answer = connection.answer()
            scenario.claim_equal("status of the request that was left", answer.status, 503)
            scenario.claim_equal("its connection", answer.headers.get("connection"), "close")
            scenario.claim("its reason", b"drain time" in answer.body, answer.body[:120])
        scenario.claim_equal("exit code", server.process.wait(20), 1)


def _busy(server: ServerProcess) -> RawHttp:
    """A request that takes minutes, under way."""
    connection = RawHttp(int(server.base_url.rpartition(":")[2]), timeout_s=120.0)
    body = msgspec.json.encode({"inputs": [SLOW_IDS] * 1024})
    connection.send(post_bytes(EMBED, body, JSON_TYPE))
    wait_for(server, "infinity_queue_tokens{", 1)
    return connection


def _wait_until_draining(server: ServerProcess) -> None:
    deadline = time.monotonic() + 10
    while server.get("/ready").status == 200:
        assert time.monotonic() < deadline, "the signal was not heard"
        time.sleep(0.01)
