"""The campaign against the decision routes alone.

Knows nothing of processes, command lines or reports.
"""

import json
import random
import zlib
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from fuzz_campaigns import (
    Ask,
    Budget,
    Progress,
    Tally,
    as_others,
    checked,
    explore,
    right_documents,
    written_requests,
)
from fuzz_decision_checks import DECISION_PATHS
from fuzz_decisions import changed, crowded_bodies, strange_texts
from fuzz_documents import Document, spoilt
from fuzz_requests import (
    JSON,
    FuzzRequest,
    Variants,
    as_json,
    compress,
    odd_headers,
    raw_requests,
    spoilt_bytes,
)
from fuzz_routes import FuzzRoute, post_routes

OTHER_PATHS = ("/", "/invocations", "/vertex")
NUM_CHANGED, NUM_BROKEN = 40, 3
OTHERS_EVERY, MOST_BROKEN = 4, 20_000
"""Every so many rounds the paths that mean a decision route where the model is one; and bytes."""


def fuzz_decisions(
    ask: Ask, budget: Budget, first_seed: int, progress: Progress, *, num_examples: int = 10
) -> Tally:
    """Ask a decision model on its routes until the budget is spent; see `fuzz_app`.

    Raises:
        FuzzFailure: an answer that no request may get.
    """
    tally = Tally()
    number = first_seed
    while budget.is_left(tally):
        for route in _routes(number):
            if not budget.has_time:
                return tally
            own_seed = zlib.crc32(f"decisions {route.path} {number}".encode())
            _explore(ask, route, tally, own_seed, num_examples)
        number += 1
        progress(f"{tally.num_decisions} inputs to decision routes")
    return tally


@cache
def _all_routes() -> tuple[FuzzRoute, ...]:
    return tuple(r for r in post_routes() if r.path in {*DECISION_PATHS, *OTHER_PATHS})


def _routes(number: int) -> Sequence[FuzzRoute]:
    every = number % OTHERS_EVERY == 0
    return [route for route in _all_routes() if every or route.path in DECISION_PATHS]


def _explore(ask: Ask, route: FuzzRoute, tally: Tally, number: int, num_examples: int) -> None:
    check = checked(ask, tally, route)
    documents = right_documents(route)
    for strategy in (
        written_requests(route, documents),
        written_requests(route, spoilt(documents)),
        _written_texts(route.path),
    ):
        explore(strategy, check, examples=num_examples, number=number)
    few = 1 + num_examples // 4
    crowds = crowded_bodies().map(lambda body: _crowd(route.path, body))
    raw = st.lists(raw_requests(route.path), min_size=1, max_size=4).map(as_others)
    for strategy in (crowds, raw):
        explore(strategy, check, examples=few, number=number)
    for turn in range(few):
        strategy = _changed_documents(route, documents)
        explore(strategy, check, examples=few, number=number + turn)


def _crowd(path: str, body: Document) -> Variants:
    data = as_json(body, is_ascii=False)
    assert data is not None, "a crowd that JSON cannot hold; this is a bug"
    return Variants(alike=_written(path, data), others=())


@st.composite
def _changed_documents(
    draw: st.DrawFn, route: FuzzRoute, documents: st.SearchStrategy[Document]
) -> Variants:
    """A right document and many that differ from it in a value or two."""
    data = as_json(draw(documents), is_ascii=False)
    if data is None:
        return as_others(())
    document, choice = json.loads(data), random.Random(draw(st.integers(0, 2**32)))
    made = [data, *(_json(changed(document, choice)) for _ in range(NUM_CHANGED))]
    return as_others([_written(route.path, one)[choice.randrange(8) == 0] for one in made])


def _json(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


@st.composite
def _written_texts(draw: st.DrawFn, path: str) -> Variants:
    """Texts as they are and compressed, the same broken, and under odd headers."""
    texts = draw(st.lists(strange_texts(), min_size=1, max_size=4))
    choice = random.Random(draw(st.integers(0, 2**32)))
    plain = [_written(path, text) for text in texts]
    flat = [request for pair in plain for request in pair]
    broken = [
        FuzzRequest(path=path, body=spoilt_bytes(one.body, choice), headers=one.headers)
        for one in flat * NUM_BROKEN
        if len(one.body) < MOST_BROKEN
    ]
    first = flat[0]
    odd = FuzzRequest(path=path, body=first.body, headers=draw(odd_headers(first.headers)))
    return Variants(alike=plain[0], others=(*flat[2:], *broken, odd))


def _written(path: str, data: bytes) -> tuple[FuzzRequest, ...]:
    types = (("content-type", JSON),)
    coding = ("gzip", "zstd")[zlib.crc32(data) % 2]
    packed = (*types, ("content-encoding", coding))
    return (
        FuzzRequest(path=path, body=data, headers=types),
        FuzzRequest(path=path, body=compress(data, coding), headers=packed),
    )
