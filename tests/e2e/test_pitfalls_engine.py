"""Pitfalls of the field that need an engine which fails, stalls or gives numbers on demand."""

import math
import time

import numpy as np
import pytest

from fake_engine import FakeEngine
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.engine import EngineError
from infinity_v3.runtime.settings import ServiceSettings
from loopback import Answer
from scripted_engine import (
    CLASSIFIER,
    MULTI_LABEL,
    RERANKER,
    ScriptedEngine,
    Stage,
    scoring_engine,
    stage,
)
from tiny_models import END, START

EMBED = "/embed"
BAD = 99
BAD_WORD = {"inputs": f"w{BAD}"}
INFINITY = math.inf


def assert_refused(answer: Answer, status: int, kind: str, *fragments: str) -> None:
    assert (answer.status, answer.json["error_type"]) == (status, kind), answer.body
    assert [part for part in fragments if part not in answer.json["error"]] == []


def test_pit_06_slots_count_requests_not_items() -> None:
    settings = ServiceSettings(max_concurrent_requests=5, max_batch_requests=4)
    with stage(FakeEngine(), settings=settings) as it:
        batch = {"inputs": ["w5"] * 32}
        running = [it.occupy(EMBED, batch)]
        running += [it.send(EMBED, batch) for _ in range(4)]
        it.client.wait_until(lambda: it.num_queued == 5 * 32 - 4)
        for inputs in ("w5", ["w5"] * 32):
            sixth = it.client.post(EMBED, {"inputs": inputs})
            assert_refused(sixth, 429, "Overloaded", "--max-concurrent-requests")
            assert 1 <= int(sixth.headers["retry-after"]) <= 60
        it.engine.gate.set()
        answers = [one.result() for one in running]
    assert [answer.status for answer in answers] == [200] * 5
    assert [len(answer.json) for answer in answers] == [32] * 5


def test_pit_08_health_never_waits_for_the_engine() -> None:
    with stage(FakeEngine(), settings=ServiceSettings(max_concurrent_requests=2)) as it:
        running = [it.occupy(EMBED, {"inputs": "w5"}), it.send(EMBED, {"inputs": "w6"})]
        it.client.wait_until(lambda: it.num_queued == 1)
        assert it.client.post(EMBED, {"inputs": "w7"}).status == 429
        assert_health(it, 200)
        it.engine.gate.set()
        assert [one.result().status for one in running] == [200, 200]
        it.engine.failing_ids = {BAD}
        assert_refused(it.client.post(EMBED, BAD_WORD), 424, "Backend", "inference failed")
        assert_health(it, 200)
        for _ in range(7):
            assert it.client.post(EMBED, BAD_WORD).status == 424
        assert_health(it, 503)
        assert it.client.post(EMBED, {"inputs": "w5"}).status == 503


def assert_health(it: Stage, status: int) -> None:
    begun_s = time.monotonic()
    assert it.client.get("/health").status == status
    assert time.monotonic() - begun_s < 1.0


@pytest.mark.parametrize("value", [INFINITY, -INFINITY, math.nan])
def test_pit_10_non_finite_numbers_are_never_sent(value: float) -> None:
    with stage(ScriptedEngine({BAD: [value] + [1.0] * 7})) as it:
        for path, body in (
            (EMBED, BAD_WORD),
            (EMBED, {"inputs": ["w5", f"w{BAD}"], "normalize": False}),
            ("/similarity", {"inputs": {"source_sentence": "w5", "sentences": [f"w{BAD}"]}}),
        ):
            refused = it.client.post(path, body)
            assert_refused(refused, 424, "Backend", "non-finite")
        openai = it.client.post("/v1/embeddings", {"input": f"w{BAD}"})
        assert openai.json["error"]["code"] == "non_finite_output"
        assert it.client.post(EMBED, {"inputs": "w5"}).status == 200


def test_pit_10_zero_vectors_stay_zero() -> None:
    with stage(ScriptedEngine({7: [0.0] * 8})) as it:
        assert it.client.post(EMBED, {"inputs": "w7"}).json == [[0.0] * 8]
        body = {"inputs": {"source_sentence": "w7", "sentences": ["w5", "w7"]}}
        assert it.client.post("/similarity", body).json == [0.0, 0.0]


def test_pit_11_nan_logits_fail_their_request_alone() -> None:
    script = {5: [-1000.0, 10.0, 9.0], 6: [1.0, 2.0, 3.0], BAD: [1.0, math.nan, 2.0]}
    engine = scoring_engine(script, 3)
    with stage(engine, kind=Kind.CLASSIFIER, heads=CLASSIFIER) as it:
        first = it.occupy("/predict", {"inputs": "w6"})
        good = it.send_queued("/predict", {"inputs": "w5"}, num_queued=1)
        bad = it.send_queued("/predict", BAD_WORD, num_queued=2)
        engine.gate.set()
        assert first.result().status == 200
        assert_refused(bad.result(), 424, "Backend", "non-finite")
        assert engine.batches[-1] == ((START, 5, END), (START, BAD, END))
        scores = {entry["label"]: entry["score"] for entry in good.result().json}
        assert scores["bad"] == 0.0
        assert scores["so-so"] == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-12)
        assert it.client.post("/predict", {"inputs": "w6"}).status == 200


