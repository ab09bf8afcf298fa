"""`infinity-client`: the typed client of Infinity's first server.

Three of its habits fit no server that speaks today's dialects: the document of a rerank result is
a string, a classification is a list of labels with scores, and where nobody asked for a number of
dimensions it asks for 0 of them.
"""

import asyncio

import numpy as np
import pytest
from infinity_client import AuthenticatedClient, Client
from infinity_client.api.default import embeddings, health, models, rerank
from infinity_client.errors import UnexpectedStatus
from infinity_client.models import (
    EmbeddingEncodingFormat,
    HTTPValidationError,
    OpenAIEmbeddingInputText,
    OpenAIEmbeddingResult,
    OpenAIModelInfo,
    RerankInput,
    ReRankResult,
)
from infinity_client.types import UNSET
from infinity_client.vision_client import InfinityVisionAPI

from client_kit import DOCUMENTS, KEY, NAME, QUERY, TEXTS, ServerUrl, ask, relevance


@pytest.fixture
def client(server: ServerUrl) -> AuthenticatedClient:
    return AuthenticatedClient(
        base_url=server("keyed"), token=KEY, raise_on_unexpected_status=True, timeout=60.0
    )


def texts_body() -> OpenAIEmbeddingInputText:
    return OpenAIEmbeddingInputText(
        input_=list(TEXTS),
        model=NAME,
        encoding_format=EmbeddingEncodingFormat.FLOAT,
        dimensions=UNSET,
    )


def test_embeddings(client: AuthenticatedClient, server: ServerUrl) -> None:
    direct = ask(f"{server('keyed')}/embed", {"inputs": TEXTS}, key=KEY)
    found = embeddings.sync(client=client, body=texts_body())
    assert isinstance(found, OpenAIEmbeddingResult)
    assert [row.embedding for row in found.data] == direct
    assert [row.index for row in found.data] == list(range(len(TEXTS)))
    assert (found.model, found.usage.prompt_tokens) == (NAME, found.usage.total_tokens)
    again = asyncio.run(embeddings.asyncio(client=client, body=texts_body()))
    assert isinstance(again, OpenAIEmbeddingResult)
    assert [row.embedding for row in again.data] == direct


def test_models(client: AuthenticatedClient) -> None:
    found = models.sync(client=client)
    assert isinstance(found, OpenAIModelInfo)
    assert [entry.id for entry in found.data] == [NAME]
    assert "embed" in found.data[0].capabilities
    assert found.data[0].stats["batch_size"] >= 0


def test_health(server: ServerUrl) -> None:
    # A health reply has no body, and this client reads one.
    answer = Client(base_url=server("keyed")).get_httpx_client().get("/health")
    assert answer.status_code == 200
    assert health.__name__.endswith("health")


@pytest.mark.parametrize("raw_scores", [True, False])
def test_rerank(server: ServerUrl, raw_scores: bool) -> None:
    url = server("keyed_reranker")
    body = RerankInput(
        query=QUERY, documents=list(DOCUMENTS), raw_scores=raw_scores, top_n=3, model="reranker"
    )
    found = rerank.sync(client=AuthenticatedClient(base_url=url, token=KEY), body=body)
    assert isinstance(found, ReRankResult)
    scores = relevance(url, raw_scores=raw_scores, key=KEY)
    assert [(r.index, r.relevance_score) for r in found.results] == list(scores.items())[:3]


def test_matrices_of_texts(server: ServerUrl) -> None:
    url = server("late_interaction")
    api = InfinityVisionAPI(url=url, format="base64", model=NAME)
    assert api.health()
    matrices, num_tokens = api.embed(NAME, ["a text", "the dog and the cat"]).result()
    direct = ask(f"{url}/embed_all", {"inputs": ["a text", "the dog and the cat"]})
    for found, wanted in zip(matrices, direct, strict=True):
        assert np.array_equal(found, np.array(wanted, np.float32))
    assert num_tokens >= sum(len(matrix) for matrix in direct)


def test_errors(server: ServerUrl, client: AuthenticatedClient) -> None:
    stranger = Client(base_url=server("keyed"), raise_on_unexpected_status=True)
    with pytest.raises(UnexpectedStatus, match="401"):
        embeddings.sync(client=stranger, body=texts_body())
    too_wide = OpenAIEmbeddingInputText(input_="a", model=NAME, dimensions=10_000)
    answer = embeddings.sync_detailed(client=client, body=too_wide)
    assert answer.status_code == 422
    assert isinstance(answer.parsed, HTTPValidationError)
