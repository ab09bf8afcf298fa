"""What each kind of request and each refusal counts: exactly that, and nothing else."""

import http.client
import json
import random
import socket
import string
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.state import ServiceState
from infinity_v3.server.metrics import FAILURES, REJECTIONS, Metrics, ModelObserver
from loopback import Answer, Client, ClientOf, StartServer
from scrape import Counts, counts, families, gauges, increases

PARTS = ("", "_tokenization", "_queue", "_inference")
PAIRS = {"query": "a", "documents": ["b", "c"]}
Send = Callable[[Client], Answer]


def scraped(client: Client) -> str:
    return client.get("/metrics").body.decode()


def grown(client: Client, act: Callable[[], object]) -> Counts:
    """What an act counts."""
    before = counts(scraped(client))
    act()
    return increases(before, counts(scraped(client)))


def accepted(method: str, num_items: int, deed: str) -> Counts:
    items = {f"te_{deed}_count": num_items} if num_items else {}
    return {f'te_request_count{{method="{method}"}}': 1, **items}


def answered(method: str, num_items: int, deed: str) -> Counts:
    """One 200."""
    return {
        **accepted(method, num_items, deed),
        f'te_request_success{{method="{method}"}}': 1,
        f"te_{deed}_success": num_items,
        **{f"te_request{part}_duration_count": 1 for part in PARTS},
        **{f"te_{deed}{part}_duration_count": num_items for part in PARTS},
    }


def failed(err: str) -> Counts:
    return {f'te_request_failure{{err="{err}"}}': 1}


def rejected(reason: str, model: str = "tiny") -> Counts:
    return {f'infinity_rejected_total{{model="{model}",reason="{reason}"}}': 1}


@pytest.mark.parametrize(
    ("kind", "path", "body", "expected"),
    [
        (Kind.EMBEDDING, "/embed", {"inputs": "a"}, answered("single", 1, "embed")),
        (Kind.EMBEDDING, "/embed", {"inputs": ["a"]}, answered("batch", 1, "embed")),
        (Kind.EMBEDDING, "/embed", {"inputs": [1, 2]}, answered("single", 1, "embed")),
        (Kind.EMBEDDING, "/embed_all", {"inputs": ["a", "b"]}, answered("batch", 2, "embed")),
        (Kind.EMBEDDING, "/v1/embeddings", {"input": ["a", "b"]}, answered("batch", 2, "embed")),
        (Kind.EMBEDDING, "/embeddings", {"input": "a"}, answered("single", 1, "embed")),
        (Kind.EMBEDDING, "/", {"inputs": "a"}, answered("single", 1, "embed")),
        (Kind.EMBEDDING, "/invocations", {"inputs": ["a"]}, answered("batch", 1, "embed")),
        (
            Kind.EMBEDDING,
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}},
            answered("batch", 3, "embed"),
        ),
        (Kind.SPARSE, "/embed_sparse", {"inputs": "a"}, answered("single", 1, "embed")),
        (Kind.LATE_INTERACTION, "/embed_all", {"inputs": "a"}, answered("single", 1, "embed")),
        (Kind.CLASSIFIER, "/predict", {"inputs": "a"}, answered("single", 1, "predict")),
        (Kind.CLASSIFIER, "/predict", {"inputs": [["a"], ["b"]]}, answered("batch", 2, "predict")),
        (Kind.CLASSIFIER, "/v1/classify", {"input": ["a"]}, answered("batch", 1, "predict")),
        (Kind.CLASSIFIER, "/classify", {"input": "a"}, answered("single", 1, "predict")),
        (Kind.RERANKER, "/rerank", {"query": "a", "texts": ["b"]}, answered("batch", 1, "predict")),
        (Kind.RERANKER, "/v1/rerank", PAIRS, answered("batch", 2, "predict")),
        (Kind.RERANKER, "/v2/rerank", PAIRS, answered("batch", 2, "predict")),
        (
            Kind.TOKEN_CLASSIFIER,
            "/predict_tokens",
            {"inputs": "a"},
            answered("single", 1, "predict"),
        ),
        (
            Kind.RERANKER,
            "/v1/score",
            {"text_1": "a", "text_2": "b"},
            answered("single", 1, "predict"),
        ),
        (
            Kind.EMBEDDING,
            "/v1/score",
            {"queries": ["a"], "documents": ["b", "c"]},
            answered("batch", 2, "predict"),
        ),
        (
            Kind.EMBEDDING,
            "/vertex",
            {"instances": [{"inputs": "a"}, {"inputs": ["b", "c"]}]},
            answered("batch", 3, "embed"),
        ),
        (
            Kind.RERANKER,
            "/vertex",
            {"instances": [{"query": "a", "texts": ["b"]}]},
            answered("batch", 1, "predict"),
        ),
        (Kind.EMBEDDING, "/tokenize", {"inputs": ["a"]}, {}),
        (Kind.EMBEDDING, "/decode", {"ids": [1]}, {}),
    ],
)
def test_answers(
    client_of: ClientOf, kind: Kind, path: str, body: object, expected: Counts
) -> None:
    client = client_of(kind)
    replies: list[Answer] = []
    found = grown(client, lambda: replies.append(client.post(path, body)))
    assert replies[0].status == 200, replies[0].body
    assert found == expected


