"""Logs: one terminal record per accepted request, and never what a client wrote."""

import http.client
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.server.logs import JsonFormatter, PlainFormatter, set_up_logging
from infinity_v3.server.openapi import openapi_document
from infinity_v3.server.request_log import RequestLog
from infinity_v3.server.trace_context import parse_traceparent
from loopback import Client, StartServer

MARK = "xyzzy-planted"
KEY = f"{MARK}-key"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
Record = dict[str, Any]


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as JSON lines, at level debug."""
    logger = logging.getLogger("infinity_v3")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def planted_bodies() -> list[object]:
    """Bodies that hold the mark wherever a client can write something."""
    texts = [f"{MARK} a", f"{MARK} b"]
    common = {"model": MARK, "user": MARK, MARK: MARK}
    fields: dict[str, object] = {
        "inputs": texts,
        "input": texts,
        "query": MARK,
        "texts": texts,
        "rid": MARK,
        "ignore_labels": [MARK],
    }
    source = {"source_sentence": MARK, "sentences": texts}
    return [
        {**common, **fields},
        {**common, **fields, "inputs": MARK, "input": MARK, "documents": [{"text": MARK}]},
        {**common, **fields, "inputs": source, "parameters": {"prompt_name": MARK}},
        {**common, **fields, "prompt_name": MARK},
        {**common, **fields, "truncation_direction": MARK, "service_tier": MARK},
        {**common, "inputs": [[MARK, MARK, MARK]], "input": [MARK, ""], "texts": [MARK, ""]},
        {**common, "inputs": [{"role": MARK, "content": MARK}], "messages": [{MARK: MARK}]},
        {"ids": [MARK], "instances": [fields, {"inputs": MARK}]},
        f'{{"inputs": "{MARK}'.encode(),
        f'{{"inputs": "{MARK} \\ud800", "input": "{MARK} \\ud800"}}'.encode(),
    ]


def posted_paths() -> list[str]:
    paths: dict[str, dict[str, object]] = json.loads(openapi_document())["paths"]
    return [path for path, methods in paths.items() if "post" in methods]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.DECISION])
def test_nothing_that_a_client_wrote_is_logged(
    start_server: StartServer, log: io.StringIO, tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "requests.jsonl"
    statuses: set[int] = set()
    with start_server(kind=kind, api_key=KEY, request_log=path) as client:
        ask = _Asker(client, statuses)
        for place in posted_paths():
            for body in planted_bodies():
                ask(place, body)
        ask.otherwise()
    assert {200, 400, 401, 404, 405, 415, 422, 424, 500} <= statuses
    assert MARK not in log.getvalue()
    assert MARK not in path.read_text()
    assert log.getvalue().count("\n") > 100


class _Asker:
    """Asks as a client who writes the mark everywhere."""

    def __init__(self, client: Client, statuses: set[int]) -> None:
        self._client = client
        self._statuses = statuses
        self._right = {"authorization": f"Bearer {KEY}", "traceparent": MARK}

    def __call__(self, path: str, body: object) -> None:
        answer = self._client.post(path, body, **self._right)
        self._statuses.add(answer.status)
        assert KEY not in answer.body.decode()

    def otherwise(self) -> None:
        client, statuses = self._client, self._statuses
        wrong = {"authorization": f"Bearer {MARK}"}
        statuses.add(client.post("/embed", {"inputs": MARK}, **wrong).status)
        statuses.add(client.post("/embed", {"inputs": MARK}, authorization=MARK).status)
        statuses.add(client.get(f"/{MARK}?{MARK}={MARK}", **self._right).status)
        statuses.add(client.get(f"/v1/models/{MARK}", **self._right).status)
        statuses.add(client.get(f"/info?model={MARK}", **self._right).status)
        statuses.add(client.request("PUT", f"/embed?{MARK}", headers=self._right).status)
        headers = {**self._right, "content-type": f"text/{MARK}"}
        statuses.add(client.request("POST", "/embed", MARK.encode(), headers).status)
        for failure in (
            RuntimeError(MARK),
            InferenceError(ErrorKind.BACKEND, "engine_error", "out of memory"),
        ):
            client.service.failure = failure
            for path in posted_paths():
                for body in planted_bodies()[:3]:
                    statuses.add(client.post(path, body, **self._right).status)


def test_every_accepted_request_leaves_one_record(
    start_server: StartServer, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    with start_server(request_log=path, body_read_timeout_s=5) as client:
        client.post("/embed", {"inputs": ["a", "b"]}, x_request_id="fine")
        client.post("/embed", {"inputs": ["a", ""]}, x_request_id="empty")
        client.post("/predict", {"inputs": "a"}, x_request_id="kind")
        client.post("/embed", b"{", x_request_id="syntax")
        client.post("/tokenize", {"inputs": "a"}, x_request_id="tokens")
        client.service.failure = InferenceError(ErrorKind.REQUEST_TIMEOUT, "request_timeout", "no")
        client.post("/embed", {"inputs": "a"}, x_request_id="late")
        client.service.failure = None
        client.get("/health", x_request_id="probe")
        client.post("/nope", {}, x_request_id="nowhere")
        leave(client, "gone")
        run_out(client, "unfinished")
        client.post("/embed", {"inputs": "a"}, x_request_id="refused")
    found = {record["request_id"]: record for record in records(path)}
    assert len(found) == len(records(path))
    assert {name: (record["status"], record["error"]) for name, record in found.items()} == {
        "fine": (200, None),
        "empty": (400, "empty_input"),
        "kind": (424, "unsupported_task"),
        "syntax": (400, "malformed_body"),
        "tokens": (200, None),
        "late": (408, "request_timeout"),
        "gone": (None, "client_gone"),
        "unfinished": (503, "not_ready"),
        "refused": (503, "not_ready"),
    }
    fine = found["fine"]
    assert (fine["path"], fine["method"], fine["model"]) == ("/embed", "POST", "tiny")
    assert (fine["items"], fine["tokens"]) == (2, 6)
    assert fine["total_ms"] > 0
    assert (fine["tokenization_ms"], fine["queue_ms"], fine["inference_ms"]) == (1, 2, 3)


def leave(client: Client, request_id: str) -> None:
    """Ask, and close the connection before the answer."""
    release = client.hold()
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    headers = {"content-type": "application/json", "x-request-id": request_id}
    connection.request("POST", "/embed", b'{"inputs":"a"}', headers)
    client.wait_until(lambda: client.context.lifecycle.num_admitted == 1)
    client.wait_until(lambda: client.service.admission.num_tokens > 0)
    connection.close()
    client.wait_until(lambda: client.context.lifecycle.num_admitted == 0)
    release()


def run_out(client: Client, request_id: str) -> None:
    """Ask, and have the server's time run out first."""
    client.hold()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, "/embed", {"inputs": "a"}, x_request_id=request_id)
        client.wait_until(lambda: client.service.admission.num_tokens > 0)
        client.call(client.context.lifecycle.begin_drain)
        client.call(client.context.lifecycle.end_admitted)
        assert answer.result().status == 503


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-00", (TRACE, SPAN)),
        (f"01-{TRACE}-{SPAN}-01-more", (TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-01-more", (None, None)),
        (f"ff-{TRACE}-{SPAN}-01", (None, None)),
        (f"00-{'0' * 32}-{SPAN}-01", (None, None)),
        (f"00-{TRACE}-{'0' * 16}-01", (None, None)),
        (f"00-{TRACE.upper()}-{SPAN}-01", (None, None)),
        (f"00-{TRACE}-{SPAN}", (None, None)),
        (MARK, (None, None)),
    ],
)
def test_trace_context(
    start_server: StartServer, tmp_path: Path, header: str, expected: tuple[str, str]
) -> None:
    path = tmp_path / "requests.jsonl"
    with start_server(request_log=path) as client:
        client.post("/embed", {"inputs": "a"}, traceparent=header)
    (record,) = records(path)
    assert (record["trace_id"], record["span_id"]) == expected


