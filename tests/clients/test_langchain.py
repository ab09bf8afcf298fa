"""LangChain's embeddings over a Hugging Face endpoint and over the OpenAI route."""

import asyncio
import importlib.util
from pathlib import Path

import numpy as np
import openai
import pytest
from huggingface_hub.errors import HfHubHTTPError
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from numpy.typing import NDArray

from client_kit import KEY, NAME, TEXTS, ServerUrl, ask


@pytest.fixture(scope="module")
def direct(server: ServerUrl) -> NDArray[np.float32]:
    return np.array(ask(f"{server('keyed')}/embed", {"inputs": TEXTS}, key=KEY), np.float32)


def by_openai(url: str, *, key: str = KEY, is_splitting: bool = False) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model=NAME,
        base_url=f"{url}/v1",
        api_key=key,
        max_retries=0,
        check_embedding_ctx_length=is_splitting,
    )


def test_endpoint(server: ServerUrl, direct: NDArray[np.float32]) -> None:
    client = HuggingFaceEndpointEmbeddings(model=server("keyed"), huggingfacehub_api_token=KEY)
    assert np.array_equal(np.array(client.embed_documents(list(TEXTS)), np.float32), direct)
    assert np.allclose(client.embed_query(TEXTS[0]), direct[0], atol=1e-5)
    found = asyncio.run(client.aembed_documents(list(TEXTS)))
    assert np.array_equal(np.array(found, np.float32), direct)


def test_endpoint_with_a_wrong_key(server: ServerUrl) -> None:
    client = HuggingFaceEndpointEmbeddings(model=server("keyed"), huggingfacehub_api_token="no")
    with pytest.raises(HfHubHTTPError, match="401"):
        client.embed_query("a")


def test_openai(server: ServerUrl, direct: NDArray[np.float32]) -> None:
    client = by_openai(server("keyed"))
    assert np.array_equal(np.array(client.embed_documents(list(TEXTS)), np.float32), direct)
    assert np.allclose(client.embed_query(TEXTS[0]), direct[0], atol=1e-5)


def test_openai_with_a_wrong_key(server: ServerUrl) -> None:
    with pytest.raises(openai.AuthenticationError, match="the API key is wrong"):
        by_openai(server("keyed"), key="wrong").embed_query("a")


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's token ids without a download: LiteLLM brings the file."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))


@pytest.mark.usefixtures("vocabulary")
def test_openai_by_default_sends_ids_of_its_own_vocabulary(server: ServerUrl) -> None:
    # They are ids all the same: those that this vocabulary has are embedded, others are refused.
    client = by_openai(server("keyed"), is_splitting=True)
    with pytest.raises(openai.UnprocessableEntityError, match="vocabulary") as caught:
        client.embed_query("深度学习")
    assert caught.value.code == "invalid_token_id"
    ids = client.embed_query("a b")
    assert len(ids) == 384
