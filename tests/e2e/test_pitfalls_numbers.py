"""Pitfalls of the field around numbers: batches, masks, positions, token types, threads."""

import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiled import infinity_compile
from edge_case import CLASSIFIER, RANKER, WITH_KEY, Array, ask, assert_near, embed, unit
from http_client import HttpClient, Json
from infinity_v3.artifacts.store import open_artifact
from server_process import ServerProcess
from tiny_artifacts import TinyArtifact

WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")
ODD_TEXTS = ("   ", "\u0000", "[SEP] [MASK]", "深度学习", "naïve 😀", "x" * 200)
NUM_THREADS = 32


@pytest.fixture
def client(minilm_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(minilm_server.base_url) as client:
        yield client


def texts_of(seed: int, lengths: list[int]) -> list[str]:
    choice = random.Random(seed)
    return [" ".join(choice.choices(WORDS, k=length)) for length in lengths]


def cosines(left: Array, right: Array) -> Array:
    return np.asarray((unit(left) * unit(right)).sum(axis=-1))


def embed_alone(client: HttpClient, texts: list[str]) -> Array:
    return np.concatenate([embed(client, text) for text in texts])


@pytest.fixture(scope="module")
def default_server(minilm_artifact: Path) -> Iterator[ServerProcess]:
    """The best target of this host, maybe in half precision."""
    with ServerProcess(minilm_artifact) as server:
        yield server


@pytest.mark.parametrize("name", ["minilm_server", "default_server"])
def test_pit_16_neighbours_do_not_matter(request: pytest.FixtureRequest, name: str) -> None:
    server: ServerProcess = request.getfixturevalue(name)
    equal, ragged = texts_of(16, [12] * 8), texts_of(17, [1, 2, 5, 9, 17, 30, 55, 90])
    with HttpClient(server.base_url) as client, ThreadPoolExecutor(8) as pool:
        for texts in (equal, ragged):
            alone = embed_alone(client, texts)
            together = embed(client, texts)
            at_once = np.concatenate(
                [
                    np.array(reply.json())
                    for reply in pool.map(
                        lambda text: server.post("/embed", {"inputs": text}), texts
                    )
                ]
            )
            for found in (together, at_once):
                assert cosines(found, alone).min() >= 0.9999


def test_pit_37_a_batch_gives_what_its_texts_give_alone(client: HttpClient) -> None:
    texts = [*texts_of(37, [1, 2, 3, 5, 8, 13, 34, 89, 253, 254, 300]), *ODD_TEXTS]
    assert_near(embed(client, texts), embed_alone(client, texts), atol=1e-5)
    raw = embed(client, texts, normalize=False)
    alone = np.concatenate([embed(client, text, normalize=False) for text in texts])
    assert_near(raw, alone, atol=1e-5)


def test_pit_17_the_mean_of_the_token_rows_is_the_vector(client: HttpClient) -> None:
    texts = texts_of(18, [1, 7, 60])
    matrices = [np.array(rows) for rows in ask(client, "/embed_all", {"inputs": texts})]
    means = np.stack([matrix.mean(axis=0) for matrix in matrices])
    assert_near(means, embed(client, texts, normalize=False), atol=2e-6)
    assert_near(unit(means), embed(client, texts), atol=1e-6)
    norms = np.linalg.norm(np.concatenate(matrices), axis=1)
    assert np.abs(norms - 1.0).min() > 0.1, "the rows are normalised"


def test_pit_29_threads_do_not_share_truncation(several_server: ServerProcess) -> None:
    text = "the quick brown fox and the lazy dog " * 100
    fields: list[Mapping[str, object]] = [
        {"input": text},
        {"input": text, "truncation_direction": "Left"},
        {"input": text, "truncate_prompt_tokens": 7},
        {"input": text, "truncate_prompt_tokens": 7, "truncation_direction": "Left"},
        {"input": text, "truncate": False},
        {"input": "dog", "truncate": False},
    ]
    bodies = [{"model": CLASSIFIER, "use_activation": False, **one} for one in fields]
    with HttpClient(several_server.base_url) as client:
        expected = [outcome(client, body) for body in bodies]
    lengths = [length for length, _ in expected]
    assert lengths == [512, 512, 7, 7, 422, lengths[-1]]

    def ask_all(seed: int) -> None:
        order = random.Random(seed).choices(range(len(bodies)), k=3 * len(bodies))
        with HttpClient(several_server.base_url) as own:
            for place in order:
                length, logits = outcome(own, bodies[place])
                assert length == lengths[place]
                assert_near(logits, expected[place][1], atol=1e-5)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(ask_all, range(NUM_THREADS)))
    assert "Already borrowed" not in several_server.log


