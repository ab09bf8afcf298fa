"""Bodies that are huge, deep, compressed to bombs, or no text. Knows nothing of slow clients."""

import gzip
import json
import struct
import time
import zlib
from collections.abc import Mapping

import zstandard

from fault_claims import Scenario
from fault_target import JSON_TYPE, Bystander, Target, error_problems
from raw_http import RawAnswer

MSGPACK_TYPE = ("content-type", "application/msgpack")
NUM_CHARACTERS = 100_000
_LONG_TEXTS: Mapping[str, str] = {
    "words": "river window " * (NUM_CHARACTERS // 13),
    "one word": "x" * NUM_CHARACTERS,
    "CJK": "深度学习" * (NUM_CHARACTERS // 4),
    "emoji": "🙂" * NUM_CHARACTERS,
    "combining marks": "e" + "\u0301" * (NUM_CHARACTERS - 1),
    "white space": " \t\n" * (NUM_CHARACTERS // 3),
    "special tokens": "[SEP]" * (NUM_CHARACTERS // 5),
    "NUL": "\x00" * NUM_CHARACTERS,
    "zero-width joiners": "👩\u200d" * (NUM_CHARACTERS // 2),
}


def long_texts(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Texts of 100,000 characters: cut by default, refused by length where they may not be cut."""
    rss, bystander = target.rss_mib, Bystander(target)
    slowest, wrong = 0.0, []
    with bystander.watching():
        for name, text in _LONG_TEXTS.items():
            begun_s = time.monotonic()
            whole = target.server.post("/embed", {"inputs": text})
            refused = target.server.post("/embed", {"inputs": text, "truncate": False})
            slowest = max(slowest, time.monotonic() - begun_s)
            if (whole.status, refused.status) != (200, 422):
                wrong.append(f"{name}: {whole.status} {refused.status} {refused.body[:100]!r}")
        left = target.server.post("/tokenize", {"inputs": _LONG_TEXTS["words"]})
    scenario.claim_equal("texts not answered with 200, and 422 under truncate: false", wrong, [])
    scenario.claim_equal("the same text to /tokenize, which never cuts", left.status, 422)
    scenario.claim_below("the slowest pair of requests", slowest, 15.0, "s")
    _claim_cut(target, scenario)
    _claim_bystander(scenario, bystander, is_long=is_long)
    target.claim_unharmed(scenario, rss_before_mib=rss)


def many_inputs_refused(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """10,000 inputs against the shipped limit."""
    reply = target.server.post("/embed", {"inputs": ["a"] * 10_000})
    scenario.claim_equal("status", reply.status, 422)
    expected = b"batch size 10000 > maximum allowed batch size 1024"
    scenario.claim("the message names both numbers", expected in reply.body, reply.body[:150])
    target.claim_unharmed(scenario)


def many_inputs_answered(target: Target, scenario: Scenario, *, count: int, is_long: bool) -> None:
    """As many inputs where the limit allows them: they stream through the queue in batches."""
    rss, batches = target.rss_mib, target.metric("te_batch_next_size_count")
    texts = [f"text {index % 97}" for index in range(count)]
    bystander = Bystander(target)
    with bystander.watching():
        reply = target.server.post("/embed", {"inputs": texts})
    rows = json.loads(reply.body)
    scenario.claim_equal("rows", (reply.status, len(rows)), (200, count))
    same = max(
        abs(a - b)
        for i in range(0, count - 97, 97 * 7)
        for a, b in zip(rows[i], rows[i + 97], strict=True)
    )
    scenario.claim_below("equal texts far apart get equal rows: largest difference", same, 1e-4, "")
    num_batches = target.metric("te_batch_next_size_count") - batches
    scenario.claim("they were computed in several batches", num_batches >= 2, f"{num_batches:g}")
    scenario.claim_below("growth of resident memory", target.rss_mib - rss, 400.0, "MiB")
    _claim_bystander(scenario, bystander, is_long=is_long)
    target.claim_unharmed(scenario)


def body_bombs(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Small bodies that want to become large, and lengths that lie."""
    bombs = _bombs(is_long=is_long)
    rss = target.rss_mib
    answers: dict[str, RawAnswer | None] = {}
    slowest = 0.0
    bystander = Bystander(target)
    with bystander.watching():
        for name, (body, headers, _) in bombs.items():
            begun_s = time.monotonic()
            answers[name] = target.post(body, *headers)
            slowest = max(slowest, time.monotonic() - begun_s)
    found = {name: answer.status if answer else None for name, answer in answers.items()}
    wrong = {name: found[name] for name in found if found[name] not in bombs[name][2]}
    scenario.claim_equal(f"of {len(found)} bombs, those not refused as they should be", wrong, {})
    scenario.claim_equal(
        "refusals without a reason", list(error_problems(answers, {400, 413, 422})), []
    )
    scenario.claim_below("the slowest answer", slowest, 15.0, "s")
    _claim_bystander(scenario, bystander, is_long=is_long)
    target.claim_unharmed(scenario, rss_before_mib=rss)


def invalid_text(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """What is no UTF-8, and halves of surrogate pairs, in every place."""
    answers: dict[str, RawAnswer | None] = {}
    for piece in (b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"):
        places = {
            "text": b'{"inputs": "a' + piece + b'"}',
            "key": b'{"inputs": "a", "' + piece + b'": 1}',
            "list": b'{"inputs": ["a", "' + piece + b'"]}',
            "outside": piece + b'{"inputs": "a"}',
        }
        answers |= {f"{piece!r} in {n}": target.post(body) for n, body in places.items()}
        packed = b"\x81\xa6inputs" + bytes((0xA0 + len(piece),)) + piece
        answers[f"{piece!r} in MessagePack"] = target.post(packed, MSGPACK_TYPE)
    problems = error_problems(answers, {400})
    scenario.claim_equal(f"of {len(answers)} bodies, those not refused with 400", problems, [])
    halves = {
        escape: target.post(b'{"inputs": ["ok", "' + escape.encode() + b'"]}')
        for escape in ("\\ud800", "a\\udfff", "\\ud83d\\u0041", "\\udc00\\ud800")
    }
    problems = error_problems(halves, {422})
    scenario.claim_equal("halves of surrogate pairs not refused with 422", problems, [])
    target.claim_unharmed(scenario)


def deep_documents(target: Target, scenario: Scenario, *, is_long: bool) -> None:
    """Nesting, from what is allowed to what would overflow a stack."""
    fine = target.post(_deep_extra(62))
    scenario.claim_equal("64 levels in a field nobody reads", fine and fine.status, 200)
    depths = (65, 200, 1000, 5000, 100_000, *((900_000,) if is_long else ()))
    answers: dict[str, RawAnswer | None] = {}
    for depth in depths:
        answers[f"{depth} in a field nobody reads"] = target.post(_deep_extra(depth))
        answers[f"{depth} objects"] = target.post(b'{"a":' * depth + b"1" + b"}" * depth)
        answers[f"{depth} never closed"] = target.post(b"[" * depth)
        packed = b"\x82\xa6inputs\xa1a\xa1x" + b"\x91" * depth + b"\x01"
        answers[f"{depth} in MessagePack"] = target.post(packed, MSGPACK_TYPE)
    problems = error_problems(answers, {400, 422})
    scenario.claim_equal(f"of {len(answers)} documents, those not refused", problems, [])
    target.claim_unharmed(scenario)


def _deep_extra(depth: int) -> bytes:
    return b'{"inputs": "a", "x": ' + b"[" * depth + b"1" + b"]" * depth + b"}"


Headers = tuple[tuple[str, str], ...]
Bomb = tuple[bytes, Headers, set[int]]
"""Body, headers, and the statuses that are right."""

_GZIP: Headers = (JSON_TYPE, ("content-encoding", "gzip"))
_ZSTD: Headers = (JSON_TYPE, ("content-encoding", "zstd"))


def _bombs(*, is_long: bool) -> Mapping[str, Bomb]:
    return {**_compressed(512 if is_long else 24), **_nested(), **_lies()}


def _compressed(num_mib: int) -> Mapping[str, Bomb]:
    """Bodies that inflate to far more than the limit, or ask for a window that nobody has."""
    zeros = b" " * (num_mib << 20)
    twice = zlib.compressobj(9, wbits=31)
    bomb = twice.compress(zeros) + twice.flush()
    return {
        "gzip bomb": (bomb, _GZIP, {413}),
        "gzip bomb in a gzip bomb": (gzip.compress(bomb), _GZIP, {400}),
        "zstd bomb": (zstandard.compress(zeros), _ZSTD, {413}),
        "zstd frames without end": (zstandard.compress(b" " * 1000) * 10_000, _ZSTD, {400}),
        "zstd window of 2 GiB": (_zstd_with_window(31), _ZSTD, {400}),
        "zstd window of 16 MiB": (_zstd_with_window(24), _ZSTD, {400}),
        "zstd content size of an exabyte": (_zstd_with_content_size(1 << 60), _ZSTD, {400, 413}),
    }


def _zstd_with_window(log: int) -> bytes:
    """A frame of one raw block whose header asks for a window of 2^log bytes."""
    block = struct.pack("<I", (2 << 3) | 1)[:3] + b"{}"
    return b"\x28\xb5\x2f\xfd\x00" + bytes(((log - 10) << 3,)) + block


def _zstd_with_content_size(size: int) -> bytes:
    """A frame of one segment that says how large it will be, and is not."""
    block = struct.pack("<I", (2 << 3) | 1)[:3] + b"{}"
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + block


def _nested() -> Mapping[str, Bomb]:
    quotes = json.dumps({"inputs": ["\\" * 1000] * 500}).encode()
    many_keys = b"{" + b",".join(b'"%d":[]' % i for i in range(200_000)) + b"}"
    return {
        "8 MB of empty lists": (
            b'{"inputs": [' + b"[]," * 2_700_000 + b"[]]}",
            (JSON_TYPE,),
            {413},
        ),
        "3 MB of empty lists": (
            b'{"inputs": [' + b"[]," * 990_000 + b"[]]}",
            (JSON_TYPE,),
            {422},
        ),
        "900 kB of brackets": (b"[" * 900_000, (JSON_TYPE,), {400}),
        "8 MB of brackets": (b"[" * 8_000_000, (JSON_TYPE,), {413}),
        "15 million empty lists": (
            b"\x81\xa6inputs\xdd" + (15_000_000).to_bytes(4, "big") + b"\x90" * 15_000_000,
            (MSGPACK_TYPE,),
            {413},
        ),
        "15 million objects that nobody asked for": (
            b"\x82\xa6inputs\xa2hi\xa1z\xdd"
            + (15_000_000).to_bytes(4, "big")
            + b"\x80" * 15_000_000,
            (MSGPACK_TYPE,),
            {413},
        ),
        "200,000 keys": (many_keys, (JSON_TYPE,), {422}),
        "a number of a million digits": (
            b'{"inputs": ' + b"9" * 1_000_000 + b"}",
            (JSON_TYPE,),
            {400, 422},
        ),
        "a million escapes, then an end too early": (quotes[:-1], (JSON_TYPE,), {400}),
    }


def _lies() -> Mapping[str, Bomb]:
    """MessagePack that announces more than it brings."""
    key = b"\x81\xa6inputs"
    heads = {
        "array of 4 billion": b"\xdd\xff\xff\xff\xff",
        "map of 4 billion": b"\xdf\xff\xff\xff\xff",
        "text of 4 GB": b"\xdb\xff\xff\xff\xff",
        "binary of 4 GB": b"\xc6\xff\xff\xff\xff",
        "ext of 4 GB": b"\xc9\xff\xff\xff\xff\x05",
    }
    nested = b"\xdd\xff\xff\xff\xff" * 30
    lies = {name: (key + head + b"\xa1a", (MSGPACK_TYPE,), {400}) for name, head in heads.items()}
    return {**lies, "arrays of 4 billion in each other": (key + nested, (MSGPACK_TYPE,), {400})}


def _claim_cut(target: Target, scenario: Scenario) -> None:
    """A text cut by the server has the vector of the part that is left."""
    long, short = "hello " * 20_000, "hello " * 254
    rows = [json.loads(target.server.post("/embed", {"inputs": t}).body)[0] for t in (long, short)]
    difference = max(abs(a - b) for a, b in zip(*rows, strict=True))
    scenario.claim_below("a cut text against its head", difference, 1e-5, "")


def _claim_bystander(scenario: Scenario, bystander: Bystander, *, is_long: bool) -> None:
    slowest = max(bystander.health_s, default=float("inf"))
    scenario.claim_equal("wrong or missing answers to an ordinary client", bystander.problems, [])
    # The short form shares its CPUs with other tests.
    limit_s = 1.0 if is_long else 5.0
    scenario.claim_below("the slowest /health meanwhile", slowest, limit_s, "s")
