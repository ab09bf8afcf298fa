"""What holds for every request: methods, keys, bodies, compression, limits. Over real sockets."""

import gzip
import http.client
import json
import socket
import threading
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import zstandard

from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.state import ServiceState
from loopback import Client, StartServer

GOOD = b'{"inputs":"a"}'


def raw(port: int, data: bytes, silence_s: float = 5.0) -> bytes:
    """Send bytes as they are and read until the server closes or falls silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=silence_s) as connection:
        connection.sendall(data)
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionResetError):
            pass
    return answer


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/embed", 405, "POST"),
        ("DELETE", "/health", 405, "GET, HEAD"),
        ("POST", "/info", 405, "GET, HEAD"),
        ("POST", "/nope", 404, None),
        ("GET", "/embed/", 404, None),
        ("POST", "/v1/scores", 404, None),
        ("GET", "/v1/models/", 404, None),
        ("GET", "/v1/nope", 404, None),
        ("DELETE", "/", 405, "GET, HEAD, POST"),
    ],
)
def test_paths_and_methods(
    client: Client, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = client.request(method, path)
    assert (answer.status, answer.headers.get("allow")) == (status, allow)
    is_openai = path.startswith("/v1/")
    assert isinstance(answer.json["error"], dict) is is_openai


def test_head_sends_headers_only(client: Client) -> None:
    for path in ("/health", "/info", "/v1/models", "/metrics", "/docs"):
        answer = client.request("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")


def test_keys(start_server: StartServer) -> None:
    with start_server(api_key="sec ret") as client:
        for path in ("/health", "/ping", "/", "/ready", "/metrics", "/docs"):
            assert client.get(path).status == 200
        missing = client.post("/embed", GOOD)
        wrong = client.post("/v1/embeddings", GOOD, authorization="Bearer nope")
        bare = client.post("/embed", GOOD, authorization="sec ret")
        right = client.post("/embed", GOOD, authorization="bEaReR sec ret")
        path_first = client.request("POST", "/nope")
    assert [answer.status for answer in (missing, wrong, bare, right)] == [401, 401, 401, 200]
    assert path_first.status == 404
    assert missing.headers["www-authenticate"] == "Bearer"
    assert wrong.json["error"]["code"] == "invalid_api_key"
    assert "Bearer" in bare.json["error"]
    assert "sec" not in bare.body.decode()


def test_cors(start_server: StartServer) -> None:
    headers = {"origin": "https://app.example", "access-control-request-headers": "authorization"}
    with start_server(cors_allow_origin=("https://app.example",)) as client:
        preflight = client.request("OPTIONS", "/embed", headers=headers)
        error = client.post("/embed", {}, origin="https://app.example")
        other = client.post("/embed", {}, origin="https://evil.example")
    assert (preflight.status, preflight.body) == (204, b"")
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    assert preflight.headers["access-control-max-age"] == "600"
    assert error.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-compute-time" in error.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers
    assert error.headers["vary"] == "Accept, Accept-Encoding, Origin"


def test_any_origin_by_default(client: Client) -> None:
    answer = client.get("/health", origin="https://app.example")
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (None, 415),
        ("text/plain", 415),
        ("application/json; charset=latin-1", 415),
        ("application/json; charset=UTF-8", 200),
        ("APPLICATION/JSON", 200),
    ],
)
def test_media_types(client: Client, content_type: str | None, status: int) -> None:
    headers = {"content-type": content_type} if content_type else {}
    assert client.request("POST", "/embed", GOOD, headers).status == status


@pytest.mark.parametrize("name", ["msgpack", "x-msgpack", "messagepack", "vnd.msgpack"])
def test_messagepack_bodies(client: Client, name: str) -> None:
    body = msgspec.msgpack.encode({"inputs": ["a", [1, 2]]})
    headers = {"content-type": f"application/{name}"}
    assert client.request("POST", "/embed", body, headers).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (msgspec.msgpack.encode({"inputs": b"a"}), 422),
        (msgspec.msgpack.encode({"inputs": "a", "x": b"a"}), 200),
        (msgspec.msgpack.encode({"inputs": "a", "x": msgspec.msgpack.Ext(5, b"")}), 400),
        (msgspec.msgpack.encode({"inputs": "a", "x": {1: 2}}), 400),
        (msgspec.msgpack.encode({"inputs": "a", 1: 2}), 400),
        (msgspec.msgpack.encode({"inputs": "a"}) + b"\xc0", 400),
        (b"\x81\xa6inputs\xa1\xff", 400),
        (b"\x81\x90\x01", 400),
        (b"\xc1", 400),
        (b"", 400),
        (b"\x91" * 100_000, 400),
        (msgspec.msgpack.encode([1]), 422),
    ],
)
def test_messagepack_rules(client: Client, body: bytes, status: int) -> None:
    answer = client.request("POST", "/embed", body, {"content-type": "application/msgpack"})
    assert answer.status == status, answer.body


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("gzip", gzip.compress(GOOD, mtime=0), 200),
        ("x-gzip", gzip.compress(GOOD, mtime=0), 200),
        ("zstd", _zstd(GOOD), 200),
        ("identity", GOOD, 200),
        ("br", GOOD, 415),
        ("gzip, zstd", GOOD, 415),
        ("gzip", GOOD, 400),
        ("zstd", b"broken" * 9, 400),
        ("gzip", gzip.compress(GOOD, mtime=0)[:-3], 400),
        ("zstd", _zstd(GOOD)[:-1], 400),
        ("gzip", gzip.compress(GOOD, mtime=0) + b"x", 400),
        ("zstd", _zstd(GOOD) + _zstd(GOOD), 400),
        ("gzip", gzip.compress(GOOD, mtime=0) * 2, 400),
        ("zstd", b"", 400),
    ],
)
def test_content_codings(client: Client, coding: str, body: bytes, status: int) -> None:
    answer = client.post("/embed", body, content_encoding=coding)
    assert answer.status == status, answer.body
    if status == 415:
        assert answer.headers["accept-encoding"] == "gzip, zstd"


def test_large_zstd_windows_are_refused(client: Client) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=25, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = writer.compress(b'{"inputs":"a"' + b" " * (9 << 20)) + writer.compress(b"}")
    body += writer.flush()
    assert client.post("/embed", body, content_encoding="zstd").status == 400


@pytest.mark.parametrize("coding", ["gzip", "zstd", None])
def test_inflated_bodies_are_limited(start_server: StartServer, coding: str | None) -> None:
    plain = b'{"inputs":"' + b" " * 20_000 + b'"}'
    bodies = {"gzip": gzip.compress(plain, mtime=0), "zstd": _zstd(plain), None: plain}
    body = bodies[coding]
    headers = {"content_encoding": coding} if coding else {}
    with start_server(payload_limit=10_000) as client:
        answer = client.post("/embed", body, **headers)
        assert client.post("/embed", GOOD).status == 200
    assert (answer.status, answer.json["error_type"]) == (413, "PayloadTooLarge")
    assert "10000" in answer.json["error"]
    assert "--payload-limit" in answer.json["error"]


def test_a_decompression_bomb_stops_at_the_limit(start_server: StartServer) -> None:
    bomb = _zstd(bytes(400 << 20))
    with start_server(payload_limit=1 << 20) as client:
        tracemalloc.start()
        answer = client.post("/embed", bomb, content_encoding="zstd")
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.status == 413
    assert peak_bytes < 20 << 20, f"{peak_bytes >> 20} MiB were unpacked"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_one_byte_over_the_limit(start_server: StartServer, is_chunked: bool) -> None:
    limit = 1 << 20
    body = b'{"inputs":"' + b"a" * (limit + 1 - 13) + b'"}'
    assert len(body) == limit + 1
    with start_server(payload_limit=limit) as client:
        if is_chunked:
            frame = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            answer = raw(
                client.port,
                head + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + frame,
            )
            assert answer.startswith(b"HTTP/1.1 413")
        else:
            assert client.post("/embed", body).status == 413
        assert client.post("/embed", body[:-3] + b'"}').status == 200


def test_chunked_body(client: Client) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    chunks = b"7\r\n" + GOOD[:7] + b"\r\n7\r\n" + GOOD[7:] + b"\r\n0\r\n\r\n"
    answer = raw(
        client.port, head + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + chunks
    )
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("framing", [b"content-length: 14\r\n", b"transfer-encoding: chunked\r\n"])
def test_slow_bodies_are_answered_408(start_server: StartServer, framing: bytes) -> None:
    with start_server(body_read_timeout_s=0.2) as client:
        head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
            connection.sendall(head + framing + b"\r\n")
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer.lower()
        assert client.context.gate.num_bodies == 0
        assert client.context.gate.num_bytes == 0


@pytest.mark.parametrize("coding", ["zstd", "gzip", "gzip;q=1, zstd;q=0", "*", "br", ""])
def test_replies_are_compressed(start_server: StartServer, coding: str) -> None:
    with start_server(response_compression_threshold=200) as client:
        answer = client.post("/embed", {"inputs": ["a"] * 50}, accept_encoding=coding)
        small = client.post("/tokenize", {"inputs": "a"}, accept_encoding=coding)
        error = client.post("/embed", {"inputs": ["a" * 300, 1]}, accept_encoding=coding)
    expected = {"zstd": "zstd", "*": "zstd", "br": None, "": None}.get(coding, "gzip")
    assert answer.headers.get("content-encoding") == expected
    body = answer.body
    if expected == "zstd":
        body = zstandard.ZstdDecompressor().decompress(body)
    elif expected == "gzip":
        body = zlib.decompress(body, wbits=31)
    assert len(json.loads(body)) == 50
    assert "content-encoding" not in small.headers
    assert "content-encoding" not in error.headers


def test_request_slots(start_server: StartServer) -> None:
    with start_server(model={"max_concurrent_requests": 1}) as client:
        release = client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", GOOD)
            client.wait_until(lambda: client.service.admission.num_requests == 1)
            second = client.post("/v1/embeddings", {"input": "a"})
            assert client.get("/health").status == 200
            assert client.get("/ready").status == 200
            release()
            assert first.result().status == 200
        assert client.post("/embed", GOOD).status == 200
    assert (second.status, second.json["type"]) == (429, "Overloaded")
    assert "Model is overloaded" in second.json["message"]
    assert "--max-concurrent-requests" in second.json["message"]
    assert 1 <= int(second.headers["retry-after"]) <= 60


def test_queue_tokens(start_server: StartServer) -> None:
    with start_server(model={"max_queue_tokens": 10}) as client:
        too_much = client.post("/embed", {"inputs": [[1] * 11]})
        release = client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", {"inputs": [1] * 8})
            client.wait_until(lambda: client.service.admission.num_tokens == 8)
            second = client.post("/embed", {"inputs": [1] * 3})
            release()
            assert first.result().status == 200
        metrics = client.get("/metrics").body.decode()
    assert too_much.status == 422
    assert "--max-queue-tokens" in too_much.json["error"]
    assert second.status == 429
    assert 'infinity_rejected_total{model="tiny",reason="tokens_limit"} 1' in metrics


def test_bodies_being_read_are_limited(start_server: StartServer) -> None:
    with start_server(model={"max_concurrent_requests": 1}) as client:
        limit = client.context.gate.max_bodies
        head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        slow = []
        for _ in range(limit):
            connection = socket.create_connection(("127.0.0.1", client.port), timeout=10)
            connection.sendall(head + b"content-length: 14\r\n\r\n" + GOOD[:3])
            slow.append(connection)
        client.wait_until(lambda: client.context.gate.num_bodies == limit)
        refused = client.post("/embed", GOOD)
        assert client.get("/health").status == 200
        for connection in slow:
            connection.close()
        client.wait_until(lambda: client.context.gate.num_bodies == 0)
        assert client.post("/embed", GOOD).status == 200
    assert refused.status == 429


def test_queued_work_of_a_client_that_left_is_dropped(
    start_server: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "requests.jsonl"
    with start_server(request_log=log) as client:
        release = client.hold()
        head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
            connection.sendall(head + b"content-length: 14\r\n\r\n" + GOOD)
            client.wait_until(lambda: client.service.admission.num_requests == 1)
        client.wait_until(lambda: client.service.num_cancelled == 1)
        assert client.service.admission.num_requests == 0
        release()
        assert client.post("/embed", GOOD).status == 200
        metrics = client.get("/metrics").body.decode()
    assert 'te_request_failure{err="dropped"} 1' in metrics
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(record["status"], record["error"]) for record in records] == [
        (None, "client_gone"),
        (200, None),
    ]


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (InferenceError(ErrorKind.BACKEND, "engine_error", "engine says no"), 424, "Backend"),
        (InferenceError(ErrorKind.BACKEND, "non_finite_output", "non-finite"), 424, "Backend"),
        (InferenceError(ErrorKind.REQUEST_TIMEOUT, "request_timeout", "late"), 408, None),
        (InferenceError(ErrorKind.TOKENIZER, "tokenizer_error", "bad"), 422, "Tokenizer"),
        (KeyError("secret text"), 500, "Internal"),
    ],
)
def test_failures_become_answers(
    start_server: StartServer, failure: Exception, status: int, kind: str | None
) -> None:
    with start_server() as client:
        client.service.failure = failure
        answer = client.post("/embed", GOOD, x_request_id="id-1")
        client.service.failure = None
        assert client.post("/embed", GOOD).status == 200
    assert answer.status == status
    assert answer.json["error_type"] == (kind or "RequestTimeout")
    assert "secret" not in answer.body.decode()
    if status == 500:
        assert "id-1" in answer.json["error"]


def test_states_before_ready(start_server: StartServer) -> None:
    with start_server(is_ready=False) as client:
        for path in ("/", "/health", "/ping"):
            answer = client.get(path)
            assert (answer.status, answer.json) == (
                503,
                {"error": "unhealthy", "error_type": "Unhealthy"},
            )
        ready = client.get("/ready")
        inference = client.post("/embed", GOOD)
        assert client.get("/metrics").status == 200
        assert client.get("/docs").status == 200
        assert client.get("/info").status == 503
    assert (ready.status, ready.json["status"]) == (503, "loading")
    assert ready.json["models"] == {"tiny": "loading"}
    assert inference.status == 503
    assert int(inference.headers["retry-after"]) >= 1


def test_states_when_ready(client: Client) -> None:
    assert (client.get("/health").status, client.get("/health").body) == (200, b"")
    assert client.get("/ready").json == {"status": "ready", "models": {"tiny": "ready"}}
    assert "infinity_ready 1\n" in client.get("/metrics").body.decode()


def test_states_when_the_engine_is_down(start_server: StartServer) -> None:
    with start_server() as client:
        client.service.state = ServiceState.FAILED
        assert client.get("/health").status == 503
        ready = client.get("/ready")
        assert client.post("/embed", GOOD).status == 503
    assert ready.json["models"] == {"tiny": "failed"}


def test_drain(start_server: StartServer) -> None:
    with start_server() as client:
        release = client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", GOOD)
            client.wait_until(lambda: client.context.lifecycle.num_admitted == 1)
            client.call(client.context.lifecycle.begin_drain)
            late = client.post("/embed", GOOD)
            assert client.get("/health").status == 200
            ready = client.get("/ready")
            assert client.context.lifecycle.num_admitted == 1
            release()
            answer = first.result()
        client.wait_until(lambda: client.context.lifecycle.num_admitted == 0)
    assert (late.status, late.headers["connection"]) == (503, "close")
    assert (ready.status, ready.json["status"]) == (503, "draining")
    assert (answer.status, answer.headers["connection"]) == (200, "close")


def test_requests_left_at_the_end_of_the_drain_are_answered(start_server: StartServer) -> None:
    with start_server() as client:
        client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", GOOD)
            client.wait_until(lambda: client.context.lifecycle.num_admitted == 1)
            client.call(client.context.lifecycle.begin_drain)
            client.call(client.context.lifecycle.end_admitted)
            assert first.result().status == 503


def test_metrics_count_once(start_server: StartServer) -> None:
    with start_server(("org/m",)) as client:
        client.post("/embed", {"inputs": "a"})
        client.post("/v1/embeddings", {"input": ["a", "b"], "model": "random string"})
        client.post("/embed", {"inputs": ["a", ""]})
        client.post("/embed", b"{")
        client.post("/tokenize", {"inputs": "a"})
        text = client.get("/metrics").body.decode()
    for line in (
        'te_request_count{method="single"} 1',
        'te_request_count{method="batch"} 2',
        'te_request_success{method="batch"} 1',
        'te_request_failure{err="validation"} 1',
        "te_embed_count 5",
        "te_embed_success 3",
        "te_request_duration_count 2",
        "te_embed_duration_count 3",
        "te_embed_queue_duration_count 3",
        'infinity_rejected_total{model="org/m",reason="empty"} 1',
        'infinity_rejected_total{model="",reason="malformed"} 1',
        'infinity_queue_tokens_limit{model="org/m"} 1000',
        'infinity_requests_in_flight{model="org/m"} 0',
    ):
        assert f"\n{line}\n" in text, line
    assert "random" not in text
    assert "process_resident_memory_bytes " in text


def test_request_log_holds_no_texts(start_server: StartServer, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with start_server(request_log=log) as client:
        client.post("/embed", {"inputs": ["private words", "b"]}, x_request_id="r1")
        client.post("/embed", {"inputs": ["private words", 1]}, x_request_id="r2")
        client.get("/health")
    text = log.read_text()
    assert "private" not in text
    first, second = map(json.loads, text.splitlines())
    assert (first["request_id"], first["status"], first["items"]) == ("r1", 200, 2)
    assert (first["model"], first["tokens"], first["path"]) == ("tiny", 7, "/embed")
    assert (second["request_id"], second["status"], second["error"]) == ("r2", 422, "invalid_value")


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /embed HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_malformed_http_never_is_a_server_error(client: Client, data: bytes) -> None:
    answer = raw(client.port, data, silence_s=0.3)
    assert not answer or 400 <= int(answer.split()[1]) < 500, answer[:100]
    assert client.get("/health").status == 200


def test_keep_alive_serves_many_requests(client: Client) -> None:
    request = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request += b"content-length: 14\r\n\r\n" + GOOD
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        for _ in range(20):
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_no_thread_is_left_over(start_server: StartServer) -> None:
    before = set(threading.enumerate())
    with start_server() as client:
        client.post("/embed", GOOD)
    deadline = time.monotonic() + 30
    while left := [t.name for t in set(threading.enumerate()) - before if "infinity" in t.name]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
def test_half_a_body_is_answered_in_json(start_server: StartServer, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with start_server() as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
            connection.sendall(head.encode() + b"content-length: 300\r\n\r\n" + GOOD[:5])
            connection.shutdown(socket.SHUT_WR)
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            answer = json.loads(reply.read())
        metrics = client.get("/metrics").body.decode()
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert reply.headers["x-request-id"]
    assert "broke off" in json.dumps(answer)
    assert 'infinity_rejected_total{model="",reason="malformed"} 1' in metrics


def test_a_body_announced_as_too_large_need_not_come(start_server: StartServer) -> None:
    with start_server(payload_limit=1000, body_read_timeout_s=60.0) as client:
        for sent in (b"", b"x" * 500):
            head = b"POST /embed HTTP/1.1\r\nHost: x\r\ncontent-type: application/json\r\n"
            answer = raw(client.port, head + b"content-length: 2000\r\n\r\n" + sent)
            assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("size", [14, 20_000], ids=["begun", "asked for"])
def test_a_refused_body_need_not_come(client: Client, size: int) -> None:
    head = f"POST /nope HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode()
    for sent in (b"", b"x" * (size - 1)):
        answer = raw(client.port, head + sent)
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.parametrize("size", [14, 20_000], ids=["begun", "asked for"])
def test_a_refused_body_leaves_the_connection_usable(client: Client, size: int) -> None:
    head = f"POST /nope HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode()
    good = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    good += b"connection: close\r\ncontent-length: 14\r\n\r\n" + GOOD
    answer = raw(client.port, head + b"x" * size + good)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 200 " in answer


def test_no_memory_for_one_request_is_no_bug(start_server: StartServer) -> None:
    with start_server() as client:
        client.service.failure = MemoryError()
        answer = client.post("/embed", {"inputs": "a"})
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        client.service.failure = None
        assert client.post("/embed", {"inputs": "a"}).status == 200
