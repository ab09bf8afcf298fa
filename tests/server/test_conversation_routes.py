"""Conversations on every route that takes them, over the real service with a chat template."""

from collections.abc import Iterator
from typing import Any

import pytest

from fake_engine import FakeEngine, pooled
from infinity_v3.artifacts.manifest import ChatTemplate, Heads, Kind, ScoreActivation
from infinity_v3.runtime.chat_template import ChatRenderer
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.outputs import MAIN_OUTPUTS
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.server.float32 import shortest
from loopback import Answer, Client, ClientOf, running_kinds
from tiny_models import fake_model

TEMPLATE = (
    "{% if messages[0].role == 'assistant' %}{{ raise_exception('an assistant never begins') }}"
    "{% endif %}{{ begin }} {% for message in messages %}{{ message.content }} {% endfor %}"
)
FACTS = ChatTemplate(
    file="tokenizer/chat_template.jinja",
    variables={"begin": "w900"},
    takes_text=True,
    takes_parts=False,
)
LABELS = {Kind.CLASSIFIER: ("bad", "so-so", "good"), Kind.RERANKER: ("LABEL_0",)}
FIRST = [{"role": "system", "content": "w5"}, {"role": "user", "content": "w6 w7"}]
SECOND = [{"role": "user", "content": [{"type": "text", "text": "w8"}]}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WITH_IMAGE = [{"role": "user", "content": [{"type": "text", "text": "w8"}, IMAGE]}]
IDS_1, IDS_2 = (900, 5, 6, 7), (900, 8)


def _make(kind: Kind) -> LoadedModel:
    labels = LABELS.get(kind, ())
    activation = ScoreActivation.SOFTMAX if len(labels) > 1 else ScoreActivation.SIGMOID
    outputs = (MAIN_OUTPUTS[kind], "hidden") if not labels else (MAIN_OUTPUTS[kind],)
    return fake_model(
        FakeEngine(outputs=outputs, width=len(labels) or 8),
        kind=kind,
        heads=Heads(labels=labels, activation=activation if labels else None),
        prompts=PromptTable(named={"query": "w77 "}, default="w77 ", default_name="query"),
        chat=ChatRenderer(TEMPLATE, FACTS),
    )


@pytest.fixture(scope="module")
def chat() -> Iterator[ClientOf]:
    with running_kinds(_make) as client_of:
        yield client_of


@pytest.fixture
def embedder(chat: ClientOf) -> Client:
    return chat(Kind.EMBEDDING)


def raw(ids: tuple[int, ...], count: int = 8) -> list[float]:
    return shortest([float(value) for value in pooled(ids)[:count]])


def message_of(answer: Answer) -> str:
    reply: Any = answer.json
    return str(reply["message"] if "message" in reply else reply["error"])


def test_one_conversation_is_one_item(embedder: Client) -> None:
    answer = embedder.post("/embed", {"inputs": FIRST, "normalize": False})
    assert answer.json == [raw(IDS_1)]
    assert answer.headers["x-compute-characters"] == "7"
    assert answer.headers["x-compute-tokens"] == "4"


def test_a_list_of_conversations_is_a_batch(embedder: Client) -> None:
    inputs = [FIRST, "w5", SECOND, [9, 9]]
    answer = embedder.post("/embed", {"inputs": inputs, "normalize": False})
    assert answer.json == [raw(IDS_1), raw((1, 77, 5, 2)), raw(IDS_2), raw((9, 9))]
    packed = embedder.pack("/embed", {"inputs": inputs, "normalize": False})
    assert packed.msgpack[0] == pytest.approx(raw(IDS_1))


def test_other_vector_routes(chat: ClientOf) -> None:
    matrices = chat(Kind.EMBEDDING).post("/embed_all", {"inputs": [FIRST, SECOND]}).json
    assert [len(matrix) for matrix in matrices] == [4, 2]
    sparse = chat(Kind.SPARSE).post("/embed_sparse", {"inputs": SECOND}).json
    wanted = {index: value for index, value in enumerate(raw(IDS_2)) if value > 0}
    assert [{entry["index"]: entry["value"] for entry in row} for row in sparse] == [wanted]


def test_embeddings_take_messages_or_conversations_as_input(embedder: Client) -> None:
    ours = embedder.post("/v1/embeddings", {"messages": FIRST})
    assert ours.status == 200, ours.body
    assert ours.json["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    as_input = embedder.post("/v1/embeddings", {"input": FIRST})
    batch = embedder.post("/v1/embeddings", {"input": [SECOND, FIRST]})
    vector = ours.json["data"][0]["embedding"]
    assert as_input.json["data"][0]["embedding"] == vector
    assert [entry["index"] for entry in batch.json["data"]] == [0, 1]
    assert batch.json["data"][1]["embedding"] == vector


def test_conversations_are_classified(chat: ClientOf) -> None:
    client = chat(Kind.CLASSIFIER)
    body = {"messages": FIRST, "use_activation": False}
    answer = client.post("/v1/classify", body)
    assert answer.json["data"][0]["probs"] == raw(IDS_1, 3)
    single = client.post("/predict", {"inputs": {"messages": FIRST}, "raw_scores": True}).json
    assert sorted(entry["score"] for entry in single) == sorted(raw(IDS_1, 3))
    batch = client.post(
        "/predict", {"inputs": [{"messages": SECOND}, FIRST], "raw_scores": True}
    ).json
    assert batch[1] == single
    assert sorted(entry["score"] for entry in batch[0]) == sorted(raw(IDS_2, 3))


def test_rerankers_read_conversations_and_pairs(chat: ClientOf) -> None:
    client = chat(Kind.RERANKER)
    body = {"messages": FIRST, "use_activation": False}
    assert client.post("/v1/classify", body).json["data"][0]["probs"] == raw(IDS_1, 1)
    pair = [{"role": "query", "content": "w5"}, {"role": "document", "content": "w6"}]
    answer = client.post("/v1/classify", {"messages": pair, "use_activation": False})
    assert answer.json["data"][0]["probs"] == raw((1, 5, 2, 6, 2), 1)


def test_long_conversations_are_cut_or_refused(embedder: Client) -> None:
    long = [{"role": "user", "content": "w5 " * 100}]
    cut = embedder.post("/v1/embeddings", {"messages": long})
    assert cut.json["usage"]["prompt_tokens"] == 64
    shorter = embedder.post("/v1/embeddings", {"messages": long, "truncate_prompt_tokens": 3})
    assert shorter.json["usage"]["prompt_tokens"] == 3
    refused = embedder.post("/embed", {"inputs": [SECOND, long], "truncate": False})
    assert refused.status == 422
    assert "must have less than 64 tokens. Given: 101 (item 1)" in message_of(refused)


USER = {"role": "user", "content": "w5"}
BAD: tuple[tuple[object, int, str], ...] = (
    ([{"role": "tool", "content": "w5"}], 422, "role"),
    ([{"role": "query", "content": "w5"}], 422, "role"),
    ([{"role": "user", "content": "w5", "name": "x"}], 422, "name"),
    ([{"role": "user"}], 422, "content"),
    ([{"content": "w5"}], 422, "role"),
    ([{"role": "user", "content": None}], 422, "content"),
    ([{"role": "user", "content": [{"type": "text"}]}], 422, "text"),
    ([{"role": "user", "content": [{"type": "text", "text": "w5", "x": 1}]}], 422, "x"),
    ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}], 422, "audio"),
    ([{"role": "user", "content": [{"type": "video_url", "video_url": {}}]}], 422, "video"),
    ([USER, "w5"], 422, "[1]"),
    ([{"role": "user", "content": "\ud800"}], 422, "surrogate"),
    ([{"role": "assistant", "content": "w5"}], 422, "an assistant never begins"),
    ([USER] * 1025, 422, "at most 1024 messages"),
    (WITH_IMAGE, 424, "images"),
)


