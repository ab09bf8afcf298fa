"""LiteLLM with its provider `infinity`: embedding and rerank."""

import asyncio

import litellm
import pytest

from client_kit import DOCUMENTS, KEY, NAME, QUERY, TEXTS, ServerUrl, ask, relevance


def test_embedding(server: ServerUrl) -> None:
    url = server("keyed")
    answer = litellm.embedding(
        model=f"infinity/{NAME}", input=list(TEXTS), api_base=url, api_key=KEY
    )
    direct = ask(f"{url}/embed", {"inputs": TEXTS}, key=KEY)
    assert [row["embedding"] for row in answer.data] == direct
    assert answer.model == NAME
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_embedding_asynchronously(server: ServerUrl) -> None:
    url = server("keyed")
    answer = asyncio.run(
        litellm.aembedding(model=f"infinity/{NAME}", input=["a"], api_base=url, api_key=KEY)
    )
    assert [row["embedding"] for row in answer.data] == ask(
        f"{url}/embed", {"inputs": ["a"]}, key=KEY
    )


def test_rerank(server: ServerUrl) -> None:
    url = server("keyed_reranker")
    answer = litellm.rerank(
        model="infinity/reranker",
        query=QUERY,
        documents=list(DOCUMENTS),
        top_n=3,
        return_documents=False,
        api_base=url,
        api_key=KEY,
    )
    found = [(row["index"], row["relevance_score"]) for row in answer.results]
    assert found == list(relevance(url, key=KEY).items())[:3]
    assert answer.meta["tokens"]["input_tokens"] > len(DOCUMENTS)


@pytest.mark.parametrize("provider", ["cohere", "jina_ai", "hosted_vllm"])
def test_rerank_in_other_dialects(server: ServerUrl, provider: str) -> None:
    url = server("keyed_reranker")
    answer = litellm.rerank(
        model=f"{provider}/reranker",
        query=QUERY,
        documents=list(DOCUMENTS),
        return_documents=True,
        api_base=url,
        api_key=KEY,
    )
    found = [(row["index"], row["relevance_score"]) for row in answer.results]
    assert found == list(relevance(url, key=KEY).items())
    assert [row["document"]["text"] for row in answer.results] == [DOCUMENTS[i] for i, _ in found]


def test_wrong_key(server: ServerUrl) -> None:
    with pytest.raises(litellm.AuthenticationError, match="the API key is wrong"):
        litellm.embedding(
            model=f"infinity/{NAME}", input=["a"], api_base=server("keyed"), api_key="wrong"
        )


def test_empty_input(server: ServerUrl) -> None:
    with pytest.raises(litellm.BadRequestError, match="`inputs` cannot be empty"):
        litellm.embedding(
            model=f"infinity/{NAME}", input=[""], api_base=server("keyed"), api_key=KEY
        )
