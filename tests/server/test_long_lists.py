"""Lists of millions of elements: refused by their number, without holding up everybody else."""

import contextlib
import gc
import time

import pytest

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.server.codec import decode
from infinity_v3.server.errors import HttpError
from loopback import ClientOf

JSON = "application/json"


@pytest.mark.parametrize(
    ("kind", "path", "field", "element"),
    [
        (Kind.EMBEDDING, "/embed", "inputs", 7),
        (Kind.EMBEDDING, "/v1/embeddings", "input", 7),
        (Kind.CLASSIFIER, "/predict", "inputs", "text"),
        (Kind.CLASSIFIER, "/v1/classify", "input", "text"),
    ],
)
def test_the_number_of_a_list_that_is_too_long_counts_before_its_elements(
    client_of: ClientOf, kind: Kind, path: str, field: str, element: object
) -> None:
    mixed = [[5], element]
    answer = client_of(kind).post(path, {field: mixed * 513})
    assert answer.status == 422
    assert b"batch size 1026 > maximum allowed batch size 1024" in answer.body
    short = client_of(kind).post(path, {field: mixed})
    assert short.status == 422
    assert f"`{field}".encode() in short.body


@pytest.mark.parametrize(("count", "status"), [(900_000, 422), (2_000_000, 413)])
def test_millions_of_lists_are_refused_soon(client_of: ClientOf, count: int, status: int) -> None:
    client = client_of(Kind.EMBEDDING)
    body = b'{"inputs": [' + b"[]," * count + b"[]]}"
    begun_s = time.process_time()
    assert client.post("/embed", body).status == status
    # Server and client in one process; each element by itself would take several times as long.
    assert time.process_time() - begun_s < 1.5


@pytest.mark.parametrize("body", [b'{"inputs": [[], []]}', b"{", b"\xff"])
def test_the_collector_goes_on_after_a_document(body: bytes) -> None:
    assert gc.isenabled()
    with contextlib.suppress(HttpError):
        decode(body, JSON)
    assert gc.isenabled()
