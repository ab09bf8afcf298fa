"""all-MiniLM-L6-v2 through real servers: published numbers, the reference library, edge cases."""

import base64
import gzip
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from compiled import minilm_checkpoint
from http_client import HttpClient, Json
from http_metrics import read_metrics, series
from http_rows import EMBED, OPENAI, Row, all_rows
from server_process import Reply, ServerProcess

Array = NDArray[np.float64]

WIDTH = 384
MAX_TOKENS = 256
TEXT_A = "What is Deep Learning?"
TEXT_B = "Deep Learning is..."
TEST_IDS = [101, 3231, 102]  # "test"

# Published answers of another server for this checkpoint. Its GELU is an approximation: hence
# tolerances of 4e-3 and 5e-3.
F1 = (
    *(0.011566745, 0.025191609, -0.036694292, 0.05925345),
    *(-0.007202666, -0.041202188, 0.07718597, 0.037412453),
)
F1_END = (0.053201348, -0.05518625)
F2 = (
    *(0.020964134, 0.04565805, -0.066505864, 0.10739273),
    *(-0.013054413, -0.07467599, 0.13989426, 0.06780755),
)
F3 = (
    (0.05362602, -0.09624873, -0.15422677, 0.16551508),
    (-0.0011101477, 0.22351609, -0.2819248, 0.15021688),
    (0.1663418, 0.34938747, -0.25814858, 0.80541164),
)
F4 = (
    *(-0.59059864, -0.25252345, 0.14972475, 0.05487579),
    *(-0.11783009, -0.16678402, -0.23309596, -0.07095148),
)
F4_NORM = 7.5809
F5_A = (-0.5904484, -0.25218195, 0.14959621, 0.05505526)
F5_B = (-0.11974101, -0.5844457, 0.34629655, -0.24922174)
F5_COSINE = 0.67438
F6 = (
    *(-0.023603667, -0.5268713, 0.17888242, -0.1465806),
    *(-0.0010344515, 0.105331376, -0.12240729, 0.01991907),
)
F7 = (-0.023603667, -0.49331263, -0.3762988, -1.4571402, -1.1674714, -0.16000813, -0.45635578)

WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")


