"""Cases of michaelfeil/infinity, libs/infinity_emb/tests/end_to_end, written anew for our routes.

Each test names the file that its inputs and expectations come from. A comment that begins with
"Differs" cites what we answer otherwise on purpose.
"""

import base64
import itertools
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from openai import AuthenticationError, OpenAI

from edge_case import CLASSIFIER, KEY, RANKER, SHORT, SLOTLESS, WIDTH, WITH_KEY
from ported_servers import cosine, post, vectors
from server_process import ServerProcess

pytestmark = pytest.mark.e2e

SENTENCES = ["This is a test sentence.", "This is another test sentence."]
QUERY = "Where is the Eiffel Tower located?"
ANSWERS = (
    "The Eiffel Tower is located in the United States.",
    "The Eiffel Tower is located in Paris, France",
    "The Eiffel Tower is located in the United Kingdom.",
)
DOCUMENTS = ["My favorite dish is a hamburger.", *ANSWERS, "I enjoiy flying to the moon."]


def test_model_route(several_server: ServerProcess) -> None:
    """test_api_with_dummymodel.py: every model in its order, with statistics."""
    entries = several_server.get("/models", WITH_KEY).json()
    assert isinstance(entries, dict)
    names = [entry["id"] for entry in entries["data"]]
    assert names == [SLOTLESS, SHORT, RANKER, CLASSIFIER]
    assert all(isinstance(entry["stats"], dict) for entry in entries["data"])
    health = several_server.get("/health")
    # Differs: the body is empty, as probes of the other servers expect it; there it was the time.
    assert (health.status, health.body) == (200, b"")


def test_max_length(minilm_server: ServerProcess) -> None:
    """test_api_with_dummymodel.py: too many characters are refused, as many as allowed are not."""
    # Differs: only a request that forbids cutting is refused; others are cut at the token limit.
    long = "%_" * 32_001
    post(minilm_server, "/embeddings", {"input": long, "truncate": False}, status=422)
    answer = post(minilm_server, "/embeddings", {"input": long})
    assert answer["usage"]["total_tokens"] == 256


def test_base64(minilm_server: ServerProcess) -> None:
    """test_api_with_dummymodel.py: both encodings hold the same numbers."""
    found = [
        post(minilm_server, "/embeddings", {"input": "Hello World", "encoding_format": name})
        for name in ("float", "base64")
    ]
    floats, text = (answer["data"][0]["embedding"] for answer in found)
    decoded = np.frombuffer(base64.b64decode(text), dtype="<f4")
    assert decoded.tobytes() == np.array(floats, dtype="<f4").tobytes()


@pytest.mark.parametrize("inputs", [SENTENCES[:1], SENTENCES])
@pytest.mark.parametrize("dimensions", [None, 10])
def test_embedding(minilm_server: ServerProcess, inputs: list[str], dimensions: int | None) -> None:
    """test_api_with_dummymodel.py: as many vectors as texts, as wide as asked for."""
    answer = post(minilm_server, "/embeddings", {"input": inputs, "dimensions": dimensions})
    assert vectors(answer).shape == (len(inputs), dimensions or WIDTH)


def test_batches_at_once(minilm_server: ServerProcess) -> None:
    """test_api_with_dummymodel.py: many requests of eight texts, each answered in its order."""
    choice = random.Random(8)
    texts = [f"sentence {choice.randint(0, 40)} of a set" for _ in range(200)]
    parts = [texts[start : start + 8] for start in range(0, len(texts), 8)]
    with ThreadPoolExecutor(25) as pool:
        answers = list(
            pool.map(lambda part: post(minilm_server, "/embeddings", {"input": part}), parts)
        )
    rows = np.concatenate([vectors(answer) for answer in answers])
    first = {text: row for text, row in zip(reversed(texts), reversed(rows), strict=True)}
    assert all(
        np.abs(row - first[text]).max() < 1e-5 for text, row in zip(texts, rows, strict=True)
    )


def test_openapi(minilm_server: ServerProcess) -> None:
    """test_api_with_dummymodel.py: the description names the routes; ours lies elsewhere."""
    document = minilm_server.get("/api-doc/openapi.json").json()
    assert isinstance(document, dict)
    assert document["openapi"].startswith("3.1")
    wanted = {"/embeddings", "/rerank", "/classify", "/models", "/health"}
    assert wanted <= set(document["paths"])


MODEL_FIELDS = {
    "id": str,
    "stats": dict,
    "object": str,
    "owned_by": str,
    "created": int,
    "backend": str,
    "capabilities": list,
}
STATISTICS = {"queue_fraction", "queue_absolute", "results_pending", "batch_size"}


def test_model_fields(minilm_server: ServerProcess) -> None:
    """libs/client_infinity/tests/test_client.py and docs/assets/openapi.json: what is typed."""
    document = minilm_server.get("/models").json()
    assert isinstance(document, dict)
    (entry,) = document["data"]
    assert {name: type(entry[name]) for name in MODEL_FIELDS} == MODEL_FIELDS
    assert (entry["object"], entry["owned_by"]) == ("model", "infinity")
    assert set(entry["stats"]) >= STATISTICS
    assert len(set(entry["capabilities"])) == len(entry["capabilities"])


@pytest.mark.parametrize("field", ["user", "encoding_format", "dimensions", "modality"])
def test_defaults_of_the_description(minilm_server: ServerProcess, field: str) -> None:
    """docs/assets/openapi.json: the default model's name; fields that may be null."""
    body = {"input": ["a cat"], "model": "default/not-specified", field: None}
    assert len(vectors(post(minilm_server, "/embeddings", body))) == 1


