"""The `cohere` client with another base URL: rerank of both API versions, and its errors."""

from collections.abc import Iterator

import cohere
import pytest
from cohere import ApiMeta
from cohere.errors import BadRequestError, UnauthorizedError, UnprocessableEntityError

from client_kit import DOCUMENTS, KEY, QUERY, ServerUrl, relevance

MODEL = "reranker"


@pytest.fixture(scope="module")
def first(server: ServerUrl) -> Iterator[cohere.Client]:
    with cohere.Client(api_key=KEY, base_url=server("keyed_reranker")) as client:
        yield client


@pytest.fixture(scope="module")
def second(server: ServerUrl) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2(api_key=KEY, base_url=server("keyed_reranker")) as client:
        yield client


def test_first_version(first: cohere.Client, server: ServerUrl) -> None:
    answer = first.rerank(query=QUERY, documents=list(DOCUMENTS), model=MODEL)
    found = [(row.index, row.relevance_score) for row in answer.results]
    assert found == list(relevance(server("keyed_reranker"), key=KEY).items())
    assert version_of(answer.meta) == "1"


def test_first_version_with_documents(first: cohere.Client) -> None:
    documents = [{"text": text, "title": "ignored"} for text in DOCUMENTS]
    answer = first.rerank(query=QUERY, documents=documents, return_documents=True, top_n=2)
    assert len(answer.results) == 2
    for row in answer.results:
        assert row.document is not None
        assert row.document.text == DOCUMENTS[row.index]


def test_second_version(second: cohere.ClientV2, server: ServerUrl) -> None:
    answer = second.rerank(query=QUERY, documents=list(DOCUMENTS), model=MODEL, top_n=3)
    found = [(row.index, row.relevance_score) for row in answer.results]
    assert found == list(relevance(server("keyed_reranker"), key=KEY).items())[:3]
    assert version_of(answer.meta) == "2"
    assert str(answer.id).startswith("rerank-")


def test_documents_cut_to_tokens(second: cohere.ClientV2) -> None:
    longer = [f"{text} and what follows is cut" for text in DOCUMENTS]
    kept = second.rerank(query=QUERY, documents=longer, model=MODEL, max_tokens_per_doc=1)
    again = second.rerank(query=QUERY, documents=list(DOCUMENTS), model=MODEL, max_tokens_per_doc=1)
    assert [row.relevance_score for row in kept.results] == pytest.approx(
        [row.relevance_score for row in again.results], abs=1e-6
    )


def version_of(meta: ApiMeta | None) -> str:
    assert meta is not None
    assert meta.api_version is not None
    return str(meta.api_version.version)


def test_wrong_key(server: ServerUrl) -> None:
    with (
        cohere.ClientV2(api_key="wrong", base_url=server("keyed_reranker")) as client,
        pytest.raises(UnauthorizedError) as caught,
    ):
        client.rerank(query=QUERY, documents=list(DOCUMENTS), model=MODEL)
    assert "the API key is wrong" in caught.value.body["message"]


def test_refusals_are_told(first: cohere.Client, second: cohere.ClientV2) -> None:
    with pytest.raises(UnprocessableEntityError) as refused:
        second.rerank(query=QUERY, documents=list(DOCUMENTS), model=MODEL, top_n=0)
    assert "top_n" in refused.value.body["message"]
    with pytest.raises(BadRequestError) as empty:
        first.rerank(query=QUERY, documents=[])
    assert "`documents` cannot be empty" in empty.value.body["message"]