@pytest.mark.parametrize(("conversation", "status", "fragment"), BAD)
def test_what_is_no_conversation(
    embedder: Client, conversation: object, status: int, fragment: str
) -> None:
    for path, body in (
        ("/embed", {"inputs": conversation}),
        ("/v1/embeddings", {"messages": conversation}),
    ):
        answer = embedder.post(path, body)
        assert answer.status == status, answer.body
        assert fragment in message_of(answer)
        assert "(item" not in message_of(answer)


def test_a_conversation_at_fault_is_named(chat: ClientOf) -> None:
    broken = [{"role": "user", "content": "\ud800"}]
    for path, body in (
        ("/embed", {"inputs": [SECOND, broken]}),
        ("/v1/embeddings", {"input": [SECOND, broken]}),
    ):
        answer = chat(Kind.EMBEDDING).post(path, body)
        assert message_of(answer).endswith("(item 1)")
    answer = chat(Kind.CLASSIFIER).post("/predict", {"inputs": [SECOND, broken]})
    assert message_of(answer).endswith("(item 1)")


def test_images_are_refused_on_every_route(chat: ClientOf) -> None:
    for path, body in (
        ("/predict", {"inputs": {"messages": WITH_IMAGE}}),
        ("/predict", {"inputs": [SECOND, WITH_IMAGE]}),
        ("/v1/classify", {"messages": WITH_IMAGE}),
    ):
        assert chat(Kind.CLASSIFIER).post(path, body).status == 424


def test_no_prompt_goes_before_a_conversation(embedder: Client) -> None:
    for path, field in (("/embed", "inputs"), ("/v1/embeddings", "messages")):
        answer = embedder.post(path, {field: FIRST, "prompt_name": "query"})
        assert answer.status == 422
        assert "`prompt_name` cannot be set with conversations" in message_of(answer)


def test_empty_conversations(embedder: Client) -> None:
    assert embedder.post("/v1/embeddings", {"messages": []}).status == 400
    assert embedder.post("/embed", {"inputs": [[]]}).status == 400
    # What it says may be empty: the template has words of its own.
    assert embedder.post("/embed", {"inputs": [{"role": "user", "content": ""}]}).status == 200
    assert embedder.post("/embed", {"inputs": [{"role": "user", "content": []}]}).status == 200


def test_a_conversation_is_an_instance(embedder: Client) -> None:
    answer = embedder.post("/vertex", {"instances": [{"inputs": FIRST, "normalize": False}]})
    assert answer.json == {"predictions": [[raw(IDS_1)]]}
