"""What /predict and /v1/classify answer, over real sockets."""

import re
from typing import Any

import pytest

from fake_service import LABELS, activated, logits_of
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.requests import ClassifyRequest, ScoreForm, TextPair
from infinity_v3.server.float32 import shortest
from loopback import Client

NAMES = LABELS[Kind.CLASSIFIER]
MESSAGES = [{"role": "user", "content": "x"}]
PAIR = [{"role": "query", "content": "q"}, {"role": "document", "content": "d"}]
DEPRECATION = {"deprecation": "@1791590400", "link": '</v1/classify>; rel="successor-version"'}


def labels_of(item: object, form: ScoreForm = ScoreForm.NATIVE) -> list[dict[str, Any]]:
    logits = logits_of(item, 3)
    scores = activated(logits, form, is_single=False)
    order = sorted(range(3), key=lambda index: -logits[index])
    return [{"score": scores[index], "label": NAMES[index]} for index in order]


def items_of(client: Client) -> tuple[object, ...]:
    request = client.service.request
    assert isinstance(request, ClassifyRequest)
    return request.items


@pytest.mark.parametrize(
    ("inputs", "item"),
    [
        ("a", "a"),
        (["a"], "a"),
        (["a", "b"], TextPair(query="a", document="b")),
        ([5, 6], (5, 6)),
    ],
)
def test_predict_answers_a_bare_item_with_one_list(
    classifier: Client, inputs: object, item: object
) -> None:
    answer = classifier.post("/predict", {"inputs": inputs})
    assert answer.status == 200, answer.body
    assert answer.json == labels_of(item)
    assert items_of(classifier) == (item,)
    assert classifier.pack("/predict", {"inputs": inputs}).msgpack == answer.json


@pytest.mark.parametrize(
    ("inputs", "items"),
    [
        ([["a"]], ["a"]),
        ([["a"], ["b"]], ["a", "b"]),
        ([["a", "b"], ["c"]], [TextPair(query="a", document="b"), "c"]),
        ([[5], [6, 7]], [(5,), (6, 7)]),
    ],
)
def test_predict_answers_a_batch_with_a_list_each(
    classifier: Client, inputs: object, items: list[object]
) -> None:
    answer = classifier.post("/predict", {"inputs": inputs})
    assert answer.json == [labels_of(item) for item in items]
    assert classifier.pack("/predict", {"inputs": inputs}).msgpack == answer.json


def test_predict_gives_logits_as_float32(classifier: Client) -> None:
    body = {"inputs": "a", "raw_scores": True}
    expected = labels_of("a", ScoreForm.LOGITS)
    plain = classifier.post("/predict", body).json
    assert [entry["score"] for entry in plain] == shortest([e["score"] for e in expected])
    packed = classifier.pack("/predict", body)
    assert packed.msgpack == expected
    assert packed.body.count(b"\xa5score\xca") == 3


def test_predict_of_one_label_is_a_sigmoid(reranker: Client) -> None:
    (entry,) = reranker.post("/predict", {"inputs": ["q", "d"]}).json
    logits = logits_of(TextPair(query="q", document="d"), 1)
    assert entry == {
        "score": activated(logits, ScoreForm.NATIVE, is_single=True)[0],
        "label": "LABEL_0",
    }