def test_sampled_traces() -> None:
    sampled = parse_traceparent(f"00-{TRACE}-{SPAN}-03")
    plain = parse_traceparent(f"00-{TRACE}-{SPAN}-02")
    assert sampled is not None
    assert plain is not None
    assert (sampled.is_sampled, plain.is_sampled) == (True, False)
    assert parse_traceparent(None) is None


def test_terminal_records_are_also_logged(start_server: StartServer, log: io.StringIO) -> None:
    with start_server() as client:
        client.post("/embed", {"inputs": "a"}, x_request_id="r1")
        client.service.failure = InferenceError(ErrorKind.BACKEND, "engine_error", "no memory")
        client.post("/embed", {"inputs": "a"}, x_request_id="r2")
    first, second = map(json.loads, log.getvalue().splitlines())
    assert (first["level"], first["event"], first["request_id"]) == ("debug", "request", "r1")
    assert (second["level"], second["error"], second["status"]) == ("warning", "engine_error", 424)
    assert "r2" in second["message"]


def test_a_bug_is_logged_with_its_place_only(start_server: StartServer, log: io.StringIO) -> None:
    with start_server() as client:
        client.service.failure = RuntimeError(MARK)
        assert client.post("/embed", {"inputs": "a"}, x_request_id="r1").status == 500
    bug, _ = map(json.loads, log.getvalue().splitlines())
    assert "r1" in bug["message"]
    assert "fake_service.py" in bug["traceback"]
    assert bug["traceback"].endswith("builtins.RuntimeError")
    assert MARK not in log.getvalue()


