"""The numbers behind the live page, and the sliding windows that they come from."""

import random
import threading
from typing import Any

import pytest

from infinity_v3.runtime.state import ServiceState
from infinity_v3.server.activity import MAX_LATENCIES, Activity
from loopback import Client, StartServer


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now_s = 1000.25

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(clock: Clock) -> Activity:
    return Activity(clock)


def test_nothing_yet(activity: Activity) -> None:
    recent = activity.recent()
    assert (recent.answers_per_s, recent.tokens_per_s, recent.busy_fraction) == (0, 0, 0)
    assert (recent.p50_s, recent.p99_s, recent.num_latencies) == (None, None, 0)
    assert (recent.mean_batch_items, recent.mean_occupancy) == (None, None)


def test_rates_are_of_the_last_ten_seconds(activity: Activity, clock: Clock) -> None:
    for _ in range(40):
        activity.answered(0.1, 3)
        activity.refused()
        activity.batch_formed(5, 0.5)
        activity.batch_finished(100, 0.25)
        clock.now_s += 0.5
    recent = activity.recent()
    # Nine whole seconds and a quarter: 1011.0 to 1020.25.
    assert recent.answers_per_s == pytest.approx(2, rel=0.1)
    assert recent.items_per_s == pytest.approx(6, rel=0.1)
    assert recent.refusals_per_s == pytest.approx(2, rel=0.1)
    assert recent.tokens_per_s == pytest.approx(200, rel=0.1)
    assert recent.busy_fraction == pytest.approx(0.5, rel=0.1)
    assert (recent.mean_batch_items, recent.mean_occupancy) == (5, 0.5)


def test_a_young_server_divides_by_its_age(activity: Activity, clock: Clock) -> None:
    clock.now_s += 4
    activity.batch_finished(800, 1)
    assert activity.recent().tokens_per_s == pytest.approx(200)


def test_the_first_request_is_no_burst(activity: Activity) -> None:
    activity.answered(0.1, 1)
    assert activity.recent().answers_per_s == 1


@pytest.mark.parametrize("pause_s", [10, 11, 20, 100, 1e6])
def test_windows_empty_themselves(activity: Activity, clock: Clock, pause_s: float) -> None:
    activity.answered(0.1, 1)
    activity.batch_formed(1, 1)
    clock.now_s += pause_s
    recent = activity.recent()
    assert (recent.answers_per_s, recent.mean_occupancy) == (0, None)
    assert recent.num_latencies == (1 if pause_s < 60 else 0)


def test_percentiles_are_latencies_that_occurred(activity: Activity) -> None:
    latencies = [n / 1000 for n in range(1, 101)]
    random.Random(1).shuffle(latencies)
    for latency in latencies:
        activity.answered(latency, 1)
    recent = activity.recent()
    assert (recent.p50_s, recent.p99_s, recent.num_latencies) == (0.05, 0.099, 100)
    activity.answered(9.0, 1)
    assert activity.recent().p99_s == 0.1
    assert activity.recent().num_latencies == 101


def test_one_latency_is_every_percentile(activity: Activity) -> None:
    activity.answered(0.3, 1)
    recent = activity.recent()
    assert (recent.p50_s, recent.p99_s) == (0.3, 0.3)


def test_a_busy_model_keeps_the_latest(activity: Activity) -> None:
    for _ in range(MAX_LATENCIES):
        activity.answered(5.0, 1)
    for _ in range(MAX_LATENCIES):
        activity.answered(1.0, 1)
    recent = activity.recent()
    assert (recent.p99_s, recent.num_latencies) == (1.0, MAX_LATENCIES)


def model_of(client: Client, place: int = 0) -> Any:  # noqa: ANN401  # a document
    reply = client.get("/status.json")
    assert reply.status == 200
    assert reply.headers["cache-control"] == "no-store"
    return reply.json["models"][place]


def test_status_of_a_ready_server(start_server: StartServer) -> None:
    with start_server(("org/one", "two"), model={"max_client_batch_size": 7}) as client:
        client.post("/embed", {"inputs": ["a", "b"], "model": "two"})
        client.post("/embed", {"inputs": [], "model": "two"})
        client.post("/embed", {"inputs": "a", "model": "three"})
        status = client.get("/status.json").json
        one, two = status["models"]
    assert (status["state"], status["rate_window_s"], status["latency_window_s"]) == (
        "ready",
        10,
        60,
    )
    assert status["version"]
    assert status["uptime_s"] > 0
    assert status["resident_memory_bytes"] > 1 << 20
    assert (one["name"], two["name"]) == ("org/one", "two")
    assert one["load"]["latency"] == {"p50_ms": None, "p99_ms": None, "requests": 0}
    assert two["load"]["latency"]["requests"] == 1
    assert 0 < two["load"]["latency"]["p50_ms"] <= two["load"]["latency"]["p99_ms"]
    requests = two["load"]["requests"]
    assert requests["refused"] == {"empty": 1}
    assert requests["answers_per_s"] == requests["errors_per_s"] == 1
    assert requests["items_per_s"] == 2
    assert two["artifact"] == {
        "id": "sha256:" + "0" * 64,
        "name": "two",
        "target": "cpu-x86_64-avx2-f32",
        "kind": "embedding",
        "revision": None,
    }
    assert two["limits"]["max_client_batch_size"] == 7
    assert two["limits"]["max_queue_tokens"] == 1000


def test_status_shows_the_queue(start_server: StartServer) -> None:
    with start_server() as client:
        release = client.hold()
        thread = threading.Thread(target=client.post, args=("/embed", {"inputs": ["a", "b"]}))
        thread.start()
        client.wait_until(lambda: client.service.admission.num_tokens > 0)
        load = model_of(client)["load"]
        release()
        thread.join()
        assert model_of(client)["load"]["queue"]["tokens"] == 0
    assert load["queue"] == {"items": 0, "tokens": 6, "tokens_limit": 1000}
    assert (load["requests"]["in_flight"], load["requests"]["in_flight_limit"]) == (1, 512)


def test_status_in_other_states(start_server: StartServer) -> None:
    with start_server(is_ready=False) as client:
        assert client.get("/status").status == 200
        status = client.get("/status.json").json
        assert status["state"] == "loading"
        assert status["models"] == [
            {
                "name": "tiny",
                "state": "loading",
                "artifact": None,
                "limits": None,
                "load": None,
                "registry": None,
            }
        ]
    with start_server() as client:
        client.service.state = ServiceState.FAILED
        assert model_of(client)["state"] == "failed"
        client.service.state = ServiceState.READY
        client.call(client.context.lifecycle.begin_drain)
        assert client.get("/status.json").json["state"] == "draining"


def test_both_need_the_key(start_server: StartServer) -> None:
    with start_server(api_key="secret") as client:
        for path in ("/status", "/status.json"):
            assert client.get(path).status == 401
            assert client.get(path, authorization="Bearer secret").status == 200
            assert client.request("HEAD", path).status == 401


@pytest.mark.parametrize("path", ["/status", "/docs"])
def test_pages_may_load_nothing(client: Client, path: str) -> None:
    reply = client.get(path)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    text = reply.body.decode()
    assert "http://" not in text
    assert "https://" not in text
