"""The `rerankers` library with this server as its API: TEI's, Cohere's and Jina's dialect."""

import pytest
from rerankers import Document, Reranker
from rerankers.models.ranker import BaseRanker

from client_kit import DOCUMENTS, KEY, QUERY, ServerUrl, relevance

PATHS = {"text-embeddings-inference": "/rerank", "cohere": "/v2/rerank", "jina": "/v1/rerank"}


def make_ranker(url: str, provider: str) -> BaseRanker:
    ranker = Reranker(
        "reranker", model_type=provider, api_key=KEY, url=url + PATHS[provider], verbose=0
    )
    assert ranker is not None
    return ranker


@pytest.mark.parametrize("provider", PATHS)
def test_rank(server: ServerUrl, provider: str) -> None:
    url = server("keyed_reranker")
    answer = make_ranker(url, provider).rank(query=QUERY, docs=list(DOCUMENTS))
    found = [(result.doc_id, result.score) for result in answer.results]
    assert found == list(relevance(url, key=KEY).items())
    assert [result.text for result in answer.results] == [DOCUMENTS[index] for index, _ in found]


def test_score(server: ServerUrl) -> None:
    url = server("keyed_reranker")
    document = Document(DOCUMENTS[0], doc_id=0)
    found = make_ranker(url, "cohere").score(QUERY, document)
    assert found == pytest.approx(relevance(url, key=KEY)[0], abs=1e-6)