def test_a_full_disk_costs_records_and_no_answer(
    start_server: StartServer, log: io.StringIO
) -> None:
    with start_server(request_log=Path("/dev/full")) as client:
        for _ in range(3):
            assert client.post("/embed", {"inputs": "a"}).status == 200
    lost = [line for line in log.getvalue().splitlines() if "being lost" in line]
    assert len(lost) == 1
    assert "No space left" in lost[0]


def test_records_after_a_full_disk(
    log: io.StringIO, tmp_path: Path, start_server: StartServer
) -> None:
    path = tmp_path / "requests.jsonl"
    with start_server(request_log=path) as client:
        request_log = client.context.request_log
        client.post("/embed", {"inputs": "a"})
        kept = request_log._descriptor
        assert kept is not None
        request_log._descriptor = os.open("/dev/full", os.O_WRONLY)
        client.post("/embed", {"inputs": "a"})
        request_log.close()
        request_log._descriptor = kept
        client.post("/embed", {"inputs": "a"})
    assert len(records(path)) == 2
    assert "1 records were lost" in log.getvalue()


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(RunFailedError, match=r"cannot be opened: .* a pipe that is being read"):
        RequestLog(path)


def test_without_a_file_nothing_is_written() -> None:
    assert not RequestLog(None).is_open


@pytest.fixture
def _untouched_logging() -> Iterator[None]:
    root, logger = logging.getLogger(), logging.getLogger("infinity_v3")
    kept = [(one, list(one.handlers), one.level, one.propagate) for one in (root, logger)]
    hook = threading.excepthook
    yield
    threading.excepthook = hook
    logging.captureWarnings(False)
    for one, handlers, level, propagate in kept:
        one.handlers[:] = handlers
        one.setLevel(level)
        one.propagate = propagate


@pytest.mark.usefixtures("_untouched_logging")
def test_everything_goes_through_one_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logger = set_up_logging("info", is_json=True)
    logger.info("one", extra={"fields": {"event": "x"}})
    logger.debug("not at this level")
    logging.getLogger("asyncio").warning("two\nfuture: <Task exception=RuntimeError(%r)>", MARK)
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["message"], first["event"], first["level"]) == ("one", "x", "info")
    assert second["message"] == "asyncio: two"
    assert third["message"] == "thread worker has died"
    assert third["traceback"].endswith("builtins.ZeroDivisionError")


def test_file_names_that_are_no_text_are_logged_all_the_same() -> None:
    name = os.fsdecode(b"/tmp/\xff")
    record = logging.LogRecord("infinity_v3", logging.INFO, __file__, 1, "%s", (name,), None)
    assert json.loads(JsonFormatter().format(record))["message"] == name


def test_causes_are_named_without_their_messages() -> None:
    try:
        try:
            raise KeyError(MARK)
        except KeyError as error:
            raise ValueError(MARK) from error
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "it failed", (), info)
    text = PlainFormatter().format(record)
    assert text.count("\n") >= 4
    assert "builtins.ValueError\nthe result of:\n" in text
    assert text.endswith("builtins.KeyError")
    # The line of the source is shown, the value is not.
    assert MARK not in text
