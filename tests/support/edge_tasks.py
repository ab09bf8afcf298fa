"""Rows 20 to 30, 50 and 51: other kinds of models, similarity, tokenising."""

import math
from collections.abc import Callable, Iterator, Mapping

from edge_case import (
    CLASSIFIER,
    RANKER,
    SEVERAL,
    VOCAB_SIZE,
    WITH_KEY,
    EdgeCase,
    Refusal,
    answered,
    ask,
    assert_refused,
    embed,
    invalid,
    refused,
    unit,
    unsupported,
)
from http_client import HttpClient, Json

Judge = Callable[[Json], None]
DEPRECATION = {"deprecation": "@1791590400", "link": '</v1/classify>; rel="successor-version"'}


def task_cases() -> Iterator[EdgeCase]:
    """Every alternative of the rows."""
    yield from _other_kinds()
    yield from _candidates()
    yield from _reranker()
    yield from _pairs()
    yield from _similarity()
    yield from _tokens()
    yield from _classify()
    yield from _one_label()


def _empty(field: str) -> Refusal:
    return Refusal(
        status=400, kind="Empty", code="empty_input", fragments=(f"`{field}` cannot be empty",)
    )


def _other_kinds() -> Iterator[EdgeCase]:
    pair = {"query": "q", "texts": ["a"]}
    message = "model is not a re-ranker model"
    yield refused("edge_20_rerank", pair, unsupported(message), path="/rerank")
    fragments = {
        "embed_sparse": "Model is not an embedding model with SPLADE pooling",
        "predict_tokens": "Model is not a token classification model",
    }
    for route, fragment in fragments.items():
        refusal = unsupported(fragment)
        yield refused(f"edge_21_{route}", {"inputs": "a"}, refusal, path=f"/{route}")
    classes = unsupported("Model is not a classifier model")
    yield refused("edge_21_classify", {"input": "a"}, classes, path="/v1/classify")

    def predict(client: HttpClient) -> None:
        reply = client.post("/predict", {"inputs": "a"})
        assert_refused(reply, "/predict", classes)
        assert {name: reply.headers.get(name) for name in DEPRECATION} == DEPRECATION

    yield EdgeCase(name="edge_21_predict", check=predict)


def _candidates() -> Iterator[EdgeCase]:
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        route = path.strip("/").replace("/", "_")
        for field in ("texts", "documents"):
            name, body = f"edge_22_{route}_no_{field}", {"query": "q", field: []}
            yield refused(name, body, _empty(field), path=path)
        both = {"query": "q", "texts": ["a"], "documents": ["a"]}
        yield refused(f"edge_23_{route}_both", both, invalid(), path=path)
        yield refused(f"edge_23_{route}_neither", {"query": "q"}, invalid(), path=path)


def _reranker() -> Iterator[EdgeCase]:
    def rank(name: str, body: Mapping[str, object], judge: Judge, path: str) -> EdgeCase:
        whole = {"model": RANKER, **body}
        return answered(f"edge_{name}", whole, judge, path=path, server=SEVERAL)

    def one(answer: Json) -> None:
        assert [entry["index"] for entry in answer] == [0]

    yield rank("24_empty_query", {"query": "", "texts": ["a"]}, one, "/rerank")
    both_empty = {"model": RANKER, "query": "", "texts": [""]}
    refusal = Refusal(status=400, kind="Empty", fragments=("cannot be empty (item 0)",))
    yield refused("edge_24_both_empty", both_empty, refusal, path="/rerank", server=SEVERAL)

    def ties(answer: Json) -> None:
        assert isinstance(answer, list)
        order = [entry["index"] for entry in answer]
        scores = {entry["index"]: entry["score"] for entry in answer}
        assert sorted(order) == [0, 1, 2]
        assert order.index(2) == order.index(0) + 1
        assert scores[0] == scores[2] != scores[1]

    yield rank("25_ties", {"query": "dog", "texts": ["x", "y", "x"]}, ties, "/rerank")
    documents = {"query": "dog", "documents": ["cat", {"text": "fox"}, "the dog"]}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        route = path.strip("/").replace("/", "_")
        for wanted, count in ((2, 2), (99, 3)):
            body = {**documents, "top_n": wanted}
            yield rank(f"26_{route}_{wanted}", body, _has_results(count), path)
        none = {"model": RANKER, **documents, "top_n": 0}
        name = f"edge_26_{route}_0"
        yield refused(name, none, invalid("`top_n`"), path=path, server=SEVERAL)


def _has_results(count: int) -> Judge:
    def judge(answer: Json) -> None:
        scores = [entry["relevance_score"] for entry in answer["results"]]
        assert len(scores) == count
        assert scores == sorted(scores, reverse=True)

    return judge


