"""`text-embeddings-inference-client`: types generated from an early TEI.

Its OpenAI call goes to `/openai`, a path that TEI itself has given up.
"""

import asyncio
from http import HTTPStatus

import pytest
from text_embeddings_inference_client import AuthenticatedClient, Client
from text_embeddings_inference_client.api.text_embeddings_inference import (
    embed,
    get_model_info,
    health,
    metrics,
)
from text_embeddings_inference_client.errors import UnexpectedStatus
from text_embeddings_inference_client.models import EmbedRequest, ErrorResponse, ErrorType

from client_kit import KEY, TEXTS, ServerUrl, ask


@pytest.fixture
def client(server: ServerUrl) -> AuthenticatedClient:
    return AuthenticatedClient(
        base_url=server("keyed"), token=KEY, raise_on_unexpected_status=True, timeout=60.0
    )


def test_embed(client: AuthenticatedClient, server: ServerUrl) -> None:
    direct = ask(f"{server('keyed')}/embed", {"inputs": TEXTS}, key=KEY)
    body = EmbedRequest(inputs=list(TEXTS), truncate=True)
    assert embed.sync(client=client, json_body=body) == direct
    assert asyncio.run(embed.asyncio(client=client, json_body=body)) == direct


def test_service_routes(server: ServerUrl) -> None:
    # It knows of no reply to these two, so that it must not be told to raise at unexpected ones.
    client = AuthenticatedClient(base_url=server("keyed"), token=KEY)
    assert health.sync_detailed(client=client).status_code == HTTPStatus.OK
    for module, content in ((get_model_info, b"max_input_length"), (metrics, b"te_request_count")):
        answer = module.sync_detailed(client=client)
        assert answer.status_code == HTTPStatus.OK
        assert content in answer.content


def test_errors_are_parsed(client: AuthenticatedClient) -> None:
    found = embed.sync(
        client=client, json_body=EmbedRequest(inputs="the dog " * 300, truncate=False)
    )
    assert isinstance(found, ErrorResponse)
    assert found.error_type == ErrorType.VALIDATION
    assert "must have less than 256 tokens" in found.error


def test_wrong_kind(server: ServerUrl) -> None:
    found = embed.sync(
        client=Client(base_url=server("reranker")), json_body=EmbedRequest(inputs="a")
    )
    assert isinstance(found, ErrorResponse)
    assert found.error_type == ErrorType.BACKEND


def test_wrong_key(server: ServerUrl) -> None:
    stranger = Client(base_url=server("keyed"), raise_on_unexpected_status=True)
    with pytest.raises(UnexpectedStatus, match="401"):
        embed.sync(client=stranger, json_body=EmbedRequest(inputs="a"))