def test_pit_24_a_batch_out_of_memory_is_split() -> None:
    engine = FakeEngine()
    engine.failing_ids = {BAD}
    with stage(engine) as it:
        first = it.occupy(EMBED, {"inputs": "w5"})
        waiting = [
            it.send_queued(EMBED, {"inputs": word}, num_queued=place + 1)
            for place, word in enumerate(("w6", "w7", f"w{BAD}", "w8"))
        ]
        engine.gate.set()
        assert first.result().status == 200
        answers = [one.result() for one in waiting]
        assert [answer.status for answer in answers] == [200, 200, 424, 424]
        assert "out of memory" in answers[2].json["error"]
        assert [len(batch) for batch in engine.batches] == [1, 4, 2, 2]
        assert it.client.post(EMBED, {"inputs": "w8"}).status == 200


def test_pit_24_memory_that_is_there_again_is_used() -> None:
    engine, fails = FakeEngine(), [MemoryError("no memory"), EngineError("no memory")]

    def fail_once() -> None:
        if fails:
            raise fails.pop()

    engine.poison = fail_once
    with stage(engine) as it:
        assert it.client.post(EMBED, {"inputs": ["w5", "w6", "w7"]}).status == 424
        assert it.client.post(EMBED, {"inputs": ["w5", "w6", "w7"]}).status == 200
        fails.append(EngineError("no memory"))
        assert it.client.post(EMBED, {"inputs": ["w5", "w6", "w7"]}).status == 200
        assert [len(batch) for batch in engine.batches[-3:]] == [3, 2, 1]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_pit_25_large_logits_stay_apart(path: str) -> None:
    engine = scoring_engine({20: [20.0], 25: [25.0], 6: [-3.0]}, 1)
    body: dict[str, object] = {"query": "w5", "documents": ["w20", "w6", "w25"]}
    with stage(engine, kind=Kind.RERANKER, heads=RERANKER) as it:
        results = it.client.post(path, body).json["results"]
        raw = it.client.post(path, {**body, "raw_scores": True}).json["results"]
    assert [entry["index"] for entry in results] == [2, 0, 1]
    best, second, _ = (entry["relevance_score"] for entry in results)
    assert 1.0 > best > second > 0.999999
    assert [entry["relevance_score"] for entry in raw] == [25.0, 20.0, -3.0]


@pytest.mark.parametrize("size", [1e-30, 1e-6, 6e4, 1e30])
def test_pit_32_norms_neither_vanish_nor_overflow(size: float) -> None:
    row = [size, -2 * size, 2 * size, 0.0, 0.0, 0.0, 0.0, 0.0]
    with stage(ScriptedEngine({7: row})) as it:
        found = it.client.post(EMBED, {"inputs": "w7"}).json[0]
        body = {"inputs": {"source_sentence": "w7", "sentences": ["w7"]}}
        cosine = it.client.post("/similarity", body).json
    assert found == pytest.approx([1 / 3, -2 / 3, 2 / 3, 0, 0, 0, 0, 0], abs=1e-6)
    assert cosine == pytest.approx([1.0], abs=1e-12)


class TestPit36:
    """A long backlog and one request with priority."""

    def order(self, bonus_s: float, *, wait_s: float = 0.0) -> list[int]:
        """Last words in the order of the engine's calls: 20 to 24 came first, 50 has priority."""
        settings = ServiceSettings(priority_bonus_s=bonus_s, max_batch_requests=1)
        engine = FakeEngine()
        with stage(engine, settings=settings) as it:
            sent = [it.occupy(EMBED, {"inputs": "w5"})]
            for place in range(5):
                body = {"inputs": f"w{20 + place}"}
                sent.append(it.send_queued(EMBED, body, num_queued=place + 1))
            time.sleep(wait_s)
            urgent = {"inputs": "w50", "service_tier": "priority"}
            sent.append(it.send_queued(EMBED, urgent, num_queued=6))
            engine.gate.set()
            assert [one.result().status for one in sent] == [200] * 7
        return [ids[1] for (ids,) in engine.batches[1:]]

    def test_pit_36_priority_overtakes(self) -> None:
        assert self.order(60.0) == [50, 20, 21, 22, 23, 24]

    def test_pit_36_nobody_starves(self) -> None:
        assert self.order(0.2, wait_s=0.3) == [20, 21, 22, 23, 24, 50]

    def test_pit_36_without_a_bonus_first_come_first_served(self) -> None:
        assert self.order(0.0) == [20, 21, 22, 23, 24, 50]


def test_pit_38_labels_of_several_answers_get_a_sigmoid_each() -> None:
    logits = [2.0, -1.0, 3.0]
    engine = scoring_engine({5: logits}, 3)
    with stage(engine, kind=Kind.CLASSIFIER, heads=MULTI_LABEL) as it:
        entries = it.client.post("/predict", {"inputs": "w5"}).json
        raw = it.client.post("/predict", {"inputs": "w5", "raw_scores": True}).json
        probs = it.client.post("/v1/classify", {"input": "w5"}).json["data"][0]["probs"]
    expected = (1 / (1 + np.exp(-np.array(logits)))).tolist()
    assert [entry["label"] for entry in entries] == ["neutral", "joy", "anger"]
    assert [entry["score"] for entry in raw] == [3.0, 2.0, -1.0]
    assert [entry["score"] for entry in entries] == pytest.approx(
        sorted(expected, reverse=True), abs=1e-12
    )
    assert probs == pytest.approx(expected, abs=1e-12)
