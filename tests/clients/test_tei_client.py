"""`tei-client`: every route that its typed client knows."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tei_client import ClassificationTuple, HttpClient, ModelType

from client_kit import DOCUMENTS, KEY, QUERY, TEXTS, ServerUrl, ask, relevance

ClientOf = Callable[..., HttpClient]


@pytest.fixture
def client_of() -> Iterator[ClientOf]:
    """Makes clients, and closes their connections in the end: they have no method for it."""
    with ExitStack() as stack:

        def make(url: str, **options: object) -> HttpClient:
            client = HttpClient(url, **options)
            stack.enter_context(client.client)
            return client

        yield make


def test_info(client_of: ClientOf, server: ServerUrl) -> None:
    for name, kind in {
        "embedding": ModelType.Embedding,
        "classifier": ModelType.Classifier,
        "reranker": ModelType.Reranker,
    }.items():
        client, direct = client_of(server(name)), ask(f"{server(name)}/info")
        assert client.health()
        found = client.info()
        assert found.server_model_type == kind
        assert found.max_input_length == direct["max_input_length"]
        assert found.max_client_batch_size == direct["max_client_batch_size"] == 1024
        assert found.server_model_metadata is not None
        assert found.server_model_metadata.model_dump() == next(iter(direct["model_type"].values()))


def test_embed(client_of: ClientOf, server: ServerUrl) -> None:
    client = client_of(server("embedding"))
    for normalize in (True, False):
        body = {"inputs": TEXTS, "normalize": normalize}
        direct = ask(f"{server('embedding')}/embed", body)
        assert client.embed(list(TEXTS), normalize=normalize, truncate=True) == direct
    assert client.embed(TEXTS[0]) == ask(f"{server('embedding')}/embed", {"inputs": TEXTS[0]})
    assert client.embed([[101, 3231, 102]]) == client.embed("test")


def test_embed_all(client_of: ClientOf, server: ServerUrl) -> None:
    found = client_of(server("embedding")).embed_all(TEXTS[0])
    assert found == ask(f"{server('embedding')}/embed_all", {"inputs": TEXTS[0]})


def test_embed_asynchronously(client_of: ClientOf, server: ServerUrl) -> None:
    async def embed() -> object:
        client = client_of(server("embedding"))
        async with client.async_client:
            return await client.async_embed(TEXTS[0])

    found = asyncio.run(embed())
    assert found == ask(f"{server('embedding')}/embed", {"inputs": TEXTS[0]})


def test_prompt_names(client_of: ClientOf, server: ServerUrl) -> None:
    named = ask(f"{server('prompts')}/info")["prompts"]
    assert sorted(named) == ["passage", "query"]
    assert client_of(server("prompts")).prompt_names() == named
    assert client_of(server("embedding")).prompt_names() == []


def test_tokens_there_and_back(client_of: ClientOf, server: ServerUrl) -> None:
    client = client_of(server("embedding"))
    (found,) = client.tokenize("naive cafe")
    assert [token.text for token in found.tokens if not token.special] == ["naive", "cafe"]
    assert client.decode(found.get_ids()) == ["naive cafe"]


def test_classify(client_of: ClientOf, server: ServerUrl) -> None:
    client, url = client_of(server("classifier")), server("classifier")
    for given, sent in (
        (DOCUMENTS[0], [[DOCUMENTS[0]]]),
        (list(DOCUMENTS), [[text] for text in DOCUMENTS]),
        ([ClassificationTuple("a", "b")], [["a", "b"]]),
    ):
        direct = ask(f"{url}/predict", {"inputs": sent})
        found = client.classify(given)
        assert [[s.model_dump() for s in result.scores] for result in found] == direct


def test_rerank(client_of: ClientOf, server: ServerUrl) -> None:
    for raw_scores in (True, False):
        found = client_of(server("reranker")).rerank(
            QUERY, list(DOCUMENTS), return_text=True, raw_scores=raw_scores
        )
        direct = relevance(server("reranker"), raw_scores=raw_scores)
        assert {rank.index: rank.score for rank in found.ranks} == direct
        assert all(rank.text == DOCUMENTS[rank.index] for rank in found.ranks)


def test_key(client_of: ClientOf, server: ServerUrl) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    found = client_of(server("keyed"), headers=headers).embed(TEXTS[0])
    assert found == ask(f"{server('keyed')}/embed", {"inputs": TEXTS[0]}, key=KEY)
    assert not client_of(server("keyed")).health()


def test_wrong_kind(client_of: ClientOf, server: ServerUrl) -> None:
    with pytest.raises(AssertionError, match="model required"):
        client_of(server("reranker")).embed("a")
