"""The `openai` client: embeddings in every encoding, models, and the errors that it raises."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from openai import (
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OpenAI,
    RateLimitError,
    UnprocessableEntityError,
)
from openai.types import CreateEmbeddingResponse

from client_kit import KEY, NAME, TEXTS, Json, ServerUrl, ask, counted

NUM_AT_ONCE = 3
LONG_BATCH = ["one two three four five six seven eight nine ten " * 40] * 4


@pytest.fixture(scope="module")
def client(server: ServerUrl) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server('keyed')}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def direct(server: ServerUrl) -> NDArray[np.float32]:
    """What `/embed` answers for the texts."""
    return np.array(ask(f"{server('keyed')}/embed", {"inputs": TEXTS}, key=KEY), np.float32)


def rows(answer: CreateEmbeddingResponse) -> NDArray[np.float32]:
    return np.array([entry.embedding for entry in answer.data], dtype=np.float32)


def test_embeddings_by_default(client: OpenAI, direct: Json) -> None:
    answer = client.embeddings.create(model=NAME, input=TEXTS)
    assert [entry.index for entry in answer.data] == [0, 1, 2, 3, 4]
    assert np.array_equal(rows(answer), direct)
    assert answer.model == NAME
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_embeddings_as_floats(client: OpenAI, direct: Json) -> None:
    answer = client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
    assert np.array_equal(rows(answer), direct)


def test_one_text_and_ids(client: OpenAI) -> None:
    text = client.embeddings.create(model=NAME, input="test")
    ids = client.embeddings.create(model=NAME, input=[101, 3231, 102])
    assert np.array_equal(rows(text), rows(ids))


def test_dimensions(client: OpenAI, direct: Json) -> None:
    found = rows(client.embeddings.create(model=NAME, input=TEXTS, dimensions=64))
    cut = direct[:, :64]
    assert np.allclose(found, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-6)


def test_models(client: OpenAI) -> None:
    (listed,) = client.models.list().data
    shown = client.models.retrieve(NAME)
    assert (listed.id, shown.id, shown.owned_by) == (NAME, NAME, "infinity")
    with pytest.raises(NotFoundError, match="'nope' is not served here"):
        client.models.retrieve("nope")


@pytest.mark.parametrize("num_texts", [1, 1000])
def test_wrong_key(server: ServerUrl, num_texts: int) -> None:
    texts = ["a text that makes the body long"] * num_texts
    with (
        OpenAI(base_url=f"{server('keyed')}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(AuthenticationError, match="the API key is wrong") as caught,
    ):
        client.embeddings.create(model=NAME, input=texts)
    assert caught.value.code == "invalid_api_key"


def test_empty_input(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="`inputs` cannot be empty") as caught:
        client.embeddings.create(model=NAME, input="")
    assert caught.value.code == "empty_input"
    with pytest.raises(BadRequestError, match=r"\(item 1\)"):
        client.embeddings.create(model=NAME, input=["a", ""])


def test_impossible_dimensions(client: OpenAI) -> None:
    with pytest.raises(UnprocessableEntityError, match="maximum embedding dimension") as caught:
        client.embeddings.create(model=NAME, input="a", dimensions=10_000)
    assert caught.value.code == "invalid_dimensions"


def test_a_busy_server_is_asked_again(server: ServerUrl) -> None:
    url = server("single")
    with (
        OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=20) as client,
        ThreadPoolExecutor(NUM_AT_ONCE) as pool,
        counted(url, 'infinity_rejected_total{model="all-MiniLM-L6-v2",reason="requests_limit"}'),
    ):
        answers = pool.map(lambda _: embed(client), range(NUM_AT_ONCE))
        first, *others = [rows(answer) for answer in answers]
    assert all(np.allclose(first, other, atol=1e-5) for other in others)


def test_a_busy_server_says_so(server: ServerUrl) -> None:
    with (
        OpenAI(base_url=f"{server('single')}/v1", api_key="any", max_retries=0) as client,
        ThreadPoolExecutor(NUM_AT_ONCE) as pool,
    ):
        futures = [pool.submit(embed, client) for _ in range(NUM_AT_ONCE)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    assert 0 < len(errors) < NUM_AT_ONCE
    for error in errors:
        assert isinstance(error, RateLimitError)
        assert error.code == "overloaded"
        assert 1 <= int(error.response.headers["retry-after"]) <= 60


def embed(client: OpenAI) -> CreateEmbeddingResponse:
    return client.embeddings.create(model=NAME, input=LONG_BATCH)
