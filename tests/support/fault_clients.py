"""Clients that leave, that pipeline, that close one half. Knows nothing of broken bodies."""

import json

import msgspec

from fault_claims import Scenario
from fault_target import EMBED, JSON_TYPE, SLOW_IDS, TEXTS, Target, is_near
from http_metrics import wait_for, wait_until_idle
from raw_http import RawHttp, post_bytes

NUM_LEAVING = 20
NUM_PIPELINED = 20
_DROPPED = 'te_request_failure{err="dropped"'
_TOKENS = "infinity_tokens_total{"
_ITEMS_LEAVING = 4


def disconnects(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Clients leave while their work is queued: it is dropped, not computed."""
    num_items = 256 if is_long else 40
    wait_until_idle(target.server)
    dropped, tokens = target.metric(_DROPPED), target.metric(_TOKENS)
    with target.raw(timeout_s=120.0) as first:
        first.send(_embed(num_items))
        wait_for(target.server, "infinity_queue_tokens{", 1)
        leaving = [target.raw() for _ in range(NUM_LEAVING)]
        for client in leaving:
            client.send(_embed(_ITEMS_LEAVING))
        wait_for(target.server, "infinity_requests_in_flight{", NUM_LEAVING + 1)
        for number, client in enumerate(leaving):
            _leave(client, number)
        wait_for(target.server, _DROPPED, dropped + NUM_LEAVING)
        answer = first.answer()
    wait_until_idle(target.server)
    rows = len(json.loads(answer.body)) if answer.status == 200 else 0
    scenario.claim_equal("the client that stayed gets its rows", rows, num_items)
    found = target.metric(_DROPPED) - dropped
    scenario.claim_equal('growth of te_request_failure{err="dropped"}', found, NUM_LEAVING)
    computed = target.metric(_TOKENS) - tokens
    asked = NUM_LEAVING * _ITEMS_LEAVING * len(SLOW_IDS)
    own = num_items * len(SLOW_IDS)
    scenario.claim(
        f"of {asked:,} tokens of those that left, few were computed beside the {own:,} of the one "
        "that stayed (a batch under way is not interrupted)",
        own <= computed < own + asked / 2,
        f"{computed - own:,.0f} computed",
    )
    target.claim_unharmed(scenario)


def pipelining(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Requests sent without waiting are answered in their order, on one connection."""
    bodies = [
        json.dumps({"inputs": [TEXTS[i % len(TEXTS)]]}).encode() for i in range(NUM_PIPELINED)
    ]
    with target.raw(timeout_s=60.0) as connection:
        connection.send(b"".join(post_bytes(EMBED, body, JSON_TYPE) for body in bodies))
        answers = [connection.answer() for _ in bodies]
        scenario.claim_equal("bytes after the last answer", len(connection.unread), 0)
    right = [
        answer.status == 200 and is_near(answer.body, target.references[[i % len(TEXTS)]])
        for i, answer in enumerate(answers)
    ]
    scenario.claim_equal("right answers in the right order", sum(right), NUM_PIPELINED)
    _half_closed(target, scenario)
    target.claim_unharmed(scenario)


def _half_closed(target: Target, scenario: Scenario) -> None:
    """A client that closes its sending half counts as one that left."""
    body = json.dumps({"inputs": [TEXTS[0]]}).encode()
    answers = []
    for _ in range(10):
        with target.raw() as connection:
            connection.send(post_bytes(EMBED, body, JSON_TYPE))
            connection.half_close()
            answers.append(connection.answer_or_end())
    right = [a is None or is_near(a.body, target.references[:1]) for a in answers]
    ended = sum(answer is None for answer in answers)
    scenario.claim(
        "a half-closed connection is answered rightly or ended, never left open",
        all(right),
        f"{ended} of {len(answers)} ended without an answer",
    )


def _embed(num_items: int) -> bytes:
    body = msgspec.json.encode({"inputs": [SLOW_IDS] * num_items})
    return post_bytes(EMBED, body, JSON_TYPE)


def _leave(client: RawHttp, number: int) -> None:
    """Half of them say goodbye, the others are cut off."""
    if number % 2:
        client.reset()
    else:
        client.close()
