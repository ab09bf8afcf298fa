"""Campaigns: which inputs are made, what they are sent to, and the count of what came back.

Knows nothing of processes, command lines or reports.
"""

import faulthandler
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzz_app import KINDS, FuzzApp
from fuzz_checks import FuzzAnswer, FuzzFailure, check_answer
from fuzz_codecs import CODEC_CHECKS
from fuzz_decision_checks import DECISION_PATHS
from fuzz_documents import JUNK, documents_of, spoilt, wholes_of
from fuzz_requests import (
    FuzzRequest,
    Variants,
    as_json,
    as_msgpack,
    compress,
    plain_request,
    raw_requests,
    spoilt_bytes,
    variants,
)
from fuzz_routes import FuzzRoute, post_routes
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.server.errors import Shape

HANG_S = 600.0
"""Of one handful of examples; virtual machines may stand still for minutes."""
ROUND_EXAMPLES = 10
PROBE_EXAMPLES = 12
NUM_BROKEN = 10
STRANGER_ROUNDS = 4
"""Every so many rounds a route is asked of a model of any kind."""
UNKNOWN_PATHS = {"/nope": Shape.TEI, "/v1/nope": Shape.OPENAI, "/embed/": Shape.TEI}

Ask = Callable[[Sequence[FuzzRequest]], Sequence[FuzzAnswer]]
Progress = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What has been sent and what came back.

    Attributes:
        replies: by path and status.
        codecs: inputs by codec.
        seen: a hash of every distinct input.
        decisions: of those, the ones to decision routes.
    """

    replies: Counter[tuple[str, int]] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)
    decisions: set[int] = field(default_factory=set)

    @property
    def num_decisions(self) -> int:
        """Distinct inputs to decision routes."""
        return len(self.decisions)

    @property
    def num_inputs(self) -> int:
        """Inputs, each counted once however often it was sent."""
        return len(self.seen)

    @property
    def num_sent(self) -> int:
        """Inputs, repetitions included."""
        return sum(self.replies.values()) + sum(self.codecs.values())

    def add(self, other: "Tally") -> None:
        self.replies += other.replies
        self.codecs += other.codecs
        self.seen |= other.seen
        self.decisions |= other.decisions

    def count_reply(self, request: FuzzRequest, status: int) -> None:
        self.replies[(request.path, status)] += 1
        made = hash((request.path, request.headers, request.body))
        self.seen.add(made)
        if request.path in DECISION_PATHS:
            self.decisions.add(made)

    def count_bytes(self, codec: str, body: bytes) -> None:
        self.codecs[codec] += 1
        self.seen.add(hash((codec, body)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a campaign ends: after the round with enough inputs, or out of time."""

    num_inputs: int
    deadline_s: float = field(default_factory=lambda: time.monotonic() + 3600)

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self.deadline_s

    def is_left(self, tally: Tally) -> bool:
        return tally.num_inputs < self.num_inputs and self.has_time


def explore(
    strategy: st.SearchStrategy[Any], check: Callable[[Any], None], *, examples: int, number: int
) -> None:
    """Check that many examples; a failure is shrunk and raised. A hang ends the process."""

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def run(example: Any) -> None:  # noqa: ANN401  # whatever the strategy makes
        check(example)

    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        run()
    finally:
        faulthandler.cancel_dump_traceback_later()


def fuzz_codecs(budget: Budget, first_seed: int, *, num_examples: int = 200) -> Tally:
    """Feed every codec with raw bytes and with broken documents.

    Raises:
        AssertionError: a codec misbehaved; the message shows the bytes.
    """
    tally = Tally()
    number = first_seed
    while budget.is_left(tally):
        for name, check in CODEC_CHECKS.items():
            if not budget.has_time:
                break
            counted = _counted(tally, name, check)
            explore(_codec_bytes(name), counted, examples=num_examples, number=number)
        number += 1
    return tally


