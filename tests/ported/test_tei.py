"""Cases of huggingface/text-embeddings-inference, written anew for our routes.

Each test names the file that its inputs and expectations come from. A comment that begins with
"Differs" cites what we answer otherwise on purpose.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edge_case import CLASSIFIER, RANKER, WIDTH
from ported_servers import post, send, vectors
from server_process import ServerProcess

pytestmark = pytest.mark.e2e

TEXT_A, TEXT_B = "What is Deep Learning?", "Deep Learning is..."
GAUDI_MODEL = "BAAI/bge-large-en-v1.5"
GAUDI_HEAD = (
    *(0.01712719, 0.003211348, -0.050762516, -0.03549249),
    *(0.013412859, -0.023420917, -0.015270025, -0.021254225),
)


def test_embeddings(minilm_server: ServerProcess) -> None:
    """router/tests/test_http_embed.rs: one text, and five equal ones."""
    (single,) = post(minilm_server, "/embed", {"inputs": "test"})
    batch = post(minilm_server, "/embed", {"inputs": ["test"] * 5})
    assert len(single) == WIDTH
    assert len(batch) == 5
    assert np.abs(np.array(batch) - np.array(single)).max() <= 1e-6


def test_raw_embeddings(minilm_server: ServerProcess) -> None:
    """router/tests/test_http_embed.rs: a row per token; `/embed_all`, formerly `/embed_raw`."""
    (rows,) = post(minilm_server, "/embed_all", {"inputs": "test"})
    assert np.array(rows).shape == (3, WIDTH)
    post(minilm_server, "/embed_raw", {"inputs": "test"}, status=404)


def test_matryoshka(minilm_server: ServerProcess) -> None:
    """router/tests/test_http_embed.rs: cut to 128, alone and three times."""
    body = {"inputs": "test", "dimensions": 128}
    (single,) = post(minilm_server, "/embed", body)
    batch = post(minilm_server, "/embed", {**body, "inputs": ["test"] * 3})
    assert np.array(batch).shape == (3, 128)
    assert np.abs(np.array(batch) - np.array(single)).max() <= 1e-6
    assert np.linalg.norm(single) == pytest.approx(1.0, abs=1e-6)


def test_predict(several_server: ServerProcess) -> None:
    """router/tests/test_http_predict.rs: one text, and five equal ones as lists of one."""
    single = post(several_server, "/predict", {"model": CLASSIFIER, "inputs": "test"})
    assert {entry["label"] for entry in single} == {"LABEL_0", "LABEL_1", "LABEL_2"}
    scores = [entry["score"] for entry in single]
    assert scores == sorted(scores, reverse=True)
    batch = post(several_server, "/predict", {"model": CLASSIFIER, "inputs": [["test"]] * 5})
    assert len(batch) == 5
    for entries in batch:
        assert [entry["label"] for entry in entries] == [entry["label"] for entry in single]
        assert [entry["score"] for entry in entries] == pytest.approx(scores, abs=1e-6)


def test_rerank(several_server: ServerProcess) -> None:
    """router/tests/test_http_rerank.rs: the query itself twice, and something else between."""
    texts = ["test", "other", "test"]
    body = {"model": RANKER, "query": "test", "texts": texts, "return_text": True}
    ranks = post(several_server, "/rerank", body)
    equal = [entry for entry in ranks if entry["text"] == "test"]
    # Differs, "rerank ties": the lower index first; there the higher one.
    assert [entry["index"] for entry in equal] == [0, 2]
    assert equal[0]["score"] == equal[1]["score"]
    assert [entry["text"] for entry in ranks] == [texts[entry["index"]] for entry in ranks]


def test_mini_batch(minilm_server: ServerProcess) -> None:
    """backends/candle/tests/test_bert.rs, test_mini: the same text beside another and alone."""
    body = {"inputs": [TEXT_A, TEXT_B, TEXT_A], "normalize": False}
    first, other, last = np.array(post(minilm_server, "/embed", body))
    (alone,) = np.array(post(minilm_server, "/embed", {"inputs": TEXT_A, "normalize": False}))
    assert np.abs(first - alone).max() <= 1e-5
    assert np.abs(last - alone).max() <= 1e-5
    assert np.abs(other - alone).max() > 0.1


def test_pooled_and_raw_at_once(minilm_server: ServerProcess) -> None:
    """backends/candle/tests/test_bert.rs, test_mini_pooled_raw: both kinds in one moment."""
    texts = [TEXT_A, TEXT_B] * 3
    with ThreadPoolExecutor(8) as pool:
        raw = [pool.submit(post, minilm_server, "/embed_all", {"inputs": text}) for text in texts]
        body = {"inputs": texts, "normalize": False}
        pooled = np.array(pool.submit(post, minilm_server, "/embed", body).result())
        matrices = [np.array(one.result()[0]) for one in raw]
    assert [len(matrix) for matrix in matrices] == [7, 8] * 3
    for row, matrix in zip(pooled, matrices, strict=True):
        assert np.abs(matrix.mean(axis=0) - row).max() <= 1e-5


def test_emotions(several_server: ServerProcess) -> None:
    """backends/candle/tests/test_bert.rs, test_emotions: logits alone and in a batch."""
    texts = ["I like you.", "I am not having a great day.", "I like you."]
    body = {"model": CLASSIFIER, "input": texts, "use_activation": False}
    rows = [entry["probs"] for entry in post(several_server, "/v1/classify", body)["data"]]
    (alone,) = post(several_server, "/v1/classify", {**body, "input": texts[0]})["data"]
    assert rows[0] == pytest.approx(alone["probs"], abs=1e-5)
    assert rows[2] == pytest.approx(alone["probs"], abs=1e-5)


def test_pair(several_server: ServerProcess) -> None:
    """backends/candle/tests/test_bert.rs, test_bert_classification: a pair has one score."""
    pair = [
        "PrimeTime is a timing signoff tool",
        "PrimeTime can perform most accurate timing analysis",
    ]
    body = {"model": RANKER, "inputs": pair, "raw_scores": True}
    (entry,) = post(several_server, "/predict", body)
    ranked = {"model": RANKER, "query": pair[0], "texts": pair[1:], "raw_scores": True}
    (rank,) = post(several_server, "/rerank", ranked)
    assert entry["score"] == rank["score"]


@pytest.mark.parametrize("name", ["equal", "ragged"])
def test_equal_lengths(minilm_server: ServerProcess, name: str) -> None:
    """backends/candle/tests/test_qwen3_equal_length_batch.rs: no text sees its neighbours."""
    texts = [f"{word} is learning" for word in ("deep", "slow", "fast", "this")]
    if name == "ragged":
        texts = [" ".join([text] * (place + 1)) for place, text in enumerate(texts)]
    batch = np.array(post(minilm_server, "/embed", {"inputs": texts}))
    for text, row in zip(texts, batch, strict=True):
        (alone,) = post(minilm_server, "/embed", {"inputs": text})
        assert np.abs(row - np.array(alone)).max() <= 1e-5


TIMES = ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time")


def test_load(minilm_server: ServerProcess) -> None:
    """load_tests/load.js: long texts to `/` at once; each answer names its times."""
    body = {"inputs": "approximately 330 metres east of the corner, then " * 60, "truncate": True}
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: send(minilm_server, "/", body), range(8)))
    assert {reply.status for reply in replies} == {200}
    for reply in replies:
        assert all(re.fullmatch(r"\d+", reply.headers[name]) for name in TIMES)


@pytest.fixture
def gaudi_server(tmp_path: Path) -> Iterator[ServerProcess]:
    folder = os.environ.get("INFINITY_TEST_WEIGHTS")
    if folder is None or not (Path(folder) / GAUDI_MODEL).is_dir():
        pytest.skip(f"INFINITY_TEST_WEIGHTS names no folder with {GAUDI_MODEL} in it")
    options = ("--dtype", "float32", "--artifact-cache", str(tmp_path))
    path = Path(folder) / GAUDI_MODEL
    with ServerProcess(path, *options, ready_timeout_s=3600) as server:
        yield server


@pytest.mark.slow
def test_gaudi(gaudi_server: ServerProcess) -> None:
    """integration_tests/gaudi/test_embed.py: the head of one vector; theirs was bfloat16."""
    (row,) = post(gaudi_server, "/embed", {"inputs": TEXT_A})
    assert row[:8] == pytest.approx(GAUDI_HEAD, abs=4e-3)


def test_openai_route_agrees(minilm_server: ServerProcess) -> None:
    """router/tests/test_http_embed.rs by way of the other route."""
    answer = post(minilm_server, "/v1/embeddings", {"input": ["test"] * 5})
    (row,) = post(minilm_server, "/embed", {"inputs": "test"})
    assert np.abs(vectors(answer) - np.array(row)).max() <= 1e-6
