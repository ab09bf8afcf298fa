"""Cases of vllm-project/vllm, tests/entrypoints/pooling, about vectors, written for our routes.

Each test names the file that its inputs and expectations come from. A comment that begins with
"Differs" cites what we answer otherwise on purpose.
"""

import base64
import random
from collections.abc import Mapping

import numpy as np
import pytest

from edge_case import (
    CLASSIFIER,
    EMBED,
    MAX_TOKENS,
    OPENAI,
    WIDTH,
    assert_refused,
    invalid,
    unsupported,
)
from ported_servers import cosine, post, send, vectors
from server_process import ServerProcess

pytestmark = pytest.mark.e2e

TEXT = "The best thing about vLLM is that it supports many different models"
MESSAGES = [
    {"role": "user", "content": "The cat sat on the mat."},
    {"role": "assistant", "content": "A feline was resting on a rug."},
    {"role": "user", "content": "Stars twinkle brightly in the night sky."},
]
WORDS = ("the", "create", "build", "system", "network", "learning", "report", "goal", "discover")


def ids_of(server: ServerProcess, text: str) -> list[int]:
    (tokens,) = post(server, "/tokenize", {"inputs": text})
    return [token["id"] for token in tokens]


def random_text(seed: int, num_words: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=num_words))


class TestOnline:
    """embed/test_online.py."""

    def test_basic(self, minilm_server: ServerProcess) -> None:
        listed = minilm_server.get("/v1/models").json()
        assert isinstance(listed, dict)
        assert [entry["object"] for entry in listed["data"]] == ["model"]
        ids = ids_of(minilm_server, TEXT)
        assert (ids[0], ids[-1]) == (101, 102)

    @pytest.mark.parametrize("count", [1, 10])
    def test_texts_and_ids(self, minilm_server: ServerProcess, count: int) -> None:
        ids = ids_of(minilm_server, TEXT)
        forms: list[object] = [[TEXT] * count, [ids] * count]
        if count == 1:
            forms += [TEXT, ids]
        rows = []
        for form in forms:
            answer = post(minilm_server, OPENAI, {"input": form, "encoding_format": "float"})
            # Differs: no count of completion tokens where nothing is completed.
            total = len(ids) * count
            assert answer["usage"] == {"prompt_tokens": total, "total_tokens": total}
            assert vectors(answer).shape == (count, WIDTH)
            rows.append(vectors(answer)[0])
        assert np.abs(np.array(rows) - rows[0]).max() <= 1e-5

    def test_truncate_prompt_tokens(self, minilm_server: ServerProcess) -> None:
        text = "Como o Brasil pode fomentar o desenvolvimento de modelos de IA?"
        ids = ids_of(minilm_server, text)
        for form in ([text], ids):
            body = {"input": form, "truncate_prompt_tokens": 10}
            usage = post(minilm_server, OPENAI, body)["usage"]
            assert usage == {"prompt_tokens": 10, "total_tokens": 10}
        refused = send(minilm_server, OPENAI, {"input": text, "truncate_prompt_tokens": 8193})
        # Differs, "validation status": 422; there 400.
        assert_refused(refused, OPENAI, invalid("`truncate_prompt_tokens`"))

    def test_conversation(self, minilm_server: ServerProcess) -> None:
        # Differs: there the command line gives any model a template; here the checkpoint has none.
        reply = send(minilm_server, OPENAI, {"messages": MESSAGES})
        assert_refused(reply, OPENAI, unsupported())

    def test_invocations(self, minilm_server: ServerProcess) -> None:
        # Differs: the path takes the body that the model's kind stands for.
        rows = post(minilm_server, "/invocations", {"inputs": TEXT})
        assert np.abs(vectors(post(minilm_server, OPENAI, {"input": TEXT})) - rows).max() <= 1e-6
        reply = send(minilm_server, "/invocations", {"input": TEXT, "encoding_format": "float"})
        assert_refused(reply, "/invocations", invalid("`inputs`"))

    def test_base64(self, minilm_server: ServerProcess) -> None:
        texts = ["Hello my name is", TEXT]
        floats = vectors(post(minilm_server, OPENAI, {"input": texts}))
        answer = post(minilm_server, OPENAI, {"input": texts, "encoding_format": "base64"})
        for entry, row in zip(answer["data"], floats, strict=True):
            decoded = np.frombuffer(base64.b64decode(entry["embedding"]), dtype="<f4")
            assert np.abs(decoded - row).max() <= 1e-7

    @pytest.mark.parametrize(
        ("field", "value", "status"),
        [
            ("encoding_format", "bad_encoding_format", 422),
            ("encoding_format", "bytes", 422),
            # Differs: keys that we do not know are ignored, whatever they hold.
            ("embed_dtype", "bad_embed_dtype", 200),
            ("endianness", "bad_endianness", 200),
            ("use_activation", False, 200),
        ],
    )
    def test_formats(
        self, minilm_server: ServerProcess, field: str, value: object, status: int
    ) -> None:
        body = {"input": TEXT, "encoding_format": "base64", field: value}
        answer = post(minilm_server, OPENAI, body, status=status)
        if status == 422:
            assert "`encoding_format`" in answer["message"]

    def test_vectors_have_length_1(self, minilm_server: ServerProcess) -> None:
        raw = np.array(post(minilm_server, EMBED, {"inputs": TEXT, "normalize": False}))
        whole = vectors(post(minilm_server, OPENAI, {"input": TEXT}))
        assert np.linalg.norm(raw) > 1.1
        assert np.abs(raw / np.linalg.norm(raw) - whole).max() <= 1e-6

    @pytest.mark.parametrize("path", ["/pooling", "/v2/embed"])
    def test_routes_that_are_not_served(self, minilm_server: ServerProcess, path: str) -> None:
        post(minilm_server, path, {"input": TEXT}, status=404)