def _counted(
    tally: Tally, name: str, check: Callable[[bytes], None]
) -> Callable[[Sequence[bytes]], None]:
    def run(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            tally.count_bytes(name, body)
            check(body)

    return run


@st.composite
def _codec_bytes(draw: st.DrawFn, name: str) -> Sequence[bytes]:
    """Raw bytes, a document in the codec's format, and the same broken in several ways."""
    raw = draw(st.binary(max_size=300))
    document = draw(JUNK)
    body = (as_msgpack(document) if name == "msgpack" else None) or as_json(
        document, is_ascii=False
    )
    body = body or b"{}"
    if name in {"gzip", "zstd"}:
        body = compress(body * draw(st.sampled_from((1, 1, 3000))), name)
    elif name == "deflated":
        body = body * draw(st.sampled_from((1, 1, 3000)))
    choice = random.Random(draw(st.integers(0, 2**32)))
    return raw, body, *(spoilt_bytes(body, choice) for _ in range(NUM_BROKEN))


def fuzz_app(
    budget: Budget, first_seed: int, progress: Progress, *, num_examples: int = ROUND_EXAMPLES
) -> Tally:
    """Ask the application in process, one model of each kind in turn.

    Args:
        budget: when to stop; the last round may go beyond it.
        first_seed: the same seed makes the same inputs.
        progress: hears of every round.
        num_examples: documents of each sort for a route in one round.

    Raises:
        FuzzFailure: an answer that no request may get.
    """
    apps = {kind: FuzzApp(kind) for kind in KINDS}
    asks = {kind: app.ask for kind, app in apps.items()}
    try:
        return fuzz_asks(asks, budget, first_seed, progress, num_examples=num_examples)
    finally:
        for app in apps.values():
            app.close()


def fuzz_asks(
    asks: Mapping[Kind, Ask],
    budget: Budget,
    first_seed: int,
    progress: Progress,
    *,
    num_examples: int = ROUND_EXAMPLES,
) -> Tally:
    """Ask servers that already run; see `fuzz_app`."""
    tally = Tally()
    useful = _find_useful(asks, first_seed, tally)
    number = first_seed
    while budget.is_left(tally):
        for route in post_routes():
            for kind in _turn(useful.get(route.path, ()), tuple(asks), number):
                if not budget.has_time:
                    return tally
                own_seed = zlib.crc32(f"{route.path} {kind.value} {number}".encode())
                _explore_route(asks[kind], route, tally, own_seed, num_examples)
        _explore_unknown(next(iter(asks.values())), tally, number)
        number += 1
        progress(f"{tally.num_inputs} inputs")
    return tally


def _find_useful(
    asks: Mapping[Kind, Ask], first_seed: int, tally: Tally
) -> Mapping[str, Sequence[Kind]]:
    """By path, the kinds of models that answer some right document with 200."""
    useful: dict[str, list[Kind]] = {}
    for route in post_routes():
        for kind, ask in asks.items():
            before = tally.replies[(route.path, 200)]
            strategy = right_documents(route).map(partial(plain_request, route.path))
            check = checked(ask, tally, route)
            explore(strategy.map(as_others), check, examples=PROBE_EXAMPLES, number=first_seed)
            if tally.replies[(route.path, 200)] > before:
                useful.setdefault(route.path, []).append(kind)
    return useful


def _turn(useful: Sequence[Kind], every: Sequence[Kind], number: int) -> Iterable[Kind]:
    """The kinds of one round: two that do the work, or all in turn when none does."""
    wanted = useful or every
    kinds = [wanted[number % len(wanted)], wanted[(number + 1) % len(wanted)]]
    if number % STRANGER_ROUNDS == 0:
        kinds.append(every[number // STRANGER_ROUNDS % len(every)])
    return dict.fromkeys(kinds)


def _explore_route(
    ask: Ask, route: FuzzRoute, tally: Tally, number: int, num_examples: int
) -> None:
    documents = right_documents(route)
    check = checked(ask, tally, route)
    for made in (documents, spoilt(documents)):
        strategy = written_requests(route, made)
        explore(strategy, check, examples=num_examples, number=number)
    raw = st.lists(raw_requests(route.path), min_size=1, max_size=4)
    explore(raw.map(as_others), check, examples=1 + num_examples // 4, number=number)


def _explore_unknown(ask: Ask, tally: Tally, number: int) -> None:
    """Bodies on paths that do not exist."""
    routes = post_routes()
    route = routes[number % len(routes)]
    for path, shape in UNKNOWN_PATHS.items():
        unknown = FuzzRoute(path=path, body_types=route.body_types, shape=shape)
        strategy = written_requests(unknown, right_documents(route))
        explore(strategy, checked(ask, tally, unknown), examples=2, number=number)


def as_others(requests: Sequence[FuzzRequest]) -> Variants:
    return Variants(alike=(), others=tuple(requests))


@cache
def right_documents(route: FuzzRoute) -> st.SearchStrategy[Any]:
    if route.whole_type is not None:
        return wholes_of(route.whole_type, route.body_types)
    return st.one_of(*map(documents_of, route.body_types))


def written_requests(
    route: FuzzRoute, documents: st.SearchStrategy[Any]
) -> st.SearchStrategy[Variants]:
    """Each document written in every way."""
    return documents.flatmap(lambda document: variants(route.path, document))


def checked(ask: Ask, tally: Tally, route: FuzzRoute) -> Callable[[Variants], None]:
    def check(made: Variants) -> None:
        requests = [*made.alike, *made.others]
        answers = ask(requests)
        for request, answer in zip(requests, answers, strict=True):
            tally.count_reply(request, answer.status)
            check_answer(request, answer, route.shape)
        _check_alike(made.alike, answers, route.shape)

    return check


def _check_alike(
    requests: Sequence[FuzzRequest], answers: Sequence[FuzzAnswer], shape: Shape
) -> None:
    """One document gets one status, however it is written; decision routes take JSON only.

    A 408 says nothing of the document: on a busy machine a body comes too late.
    """
    statuses = [answer.status for answer in answers[: len(requests)]]
    compared = set(statuses) - ({408, 415} if shape is Shape.SYSTEMONE else {408})
    if len(compared) > 1:
        shown = "\n".join(
            f"{answer.status} {answer.body[:300]!r}\n{request.reproducer()}"
            for request, answer in zip(requests, answers[: len(requests)], strict=True)
        )
        raise FuzzFailure(f"one document, several statuses {statuses}\n{shown}")
