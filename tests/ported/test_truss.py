"""Cases of basetenlabs/truss, baseten-performance-client/python_bindings/tests, for our routes.

What the client itself checks is the client's affair: here are the requests that it sends, written
anew. Each test names the file that its inputs and expectations come from.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from edge_case import CLASSIFIER, OPENAI, RANKER, SHORT, WIDTH, WITH_KEY
from http_client import HttpClient
from ported_servers import vectors
from server_process import Reply, ServerProcess

pytestmark = pytest.mark.e2e

MSGPACK = "application/msgpack"
CLIENT_HEADERS = {**WITH_KEY, "accept": f"{MSGPACK}, application/json", "accept-encoding": "zstd"}
WRONG_KEY = {"authorization": "Bearer wrong_api_key"}


def decoded(reply: Reply) -> Any:  # noqa: ANN401  # whatever was sent
    """What the client sees: MessagePack, compressed when it is long."""
    assert reply.status == 200, reply.body[:300]
    assert reply.headers["content-type"] == MSGPACK
    body = reply.body
    if reply.headers.get("content-encoding") == "zstd":
        body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return msgspec.msgpack.decode(body)


def in_parts(
    server: ServerProcess, path: str, bodies: Sequence[object], max_concurrent: int
) -> list[Reply]:
    """Replies to all bodies in their order; a refused one is sent again when the server says."""
    with ThreadPoolExecutor(max_concurrent) as pool:
        return list(pool.map(lambda body: persistently(server, path, body), bodies))


def persistently(server: ServerProcess, path: str, body: object) -> Reply:
    deadline = time.monotonic() + 60
    while True:
        reply = server.post(path, msgspec.json.encode(body), CLIENT_HEADERS)
        if reply.status != 429 or time.monotonic() > deadline:
            return reply
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        # The client waits a fraction of a second and doubles it; so long as it must, not longer.
        time.sleep(0.02)


def test_embed(minilm_server: ServerProcess) -> None:
    """test_client_embed.py: two texts, one in each request."""
    bodies = [{"model": "my_model", "input": [text]} for text in ("Hello world", "Hello world 2")]
    answers = [decoded(reply) for reply in in_parts(minilm_server, OPENAI, bodies, 2)]
    rows = np.concatenate([vectors(answer) for answer in answers])
    assert rows.shape == (2, WIDTH)
    assert isinstance(answers[0]["data"][0]["embedding"][0], float)


def test_rerank(several_server: ServerProcess) -> None:
    """test_client_embed.py: a query with two texts."""
    body = {
        "model": RANKER,
        "query": "Who let the dogs out?",
        "texts": ["who, who?", "Paris france"],
    }
    (reply,) = in_parts(several_server, "/rerank", [body], 1)
    assert sorted(entry["index"] for entry in decoded(reply)) == [0, 1]


def test_classify(several_server: ServerProcess) -> None:
    """test_client_embed.py: four texts, two in each request, each in a list of its own."""
    texts = ["who, who?", "Paris france", "hi", "who"]
    bodies = [
        {"model": CLASSIFIER, "inputs": [[text] for text in texts[start : start + 2]]}
        for start in (0, 2)
    ]
    groups = [decoded(reply) for reply in in_parts(several_server, "/predict", bodies, 2)]
    assert [len(group) for group in groups] == [2, 2]
    assert {len(labels) for group in groups for labels in group} == {3}


@pytest.mark.parametrize("path", [OPENAI, "/rerank", "/predict", "/v1/classify"])
def test_wrong_key(several_server: ServerProcess, path: str) -> None:
    """test_client_embed.py: refused before the body is looked at; 401 here, there 403."""
    with HttpClient(several_server.base_url) as client:
        for _ in range(32):
            reply = client.post(path, {"inputs": [["who, who?"]]}, WRONG_KEY)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")


def test_high_volume(minilm_server: ServerProcess) -> None:
    """test_client_embed.py: 253 texts, three in a request, 37 requests at once."""
    texts = ["Hello world"] * 253
    bodies = [
        {"model": "my_model", "input": texts[start : start + 3]} for start in range(0, 253, 3)
    ]
    replies = in_parts(minilm_server, OPENAI, bodies, 37)
    rows = np.concatenate([vectors(decoded(reply)) for reply in replies])
    assert rows.shape == (253, WIDTH)
    assert np.abs(rows - rows[0]).max() <= 1e-5


def test_batch_post(minilm_server: ServerProcess) -> None:
    """test_client_embed.py: the same payload four times; identifiers of the caller come back."""
    body = {"model": "my_model", "input": ["Hello world"]}
    headers = {**CLIENT_HEADERS, "x-baseten-customer-request-id": "customer-7"}
    for _ in range(4):
        reply = minilm_server.post(OPENAI, msgspec.json.encode(body), headers)
        assert decoded(reply)["data"]
        assert reply.headers["x-baseten-customer-request-id"] == "customer-7"
        assert reply.headers["x-request-id"]


@pytest.mark.parametrize("count", [12, 200])
def test_retries_lose_nothing(several_server: ServerProcess, count: int) -> None:
    """integration_fastapi_server.py: every answer is its own text's, however often it was refused.

    There a server that plays busy; here one that is: its queue takes 100 tokens.
    """
    texts = [f"payload {number % 50}" for number in range(count)]
    bodies = [{"model": SHORT, "input": texts[start : start + 4]} for start in range(0, count, 4)]
    replies = in_parts(several_server, OPENAI, bodies, 16)
    rows = np.concatenate([vectors(decoded(reply)) for reply in replies])
    assert len(rows) == count
    for number in range(50, count):
        assert np.abs(rows[number] - rows[number % 50]).max() <= 1e-5
    assert np.abs(rows[1] - rows[0]).max() > 1e-3


def test_failed_requests_say_so_at_once(minilm_server: ServerProcess) -> None:
    """integration_fastapi_server.py: no input, and more than a request may hold."""
    for texts, status in (([], 400), (["a"] * 1025, 422)):
        begun_s = time.monotonic()
        reply = minilm_server.post(OPENAI, {"model": "any", "input": texts}, CLIENT_HEADERS)
        assert reply.status == status
        assert reply.headers["content-type"] == "application/json"
        assert time.monotonic() - begun_s < 5