def test_pit_41_one_predict_counts_once(classifier: Client) -> None:
    found = grown(classifier, lambda: classifier.post("/predict", {"inputs": "a"}))
    assert found['te_request_count{method="single"}'] == 1
    assert found['te_request_success{method="single"}'] == 1


def posting(path: str, body: object, **headers: str) -> Send:
    return lambda client: client.post(path, body, **headers)


REFUSALS: Mapping[str, tuple[Send, int, Counts]] = {
    "syntax": (posting("/embed", b"{"), 400, rejected("malformed", "")),
    "media type": (
        lambda client: client.request("POST", "/embed", b"a", {"content-type": "text/plain"}),
        415,
        rejected("media_type", ""),
    ),
    "coding": (
        posting("/embed", b"a", content_encoding="br"),
        415,
        rejected("media_type", ""),
    ),
    "type": (posting("/embed", {"inputs": True}), 422, rejected("validation", "")),
    "no items": (
        posting("/embed", {"inputs": []}),
        400,
        {**accepted("batch", 0, "embed"), **failed("validation"), **rejected("empty")},
    ),
    "empty item": (
        posting("/embed", {"inputs": ["a", ""]}),
        400,
        {**accepted("batch", 2, "embed"), **failed("validation"), **rejected("empty")},
    ),
    "option": (
        posting("/embed", {"inputs": "a", "dimensions": 0}),
        422,
        {**accepted("single", 1, "embed"), **failed("validation"), **rejected("validation")},
    ),
    "prompt": (
        posting("/embed", {"inputs": "a", "prompt_name": "x"}),
        422,
        {**accepted("single", 1, "embed"), **failed("validation"), **rejected("validation")},
    ),
    "token id": (
        posting("/embed", {"inputs": [10**6]}),
        422,
        {**accepted("single", 1, "embed"), **failed("validation"), **rejected("validation")},
    ),
    "too many items": (
        posting("/embed", {"inputs": ["a"] * 1025}),
        422,
        {**accepted("batch", 1025, "embed"), **failed("batch_size"), **rejected("validation")},
    ),
    "kind": (
        posting("/predict", {"inputs": "a"}),
        424,
        {
            **accepted("single", 1, "predict"),
            **failed("model_type"),
            **rejected("unsupported_task"),
        },
    ),
    "no instances": (
        posting("/vertex", {"instances": []}),
        400,
        {**accepted("batch", 0, "embed"), **failed("validation"), **rejected("empty")},
    ),
    "a wrong instance": (
        posting("/vertex", {"instances": [{"inputs": "a"}, {"inputs": ["b", ""]}]}),
        400,
        {**accepted("batch", 3, "embed"), **failed("validation"), **rejected("empty")},
    ),
    "no text to split": (posting("/tokenize", {"inputs": []}), 400, rejected("empty")),
    "no ids to join": (posting("/decode", {"ids": []}), 400, rejected("empty")),
    "unknown path": (posting("/nope", {}), 404, {}),
    "method": (lambda client: client.get("/embed"), 405, {}),
    "unknown model's entry": (
        lambda client: client.get("/v1/models/x"),
        404,
        rejected("model_not_found", ""),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(client: Client, name: str) -> None:
    send, status, expected = REFUSALS[name]
    replies: list[Answer] = []
    found = grown(client, lambda: replies.append(send(client)))
    assert replies[0].status == status, replies[0].body
    assert found == expected


@pytest.mark.parametrize(
    ("failure", "status", "expected"),
    [
        (
            InferenceError(ErrorKind.TOKENIZER, "tokenizer_error", "no"),
            422,
            {**failed("tokenization"), **rejected("validation")},
        ),
        (
            InferenceError(ErrorKind.VALIDATION, "input_too_long", "no"),
            422,
            {**failed("validation"), **rejected("validation")},
        ),
        (InferenceError(ErrorKind.BACKEND, "engine_error", "no"), 424, failed("inference")),
        (InferenceError(ErrorKind.BACKEND, "non_finite_output", "no"), 424, failed("inference")),
        (
            InferenceError(ErrorKind.REQUEST_TIMEOUT, "request_timeout", "no"),
            408,
            {**failed("dropped"), **rejected("timeout")},
        ),
        (
            InferenceError(ErrorKind.UNHEALTHY, "not_ready", "no"),
            503,
            {**failed("dropped"), **rejected("not_ready")},
        ),
        (RuntimeError("a bug"), 500, failed("inference")),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_failures_after_acceptance(
    client: Client, failure: Exception, status: int, expected: Counts
) -> None:
    client.service.failure = failure
    replies: list[Answer] = []
    found = grown(client, lambda: replies.append(client.post("/embed", {"inputs": "a"})))
    assert replies[0].status == status
    assert found == {**accepted("single", 1, "embed"), **expected}


def test_keys(start_server: StartServer) -> None:
    with start_server(api_key="secret") as client:
        found = grown(client, lambda: client.post("/embed", {"inputs": "a"}))
        assert found == rejected("auth", "")
        assert grown(client, lambda: client.get("/info")) == rejected("auth", "")
        assert grown(client, lambda: client.get("/status")) == rejected("auth", "")


def test_body_limits(start_server: StartServer) -> None:
    with start_server(payload_limit=10, body_read_timeout_s=0.2) as client:
        found = grown(client, lambda: client.post("/embed", {"inputs": "far too long"}))
        assert found == rejected("payload", "")
        assert grown(client, lambda: send_half(client.port)) == rejected("timeout", "")


def send_half(port: int) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + b"content-length: 9\r\n\r\n{")
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert reply.status == 408


def test_overload(start_server: StartServer) -> None:
    with start_server(model={"max_concurrent_requests": 1}) as client:
        release = client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", {"inputs": "a"})
            client.wait_until(lambda: client.service.admission.num_tokens > 0)
            found = grown(client, lambda: client.post("/embed", {"inputs": "a"}))
            assert gauges(scraped(client))['infinity_requests_in_flight{model="tiny"}'] == 1
            release()
            assert first.result().status == 200
    assert found == {
        **accepted("single", 1, "embed"),
        **failed("overloaded"),
        **rejected("requests_limit"),
    }


def test_full_queue(start_server: StartServer) -> None:
    with start_server(model={"max_queue_tokens": 4}) as client:
        release = client.hold()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.post, "/embed", {"inputs": "a"})
            client.wait_until(lambda: client.service.admission.num_tokens == 3)
            found = grown(client, lambda: client.post("/embed", {"inputs": "a"}))
            shown = gauges(scraped(client))
            release()
            assert first.result().status == 200
    assert (
        found[next(iter(rejected("tokens_limit")))],
        found[next(iter(failed("overloaded")))],
    ) == (
        1,
        1,
    )
    assert shown['infinity_queue_tokens{model="tiny"}'] == 3
    assert shown['infinity_queue_tokens_limit{model="tiny"}'] == 4


@pytest.mark.parametrize(
    ("path", "body", "method"),
    [
        ("/embed", {"inputs": "a"}, "single"),
        ("/vertex", {"instances": [{"inputs": "a"}]}, "batch"),
    ],
)
def test_clients_that_leave(
    start_server: StartServer, path: str, body: object, method: str
) -> None:
    with start_server() as client:

        def leave() -> None:
            client.hold()
            connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
            headers = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body).encode(), headers)
            client.wait_until(lambda: client.service.admission.num_tokens > 0)
            connection.close()
            client.wait_until(lambda: client.context.lifecycle.num_admitted == 0)

        assert grown(client, leave) == {**accepted(method, 1, "embed"), **failed("dropped")}


