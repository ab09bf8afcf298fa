"""`huggingface_hub.InferenceClient`: features, similarity, labels, and its errors."""

import asyncio
from typing import Literal

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from client_kit import KEY, TEXTS, ServerUrl, ask

SENTENCES = ["What is Deep Learning?", "Deep Learning is...", "the dog and the cat"]


@pytest.fixture(scope="module")
def client(server: ServerUrl) -> InferenceClient:
    return InferenceClient(server("keyed"), token=KEY)


def test_features_of_each_text(client: InferenceClient, server: ServerUrl) -> None:
    for text in TEXTS:
        found = client.feature_extraction(text)
        assert found.dtype == np.float32
        direct = ask(server("keyed"), {"inputs": text}, key=KEY)
        assert np.array_equal(found, np.array(direct, np.float32))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_features_with_options(
    client: InferenceClient, server: ServerUrl, normalize: bool, side: Literal["left", "right"]
) -> None:
    text = "one two three " * 200
    found = client.feature_extraction(
        text, normalize=normalize, truncate=True, truncation_direction=side
    )
    body = {"inputs": text, "normalize": normalize, "truncation_direction": side}
    direct = ask(f"{server('keyed')}/embed", body, key=KEY)
    assert np.array_equal(found, np.array(direct, np.float32))


def test_features_asynchronously(server: ServerUrl) -> None:
    async def features() -> object:
        async with AsyncInferenceClient(server("keyed"), token=KEY) as client:
            return await client.feature_extraction(TEXTS[0])

    direct = ask(f"{server('keyed')}/embed", {"inputs": TEXTS[0]}, key=KEY)
    assert np.array_equal(np.array(asyncio.run(features())), np.array(direct, np.float32))


def test_similarity(server: ServerUrl) -> None:
    url = server("similarity")
    found = InferenceClient(url).sentence_similarity(TEXTS[0], other_sentences=SENTENCES)
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": SENTENCES}}
    assert found == ask(f"{url}/similarity", body)
    assert found[0] == pytest.approx(1.0, abs=1e-6)
    assert found[1] == pytest.approx(0.67438, abs=1e-3)


def test_best_label(server: ServerUrl) -> None:
    # The client takes the first entry of the flat list that TEI answers to one text.
    url = server("classifier")
    best, *_ = ask(f"{url}/predict", {"inputs": "the quick brown fox"})
    found = InferenceClient(url).text_classification("the quick brown fox")
    assert found == best


def test_wrong_key(server: ServerUrl) -> None:
    with pytest.raises(HfHubHTTPError, match="401") as caught:
        InferenceClient(server("keyed"), token="wrong").feature_extraction("a")
    assert "the API key is wrong" in str(caught.value)


def test_refusals_are_told(client: InferenceClient) -> None:
    with pytest.raises(HfHubHTTPError, match="422") as caught:
        client.feature_extraction(TEXTS[-1], truncate=False)
    assert "must have less than 256 tokens" in str(caught.value)
    with pytest.raises(HfHubHTTPError, match="Bad request") as caught:
        client.feature_extraction("")
    assert "`inputs` cannot be empty" in str(caught.value)
