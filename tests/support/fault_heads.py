"""Heads of requests that are too many, too long, or odd. Knows nothing of bodies."""

import json
from collections.abc import Mapping

from fault_claims import Scenario
from fault_target import EMBED, JSON_TYPE, TEXTS, Bystander, Target, is_near
from raw_http import RawAnswer, post_bytes

_GET = b"GET /health HTTP/1.1\r\nhost: test\r\n"
# The transport refuses these itself, with an empty body, and closes the connection.
TRANSPORT_REFUSALS = {400, 414, 431}
_BODY = json.dumps({"inputs": [TEXTS[0]]}).encode()
_NUM_CONNECTIONS = 300


def header_floods(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Heads beyond what a server reads end in a refusal, and never in a served request."""
    rss, bystander = target.rss_mib, Bystander(target)
    with bystander.watching():
        answers = {name: target.once(head) for name, head in _floods(is_long=is_long).items()}
        many = [target.once(_many_headers(5000)) for _ in range(_NUM_CONNECTIONS)]
    found = {name: answer and answer.status for name, answer in answers.items()}
    unknown = {n: s for n, s in found.items() if s is not None and s not in TRANSPORT_REFUSALS}
    scenario.claim_equal(f"of {len(found)} floods, those served or worse", unknown, {})
    scenario.claim(
        f"{_NUM_CONNECTIONS} floods of 5,000 headers one after the other: 431 or closed",
        all(answer is None or answer.status == 431 for answer in many),
        f"{sum(answer is not None for answer in many)} answers",
    )
    scenario.claim_equal("wrong or missing answers to an ordinary client", bystander.problems, [])
    target.claim_unharmed(scenario, rss_before_mib=rss)


def odd_headers(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Odd but lawful headers do no harm; unlawful ones end the connection."""
    lawful = {name: target.once(_with_header(line)) for name, line in _LAWFUL.items()}
    wrong = {
        name: answer and (answer.status, answer.body[:100])
        for name, answer in lawful.items()
        if answer is None or answer.status != 200 or not is_near(answer.body, target.references[:1])
    }
    scenario.claim_equal(f"of {len(lawful)} lawful headers, those that do harm", wrong, {})
    unlawful = {name: target.once(_with_header(line)) for name, line in _UNLAWFUL.items()}
    served = {
        name: answer.status
        for name, answer in unlawful.items()
        if answer is not None and answer.status not in TRANSPORT_REFUSALS
    }
    scenario.claim_equal(f"of {len(unlawful)} unlawful headers, those served", served, {})
    _claim_no_smuggling(target, scenario)
    target.claim_unharmed(scenario)


def _claim_no_smuggling(target: Target, scenario: Scenario) -> None:
    """A body is never taken for a request, whatever two lengths a head gives."""
    hidden = b"GET /smuggled HTTP/1.1\r\nhost: test\r\n\r\n"
    both = post_bytes(EMBED, hidden, JSON_TYPE, ("transfer-encoding", "chunked"))
    two = _with_header(b"content-length: 3") + hidden
    answers: list[RawAnswer] = []
    for data in (both, two):
        with target.raw() as connection:
            connection.send_while_open(data)
            while (answer := connection.answer_or_end()) is not None:
                answers.append(answer)
                if answer.headers.get("connection") == "close":
                    break
    smuggled = [answer for answer in answers if answer.status in {200, 404}]
    scenario.claim_equal("requests served out of a body", len(smuggled), 0)


def _floods(*, is_long: bool) -> Mapping[str, bytes]:
    size = 10_000_000 if is_long else 2_000_000
    return {
        "200 headers": _many_headers(200),
        "100,000 headers": _many_headers(100_000),
        "one endless header": _GET + b"x: " + b"y" * size + b"\r\n\r\n",
        "an endless name": _GET + b"x" * size + b": y\r\n\r\n",
        "an endless target": b"GET /" + b"a" * size + b" HTTP/1.1\r\nhost: test\r\n\r\n",
        "an endless method": b"A" * size + b" / HTTP/1.1\r\nhost: test\r\n\r\n",
        "an endless version": b"GET / HTTP/" + b"1" * size + b"\r\n\r\n",
        "an endless key": _GET + b"authorization: Bearer " + b"k" * size + b"\r\n\r\n",
    }


def _many_headers(count: int) -> bytes:
    return _GET + b"".join(b"x-%d: y\r\n" % number for number in range(count)) + b"\r\n"


def _with_header(line: bytes) -> bytes:
    whole = post_bytes(EMBED, _BODY, JSON_TYPE)
    return whole.replace(b"host: test\r\n", b"host: test\r\n" + line + b"\r\n")


_LAWFUL: Mapping[str, bytes] = {
    "UTF-8 value": "x: é".encode(),
    "bytes above 127": b"x: \xff\xfe",
    "empty value": b"x:",
    "a value of 100,000 bytes": b"x: " + b"y" * 100_000,
    "90 headers": b"\r\n".join(b"x-%d: y" % number for number in range(90)),
    "bad request id": b"x-request-id: \xff\xfe",
    "long request id": b"x-request-id: " + b"a" * 5000,
    "bad deadline": b"request-timeout-ms: 1e9\r\nrequest-deadline-ms: never",
    "bad trace": b"traceparent: 00-zz-zz-zz",
    "bad accept": b"accept: ;q=,,/;q=nan",
    "bad accept-encoding": b"accept-encoding: zstd;q=x, ;;, \xff",
    "an upgrade": b"connection: upgrade\r\nupgrade: websocket",
    "two hosts": b"host: other",
    "cookies": b"cookie: " + b"a=b; " * 1000,
    "another expectation": b"expect: 200-maybe",
}
_UNLAWFUL: Mapping[str, bytes] = {
    "NUL": b"x: a\x00b",
    "control character": b"x: a\x01b",
    "folded line": b"x: a\r\n b",
    "no colon": b"xyz",
    "space before the colon": b"x : y",
    "no name": b": y",
    "negative length": b"content-length: -1",
    "length that is no number": b"content-length: 1e3",
    "two lengths": b"content-length: 1",
    "huge length": b"content-length: 99999999999999999999999",
}
