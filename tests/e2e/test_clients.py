"""Clients that others publish, unmodified, against a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from numpy.typing import NDArray
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from openai.types import CreateEmbeddingResponse

from http_client import Json
from server_process import ServerProcess

KEY = "the-right-key"
NAME = "all-MiniLM-L6-v2"
TEXTS = ["What is Deep Learning?", "Deep Learning is...", "naïve café", "深度学习"]


@pytest.fixture(scope="module")
def server(minilm_artifact: Path) -> Iterator[ServerProcess]:
    with ServerProcess(minilm_artifact, env={"INFINITY_API_KEY": KEY}) as server:
        yield server


@pytest.fixture(scope="module")
def openai(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def direct(server: ServerProcess) -> Json:
    """What `/embed` answers for the texts."""
    reply = server.post("/embed", {"inputs": TEXTS}, {"authorization": f"Bearer {KEY}"})
    assert reply.status == 200
    return reply.json()


class TestOpenAI:
    def test_embeddings_by_default(self, openai: OpenAI, direct: Json) -> None:
        answer = openai.embeddings.create(model=NAME, input=TEXTS)
        assert [entry.index for entry in answer.data] == [0, 1, 2, 3]
        assert np.array_equal(_rows(answer), np.array(direct, dtype=np.float32))
        assert answer.model == NAME
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)

    def test_embeddings_as_floats(self, openai: OpenAI, direct: Json) -> None:
        answer = openai.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
        assert np.array_equal(_rows(answer), np.array(direct, dtype=np.float32))

    def test_one_text_and_ids(self, openai: OpenAI) -> None:
        text = openai.embeddings.create(model=NAME, input="test")
        ids = openai.embeddings.create(model=NAME, input=[101, 3231, 102])
        assert np.array_equal(_rows(text), _rows(ids))

    def test_dimensions(self, openai: OpenAI) -> None:
        answer = openai.embeddings.create(model=NAME, input=TEXTS, dimensions=64)
        assert _rows(answer).shape == (4, 64)

    def test_models(self, openai: OpenAI) -> None:
        (listed,) = openai.models.list().data
        shown = openai.models.retrieve(NAME)
        assert (listed.id, shown.id, shown.owned_by) == (NAME, NAME, "infinity")
        with pytest.raises(NotFoundError, match="'nope' is not served here"):
            openai.models.retrieve("nope")

    @pytest.mark.parametrize("num_texts", [1, 1000])
    def test_wrong_key(self, server: ServerProcess, num_texts: int) -> None:
        texts = ["a text that makes the body long"] * num_texts
        with (
            OpenAI(base_url=f"{server.base_url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(AuthenticationError, match="the API key is wrong") as caught,
        ):
            client.embeddings.create(model=NAME, input=texts)
        assert caught.value.code == "invalid_api_key"

    def test_empty_input(self, openai: OpenAI) -> None:
        with pytest.raises(BadRequestError, match="`inputs` cannot be empty") as caught:
            openai.embeddings.create(model=NAME, input="")
        assert caught.value.code == "empty_input"
        with pytest.raises(BadRequestError, match=r"\(item 1\)"):
            openai.embeddings.create(model=NAME, input=["a", ""])


class TestHuggingFace:
    def test_feature_extraction(self, server: ServerProcess, direct: Json) -> None:
        client = InferenceClient(server.base_url, token=KEY)
        for text, row in zip(TEXTS, direct, strict=True):
            found = client.feature_extraction(text)
            assert found.dtype == np.float32
            assert cosine(found[0], np.array(row)) >= 0.9999

    @pytest.mark.parametrize("normalize", [True, False])
    @pytest.mark.parametrize("side", ["left", "right"])
    def test_feature_extraction_of_one_text_equals_the_direct_call(
        self, server: ServerProcess, normalize: bool, side: Literal["left", "right"]
    ) -> None:
        text = "one two three " * 200
        body = {"inputs": text, "normalize": normalize, "truncation_direction": side}
        direct = server.post("/embed", body, {"authorization": f"Bearer {KEY}"})
        client = InferenceClient(server.base_url, token=KEY)
        found = client.feature_extraction(
            text, normalize=normalize, truncate=True, truncation_direction=side
        )
        assert np.array_equal(found, np.array(direct.json(), dtype=np.float32))


def cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def _rows(answer: CreateEmbeddingResponse) -> NDArray[np.float32]:
    return np.array([entry.embedding for entry in answer.data], dtype=np.float32)