def test_states(start_server: StartServer) -> None:
    with start_server() as client:
        assert gauges(scraped(client))["infinity_ready"] == 1
        client.service.state = ServiceState.FAILED
        assert gauges(scraped(client))["infinity_ready"] == 0
        found = grown(client, lambda: client.post("/embed", {"inputs": "a"}))
        assert [name for name in found if 'reason="not_ready"' in name] != []
        probes = grown(client, lambda: [client.get(path) for path in ("/health", "/ready", "/")])
        assert probes == {}


def test_time_over_after_acceptance(start_server: StartServer) -> None:
    with start_server() as client:

        def run_out() -> None:
            client.hold()
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(client.post, "/embed", {"inputs": "a"})
                client.wait_until(lambda: client.service.admission.num_tokens > 0)
                client.call(client.context.lifecycle.begin_drain)
                client.call(client.context.lifecycle.end_admitted)
                assert first.result().status == 503

        assert grown(client, run_out) == {
            **accepted("single", 1, "embed"),
            **failed("dropped"),
            **rejected("not_ready"),
        }


@pytest.fixture
def pair(start_server: StartServer) -> Iterator[Client]:
    """Two models."""
    with start_server(("org/one", "two")) as client:
        yield client


def test_te_series_sum_over_models(pair: Client) -> None:
    def ask() -> None:
        assert pair.post("/embed", {"inputs": "a", "model": "org/one"}).status == 200
        assert pair.post("/embed", {"inputs": "a", "model": "two"}).status == 200
        assert pair.post("/embed", {"inputs": "a"}).status == 422
        assert pair.post("/embed", {"inputs": "a", "model": "three"}).status == 404
        assert pair.post("/embed", {"inputs": [], "model": "two"}).status == 400

    found = grown(pair, ask)
    assert found['te_request_count{method="single"}'] == 2
    assert found["te_embed_success"] == 2
    assert {name: value for name, value in found.items() if name.startswith("infinity")} == {
        **rejected("validation", ""),
        **rejected("model_not_found", ""),
        **rejected("empty", "two"),
    }


