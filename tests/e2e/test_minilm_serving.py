"""all-MiniLM-L6-v2 through real servers: the reference library, cuts, encodings."""

import base64
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from compiled import minilm_checkpoint
from edge_case import EMBED, KEY, OPENAI, WIDTH, WITH_KEY, Array, ask, assert_near, embed, unit
from edge_openai import ENCODINGS, MEDIA_TYPES, bits, decoded
from http_client import HttpClient
from published_heads import TEXT_A, TEXT_B
from server_process import ServerProcess

TEST_IDS = [101, 3231, 102]  # "test"
WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")


@pytest.fixture
def client(minilm_server: ServerProcess) -> Iterator[HttpClient]:
    """Of the float32 server, for which the tight bounds hold."""
    with HttpClient(minilm_server.base_url) as client:
        yield client


@pytest.fixture(scope="module")
def default_server(minilm_artifact: Path) -> Iterator[ServerProcess]:
    """A server without options: the best target of this host, maybe in half precision."""
    with ServerProcess(minilm_artifact) as server:
        yield server


@pytest.fixture
def default_client(default_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(default_server.base_url) as client:
        yield client


def cosines(left: Array, right: Array) -> Array:
    return np.asarray((unit(left) * unit(right)).sum(axis=-1))


def random_text(choice: random.Random, num_words: int) -> str:
    return " ".join(choice.choices(WORDS, k=num_words))


def corpus() -> list[str]:
    """64 texts: 1 to 400 words, other alphabets, punctuation, white space, special tokens."""
    choice = random.Random(11)
    lengths = [1, 2, 3, 5, 8, 13, 60, 127, 128, 250, 253, 254, 255, 300, 400]
    lengths += [choice.randint(1, 90) for _ in range(30)]
    return [
        *(random_text(choice, length) for length in lengths),
        *("a", "A", "   ", "\t\n", "...", "!?", "naïve café", "Ünïcödé", "深度学习", "привет мир"),
        *("😀 emoji", "[SEP] [MASK]", "test", TEXT_A, TEXT_B, "1 + 1 = 2", "x" * 200, "\u0000"),
        "ascii\u200bzero width",
    ]


@pytest.fixture(scope="module")
def reference() -> Array:
    """What sentence-transformers makes of the corpus, in float32."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_checkpoint()), device="cpu")
    return np.asarray(model.encode(corpus(), convert_to_numpy=True), dtype=np.float64)


class TestReference:
    def test_float32(self, client: HttpClient, reference: Array) -> None:
        found = embed(client, corpus())
        assert len(found) >= 60
        assert cosines(found, reference).min() >= 0.99999
        assert_near(found, reference, atol=2e-5)

    def test_default_dtype(self, default_client: HttpClient, reference: Array) -> None:
        assert cosines(embed(default_client, corpus()), reference).min() >= 0.999


class TestCuts:
    @pytest.mark.parametrize("dimensions", [128, 2])
    def test_cut_rows_have_length_1(self, client: HttpClient, dimensions: int) -> None:
        rows = embed(client, ["test", TEXT_A], dimensions=dimensions)
        assert rows.shape == (2, dimensions)
        assert_near(rows, unit(embed(client, ["test", TEXT_A])[:, :dimensions]), atol=1e-6)

    @pytest.mark.parametrize("side", ["Right", "right", "Left", "left"])
    def test_cut_texts_keep_their_special_tokens(self, client: HttpClient, side: str) -> None:
        words = random.Random(3).choices(WORDS, k=400)
        kept = words[:254] if side.lower() == "right" else words[-254:]
        cut = embed(client, " ".join(words), truncation_direction=side)
        assert_near(cut, embed(client, " ".join(kept), truncate=False), atol=1e-6)

    def test_ids_cut_on_the_left_keep_a_special_token(self, client: HttpClient) -> None:
        ids = [101, *range(2000, 2298), 102]
        left = embed(client, [ids], truncation_direction="Left")
        assert_near(left, embed(client, [[101, *ids[-255:]]], truncate=False), atol=1e-6)

    def test_ids_over_the_limit_uncut(self, client: HttpClient) -> None:
        reply = client.post(EMBED, {"inputs": [[101] * 257], "truncate": False})
        assert reply.status == 422
        assert b"must have less than 256 tokens. Given: 257" in reply.body

    def test_cut_at_a_length_of_the_request(self, client: HttpClient) -> None:
        text = random_text(random.Random(4), 40)
        answer = ask(client, OPENAI, {"input": text, "truncate_prompt_tokens": 12})
        assert answer["usage"]["total_tokens"] == 12
        kept = embed(client, " ".join(text.split()[:10]))
        assert_near(np.array([answer["data"][0]["embedding"]]), kept, atol=1e-6)


class TestEncodings:
    FORMS = tuple(itertools.product(ENCODINGS, MEDIA_TYPES))

    def test_embed_encodings_hold_the_same_bits(self, client: HttpClient) -> None:
        body = {"inputs": TEXT_A}
        found = {
            bits(
                decoded(client.post(EMBED, body | {"encoding_format": name}, {"accept": accept}))[0]
            )
            for name, accept in self.FORMS
        }
        assert len(found) == 1

    def test_token_matrices_hold_the_same_bits(self, client: HttpClient) -> None:
        found = set()
        for encoding, accept in self.FORMS:
            if encoding == "base64":
                continue
            body = {"inputs": TEXT_A, "encoding_format": encoding}
            (matrix,) = decoded(client.post("/embed_all", body, {"accept": accept}))
            if encoding == "tensor":
                assert matrix["shape"] == [7, WIDTH]
                data = matrix["data"]
                found.add(data if isinstance(data, bytes) else base64.b64decode(data))
            else:
                found.add(np.array(matrix, dtype="<f4").tobytes())
        assert len(found) == 1

    def test_messagepack_request(self, client: HttpClient) -> None:
        headers = {"content-type": "application/msgpack"}
        body = msgspec.msgpack.encode({"inputs": ["test", TEST_IDS]})
        assert_near(
            np.array(decoded(client.post(EMBED, body, headers))), embed(client, "test"), atol=1e-6
        )


class TestKeys:
    def test_the_scheme_in_lower_case(self, several_server: ServerProcess) -> None:
        headers = {"authorization": f"bearer {KEY}"}
        assert several_server.get("/v1/models", headers).status == 200

    def test_refusals_without_the_body_keep_the_connection(
        self, several_server: ServerProcess
    ) -> None:
        texts = {"inputs": ["a" * 1000] * 1000}
        with HttpClient(several_server.base_url) as client:
            for path, headers, status in (
                (EMBED, {}, 401),
                ("/nope", {}, 404),
                ("/info", {}, 405),
                (EMBED, {**WITH_KEY, "content-type": "text/plain"}, 415),
            ):
                reply = client.post(path, texts, headers)
                assert reply.status == status
                assert "connection" not in reply.headers