@pytest.mark.parametrize("path", ["/embeddings_image", "/embeddings_audio"])
def test_deprecated_routes(minilm_server: ServerProcess, path: str) -> None:
    """docs/assets/openapi.json. Differs: what was deprecated there is not served here."""
    post(minilm_server, path, {"input": ["data:image/png;base64,AAAA"]}, status=404)


CALLS: Mapping[str, tuple[str, Mapping[str, object] | None]] = {
    "/models": ("GET", None),
    "/embeddings": ("POST", {"model": SHORT, "input": "sentence"}),
    "/rerank": (
        "POST",
        {"model": RANKER, "query": "Where is Munich?", "documents": ["Munich is in Germany."]},
    ),
}


@pytest.mark.parametrize("path", CALLS)
def test_authentication(several_server: ServerProcess, path: str) -> None:
    """test_authentication.py: 401 without the key, something else with it."""
    method, body = CALLS[path]
    statuses = [
        several_server.get(path, headers).status
        if method == "GET"
        else several_server.post(path, body, headers).status
        for headers in ({}, WITH_KEY)
    ]
    assert statuses == [401, 200]


def test_openai_client(several_server: ServerProcess) -> None:
    """test_openapi_client_compat.py: texts by modality, other modalities, a wrong key."""
    url = f"{several_server.base_url}/v1"
    with OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        answer = client.embeddings.create(
            model=SHORT,
            input=["a cat", "a cat", "a bird"],
            encoding_format="float",
            extra_body={"modality": "text"},
        )
    same, again, other = (entry.embedding for entry in answer.data)
    assert same == pytest.approx(again, abs=1e-5)
    assert cosine(same, other) < 0.99
    for modality in ("image", "audio"):
        # Differs: this model takes texts alone, and never embeds an address as if it were one.
        body = {"model": SHORT, "input": ["https://a.example/cat"], "modality": modality}
        post(several_server, "/v1/embeddings", body, status=422)
    with (
        OpenAI(base_url=url, api_key="some_wrong", max_retries=0) as client,
        pytest.raises(AuthenticationError),
    ):
        client.embeddings.create(model=SHORT, input=["a cat"])


def test_reranker(several_server: ServerProcess) -> None:
    """test_torch_reranker.py: scores of all documents; those of a pair alone."""
    body = {"model": RANKER, "query": QUERY, "documents": DOCUMENTS}
    answer = post(several_server, "/rerank", body)
    assert answer["model"] == RANKER
    assert answer["usage"]["total_tokens"] > 0
    assert sorted(entry["index"] for entry in answer["results"]) == [0, 1, 2, 3, 4]
    for entry in answer["results"]:
        pair = {"model": RANKER, "inputs": [QUERY, DOCUMENTS[entry["index"]]]}
        (expected,) = post(several_server, "/predict", pair)
        assert entry["relevance_score"] == pytest.approx(expected["score"], abs=1e-5)


@pytest.mark.parametrize("top_n", [1, 2, 8000])
@pytest.mark.parametrize("has_documents", [True, False])
def test_reranker_top_n(several_server: ServerProcess, top_n: int, has_documents: bool) -> None:
    """test_torch_reranker.py: the best document, wherever it stands."""
    best = set()
    for documents in itertools.permutations(ANSWERS):
        body = {
            "model": RANKER,
            "query": QUERY,
            "documents": documents,
            "top_n": top_n,
            "return_documents": has_documents,
        }
        results = post(several_server, "/rerank", body)["results"]
        assert len(results) == min(top_n, len(documents))
        best.add(documents[results[0]["index"]])
        # Differs: a document is an object with its text, as Jina and Cohere send it.
        expected = {"text": documents[results[0]["index"]]} if has_documents else None
        assert results[0].get("document") == expected
    assert len(best) == 1


@pytest.mark.parametrize("top_n", [-1, 0])
def test_reranker_invalid_top_n(several_server: ServerProcess, top_n: int) -> None:
    """test_torch_reranker.py: refused."""
    body = {"model": RANKER, "query": QUERY, "documents": ANSWERS, "top_n": top_n}
    post(several_server, "/rerank", body, status=422)


def test_reranker_is_no_embedder(several_server: ServerProcess) -> None:
    """test_torch_reranker.py: other tasks of a reranker."""
    body = {"model": RANKER, "input": ANSWERS}
    # Differs: 424 where the model cannot; a reranker classifies, its one label.
    post(several_server, "/embeddings", body, status=424)
    rows = post(several_server, "/classify", body)["data"]
    assert [row["probs"] for row in rows] == [[1.0]] * 3


def test_classifier(several_server: ServerProcess) -> None:
    """test_torch_classify.py: three texts."""
    texts = ["I love fries!", "I hate fries!", "I am jealous of fries!"]
    answer = post(several_server, "/classify", {"model": CLASSIFIER, "input": texts})
    assert answer["model"] == CLASSIFIER
    assert answer["usage"]["total_tokens"] > 0
    assert [entry["index"] for entry in answer["data"]] == [0, 1, 2]
    for entry in answer["data"]:
        assert sum(entry["probs"]) == pytest.approx(1.0, abs=1e-9)
        assert entry["label"] == f"LABEL_{int(np.argmax(entry['probs']))}"