def test_pit_39_clients_add_no_series(pair: Client) -> None:
    before = scraped(pair)
    choice = random.Random(39)
    for _ in range(60):
        name = "".join(choice.choices(string.printable, k=12))
        key = "".join(choice.choices(string.ascii_letters, k=12))
        body = {"inputs": "a", "model": name, "user": name, "prompt_name": name, key: name}
        pair.post("/embed", body, x_request_id=key, traceparent=key)
        pair.post("/embed", {**body, "model": "two"})
        pair.get(f"/v1/models/{key}")
        pair.request(choice.choice(("GET", "POST", "PUT")), f"/{key}")
    after = scraped(pair)
    assert series_of(before) == series_of(after)
    assert after.count("\n") == before.count("\n")


def series_of(text: str) -> set[str]:
    return set(counts(text)) | set(gauges(text))


def test_every_refusal_is_there_from_the_start(pair: Client) -> None:
    found = counts(scraped(pair))
    assert {name for name in found if name.startswith("infinity_rejected_total")} == {
        next(iter(rejected(reason, model)))
        for model in ("", "org/one", "two")
        for reason in REJECTIONS
    }
    assert {name for name in found if name.startswith("te_request_failure")} == {
        next(iter(failed(err))) for err in FAILURES
    }
    assert set(FAILURES) == {
        *("batch_size", "dropped", "inference", "missing_values"),
        *("model_type", "overloaded", "tokenization", "validation"),
    }


def test_lengths_of_all_models_share_buckets_up_to_the_longest() -> None:
    metrics = Metrics()
    short, long = (
        ModelObserver(metrics, model=name, max_input_tokens=limit, max_batch_tokens=512)
        for name, limit in (("short", 20), ("long", 100))
    )
    short.item_finished(num_tokens=16)
    long.item_finished(num_tokens=64)
    text = metrics.registry.render().decode()
    edges = families(text)["te_request_input_length"].edges
    assert list(edges) == [1, 2, 4, 8, 16, 32, 64, float("inf")]
    assert 'te_request_input_length_bucket{le="16"} 1\n' in text
    assert 'te_request_input_length_bucket{le="64"} 2\n' in text


def test_content_type_and_types(client: Client) -> None:
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = families(reply.body.decode())
    edges = found["te_request_duration"].edges
    assert len(edges) == 36
    assert edges[0] == pytest.approx(1.5e-5)
    ratios = [after / before for before, after in pairwise(edges[:-1])]
    assert ratios == pytest.approx([1.5] * 34)
    assert found["te_batch_next_size"].edges[:-1] == tuple(2.0**power for power in range(13))
    assert found["te_batch_next_tokens"].edges[:-1] == tuple(2.0**power for power in range(21))
