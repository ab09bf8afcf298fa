"""LlamaIndex's embedding model and reranker for TEI."""

import asyncio

import numpy as np
import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from client_kit import DOCUMENTS, KEY, QUERY, TEXTS, ServerUrl, ask, relevance


@pytest.fixture(scope="module")
def embedder(server: ServerUrl) -> TextEmbeddingsInference:
    return TextEmbeddingsInference(
        model_name="any", base_url=server("keyed"), auth_token=KEY, embed_batch_size=len(TEXTS)
    )


def test_texts(embedder: TextEmbeddingsInference, server: ServerUrl) -> None:
    # The embedder puts its instruction, here an empty one, in front and strips the text.
    sent = [text.strip() for text in TEXTS]
    direct = ask(f"{server('keyed')}/embed", {"inputs": sent}, key=KEY)
    assert embedder.get_text_embedding_batch(list(TEXTS)) == direct
    assert asyncio.run(embedder.aget_text_embedding_batch(list(TEXTS))) == direct
    alone = ask(f"{server('keyed')}/embed", {"inputs": sent[:1]}, key=KEY)
    assert [embedder.get_query_embedding(TEXTS[0])] == alone


def test_other_routes(server: ServerUrl) -> None:
    url = server("embedding")
    found = TextEmbeddingsInference(model_name="any", base_url=url, endpoint="/")
    assert [found.get_text_embedding("a")] == ask(f"{url}/embed", {"inputs": ["a"]})


@pytest.mark.parametrize("top_n", [2, 5])
def test_rerank(server: ServerUrl, top_n: int) -> None:
    url = server("keyed_reranker")
    ranker = TextEmbeddingInference(base_url=url, auth_token=f"Bearer {KEY}", top_n=top_n)
    nodes = [NodeWithScore(node=TextNode(text=text, id_=text)) for text in DOCUMENTS]
    found = ranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    wanted = [(DOCUMENTS[i], score) for i, score in relevance(url, key=KEY).items()][:top_n]
    assert [(node.node.node_id, node.score) for node in found] == wanted


def test_vectors_are_close_to_what_the_texts_mean(embedder: TextEmbeddingsInference) -> None:
    cat, kitten, bank = embedder.get_text_embedding_batch(
        ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates went up."]
    )
    assert np.dot(cat, kitten) > np.dot(cat, bank) + 0.2