@pytest.mark.parametrize(
    ("inputs", "status", "fragment"),
    [
        ("", 400, "`inputs` cannot be empty"),
        ([], 400, "`inputs` cannot be empty"),
        ([""], 400, "`inputs` cannot be empty"),
        (["", ""], 400, "`inputs` cannot be empty"),
        ([[]], 400, "(item 0)"),
        ([["a"], [""]], 400, "(item 1)"),
        ([["a"], ["", ""]], 400, "(item 1)"),
        (["a", "b", "c"], 422, "found 3"),
        ([["a", "b", "c"]], 422, "`inputs[0]`"),
        (["a", 1], 422, "`inputs[1]`"),
        ([1, "a"], 422, "`inputs[1]`"),
        ([["a"], "b"], 422, "`inputs[1]`"),
        (["a", ["b"]], 422, "`inputs[1]`"),
        ([["a", 1]], 422, "`inputs[0][1]`"),
        ([["a"], [1]], 422, "all texts or all token ids"),
        ([-1], 422, "position 0"),
        ([[1], [1000]], 422, "(item 1)"),
        ([1.5], 422, "`inputs[0]`"),
        (5, 422, "`inputs`"),
        (None, 422, "`inputs`"),
        ("\ud800", 422, "lone surrogate"),
        ([["a"]] * 1025, 422, "batch size 1025"),
        ({"messages": MESSAGES}, 424, "no chat template"),
        ({"messages": []}, 400, "messages` cannot be empty"),
        ([{"messages": MESSAGES}], 424, "chat template"),
        ([MESSAGES, ["a"]], 424, "chat template"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 422, "role"),
    ],
)
def test_predict_refuses(classifier: Client, inputs: object, status: int, fragment: str) -> None:
    before = classifier.service.num_computed
    answer = classifier.post("/predict", {"inputs": inputs})
    assert answer.status == status, answer.body
    assert fragment in answer.json["error"]
    assert classifier.service.num_computed == before


def test_predict_takes_no_prompt_with_ids(classifier: Client) -> None:
    answer = classifier.post("/predict", {"inputs": [5], "prompt_name": "query"})
    assert answer.status == 422
    assert classifier.post("/predict", {"inputs": "a", "prompt_name": "query"}).status == 200
    assert classifier.post("/predict", {"inputs": "a", "raw_scores": None}).status == 422


def test_every_reply_of_predict_names_its_successor(client: Client, classifier: Client) -> None:
    answers = {
        200: classifier.post("/predict", {"inputs": "a"}),
        400: classifier.post("/predict", b"{"),
        422: classifier.post("/predict", {}),
        424: client.post("/predict", {"inputs": "a"}),
        405: classifier.get("/predict"),
        415: classifier.request("POST", "/predict", b"{}"),
    }
    for status, answer in answers.items():
        assert answer.status == status
        assert {name: answer.headers.get(name) for name in DEPRECATION} == DEPRECATION
    others = (classifier.post("/", {"inputs": "a"}), classifier.post("/v1/classify", {}))
    assert not [answer for answer in others if "deprecation" in answer.headers]


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
def test_classify_answers_by_class_id(classifier: Client, path: str) -> None:
    answer = classifier.post(path, {"input": ["a", "b c"], "model": "anything"})
    assert answer.status == 200, answer.body
    reply = answer.json
    assert re.fullmatch("classify-[0-9a-f]{32}", reply.pop("id"))
    assert reply.pop("created") > 1_700_000_000
    expected = [
        {
            "index": index,
            "label": labels_of(text)[0]["label"],
            "probs": activated(logits_of(text, 3), ScoreForm.PROBABILITIES, is_single=False),
            "num_classes": 3,
        }
        for index, text in enumerate(("a", "b c"))
    ]
    assert reply == {
        "object": "list",
        "model": "tiny",
        "data": expected,
        "usage": {
            "prompt_tokens": 7,
            "total_tokens": 7,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }
    assert classifier.pack(path, {"input": ["a", "b c"]}).msgpack["data"] == expected


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ("a", ("a",)),
        (["a", "b", "c"], ("a", "b", "c")),
        ([5, 6], ((5, 6),)),
        ([[5], [6, 7]], ((5,), (6, 7))),
    ],
)
def test_classify_reads_every_form(
    classifier: Client, value: object, items: tuple[object, ...]
) -> None:
    assert classifier.post("/v1/classify", {"input": value}).status == 200
    assert items_of(classifier) == items