@pytest.fixture(scope="module")
def client(minilm_artifact: Path) -> Iterator[HttpClient]:
    """Of the float32 server, for which the tight bounds hold."""
    with (
        ServerProcess(minilm_artifact, "--dtype", "float32") as server,
        HttpClient(server.base_url) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def default_client(minilm_artifact: Path) -> Iterator[HttpClient]:
    """Of a server without options: the best target of this host, maybe in half precision."""
    with ServerProcess(minilm_artifact) as server, HttpClient(server.base_url) as client:
        yield client


@pytest.fixture(scope="module")
def cls_client(minilm_artifact: Path) -> Iterator[HttpClient]:
    with (
        ServerProcess(minilm_artifact, "--dtype", "float32", "--pooling", "cls") as server,
        HttpClient(server.base_url) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def keyed_client(minilm_artifact: Path) -> Iterator[HttpClient]:
    with (
        ServerProcess(minilm_artifact, env={"INFINITY_API_KEY": "secret"}) as server,
        HttpClient(server.base_url) as client,
    ):
        yield client


def ask(client: HttpClient, path: str, body: object) -> Json:
    reply = client.post(path, body)
    assert reply.status == 200, reply.body[:500]
    return reply.json()


def embed(client: HttpClient, inputs: object, **options: object) -> Array:
    return np.array(ask(client, EMBED, {"inputs": inputs, **options}), dtype=np.float64)


def embed_all(client: HttpClient, text: str) -> Array:
    (matrix,) = ask(client, "/embed_all", {"inputs": text})
    return np.array(matrix, dtype=np.float64)


def unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def cosines(left: Array, right: Array) -> Array:
    return np.asarray((unit(left) * unit(right)).sum(axis=-1))


def assert_near(found: Array, expected: object, *, atol: float) -> None:
    difference = np.abs(found - np.asarray(expected))
    assert difference.max() <= atol, f"max {difference.max():.3g} mean {difference.mean():.3g}"


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


class TestPublishedNumbers:
    @pytest.mark.parametrize("inputs", ["test", TEST_IDS, ["test"] * 5, [TEST_IDS, "test"]])
    def test_f1(self, client: HttpClient, inputs: object) -> None:
        rows = embed(client, inputs)
        assert_near(rows[:, :8], F1, atol=4e-3)
        assert_near(rows[:, -2:], F1_END, atol=4e-3)

    @pytest.mark.parametrize("inputs", ["test", ["test"] * 3])
    def test_f2(self, client: HttpClient, inputs: object) -> None:
        rows = embed(client, inputs, dimensions=128)
        assert rows.shape[1] == 128
        assert_near(rows[:, :8], F2, atol=4e-3)

    def test_f3(self, client: HttpClient) -> None:
        matrix = embed_all(client, "test")
        assert matrix.shape == (3, WIDTH)
        assert_near(matrix[:, :4], F3, atol=5e-3)

    def test_f4(self, client: HttpClient) -> None:
        (row,) = embed(client, TEXT_A, normalize=False)
        assert_near(row[:8], F4, atol=5e-3)
        assert np.linalg.norm(row) == pytest.approx(F4_NORM, abs=5e-3)
        assert cosines(row[:8], np.array(F4)) > 0.999

    def test_f5(self, client: HttpClient) -> None:
        rows = embed(client, [TEXT_A, TEXT_B, TEXT_A], normalize=False)
        assert_near(rows[::2, :4], F5_A, atol=5e-3)
        assert_near(rows[1, :4], F5_B, atol=5e-3)
        assert cosines(rows[0], rows[1]) == pytest.approx(F5_COSINE, abs=1e-3)

    def test_f6(self, cls_client: HttpClient) -> None:
        (row,) = embed(cls_client, TEXT_A, normalize=False)
        assert_near(row[:8], F6, atol=5e-3)
        info: Any = cls_client.get("/info").json()
        assert info["model_type"] == {"embedding": {"pooling": "cls"}}

    def test_f7(self, client: HttpClient) -> None:
        matrix = embed_all(client, TEXT_A)
        assert matrix.shape == (7, WIDTH)
        assert_near(matrix[:, 0], F7, atol=5e-3)

    def test_relations(self, client: HttpClient, cls_client: HttpClient) -> None:
        (f1,), (f2,) = embed(client, "test"), embed(client, "test", dimensions=128)
        (f4,), (f6,) = (embed(one, TEXT_A, normalize=False) for one in (client, cls_client))
        f3, f7 = embed_all(client, "test"), embed_all(client, TEXT_A)
        assert_near(unit(f3.mean(axis=0)), f1, atol=1e-6)
        assert_near(unit(f1[:128]), f2, atol=1e-6)
        assert_near(f7.mean(axis=0), f4, atol=1e-6)
        assert_near(f7[0], f6, atol=1e-6)


class TestReference:
    def test_float32(self, client: HttpClient, reference: Array) -> None:
        found = embed(client, corpus())
        assert len(found) >= 60
        assert cosines(found, reference).min() >= 0.99999
        assert_near(found, reference, atol=2e-5)

    def test_default_dtype(self, default_client: HttpClient, reference: Array) -> None:
        assert cosines(embed(default_client, corpus()), reference).min() >= 0.999

    def test_alone_as_in_a_batch_in_float32(self, client: HttpClient) -> None:
        alone = np.concatenate([embed(client, text) for text in corpus()])
        assert_near(embed(client, corpus()), alone, atol=1e-5)

    def test_alone_as_in_a_batch_by_default(self, default_client: HttpClient) -> None:
        alone = np.concatenate([embed(default_client, text) for text in corpus()])
        assert cosines(embed(default_client, corpus()), alone).min() >= 0.9999


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.name)
def test_row(client: HttpClient, row: Row) -> None:
    body = row.body if isinstance(row.body, bytes) else msgspec.json.encode(row.body)
    reply = client.request("POST", row.path, body, row.headers)
    assert reply.status == row.status, reply.body[:300]
    assert reply.headers["content-type"] == "application/json"
    if row.status == 200:
        assert_vectors(row, reply.json())
    else:
        assert_error(row, reply.json())


def assert_vectors(row: Row, answer: Json) -> None:
    vectors = [entry["embedding"] for entry in answer["data"]] if row.path == OPENAI else answer
    assert all(len(vector) == WIDTH for vector in vectors)
    assert_near(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def assert_error(row: Row, answer: Json) -> None:
    if row.path.startswith("/v1/"):
        assert set(answer) == {"error", "message", "type", "code"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        kind, message = answer["type"], answer["message"]
        assert (answer["error"]["message"], answer["code"]) == (message, row.status)
        assert row.code in {None, answer["error"]["code"]}
    else:
        assert set(answer) == {"error", "error_type"}
        kind, message = answer["error_type"], answer["error"]
    assert kind == row.kind
    assert row.fragment in message


class TestInputs:
    def test_row_1_and_2_forms_of_one_item(self, client: HttpClient) -> None:
        forms = ["test", ["test"], TEST_IDS, [TEST_IDS], [TEST_IDS, "test"]]
        replies = [embed(client, form) for form in forms]
        assert [len(rows) for rows in replies] == [1, 1, 1, 1, 2]
        assert_near(np.concatenate(replies), replies[0], atol=1e-6)

    @pytest.mark.parametrize("dimensions", [-1, 0, 385, 10000])
    def test_row_12_impossible_dimensions(self, client: HttpClient, dimensions: int) -> None:
        before = series(read_metrics(client), "infinity_tokens_total")
        reply = client.post(OPENAI, {"input": "a", "dimensions": dimensions})
        answer: Any = reply.json()
        assert (reply.status, answer["error"]["code"]) == (422, "invalid_dimensions")
        fragment = "be positive" if dimensions < 1 else "be smaller than the maximum embedding"
        assert f"`dimensions` should {fragment}" in answer["message"]
        assert series(read_metrics(client), "infinity_tokens_total") == before

    @pytest.mark.parametrize("dimensions", [384, 128, 2, 1])
    def test_row_13_cut_rows_have_length_1(self, client: HttpClient, dimensions: int) -> None:
        rows = embed(client, ["test", TEXT_A], dimensions=dimensions)
        assert rows.shape == (2, dimensions)
        assert_near(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
        assert_near(rows, unit(embed(client, ["test", TEXT_A])[:, :dimensions]), atol=1e-6)

    def test_row_14_cut_without_normalising(self, client: HttpClient) -> None:
        raw = embed(client, TEXT_A, normalize=False)
        cut = embed(client, TEXT_A, normalize=False, dimensions=128)
        assert_near(cut, raw[:, :128], atol=1e-6)

    def test_row_17_exactly_the_limit(self, client: HttpClient) -> None:
        body = {"input": "hello " * 254, "truncate": False}
        assert ask(client, OPENAI, body)["usage"] == {"prompt_tokens": 256, "total_tokens": 256}

    @pytest.mark.parametrize("side", ["Right", "right", "Left", "left"])
    def test_row_16_cut_texts_keep_their_special_tokens(
        self, client: HttpClient, side: str
    ) -> None:
        words = random.Random(3).choices(WORDS, k=400)
        kept = words[:254] if side.lower() == "right" else words[-254:]
        cut = embed(client, " ".join(words), truncation_direction=side)
        assert_near(cut, embed(client, " ".join(kept), truncate=False), atol=1e-6)

    def test_row_18_cut_ids_keep_a_special_token(self, client: HttpClient) -> None:
        ids = [101, *range(2000, 2298), 102]
        right = embed(client, [ids], truncate=True)
        assert_near(right, embed(client, [[*ids[:255], 102]], truncate=False), atol=1e-6)
        left = embed(client, [ids], truncation_direction="Left")
        assert_near(left, embed(client, [[101, *ids[-255:]]], truncate=False), atol=1e-6)

    def test_ids_over_the_limit_uncut(self, client: HttpClient) -> None:
        reply = client.post(EMBED, {"inputs": [[101] * 257], "truncate": False})
        assert reply.status == 422
        assert b"must have less than 256 tokens. Given: 257" in reply.body

    def test_row_37_cut_at_a_length_of_the_request(self, client: HttpClient) -> None:
        text = random_text(random.Random(4), 40)
        answer = ask(client, OPENAI, {"input": text, "truncate_prompt_tokens": 12})
        assert answer["usage"]["total_tokens"] == 12
        kept = embed(client, " ".join(text.split()[:10]))
        assert_near(np.array([answer["data"][0]["embedding"]]), kept, atol=1e-6)

    @pytest.mark.parametrize("body", [{"ids": []}, {"ids": [[]]}, {"ids": [30522]}])
    def test_row_29_decode_refuses(self, client: HttpClient, body: object) -> None:
        reply = client.post("/decode", body)
        if body == {"ids": [30522]}:
            assert reply.status == 422
        else:
            assert reply.status == 400
            assert b"`input_ids` cannot be empty" in reply.body

    def test_row_30_offsets_count_characters(self, client: HttpClient) -> None:
        text = "深度学习 é"
        (tokens,) = ask(client, "/tokenize", {"inputs": text})
        plain = [token for token in tokens if not token["special"]]
        assert len(tokens) == len(plain) + 2
        assert [text[token["start"] : token["stop"]] for token in plain] == [
            token["text"] for token in plain
        ]

    def test_tokens_decode_to_their_text(self, client: HttpClient) -> None:
        (tokens,) = ask(client, "/tokenize", {"inputs": "what is deep learning?"})
        ids = [token["id"] for token in tokens]
        assert (ids[0], ids[-1]) == (101, 102)
        assert ask(client, "/decode", {"ids": ids}) == ["what is deep learning?"]


def decoded(reply: Reply) -> Json:
    assert reply.status == 200, reply.body[:300]
    is_json = reply.headers["content-type"] == "application/json"
    return reply.json() if is_json else msgspec.msgpack.decode(reply.body)


def bits(value: Json) -> bytes:
    """Little-endian float32 of one vector, whatever encoding it came in."""
    if isinstance(value, list):
        return np.array(value, dtype="<f4").tobytes()
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    assert (value["dtype"], value["shape"]) == ("float32", [WIDTH])
    data = value["data"]
    return data if isinstance(data, bytes) else base64.b64decode(data, validate=True)


class TestEncodings:
    FORMS = tuple(
        itertools.product(
            ("float", "base64", "tensor"), ("application/json", "application/msgpack")
        )
    )

    def test_row_35_openai_encodings_hold_the_same_bits(self, client: HttpClient) -> None:
        found: list[list[bytes]] = []
        for encoding, accept in self.FORMS:
            body = {"input": [TEXT_A, TEXT_B], "encoding_format": encoding}
            answer = decoded(client.post(OPENAI, body, {"accept": accept}))
            assert [entry["index"] for entry in answer["data"]] == [0, 1]
            found.append([bits(entry["embedding"]) for entry in answer["data"]])
        assert all(rows == found[0] for rows in found)
        assert [len(row) for row in found[0]] == [4 * WIDTH] * 2

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


class TestModelField:
    @pytest.mark.parametrize("named", [{}, {"model": "gpt-9"}, {"model": None}])
    def test_row_32_any_name_means_the_only_model(
        self, client: HttpClient, named: dict[str, object]
    ) -> None:
        assert ask(client, OPENAI, {"input": "a", **named})["model"] == "all-MiniLM-L6-v2"

    def test_row_46_two_models(self, minilm_artifact: Path) -> None:
        names = ("--served-model-name", "one;org/two")
        options = ("--model-id", str(minilm_artifact), "--dtype", "float32", *names)
        with ServerProcess(minilm_artifact, *options) as server:
            statuses = {
                name: server.post(OPENAI, {"input": "a", "model": name}).status
                for name in ("one", "org/two", "three")
            }
            unnamed = server.post(OPENAI, {"input": "a"})
            shown: Any = server.get("/v1/models/org%2Ftwo").json()
        assert statuses == {"one": 200, "org/two": 200, "three": 404}
        assert unnamed.status == 422
        assert b"one, org/two" in unnamed.body
        assert shown["id"] == "org/two"


class TestProtocol:
    def test_row_40_wrong_method_and_trailing_slash(self, client: HttpClient) -> None:
        wrong = client.get(EMBED)
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        assert client.get("/embed/").status == 404

    def test_row_41_body_over_the_limit(self, client: HttpClient) -> None:
        body = b'{"inputs":"%s"}' % (b"a" * (16_777_217 - 13))
        assert len(body) == 16_777_217
        self._assert_too_large(client.post(EMBED, body))

    def test_row_41_bomb(self, client: HttpClient) -> None:
        body = gzip.compress(b" " * 20_000_000)
        assert len(body) < 25_000
        self._assert_too_large(client.post(EMBED, body, {"content-encoding": "gzip"}))

    def _assert_too_large(self, reply: Reply) -> None:
        answer: Any = reply.json()
        assert (reply.status, answer["error_type"]) == (413, "PayloadTooLarge")
        assert "16777216" in answer["error"]
        assert "--payload-limit" in answer["error"]

    def test_row_42_codings(self, client: HttpClient) -> None:
        good = zstandard.compress(b'{"inputs":"test"}')
        brotli = client.post(EMBED, good, {"content-encoding": "br"})
        assert (brotli.status, brotli.headers["accept-encoding"]) == (415, "gzip, zstd")
        broken = client.post(EMBED, good[:-3] + b"xyz", {"content-encoding": "zstd"})
        assert broken.status == 400
        fine = client.post(EMBED, good, {"content-encoding": "zstd"})
        assert_near(np.array(decoded(fine)), embed(client, "test"), atol=1e-6)

    @pytest.mark.parametrize(
        ("headers", "fragment"),
        [
            ({}, "key"),
            ({"authorization": "Bearer wrong"}, "wrong"),
            ({"authorization": "secret"}, "Bearer"),
        ],
    )
    def test_row_43_keys(
        self, keyed_client: HttpClient, headers: dict[str, str], fragment: str
    ) -> None:
        for reply in (
            keyed_client.post(EMBED, {"inputs": "a"}, headers),
            keyed_client.get("/v1/models", headers),
        ):
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert fragment in reply.body.decode()
            assert "secret" not in reply.body.decode()

    def test_row_43_right_key(self, keyed_client: HttpClient) -> None:
        reply = keyed_client.post(EMBED, {"inputs": "a"}, {"authorization": "bearer secret"})
        assert reply.status == 200

    def test_refusals_without_the_body_keep_the_connection(self, keyed_client: HttpClient) -> None:
        texts = {"inputs": ["a" * 1000] * 1000}
        for path, headers, status in (
            (EMBED, {}, 401),
            ("/nope", {}, 404),
            ("/info", {}, 405),
            (EMBED, {"authorization": "Bearer secret", "content-type": "text/plain"}, 415),
        ):
            reply = keyed_client.post(path, texts, headers)
            assert reply.status == status
            assert "connection" not in reply.headers

    @pytest.mark.parametrize("path", ["/health", "/ping", "/", "/ready", "/metrics", "/docs"])
    def test_row_44_open_routes(self, keyed_client: HttpClient, path: str) -> None:
        assert keyed_client.get(path).status == 200

    def test_row_45_preflight(self, keyed_client: HttpClient) -> None:
        headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
        headers["access-control-request-headers"] = "authorization"
        reply = keyed_client.request("OPTIONS", EMBED, headers=headers)
        assert reply.status == 204
        assert "authorization" in reply.headers["access-control-allow-headers"]
        assert reply.headers["access-control-allow-origin"] == "*"

    def test_row_53_request_ids(self, client: HttpClient) -> None:
        def ids(sent: Sequence[str]) -> list[str]:
            headers = [{"x-request-id": value} for value in sent] or [{}]
            bodies: tuple[object, ...] = ({"inputs": "a"}, {"inputs": ""})
            replies = (client.post(EMBED, body, one) for body in bodies for one in headers)
            return [reply.headers["x-request-id"] for reply in replies]

        assert ids(["abc"]) == ["abc", "abc"]
        for made in (*ids(["a" * 200]), *ids([])):
            assert len(made) == 32
            assert int(made, 16) >= 0

    def test_row_54_docs_name_no_other_host(self, client: HttpClient) -> None:
        reply = client.get("/docs")
        assert reply.headers["content-type"].startswith("text/html")
        text = reply.body.decode().replace("http://www.w3.org/", "")
        assert "http://" not in text
        assert "https://" not in text
