"""What the routes about tokens answer, over real sockets."""

import pytest

from fake_service import logits_of
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.requests import Aggregation, ClassifyTokensRequest
from infinity_v3.server.float32 import shortest
from loopback import Client, ClientOf


def test_decode_names_its_own_field(client: Client) -> None:
    assert "`ids` token id 999999" in client.post("/decode", {"ids": [999999]}).json["error"]


def test_tokenize_and_decode(client: Client) -> None:
    text = "深度学习 é"
    (tokens,) = client.post("/tokenize", {"inputs": text}).json
    assert tokens == [{"id": 7, "text": text, "special": False, "start": 0, "stop": 6}]
    assert client.post("/decode", {"ids": [1, 2]}).json == ["1 2"]
    assert client.post("/decode", {"ids": [[1], [2, 3]]}).json == ["1", "2 3"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {"inputs": []}, 400),
        ("/tokenize", {"inputs": [""]}, 400),
        ("/tokenize", {"inputs": [1]}, 422),
        ("/decode", {"ids": []}, 400),
        ("/decode", {"ids": [[]]}, 400),
        ("/decode", {"ids": [1000]}, 422),
        ("/decode", {"ids": [-1]}, 422),
        ("/decode", {"ids": [1, [2]]}, 422),
        ("/decode", {"ids": "a"}, 422),
    ],
)
def test_tokenize_and_decode_refuse(client: Client, path: str, body: object, status: int) -> None:
    answer = client.post(path, body)
    assert answer.status == status, answer.body
    if path == "/decode" and status == 400:
        assert "`input_ids` cannot be empty" in answer.json["error"]


def test_a_route_without_ids_does_not_speak_of_them(client: Client) -> None:
    answer = client.post("/tokenize", {"inputs": [2**64]})
    assert answer.status == 422
    assert "vocabulary" not in answer.json["error"]


@pytest.fixture
def tagger(client_of: ClientOf) -> Client:
    return client_of(Kind.TOKEN_CLASSIFIER)


def entity(token: str, start: int) -> dict[str, object]:
    end = start + len(token)
    return {
        "token": token,
        "token_id": 7,
        "start": start,
        "end": end,
        "results": {"B-WORD": 0.75},
    }


def test_entities_of_each_text(tagger: Client) -> None:
    answer = tagger.post("/predict_tokens", {"inputs": ["a bc", "é 学"]})
    assert answer.status == 200, answer.body
    assert answer.json == [[entity("a", 0)], [entity("é", 0)]]
    assert tagger.pack("/predict_tokens", {"inputs": ["a bc", "é 学"]}).msgpack == answer.json
    assert tagger.post("/predict_tokens", {"inputs": "a bc"}).json == [[entity("a", 0)]]
    assert answer.headers["x-compute-characters"] == "7"


def test_ignored_labels(tagger: Client) -> None:
    body = {"inputs": "a bc", "ignore_labels": ["B-WORD"]}
    ((entry,),) = tagger.post("/predict_tokens", body).json
    assert (entry["token"], entry["start"], entry["end"]) == ("bc", 2, 4)
    assert len(tagger.post("/predict_tokens", {"inputs": "a bc", "ignore_labels": []}).json[0]) == 2


def test_raw_scores_hold_the_logits_of_all_labels(tagger: Client) -> None:
    body = {"inputs": "a", "raw_scores": True}
    logits = logits_of("a", 2)
    ((entry,),) = tagger.post("/predict_tokens", body).json
    assert entry["results"] == dict(zip(("O", "B-WORD"), shortest(logits), strict=True))
    ((entry,),) = tagger.pack("/predict_tokens", body).msgpack
    assert entry["results"] == dict(zip(("O", "B-WORD"), logits, strict=True))


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_strategies_reach_the_service(tagger: Client, strategy: str) -> None:
    body = {"inputs": "a", "aggregation_strategy": strategy, "truncation_direction": "Left"}
    assert tagger.post("/predict_tokens", body).status == 200
    request = tagger.service.request
    assert isinstance(request, ClassifyTokensRequest)
    assert request.aggregation is Aggregation(strategy)
    assert request.options.truncation_side.value == "left"
    assert request.ignored_labels == {"O"}


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({"inputs": ""}, 400, "`inputs` cannot be empty"),
        ({"inputs": []}, 400, "`inputs` cannot be empty"),
        ({"inputs": ["a", ""]}, 400, "(item 1)"),
        ({"inputs": [1]}, 422, "inputs[0]"),
        ({"inputs": None}, 422, "`inputs`"),
        ({"inputs": ["a", "\ud800"]}, 422, "(item 1)"),
        ({"inputs": "a", "aggregation_strategy": "mean"}, 422, "none, simple, first, average, max"),
        ({"inputs": "a", "aggregation_strategy": None}, 422, "`aggregation_strategy`"),
        ({"inputs": "a", "ignore_labels": "O"}, 422, "`ignore_labels`"),
        (
            {"inputs": "a", "raw_scores": True, "aggregation_strategy": "simple"},
            422,
            "`raw_scores`",
        ),
        ({"inputs": ["a"] * 1025}, 422, "batch size 1025"),
    ],
)
def test_predict_tokens_refuses(tagger: Client, body: object, status: int, fragment: str) -> None:
    answer = tagger.post("/predict_tokens", body)
    assert answer.status == status, answer.body
    assert fragment in answer.json["error"]
