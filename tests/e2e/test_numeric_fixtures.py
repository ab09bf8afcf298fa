"""Published numbers, and what exactly follows from them, against real servers."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import published_heads as heads
from edge_case import NAME, WIDTH, Array, ask, assert_near, embed, unit
from http_client import HttpClient, Json
from server_process import ServerProcess

WEIGHTS_VARIABLE = "INFINITY_TEST_WEIGHTS"
TEST_IDS = [101, 3231, 102]
EXACT = 1e-6
COMPILE_TIMEOUT_S = 3600.0


@pytest.fixture
def client(minilm_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(minilm_server.base_url) as client:
        yield client


@pytest.fixture(scope="module")
def cls_server(minilm_artifact: Path) -> Iterator[ServerProcess]:
    with ServerProcess(minilm_artifact, "--dtype", "float32", "--pooling", "cls") as server:
        yield server


@pytest.fixture
def cls_client(cls_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(cls_server.base_url) as client:
        yield client


def embed_all(client: HttpClient, text: str) -> Array:
    (matrix,) = ask(client, "/embed_all", {"inputs": text})
    return np.array(matrix, dtype=np.float64)


def cosine(left: Array, right: Array) -> float:
    return float((unit(left) * unit(right)).sum())


class TestMiniLM:
    @pytest.mark.parametrize("inputs", ["test", TEST_IDS, ["test"] * 5, [TEST_IDS, "test"]])
    def test_f1_normalised_mean(self, client: HttpClient, inputs: object) -> None:
        rows = embed(client, inputs)
        assert_near(rows[:, :8], heads.F1, atol=4e-3)
        assert_near(rows[:, -2:], heads.F1_END, atol=4e-3)

    @pytest.mark.parametrize("inputs", ["test", ["test"] * 3])
    def test_f2_cut_to_128(self, client: HttpClient, inputs: object) -> None:
        rows = embed(client, inputs, dimensions=128)
        assert rows.shape[1] == 128
        assert_near(rows[:, :8], heads.F2, atol=4e-3)

    def test_f3_token_rows(self, client: HttpClient) -> None:
        matrix = embed_all(client, "test")
        assert matrix.shape == (3, WIDTH)
        assert_near(matrix[:, :4], heads.F3, atol=5e-3)

    def test_f4_raw_mean(self, client: HttpClient) -> None:
        (row,) = embed(client, heads.TEXT_A, normalize=False)
        assert_near(row[:8], heads.F4, atol=5e-3)
        assert np.linalg.norm(row) == pytest.approx(heads.F4_NORM, abs=5e-3)
        assert cosine(row[:8], np.array(heads.F4)) > 0.999

    def test_f5_batch(self, client: HttpClient) -> None:
        texts = [heads.TEXT_A, heads.TEXT_B, heads.TEXT_A]
        rows = embed(client, texts, normalize=False)
        assert_near(rows[::2, :4], heads.F5_A, atol=5e-3)
        assert_near(rows[1, :4], heads.F5_B, atol=5e-3)
        assert cosine(rows[0], rows[1]) == pytest.approx(heads.F5_COSINE, abs=1e-3)

    def test_f6_first_token(self, cls_client: HttpClient) -> None:
        (row,) = embed(cls_client, heads.TEXT_A, normalize=False)
        assert_near(row[:8], heads.F6, atol=5e-3)
        info: Json = cls_client.get("/info").json()
        assert info["model_type"] == {"embedding": {"pooling": "cls"}}

    def test_f7_first_component_of_every_token(self, client: HttpClient) -> None:
        matrix = embed_all(client, heads.TEXT_A)
        assert matrix.shape == (7, WIDTH)
        assert_near(matrix[:, 0], heads.F7, atol=5e-3)


class TestRelations:
    def test_mean_of_f3_normalised_is_f1(self, client: HttpClient) -> None:
        (f1,) = embed(client, "test")
        assert_near(unit(embed_all(client, "test").mean(axis=0)), f1, atol=EXACT)

    def test_f1_cut_and_normalised_is_f2(self, client: HttpClient) -> None:
        (f1,), (f2,) = embed(client, "test"), embed(client, "test", dimensions=128)
        assert_near(unit(f1[:128]), f2, atol=EXACT)

    def test_mean_of_f7_is_f4(self, client: HttpClient) -> None:
        (f4,) = embed(client, heads.TEXT_A, normalize=False)
        assert_near(embed_all(client, heads.TEXT_A).mean(axis=0), f4, atol=EXACT)

    def test_first_row_of_f7_is_f6(self, client: HttpClient, cls_client: HttpClient) -> None:
        (f6,) = embed(cls_client, heads.TEXT_A, normalize=False)
        assert_near(embed_all(client, heads.TEXT_A)[0], f6, atol=EXACT)

    def test_alone_as_in_a_batch(self, client: HttpClient) -> None:
        (alone,) = embed(client, heads.TEXT_A, normalize=False)
        rows = embed(client, [heads.TEXT_A, heads.TEXT_B, heads.TEXT_A], normalize=False)
        assert_near(rows[::2], alone, atol=1e-5)

    def test_served_name(self, client: HttpClient) -> None:
        answer = ask(client, "/v1/embeddings", {"input": "test"})
        assert answer["model"] == NAME


def weights(repository: str) -> Path:
    """Checkpoint directory of a hub id below the folder of weights; skips where there is none."""
    folder = os.environ.get(WEIGHTS_VARIABLE)
    if folder is None:
        pytest.skip(f"{WEIGHTS_VARIABLE} is not set; it names a folder with {repository} in it")
    checkpoint = Path(folder) / repository
    if not checkpoint.is_dir():
        pytest.skip(f"{checkpoint} is not there; {WEIGHTS_VARIABLE} has other checkpoints")
    return checkpoint


def serve_weights(repository: str, cache: Path) -> ServerProcess:
    """A server that compiles the checkpoint first."""
    return ServerProcess(
        weights(repository),
        *("--dtype", "float32", "--artifact-cache", str(cache)),
        ready_timeout_s=COMPILE_TIMEOUT_S,
    )


def logits(server: ServerProcess, inputs: object) -> list[float]:
    """Raw scores of one text or pair by class id."""
    with HttpClient(server.base_url) as client:
        info: Json = client.get("/info").json()
        (kind,) = info["model_type"].values()
        entries = ask(client, "/predict", {"inputs": inputs, "raw_scores": True})
    ids = kind["label2id"]
    return [entry["score"] for entry in sorted(entries, key=lambda entry: int(ids[entry["label"]]))]


@pytest.fixture(scope="module")
def emotions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serve_weights(heads.GO_EMOTIONS, tmp_path_factory.mktemp("emotions")) as server:
        yield server


@pytest.mark.slow
class TestHubWeights:
    def test_f8_softmax_of_the_logits(self, emotions: ServerProcess) -> None:
        with HttpClient(emotions.base_url) as client:
            entries = ask(client, "/predict", {"inputs": "test", "raw_scores": True})
        powers = {entry["label"]: np.exp(entry["score"]) for entry in entries}
        for label, expected in heads.F8.items():
            assert powers[label] / sum(powers.values()) == pytest.approx(expected, abs=4e-3)

    def test_f9_logits_by_class_id(self, emotions: ServerProcess) -> None:
        found = logits(emotions, "I like you.")
        assert found[:5] == pytest.approx(heads.F9, abs=5e-3)
        assert found[-1] == pytest.approx(heads.F9_NEUTRAL, abs=5e-3)

    def test_f9_score_is_a_sigmoid(self, emotions: ServerProcess) -> None:
        with HttpClient(emotions.base_url) as client:
            entries = ask(client, "/predict", {"inputs": "I like you."})
        scores = {entry["label"]: entry["score"] for entry in entries}
        assert scores["neutral"] == pytest.approx(heads.F9_SCORE, abs=5e-3)

    def test_f10_ties_keep_their_order(self, tmp_path: Path) -> None:
        body = {"query": "test", "texts": ["test", "other", "test"]}
        with (
            serve_weights(heads.BGE_RERANKER, tmp_path) as server,
            HttpClient(server.base_url) as client,
        ):
            entries = ask(client, "/rerank", body)
        assert [entry["index"] for entry in entries] == [0, 2, 1]
        for entry in entries:
            assert entry["score"] == pytest.approx(heads.F10[entry["index"]], abs=4e-3)

    @pytest.mark.parametrize("repository", heads.F11)
    def test_f11_logits(self, tmp_path: Path, repository: str) -> None:
        texts, expected = heads.F11[repository]
        inputs: str | Sequence[str] = list(texts) if len(texts) == 2 else texts[0]
        with serve_weights(repository, tmp_path) as server:
            assert logits(server, inputs) == pytest.approx(expected, abs=5e-3)
