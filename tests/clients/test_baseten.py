"""`baseten-performance-client`: many requests at once, MessagePack and zstd replies, its errors."""

import base64

import numpy as np
import pytest
import requests
from baseten_performance_client import PerformanceClient, RequestProcessingPreference

from client_kit import DOCUMENTS, KEY, NAME, QUERY, ServerUrl, ask, counted, relevance
from wire_recorder import WireRecorder

THOUSAND = [f"text number {number}" for number in range(1000)]
PER_REQUEST = RequestProcessingPreference(batch_size=128, max_chars_per_request=1_000_000)


def test_a_thousand_embeddings(server: ServerUrl) -> None:
    with WireRecorder(server("keyed")) as wire:
        client = PerformanceClient(base_url=wire.url, api_key=KEY)
        answer = client.embed(input=THOUSAND, model=NAME, preference=PER_REQUEST)
    direct = ask(f"{server('keyed')}/embed", {"inputs": THOUSAND}, key=KEY)
    assert np.allclose(answer.numpy(), np.array(direct, np.float32), atol=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 3 * len(THOUSAND)
    types = {headers["content-type"] for headers in answer.response_headers}
    assert (len(answer.response_headers), types) == (8, {"application/msgpack"})
    assert wire.sent.count(b"accept-encoding: zstd") == 8
    assert wire.received.lower().count(b"content-encoding: zstd") == 8


def test_base64(server: ServerUrl) -> None:
    client = PerformanceClient(base_url=server("keyed"), api_key=KEY)
    answer = client.embed(input=THOUSAND[:3], model=NAME, encoding_format="base64")
    found = [np.frombuffer(base64.b64decode(str(row.embedding)), "<f4") for row in answer.data]
    direct = ask(f"{server('keyed')}/embed", {"inputs": THOUSAND[:3]}, key=KEY)
    assert np.array_equal(np.array(found), np.array(direct, np.float32))


def test_rerank(server: ServerUrl) -> None:
    client = PerformanceClient(base_url=server("keyed_reranker"), api_key=KEY)
    answer = client.rerank(
        query=QUERY,
        texts=list(DOCUMENTS),
        raw_scores=True,
        return_text=True,
        preference=PER_REQUEST,
    )
    direct = relevance(server("keyed_reranker"), raw_scores=True, key=KEY)
    # MessagePack says exactly the float32 of which JSON gives the shortest digits.
    assert {row.index: np.float32(row.score) for row in answer.data} == {
        index: np.float32(score) for index, score in direct.items()
    }
    assert all(row.text == DOCUMENTS[row.index] for row in answer.data)


def test_classify(server: ServerUrl) -> None:
    client = PerformanceClient(base_url=server("classifier"), api_key="any")
    texts = list(DOCUMENTS) * 50
    answer = client.classify(inputs=texts, preference=PER_REQUEST)
    direct = ask(f"{server('classifier')}/predict", {"inputs": [[text] for text in texts]})
    for group, rows in zip(answer.data, direct, strict=True):
        assert [one.label for one in group] == [row["label"] for row in rows]
        scores = [row["score"] for row in rows]
        assert [one.score for one in group] == pytest.approx(scores, abs=1e-5)


def test_batch_post(server: ServerUrl) -> None:
    client = PerformanceClient(base_url=server("classifier"), api_key="any")
    payloads = [{"input": list(DOCUMENTS)}, {"input": DOCUMENTS[0], "use_activation": False}]
    answer = client.batch_post(url_path="/v1/classify", payloads=payloads)
    direct = [ask(f"{server('classifier')}/v1/classify", payload) for payload in payloads]
    assert [one["usage"] for one in answer.data] == [one["usage"] for one in direct]
    for found, wanted in zip(answer.data, direct, strict=True):
        assert [row["label"] for row in found["data"]] == [row["label"] for row in wanted["data"]]
        for row, other in zip(found["data"], wanted["data"], strict=True):
            assert row["probs"] == pytest.approx(other["probs"], abs=1e-6)
    types = [headers["content-type"] for headers in answer.response_headers]
    assert types == ["application/msgpack"] * 2


def test_busy_server_is_asked_again(server: ServerUrl) -> None:
    url = server("single")
    client = PerformanceClient(base_url=url, api_key="any")
    patient = RequestProcessingPreference(
        batch_size=1,
        max_concurrent_requests=4,
        max_retries=6,
        initial_backoff_ms=250,
        retry_budget_pct=3.0,
    )
    texts = [f"{number} " + "one two three four five " * 50 for number in range(4)]
    with counted(url, f'infinity_rejected_total{{model="{NAME}",reason="requests_limit"}}'):
        found = client.embed(input=texts, model=NAME, preference=patient).numpy()
    direct = ask(f"{url}/embed", {"inputs": texts})
    assert np.allclose(found, np.array(direct, np.float32), atol=1e-5)


@pytest.mark.parametrize(
    ("key", "text", "status", "message"),
    [("wrong", "a", 401, "the API key is wrong"), (KEY, "", 400, "`inputs` cannot be empty")],
)
def test_errors(server: ServerUrl, key: str, text: str, status: int, message: str) -> None:
    client = PerformanceClient(base_url=server("keyed"), api_key=key)
    with pytest.raises(requests.exceptions.HTTPError, match=message) as caught:
        client.embed(input=[text], model=NAME)
    assert caught.value.args[0] == status