def outcome(client: HttpClient, body: Mapping[str, object]) -> tuple[int, Array]:
    """Tokens that were fed and the logits, or the status of a refusal."""
    reply = client.post("/v1/classify", body, WITH_KEY)
    answer: Json = reply.json()
    if reply.status != 200:
        return reply.status, np.zeros(1)
    return answer["usage"]["total_tokens"], np.array(answer["data"][0]["probs"])


def input_names(artifact: Path) -> set[str]:
    return {spec.name for spec in open_artifact(artifact).manifest.graph.inputs}


def test_pit_28_token_types_go_where_they_are_declared(
    client: HttpClient,
    several_server: ServerProcess,
    minilm_artifact: Path,
    reranker_artifact: Path,
    classifier_artifact: Path,
) -> None:
    with_types, without = input_names(reranker_artifact), input_names(classifier_artifact)
    assert with_types - without == {"token_type_ids"}
    assert "token_type_ids" in input_names(minilm_artifact)
    # Ids come without token types: an engine that wants some gets zeros.
    assert_near(embed(client, [101, 3231, 102]), embed(client, "test"), atol=1e-6)
    pair = {"query": "the dog", "texts": ["the quick fox"], "raw_scores": True}
    with HttpClient(several_server.base_url) as several:
        (entry,) = ask(several, "/rerank", {"model": RANKER, **pair}, WITH_KEY)
        body = {"model": CLASSIFIER, "inputs": ["the dog", "the quick fox"]}
        assert len(ask(several, "/predict", body, WITH_KEY)) == 3
    checkpoint = reranker_artifact.with_name(f"{reranker_artifact.name}.checkpoint")
    typed, untyped = reference_logits(checkpoint, "the dog", "the quick fox")
    assert entry["score"] == pytest.approx(typed, abs=5e-5)
    assert abs(typed - untyped) > 1e-3


def reference_logits(checkpoint: Path, query: str, document: str) -> tuple[float, float]:
    """What transformers gives for a pair with its token types, and with zeros instead."""
    import family_oracles as oracles  # loads torch

    (row,) = oracles.token_rows(checkpoint, [(query, document)])
    plain = oracles.TokenRow(ids=row.ids, types=[0] * len(row.ids))
    typed, untyped = oracles.sequence_logits(checkpoint, [row, plain])[:, 0].tolist()
    return typed, untyped


def test_pit_31_positions_start_behind_the_padding_id(roberta: TinyArtifact) -> None:
    config = json.loads((roberta.checkpoint / "config.json").read_text())
    assert config["max_position_embeddings"] == 514
    texts = ["the dog", "the quick brown fox and the cat", "dog " * 700]
    with (
        ServerProcess(roberta.artifact, "--dtype", "float32") as server,
        HttpClient(server.base_url) as client,
    ):
        info: Json = client.get("/info").json()
        assert info["max_input_length"] == 512
        rows = embed(client, texts)
        assert_near(rows, embed_alone(client, texts), atol=1e-5)
        ids = list(range(5, 5 + 512))
        assert client.post("/embed", {"inputs": ids, "truncate": False}).status == 200
        assert client.post("/embed", {"inputs": [*ids, 5], "truncate": False}).status == 422
    assert_near(rows, sentence_vectors(roberta.checkpoint, texts), atol=2e-5)


def sentence_vectors(checkpoint: Path, texts: list[str]) -> Array:
    """What sentence-transformers makes of them, padded to one length."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(checkpoint), device="cpu")
    found = model.encode(texts, convert_to_numpy=True, normalize_embeddings=True)
    return np.asarray(found, dtype=np.float64)


def test_pit_31_more_positions_than_the_table_has(tmp_path: Path) -> None:
    from tiny_checkpoints import make_tiny_checkpoint, set_json_key  # loads torch

    checkpoint = make_tiny_checkpoint("roberta", tmp_path / "roberta")
    set_json_key(checkpoint / "config.json", "max_position_embeddings", 600)
    done = infinity_compile("model", checkpoint, "--out", tmp_path / "artifact")
    assert done.returncode not in {0, 1}, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "600" in last
    assert "514" in last
    assert not (tmp_path / "artifact").exists()
