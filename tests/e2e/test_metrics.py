"""The metrics of a real server: every name of the contract with its type, labels and meaning."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from http_client import HttpClient, Json
from http_metrics import wait_until_idle
from scrape import Family, counts, families, gauges, increases
from server_process import ServerProcess

SECONDS = tuple(1.5e-5 * 1.5**step for step in range(35))
NONE: frozenset[str] = frozenset()
MODEL = frozenset({"model"})
PARTS = ("", "_tokenization", "_queue", "_inference")
REASONS = {
    *("auth", "malformed", "payload", "media_type", "empty", "validation", "unsupported_task"),
    *("model_not_found", "requests_limit", "tokens_limit", "not_ready", "timeout"),
}


def powers_of_two(last: int) -> tuple[float, ...]:
    return tuple(2.0**step for step in range(last + 1))


def contract() -> Mapping[str, tuple[str, frozenset[str], tuple[float, ...]]]:
    """Name -> type, labels, bucket edges."""
    durations = (
        f"te_{what}{part}_duration" for what in ("request", "embed", "predict") for part in PARTS
    )
    items = (f"te_{deed}_{end}" for deed in ("embed", "predict") for end in ("count", "success"))
    return {
        "te_request_count": ("counter", frozenset({"method"}), ()),
        "te_request_success": ("counter", frozenset({"method"}), ()),
        "te_request_failure": ("counter", frozenset({"err"}), ()),
        **{name: ("counter", NONE, ()) for name in items},
        **{name: ("histogram", NONE, SECONDS) for name in durations},
        "te_request_input_length": ("histogram", NONE, powers_of_two(8)),
        "te_batch_next_size": ("histogram", NONE, powers_of_two(12)),
        "te_batch_next_tokens": ("histogram", NONE, powers_of_two(20)),
        "te_queue_size": ("gauge", NONE, ()),
        "infinity_queue_tokens": ("gauge", MODEL, ()),
        "infinity_queue_tokens_limit": ("gauge", MODEL, ()),
        "infinity_requests_in_flight": ("gauge", MODEL, ()),
        "infinity_batch_occupancy": ("histogram", MODEL, (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)),
        "infinity_engine_seconds": ("histogram", MODEL, SECONDS),
        "infinity_tokens_total": ("counter", MODEL, ()),
        "infinity_tokens_folded_total": ("counter", MODEL, ()),
        "infinity_artifact_info": ("gauge", MODEL | {"artifact_id", "target"}, ()),
        "infinity_channel_event": ("gauge", MODEL, ()),
        "infinity_channel_behind": ("gauge", MODEL, ()),
        "infinity_channel_swaps_total": ("counter", MODEL | {"result"}, ()),
        "infinity_startup_seconds": ("gauge", MODEL | {"phase"}, ()),
        "infinity_rejected_total": ("counter", MODEL | {"reason"}, ()),
        "infinity_ready": ("gauge", NONE, ()),
        "process_resident_memory_bytes": ("gauge", NONE, ()),
    }


def scraped(server: ServerProcess) -> str:
    reply = server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return reply.body.decode()


@pytest.fixture(scope="module")
def found(minilm_server: ServerProcess) -> Mapping[str, Family]:
    return families(scraped(minilm_server))


def test_no_metric_is_missing_and_none_is_unknown(found: Mapping[str, Family]) -> None:
    assert set(found) == set(contract())


@pytest.mark.parametrize("name", contract())
def test_types_labels_and_buckets(found: Mapping[str, Family], name: str) -> None:
    kind, labels, edges = contract()[name]
    family = found[name]
    assert (family.kind, family.labels) == (kind, labels)
    assert family.edges[:-1] == pytest.approx(edges)
    assert (family.edges[-1:] == (float("inf"),)) == (kind == "histogram")


@pytest.fixture(scope="module")
def info(minilm_server: ServerProcess) -> Json:
    return minilm_server.get("/info").json()


def test_every_part_of_a_request_is_counted(minilm_server: ServerProcess, info: Json) -> None:
    name = info["served_model_name"]
    before = scraped(minilm_server)
    body = {"inputs": ["what is deep learning?", [101, 3231, 102]]}
    reply = minilm_server.post("/embed", body)
    assert reply.status == 200
    after = scraped(minilm_server)
    grown = increases(counts(before), counts(after))
    batches = grown["te_batch_next_size_count"]
    assert batches in {1, 2}
    tokens = int(reply.headers["x-compute-tokens"])
    assert tokens == 10
    assert grown == {
        'te_request_count{method="batch"}': 1,
        'te_request_success{method="batch"}': 1,
        "te_embed_count": 2,
        "te_embed_success": 2,
        **{f"te_request{part}_duration_count": 1 for part in PARTS},
        **{f"te_embed{part}_duration_count": 2 for part in PARTS},
        "te_request_input_length_count": 2,
        "te_batch_next_size_count": batches,
        "te_batch_next_tokens_count": batches,
        f'infinity_batch_occupancy_count{{model="{name}"}}': batches,
        f'infinity_engine_seconds_count{{model="{name}"}}': batches,
        f'infinity_tokens_total{{model="{name}"}}': tokens,
    }


def test_refusals_compute_nothing(minilm_server: ServerProcess, info: Json) -> None:
    name = info["served_model_name"]
    before = counts(scraped(minilm_server))
    refused: list[tuple[str, object, dict[str, str]]] = [
        ("/embed", {"inputs": []}, {}),
        ("/embed", {"inputs": "a", "dimensions": 385}, {}),
        ("/embed", {"inputs": ["a " * 300], "truncate": False}, {}),
        ("/embed", {"inputs": [10**6]}, {}),
        ("/embed", {"inputs": ["a"] * 1025}, {}),
        ("/rerank", {"query": "a", "texts": ["b"]}, {}),
        ("/embed", b"{", {}),
        ("/embed", b"a", {"content-type": "text/plain"}),
        ("/embed", b"a", {"content-encoding": "zstd"}),
    ]
    for path, body, headers in refused:
        assert minilm_server.post(path, body, headers).status >= 400
    assert increases(before, counts(scraped(minilm_server))) == {
        'te_request_count{method="single"}': 2,
        'te_request_count{method="batch"}': 4,
        "te_embed_count": 1 + 1 + 1 + 1025,
        "te_predict_count": 1,
        'te_request_failure{err="validation"}': 4,
        'te_request_failure{err="batch_size"}': 1,
        'te_request_failure{err="model_type"}': 1,
        f'infinity_rejected_total{{model="{name}",reason="empty"}}': 1,
        f'infinity_rejected_total{{model="{name}",reason="validation"}}': 4,
        f'infinity_rejected_total{{model="{name}",reason="unsupported_task"}}': 1,
        'infinity_rejected_total{model="",reason="malformed"}': 2,
        'infinity_rejected_total{model="",reason="media_type"}': 1,
    }


def test_a_deadline_that_has_passed(minilm_server: ServerProcess, info: Json) -> None:
    before = counts(scraped(minilm_server))
    headers = {"request-timeout-ms": "0"}
    assert minilm_server.post("/embed", {"inputs": "a"}, headers).status == 408
    wait_until_idle(minilm_server)
    name = info["served_model_name"]
    assert increases(before, counts(scraped(minilm_server))) == {
        'te_request_count{method="single"}': 1,
        "te_embed_count": 1,
        'te_request_failure{err="dropped"}': 1,
        f'infinity_rejected_total{{model="{name}",reason="timeout"}}': 1,
    }


def test_gauges(minilm_server: ServerProcess, info: Json) -> None:
    wait_until_idle(minilm_server)
    shown, name = gauges(scraped(minilm_server)), info["served_model_name"]
    assert shown["infinity_ready"] == 1
    assert shown["te_queue_size"] == 0
    assert shown[f'infinity_queue_tokens{{model="{name}"}}'] == 0
    assert shown[f'infinity_queue_tokens_limit{{model="{name}"}}'] == info["max_queue_tokens"]
    artifact = info["artifact"]
    series = f'artifact_id="{artifact["id"]}",model="{name}",target="{artifact["target"]}"'
    assert shown[f"infinity_artifact_info{{{series}}}"] == 1
    memory = shown["process_resident_memory_bytes"]
    assert memory == pytest.approx(minilm_server.rss_bytes, rel=0.1)


def test_startup_phases(minilm_server: ServerProcess, info: Json) -> None:
    name = info["served_model_name"]
    phases = {
        series: seconds
        for series, seconds in gauges(scraped(minilm_server)).items()
        if series.startswith("infinity_startup_seconds")
    }
    assert set(phases) == {
        *(f'infinity_startup_seconds{{model="",phase="{p}"}}' for p in ("config", "bind", "total")),
        *(
            f'infinity_startup_seconds{{model="{name}",phase="{phase}"}}'
            for phase in ("resolve", "compile", "load", "warmup")
        ),
    }
    total = phases.pop('infinity_startup_seconds{model="",phase="total"}')
    assert 0 < sum(phases.values()) <= total + 0.01


def test_label_values(minilm_server: ServerProcess, info: Json) -> None:
    models = {"", info["served_model_name"]}
    expected = {
        f'infinity_rejected_total{{model="{model}",reason="{reason}"}}'
        for model in models
        for reason in REASONS
    }
    shown = counts(scraped(minilm_server))
    assert {name for name in shown if name.startswith("infinity_rejected_total")} == expected
    assert {name for name in shown if name.startswith("te_request_count")} == {
        'te_request_count{method="single"}',
        'te_request_count{method="batch"}',
    }


def test_the_separate_listener_says_the_same(minilm_artifact: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options, env = ("--prometheus-port", str(port)), {"INFINITY_API_KEY": "k"}
    with (
        ServerProcess(minilm_artifact, *options, env=env) as server,
        HttpClient(f"http://127.0.0.1:{port}") as client,
    ):
        reply = client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert set(families(reply.body.decode())) == set(families(scraped(server)))
        assert client.get("/health").status == 404
        assert client.post("/embed", {"inputs": "a"}).status == 404
