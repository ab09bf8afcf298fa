"""Clients that take their time: heads and bodies that trickle in. Knows nothing of load."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from fault_claims import Scenario
from fault_target import EMBED, JSON_TYPE, Bystander, Target
from raw_http import RawHttp, post_bytes

NUM_SLOW = 60
_HEAD = b"POST /embed HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\nx-slow: "
_TRICKLE_S = 0.25
HEAD_TIMEOUT_S = 30.0


def slow_heads(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Heads that never end hold nothing but their sockets, and not for ever."""
    files = target.num_files
    with ExitStack() as stack:
        slow = [stack.enter_context(target.raw(timeout_s=60.0)) for _ in range(2 * NUM_SLOW)]
        for connection in slow:
            connection.send(_HEAD)
        bystander = Bystander(target)
        with bystander.watching():
            _trickle(slow, 8.0 if is_long else 2.0)
        _claim_undisturbed(scenario, bystander, len(slow))
        if is_long:
            time.sleep(HEAD_TIMEOUT_S)
            closed = sum(connection.is_closed_within(5.0) for connection in slow)
            scenario.claim_equal("heads not whole after 30 s are closed", closed, len(slow))
    _claim_files(scenario, target, files)
    target.claim_unharmed(scenario)


def slow_bodies(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Bodies that never end: 408 after the time for bodies, no slot held meanwhile."""
    files, in_flight = target.num_files, 0.0
    announced = post_bytes(EMBED, b"", JSON_TYPE, length=1000)
    with ExitStack() as stack:
        slow = [stack.enter_context(target.raw(timeout_s=60.0)) for _ in range(NUM_SLOW)]
        for connection in slow:
            connection.send(announced + b'{"inputs": "')
        begun_s = time.monotonic()
        bystander = Bystander(target)
        with bystander.watching():
            _trickle(slow, 1.0)
            in_flight = target.metric("infinity_requests_in_flight{")
            answers = [connection.answer_or_end() for connection in slow]
        spent_s = time.monotonic() - begun_s
        statuses = [answer.status if answer else None for answer in answers]
        scenario.claim_equal("answers", sorted(set(map(str, statuses))), ["408"])
        closing = [answer for answer in answers if answer and answer.headers.get("connection")]
        scenario.claim_equal("answers that close their connection", len(closing), len(slow))
        scenario.claim_below("time until the last 408, limit 2 s", spent_s, 10.0, "s")
        scenario.claim("slow bodies hold no request slot", in_flight <= 1, f"{in_flight:g} held")
        _claim_undisturbed(scenario, bystander, len(slow))
    if is_long:
        _more_than_may_be_read(target, scenario)
    _claim_files(scenario, target, files)
    target.claim_unharmed(scenario)


def _more_than_may_be_read(target: Target, scenario: Scenario) -> None:
    """Beyond slots + 64 bodies at once the server refuses at once, and recovers by itself."""
    cap = 512 + 64
    announced = post_bytes(EMBED, b"", JSON_TYPE, length=1000)
    with ExitStack() as stack:
        slow = [stack.enter_context(target.raw(timeout_s=60.0)) for _ in range(cap)]
        for connection in slow:
            connection.send(announced)
        time.sleep(0.7)
        reply = target.server.post(EMBED, {"inputs": "a"})
        scenario.claim_equal(f"a request beside {cap} unfinished bodies", reply.status, 429)
        scenario.claim("... with Retry-After", "retry-after" in reply.headers, "")
        scenario.claim_equal("... and /health", target.server.get("/health").status, 200)
        time.sleep(3.0)
        reply = target.server.post(EMBED, {"inputs": "a"})
        scenario.claim_equal("a request after their time is over", reply.status, 200)


def _trickle(slow: Sequence[RawHttp], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for connection in slow:
            connection.send_while_open(b"x")
        time.sleep(_TRICKLE_S)


def _claim_undisturbed(scenario: Scenario, bystander: Bystander, count: int) -> None:
    scenario.claim(
        f"an ordinary client is answered rightly beside {count} slow ones",
        not bystander.problems and len(bystander.latencies_s) >= 2,
        f"{len(bystander.latencies_s)} answers, slowest {bystander.slowest_s:.3f} s "
        f"{bystander.problems[:3]}",
    )


def _claim_files(scenario: Scenario, target: Target, before: int) -> None:
    deadline = time.monotonic() + 10
    while (after := target.num_files) > before + 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    scenario.claim("their descriptors are given back", after <= before + 2, f"{before}, {after}")