def _pairs() -> Iterator[EdgeCase]:
    def check(client: HttpClient) -> None:
        def predict(inputs: object) -> Json:
            return ask(client, "/predict", {"model": CLASSIFIER, "inputs": inputs}, WITH_KEY)

        labels = {"LABEL_0", "LABEL_1", "LABEL_2"}
        pair, alone = predict(["the dog", "the fox"]), predict("the dog")
        assert {entry["label"] for entry in pair} == labels
        assert predict([["the dog", "the fox"]]) == [pair]
        assert _scores(pair) != _scores(alone)

    yield EdgeCase(name="edge_27_pair", check=check, server=SEVERAL)

    def lists(answer: Json) -> None:
        assert [len(entry) for entry in answer] == [3, 3]

    batch = {"model": CLASSIFIER, "inputs": [["a"], ["b"]]}
    yield answered("edge_27_batch", batch, lists, path="/predict", server=SEVERAL)
    three = {"model": CLASSIFIER, "inputs": ["a", "b", "c"]}
    yield refused("edge_27_three", three, invalid("`inputs"), path="/predict", server=SEVERAL)


def _scores(entries: Json) -> list[float]:
    return [entry["score"] for entry in sorted(entries, key=lambda entry: str(entry["label"]))]


def _similarity() -> Iterator[EdgeCase]:
    def body(count: int) -> Mapping[str, object]:
        return {"inputs": {"source_sentence": "a", "sentences": ["b"] * count}}

    path = "/similarity"
    yield refused("edge_28_none", body(0), _empty("inputs.sentences"), path=path)
    yield refused("edge_28_1024", body(1024), invalid("batch size 1025"), path=path)

    def check(client: HttpClient) -> None:
        scores = ask(client, path, body(1023))
        left, right = unit(embed(client, "a", normalize=False)), unit(embed(client, "b"))
        assert len(scores) == 1023
        assert max(abs(score - float((left * right).sum())) for score in scores) <= 1e-6

    yield EdgeCase(name="edge_28_1023", check=check)


def _tokens() -> Iterator[EdgeCase]:
    empty = _empty("input_ids")
    yield refused("edge_29_no_ids", {"ids": []}, empty, path="/decode")
    yield refused("edge_29_no_ids_in_list", {"ids": [[]]}, empty, path="/decode")
    outside = invalid(str(VOCAB_SIZE))
    yield refused("edge_29_vocabulary_size", {"ids": [VOCAB_SIZE]}, outside, path="/decode")
    text = "深度学习 é"

    def slices(answer: Json) -> None:
        (tokens,) = answer
        plain = [token for token in tokens if not token["special"]]
        assert len(plain) == len(tokens) - 2 >= 2
        for token in plain:
            assert token["text"] == text[token["start"] : token["stop"]] != ""

    yield answered("edge_30_slices", {"inputs": text}, slices, path="/tokenize")


def _classify() -> Iterator[EdgeCase]:
    path = "/v1/classify"
    fragments = {400: ("cannot be empty",), 422: ()}

    def no(name: str, status: int, **body: object) -> EdgeCase:
        whole = {"model": CLASSIFIER, **body}
        refusal = Refusal(status=status, kind="", fragments=fragments[status])
        return refused(f"edge_50_{name}", whole, refusal, path=path, server=SEVERAL)

    yield no("white_space", 400, input="  ")
    yield no("no_texts", 400, input=[])
    yield no("no_ids", 400, input=[[]])
    yield no("negative_id", 422, input=[-1])
    yield no("priority", 422, input="a", priority=1)


def _one_label() -> Iterator[EdgeCase]:
    text = "the quick brown fox"

    def probs(client: HttpClient, **option: object) -> list[float]:
        body = {"model": RANKER, "input": text, **option}
        (entry,) = ask(client, "/v1/classify", body, WITH_KEY)["data"]
        assert (entry["num_classes"], entry["label"]) == (1, "LABEL_0")
        return list(entry["probs"])

    def softmax(client: HttpClient) -> None:
        assert probs(client) == [1.0]
        assert probs(client, use_activation=True) == [1.0]

    def logit(client: HttpClient) -> None:
        body = {"model": RANKER, "inputs": text, "raw_scores": True}
        (entry,) = ask(client, "/predict", body, WITH_KEY)
        (raw,) = probs(client, use_activation=False)
        assert math.isclose(raw, entry["score"], abs_tol=1e-6)

    def sigmoid(client: HttpClient) -> None:
        (raw,) = probs(client, use_activation=False)
        (entry,) = ask(client, "/predict", {"model": RANKER, "inputs": text}, WITH_KEY)
        assert math.isclose(entry["score"], 1 / (1 + math.exp(-raw)), abs_tol=1e-6)

    for name, check in {"softmax": softmax, "logit": logit, "sigmoid": sigmoid}.items():
        yield EdgeCase(name=f"edge_51_{name}", check=check, server=SEVERAL)
