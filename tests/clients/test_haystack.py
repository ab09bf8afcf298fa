"""Haystack's components for TEI: embedders, the sparse embedder and the ranker."""

import asyncio

import numpy as np
import pytest
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
    HuggingFaceTEISparseTextEmbedder,
)
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from huggingface_hub.errors import HfHubHTTPError

from client_kit import DOCUMENTS, KEY, QUERY, TEXTS, ServerUrl, ask, relevance

TEI = "text_embeddings_inference"
TOKEN = Secret.from_token(KEY)


@pytest.mark.parametrize("normalize", [True, False])
def test_text_embedder(server: ServerUrl, normalize: bool) -> None:
    embedder = HuggingFaceAPITextEmbedder(
        api_type=TEI, api_params={"url": server("keyed")}, token=TOKEN, normalize=normalize
    )
    embedder.warm_up()
    body = {"inputs": TEXTS[0], "normalize": normalize}
    (direct,) = ask(f"{server('keyed')}/embed", body, key=KEY)
    assert np.array_equal(
        np.array(embedder.run(TEXTS[0])["embedding"], np.float32), np.array(direct, np.float32)
    )


def test_document_embedder(server: ServerUrl) -> None:
    embedder = HuggingFaceAPIDocumentEmbedder(
        api_type=TEI, api_params={"url": server("keyed")}, token=TOKEN, normalize=True
    )
    embedder.warm_up()
    documents = [Document(content=text) for text in TEXTS]
    direct = ask(f"{server('keyed')}/embed", {"inputs": TEXTS}, key=KEY)
    found = embedder.run(documents)["documents"]
    assert np.array_equal(
        np.array([one.embedding for one in found], np.float32), np.array(direct, np.float32)
    )


def test_sparse_embedder(server: ServerUrl) -> None:
    embedder = HuggingFaceTEISparseTextEmbedder(api_base_url=server("sparse"), token=None)
    embedder.warm_up()
    found = embedder.run("the quick brown fox")["sparse_embedding"]
    (direct,) = ask(f"{server('sparse')}/embed_sparse", {"inputs": "the quick brown fox"})
    pairs = list(zip(found.indices, found.values, strict=True))
    assert pairs == [(entry["index"], entry["value"]) for entry in direct]


def test_wrong_key(server: ServerUrl) -> None:
    embedder = HuggingFaceAPITextEmbedder(
        api_type=TEI, api_params={"url": server("keyed")}, token=Secret.from_token("wrong")
    )
    embedder.warm_up()
    with pytest.raises(HfHubHTTPError, match="401"):
        embedder.run("a")


@pytest.mark.parametrize("raw_scores", [True, False])
def test_ranker(server: ServerUrl, raw_scores: bool) -> None:
    url = server("keyed_reranker")
    ranker = HuggingFaceTEIRanker(url=url, token=TOKEN, raw_scores=raw_scores, top_k=3)
    documents = [Document(content=text) for text in DOCUMENTS]
    direct = relevance(url, raw_scores=raw_scores, key=KEY)
    wanted = [(DOCUMENTS[index], score) for index, score in direct.items()][:3]
    answers = (
        ranker.run(query=QUERY, documents=documents),
        asyncio.run(ranker.run_async(query=QUERY, documents=documents)),
    )
    for answer in answers:
        assert [(one.content, one.score) for one in answer["documents"]] == wanted