@pytest.mark.parametrize(
    ("dimensions", "width"), [(None, WIDTH), (256, 256), (16, 16), (5, 5), (-1, None)]
)
def test_dimensions(
    minilm_server: ServerProcess, dimensions: int | None, width: int | None
) -> None:
    """embed/test_online_dimensions.py: what is no dimension is refused."""
    body = {"input": ["The chef prepared a delicious meal."] * 3, "dimensions": dimensions}
    # Differs: any model's vectors may be cut, not only those that were trained for it.
    answer = post(minilm_server, OPENAI, body, status=422 if width is None else 200)
    if width is None:
        assert answer["error"]["code"] == "invalid_dimensions"
    else:
        assert vectors(answer).shape == (3, width)


class TestLongText:
    """embed/test_online_long_text.py: there long texts are embedded in parts, here they are cut."""

    @pytest.mark.parametrize("num_words", [1500, 2500])
    def test_one(self, minilm_server: ServerProcess, num_words: int) -> None:
        answer = post(minilm_server, OPENAI, {"input": [random_text(1, num_words)]})
        # Differs: usage counts what was fed to the model.
        assert answer["usage"] == {"prompt_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS}
        assert answer["data"][0]["object"] == "embedding"
        assert np.linalg.norm(vectors(answer)) == pytest.approx(1.0, abs=1e-6)

    def test_beside_a_short_one(self, minilm_server: ServerProcess) -> None:
        short = "This is a short text test."
        texts = [random_text(1, 1500), random_text(2, 2500), short]
        rows = vectors(post(minilm_server, OPENAI, {"input": texts}))
        (alone,) = vectors(post(minilm_server, OPENAI, {"input": short}))
        assert rows.shape == (3, WIDTH)
        assert np.abs(rows[2] - alone).max() <= 1e-5
        assert np.isfinite(rows).all()


class TestCohere:
    """embed/test_cohere_online.py: its intent on `/embed`; `/v2/embed` is not served."""

    def test_unknown_input_type(self, minilm_server: ServerProcess) -> None:
        body = {"inputs": ["hello world"], "prompt_name": "nonexistent_type"}
        # Differs, "validation status": 422; there 400.
        assert "`prompt_name`" in post(minilm_server, EMBED, body, status=422)["error"]
        post(minilm_server, EMBED, {"inputs": ["hello world"]})

    def test_batch(self, minilm_server: ServerProcess) -> None:
        rows = np.array(post(minilm_server, EMBED, {"inputs": ["apple", "banana", "cherry"]}))
        assert rows.shape == (3, WIDTH)
        assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(3), abs=1e-6)

    def test_both_routes_agree(self, minilm_server: ServerProcess) -> None:
        (row,) = post(minilm_server, EMBED, {"inputs": "hello world"})
        (other,) = vectors(post(minilm_server, OPENAI, {"input": ["hello world"]}))
        assert cosine(row, other) > 0.9999

    def test_meaning(self, minilm_server: ServerProcess) -> None:
        texts = ["machine learning", "deep learning", "chocolate cake recipe"]
        first, related, unrelated = post(minilm_server, EMBED, {"inputs": texts})
        assert cosine(first, related) > cosine(first, unrelated)

    def test_missing_input(self, minilm_server: ServerProcess) -> None:
        post(minilm_server, EMBED, {"model": "any"}, status=422)

    @pytest.mark.parametrize(
        ("options", "status"),
        [
            ({"truncation_direction": "Right"}, 200),
            ({"truncation_direction": "Left"}, 200),
            ({"truncate": False}, 422),
        ],
    )
    def test_truncate(
        self, minilm_server: ServerProcess, options: Mapping[str, object], status: int
    ) -> None:
        body = {"inputs": [" ".join(["word"] * 2000)], **options}
        post(minilm_server, EMBED, body, status=status)

    def test_both_ends_differ(self, minilm_server: ServerProcess) -> None:
        start = " ".join(f"alpha{number}" for number in range(300))
        end = " ".join(f"omega{number}" for number in range(300))
        rows = [
            post(minilm_server, EMBED, {"inputs": f"{start} {end}", "truncation_direction": side})
            for side in ("Left", "Right")
        ]
        assert cosine(rows[0][0], rows[1][0]) < 0.99


@pytest.mark.parametrize(
    ("wanted", "found"), [(10, 10), (MAX_TOKENS + 1, None), (-1, MAX_TOKENS), (0, None)]
)
def test_truncation_size(minilm_server: ServerProcess, wanted: int, found: int | None) -> None:
    """basic/test_truncation.py: smaller than the limit, beyond it, and the limit itself."""
    body = {"input": random_text(3, 400), "truncate_prompt_tokens": wanted}
    reply = send(minilm_server, OPENAI, body)
    if found is None:
        # Differs, "validation status": 422; there 400.
        assert_refused(reply, OPENAI, invalid("`truncate_prompt_tokens`"))
    else:
        answer = post(minilm_server, OPENAI, body)
        assert answer["usage"]["prompt_tokens"] == found


def test_token_embed(minilm_server: ServerProcess, several_server: ServerProcess) -> None:
    """token_embed/test_online.py: a row per token; other kinds of models have none."""
    (rows,) = post(minilm_server, "/embed_all", {"inputs": TEXT})
    assert np.array(rows).shape == (len(ids_of(minilm_server, TEXT)), WIDTH)
    # Differs: 424 where the model cannot; there 400.
    post(several_server, "/embed_all", {"model": CLASSIFIER, "inputs": "test"}, status=424)