def test_classify_forms(classifier: Client, reranker: Client) -> None:
    (logit,) = logits_of("a", 1)
    default = reranker.post("/v1/classify", {"input": "a"}).json
    raw = reranker.post("/v1/classify", {"input": "a", "use_activation": False})
    assert default["data"][0]["probs"] == [1.0]
    assert raw.json["data"][0]["probs"] == shortest([logit])
    body = {"input": "a", "use_activation": False}
    assert reranker.pack("/v1/classify", body).msgpack["data"][0]["probs"] == [logit]
    predicted = reranker.post("/predict", {"inputs": "a"}).json[0]["score"]
    assert predicted == activated([logit], ScoreForm.NATIVE, is_single=True)[0]


def test_classify_reads_a_pair_from_messages(reranker: Client, classifier: Client) -> None:
    parts = [{"type": "text", "text": "q"}]
    for messages in (PAIR, PAIR[::-1], [{"role": "query", "content": parts}, PAIR[1]]):
        assert reranker.post("/v1/classify", {"messages": messages}).status == 200
        assert items_of(reranker) == (TextPair(query="q", document="d"),)
    answer = classifier.post("/v1/classify", {"messages": PAIR})
    assert answer.status == 422
    assert "re-ranker" in answer.json["message"]


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({"input": ""}, 400, "`inputs` cannot be empty"),
        ({"input": "  "}, 400, "`inputs` cannot be empty"),
        ({"input": ["a", "\t\n"]}, 400, "(item 1)"),
        ({"input": []}, 400, "`input` cannot be empty"),
        ({"input": [[]]}, 400, "(item 0)"),
        ({"input": [-1]}, 422, "position 0"),
        ({"input": ["a", 1]}, 422, "`input[1]`"),
        ({"input": ["a", [1]]}, 422, "`input[1]`"),
        ({"input": [[1], "a"]}, 422, "`input[1]`"),
        ({"input": [["a"]]}, 422, "input[0]"),
        ({"input": None}, 422, "`input`"),
        ({}, 422, "exactly one of `input` and `messages`"),
        ({"input": "a", "messages": MESSAGES}, 422, "exactly one of"),
        ({"messages": []}, 400, "`messages` cannot be empty"),
        ({"messages": MESSAGES}, 424, "chat template"),
        ({"messages": [PAIR[0]]}, 422, "one query and one document"),
        ({"messages": [*PAIR, *MESSAGES]}, 422, "one query and one document"),
        ({"messages": [*PAIR, PAIR[0]]}, 422, "one query and one document"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 422, "query, document"),
        ({"input": ["a", "b"], "rid": ["1"]}, 422, "`rid`"),
        ({"input": "a", "rid": 5}, 422, "`rid`"),
        ({"input": "a", "priority": 1}, 422, "`priority`"),
        ({"input": "a", "priority": None}, 422, "`priority`"),
        ({"input": "a", "use_activation": None}, 422, "`use_activation`"),
        ({"input": "a", "truncate_prompt_tokens": 0}, 422, "-1 or 1 to 16"),
        ({"input": ["a"] * 1025}, 422, "batch size 1025"),
        (b"{", 400, "not valid JSON"),
    ],
)
def test_classify_refuses_in_its_shape(
    reranker: Client, body: object, status: int, fragment: str
) -> None:
    answer = reranker.post("/v1/classify", body)
    assert answer.status == status, answer.body
    message = answer.json["message"]
    assert fragment in message
    assert answer.json == {
        "object": "error",
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": status,
    }


def test_images_are_refused(reranker: Client) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = [{"role": "query", "content": [image]}, PAIR[1]]
    assert reranker.post("/v1/classify", {"messages": messages}).status == 424


@pytest.mark.parametrize(
    "more",
    [
        {"rid": "one"},
        {"rid": ["1", "2"]},
        {"rid": None},
        {"priority": 0},
        {"truncate_prompt_tokens": -1},
        {"truncate_prompt_tokens": 16},
    ],
)
def test_classify_accepts(classifier: Client, more: dict[str, object]) -> None:
    assert classifier.post("/v1/classify", {"input": ["a", "b"], **more}).status == 200
