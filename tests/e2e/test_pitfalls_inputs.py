"""Pitfalls of the field around what clients send: empty, odd, long, already tokenised."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from compiled import minilm_checkpoint
from edge_case import (
    CLASSIFIER,
    EMBED,
    EMPTY,
    MAX_TOKENS,
    OPENAI,
    VOCAB_SIZE,
    WIDTH,
    WITH_KEY,
    Refusal,
    ask,
    assert_near,
    assert_refused,
    embed,
    invalid,
    unit,
)
from fake_engine import FakeEngine
from http_client import HttpClient, Json
from http_metrics import read_metrics, series
from infinity_v3.runtime.prompts import PromptTable
from scripted_engine import stage
from server_process import ServerProcess
from tiny_models import END, START

TEST_IDS = [101, 3231, 102]
WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")


@pytest.fixture
def client(minilm_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(minilm_server.base_url) as client:
        yield client


def random_words(seed: int, count: int) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


def num_batches(client: HttpClient) -> float:
    return series(read_metrics(client), "te_batch_next_size_count")


@pytest.mark.parametrize(
    ("inputs", "suffix"), [("", ""), ([""], " (item 0)"), ([], ""), (["a", "", "b"], " (item 1)")]
)
def test_pit_01_empty_inputs_are_refused_by_name(
    client: HttpClient, inputs: object, suffix: str
) -> None:
    whole = replace(EMPTY, fragments=("`inputs` cannot be empty" + suffix,), has_item=bool(suffix))
    assert_refused(client.post(EMBED, {"inputs": inputs}), EMBED, whole)
    assert client.post(EMBED, {"inputs": "a"}).status == 200


@pytest.mark.parametrize("inputs", ["  ", ["  "], ["a", "\t\n"]])
def test_pit_01_white_space_is_a_text(
    client: HttpClient, several_server: ServerProcess, inputs: object
) -> None:
    assert client.post(EMBED, {"inputs": inputs}).status == 200
    body = {"model": CLASSIFIER, "input": inputs}
    reply = several_server.post("/v1/classify", body, WITH_KEY)
    refusal = Refusal(status=400, kind="Empty", fragments=("cannot be empty",))
    assert_refused(reply, "/v1/classify", refusal)


@pytest.mark.parametrize("path", [EMBED, "/embed_all", "/similarity", "/", "/invocations"])
def test_pit_02_no_items_is_no_mean(client: HttpClient, path: str) -> None:
    nothing: object = {"source_sentence": "a", "sentences": []} if path == "/similarity" else []
    reply = client.post(path, {"inputs": nothing})
    assert_refused(reply, path, replace(EMPTY, fragments=("cannot be empty",)))
    assert not [name for name in reply.headers if name.startswith("x-compute")]
    assert "x-queue-time" not in reply.headers


def test_pit_03_too_much_is_a_422(client: HttpClient) -> None:
    before = num_batches(client)
    many = client.post(EMBED, {"inputs": ["a"] * 1025})
    assert_refused(many, EMBED, invalid("batch size 1025 > maximum allowed batch size 1024"))
    long = client.post(EMBED, {"inputs": "hello " * 598, "truncate": False})
    message = "`inputs` must have less than 256 tokens. Given: 600"
    assert_refused(long, EMBED, invalid(message))
    assert num_batches(client) == before


def test_pit_12_the_limit_of_the_library_config_wins(client: HttpClient) -> None:
    info: Json = client.get("/info").json()
    assert info["max_input_length"] == MAX_TOKENS
    text = "hello " * 400
    usage = ask(client, OPENAI, {"input": text})["usage"]
    assert usage == {"prompt_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS}
    assert_near(embed(client, text), embed(client, "hello " * (MAX_TOKENS - 2)), atol=1e-6)


@pytest.mark.parametrize("side", ["Right", "Left"])
def test_pit_13_ten_thousand_tokens(client: HttpClient, side: str) -> None:
    words = random_words(13, 10_000)
    text, kept = " ".join(words), MAX_TOKENS - 2
    inner = words[:kept] if side == "Right" else words[-kept:]
    cut = embed(client, text, truncation_direction=side)
    assert_near(cut, embed(client, " ".join(inner), truncate=False), atol=1e-6)
    matrix = ask(client, "/embed_all", {"inputs": text, "truncation_direction": side})[0]
    assert len(matrix) == MAX_TOKENS
    whole = {"inputs": text, "truncate": False, "truncation_direction": side}
    assert_refused(client.post(EMBED, whole), EMBED, invalid("Given: 10002"))


def test_pit_14_ids_are_fed_as_they_are(client: HttpClient) -> None:
    expected = embed(client, "test")
    for inputs in (TEST_IDS, [TEST_IDS]):
        assert_near(embed(client, inputs), expected, atol=1e-6)
    usage = ask(client, OPENAI, {"input": [TEST_IDS, [3231]]})["usage"]
    assert usage["prompt_tokens"] == len(TEST_IDS) + 1
    assert np.abs(embed(client, [[3231]]) - expected).max() > 1e-3
    for wrong in (VOCAB_SIZE, -1, 2**31, 2**70):
        reply = client.post(OPENAI, {"input": [TEST_IDS, [101, wrong]]})
        assert_refused(reply, OPENAI, invalid(code="invalid_token_id"))


@pytest.mark.parametrize("text", ["深度学习 é", "e\u0301 🙂 naïve", "a\u200bb  c\n"])
def test_pit_15_offsets_count_characters(client: HttpClient, text: str) -> None:
    (tokens,) = ask(client, "/tokenize", {"inputs": text})
    plain = [token for token in tokens if not token["special"]]
    assert len(plain) == len(tokens) - 2 > 0
    for token in plain:
        assert token["text"] == text[token["start"] : token["stop"]]
    ends = [(token["start"], token["stop"]) for token in plain]
    assert ends == sorted(ends)


@pytest.mark.parametrize("dimensions", [64, WIDTH])
def test_pit_22_cut_then_normalised(client: HttpClient, dimensions: int) -> None:
    texts = ["test", "What is Deep Learning?"]
    cut = embed(client, texts, dimensions=dimensions)
    assert cut.shape == (2, dimensions)
    assert_near(cut, unit(embed(client, texts)[:, :dimensions]), atol=1e-6)


@pytest.mark.parametrize("dimensions", [0, -1, 10000])
def test_pit_22_impossible_dimensions_cost_nothing(client: HttpClient, dimensions: int) -> None:
    before = num_batches(client)
    reply = client.post(OPENAI, {"input": ["a"] * 8, "dimensions": dimensions})
    assert_refused(reply, OPENAI, invalid("`dimensions` should", code="invalid_dimensions"))
    assert num_batches(client) == before


@pytest.mark.parametrize("name", [None, "query", "passage"])
def test_pit_23_prompts_are_put_before_a_text_once(name: str | None) -> None:
    prompts = PromptTable(named={"query": "w7 ", "passage": "w8 w8 "}, default="w9 ")
    fed = {None: (9,), "query": (7,), "passage": (8, 8)}[name]
    engine = FakeEngine()
    with stage(engine, prompts=prompts) as it:
        body = {"input": ["w5", "w6"], "prompt_name": name}
        usage = it.client.post(OPENAI, body).json["usage"]
        (batch,) = engine.batches
        assert sorted(batch) == [(START, *fed, word, END) for word in (5, 6)]
        assert usage["prompt_tokens"] == 2 * (3 + len(fed))
        limit = {"inputs": "w5 " * 62, "truncate": False, "prompt_name": name}
        refused = it.client.post(EMBED, limit)
        assert f"Given: {64 + len(fed)}" in refused.json["error"]


def test_pit_23_unknown_prompts_are_refused_with_the_names() -> None:
    prompts = PromptTable(named={"query": "w7 ", "passage": "w8 "})
    with stage(FakeEngine(), prompts=prompts) as it:
        answer = it.client.post(OPENAI, {"input": "w5", "prompt_name": "nope"})
        assert (answer.status, answer.json["error"]["code"]) == (422, "unknown_prompt")
        assert "query" in answer.json["message"]
        assert "passage" in answer.json["message"]
        assert it.engine.batches == []


ODD_TEXTS = (
    "\u0000",
    "a\u0000b",
    "<s>",
    "</s>",
    "[SEP]",
    "[CLS] a [SEP]",
    "<|endoftext|>",
    "[PAD]",
)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_pit_27_odd_texts_are_texts(client: HttpClient, text: str) -> None:
    (alone,), (first, _) = embed(client, text), embed(client, [text, "test"])
    assert_near(alone, first, atol=1e-5)
    (tokens,) = ask(client, "/tokenize", {"inputs": text})
    library = Tokenizer.from_file(str(minilm_checkpoint() / "tokenizer.json"))
    library.no_padding()
    assert [token["id"] for token in tokens] == library.encode(text).ids


@pytest.mark.parametrize(
    "raw", [rb'"\ud800"', rb'"a\udc00"', rb'["a","\ud83d"]', rb'"\ud800\ud800"']
)
def test_pit_27_half_a_character_is_refused(client: HttpClient, raw: bytes) -> None:
    reply = client.post(EMBED, b'{"inputs":' + raw + b"}")
    assert_refused(reply, EMBED, invalid("surrogate", has_item=raw.startswith(b"[")))
    whole = client.post(EMBED, rb'{"inputs":"\ud83d\ude42"}')
    assert whole.status == 200


def test_pit_35_tokens_decode_to_their_text(client: HttpClient) -> None:
    texts = ["what is deep learning?", "the river runs", "naive cafe"]
    tokens = ask(client, "/tokenize", {"inputs": texts})
    ids = [[token["id"] for token in row] for row in tokens]
    assert ask(client, "/decode", {"ids": ids}) == texts
    whole = ask(client, "/decode", {"ids": ids[0], "skip_special_tokens": False})
    assert whole == [f"[CLS] {texts[0]} [SEP]"]
    assert_near(embed(client, ids), embed(client, texts), atol=1e-6)


def test_pit_35_an_unmodified_openai_client(
    client: HttpClient, minilm_server: ServerProcess
) -> None:
    texts = ["test", "What is Deep Learning?"]
    base_url = f"{minilm_server.base_url}/v1"
    with OpenAI(base_url=base_url, api_key="any", max_retries=0) as openai:
        answer = openai.embeddings.create(model="any", input=texts)
        assert openai.models.list().data
    found = np.array([entry.embedding for entry in answer.data])
    assert_near(found, embed(client, texts), atol=1e-7)


def test_pit_35_ids_of_another_vocabulary_are_told_apart(client: HttpClient) -> None:
    # Clients that tokenise for another model send this, with base64 by default.
    body = {
        "model": "text-embedding-ada-002",
        "input": [[15339, 1917]],
        "encoding_format": "base64",
    }
    assert client.post(OPENAI, body).status == 200
    other = {**body, "input": [[1985, 374, 18682, 100_256]]}
    assert_refused(client.post(OPENAI, other), OPENAI, invalid("100256", code="invalid_token_id"))
