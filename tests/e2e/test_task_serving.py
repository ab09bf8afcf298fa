"""A real process per task: cuts, entities and busy servers against what other libraries compute."""

import json
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

import family_oracles as oracles
from compiled import CompiledArtifacts
from http_metrics import read_metrics, series, wait_until_idle
from matrix import TASKS, Cell, cell_artifact
from server_process import ServerProcess

RERANKER = Cell(family="bert", task="reranker")
CLASSIFIER = Cell(family="distilbert", task="classifier")
TOKENS = (
    Cell(family="bert", task="token_classifier"),
    Cell(family="roberta", task="token_classifier"),
)
SIDES = ("left", "right")
STRATEGIES = ("none", "simple", "first", "average", "max")
RAW_ATOL = 5e-5
SCORE_ATOL = 2e-5
ALONE_ATOL = 1e-5
NUM_THREADS = 16
NUM_LEAVING = 60
TEXTS = (
    "a",
    "the quick brown fox",
    "Der Hund und die Katze, déjà vu: où est la forêt?",
    "  the   dog\n\tcat  ",
    "[SEP] the dog",
    "深度 学习 🙂🚀",
    "e\u0301 I.B.M. in New-York",
    "x" * 300,
    "the dog and the cat " * 60,
    "one two three four five six seven eight nine ten " * 120,
)
QUERIES = ("", "where does the quick fox sleep", "which of the dogs and cats is it " * 70)

Floats = Sequence[float]
Ask = tuple[str, Mapping[str, object]]


@pytest.fixture(scope="module")
def serve(compiled_artifact: CompiledArtifacts) -> Iterator[Callable[[Cell], ServerProcess]]:
    """Servers of this module, one per cell."""
    running: dict[str, ServerProcess] = {}
    with ExitStack() as stack:

        def get(cell: Cell) -> ServerProcess:
            if cell.name not in running:
                server = ServerProcess(cell_artifact(cell, compiled_artifact), "--dtype", "float32")
                running[cell.name] = stack.enter_context(server)
            return running[cell.name]

        yield get


@pytest.fixture(scope="module")
def checkpoint(compiled_artifact: CompiledArtifacts) -> Callable[[Cell], Path]:
    def get(cell: Cell) -> Path:
        make = TASKS[cell.task].make
        return compiled_artifact(
            f"matrix-{cell.name}.checkpoint", lambda path: make(cell.family, path)
        )

    return get


def post(server: ServerProcess, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401
    reply = server.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json()


def limit_of(server: ServerProcess) -> int:
    return int(json.loads(server.get("/info").body)["max_input_length"])


def assert_near(found: Sequence[Floats] | Floats, expected: torch.Tensor, bound: float) -> None:
    off = np.abs(np.asarray(found) - expected.double().numpy())
    assert off.max() <= bound, f"largest difference {off.max():.3g}, mean {off.mean():.3g}"


def tokenizer_of(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cut_rows(
    path: Path, texts: Sequence[oracles.Text], limit: int, side: str
) -> list[oracles.TokenRow]:
    """Texts and pairs as the tokenizers library itself cuts them."""
    tokenizer = tokenizer_of(path)
    tokenizer.enable_truncation(limit, strategy="longest_first", direction=side)
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    encodings = [tokenizer.encode(*pair) for pair in pairs]
    return [oracles.TokenRow(ids=found.ids, types=found.type_ids) for found in encodings]


def logits(server: ServerProcess, query: str, **body: object) -> list[float]:
    """Relevance by document, in request order."""
    path = "/v2/rerank" if "documents" in body else "/rerank"
    reply = post(server, path, {"query": query, "raw_scores": True, **body})
    rows = reply["results"] if "documents" in body else reply
    name = "relevance_score" if "documents" in body else "score"
    found = [row[name] for row in rows]
    assert found == sorted(found, reverse=True)
    return [row[name] for row in sorted(rows, key=lambda row: int(row["index"]))]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("query", QUERIES, ids=["empty", "short", "long"])
def test_long_pairs_are_cut_as_the_library_cuts_them(
    serve: Callable[[Cell], ServerProcess],
    checkpoint: Callable[[Cell], Path],
    query: str,
    side: str,
) -> None:
    server, path = serve(RERANKER), checkpoint(RERANKER)
    rows = cut_rows(path, [(query, text) for text in TEXTS], limit_of(server), side)
    expected = oracles.sequence_logits(path, rows)[:, 0]
    assert_near(logits(server, query, texts=TEXTS, truncation_direction=side), expected, RAW_ATOL)


@pytest.mark.parametrize("max_tokens", [1, 17, 400])
@pytest.mark.parametrize("side", SIDES)
def test_documents_are_cut_to_a_number_of_tokens_first(
    serve: Callable[[Cell], ServerProcess],
    checkpoint: Callable[[Cell], Path],
    max_tokens: int,
    side: str,
) -> None:
    server, path = serve(RERANKER), checkpoint(RERANKER)
    tokenizer, texts = tokenizer_of(path), [text for text in TEXTS if "SEP" not in text]
    # Where the last kept token ends, the document ends.
    ends = [tokenizer.encode(text, add_special_tokens=False).offsets for text in texts]
    clipped = [
        text[: offsets[min(max_tokens, len(offsets)) - 1][1]]
        for text, offsets in zip(texts, ends, strict=True)
    ]
    rows = cut_rows(path, [(QUERIES[2], text) for text in clipped], limit_of(server), side)
    found = logits(
        server,
        QUERIES[2],
        documents=texts,
        max_tokens_per_doc=max_tokens,
        truncation_direction=side,
    )
    assert_near(found, oracles.sequence_logits(path, rows)[:, 0], RAW_ATOL)


@pytest.mark.parametrize("side", SIDES)
def test_long_texts_are_classified_by_what_is_kept(
    serve: Callable[[Cell], ServerProcess], checkpoint: Callable[[Cell], Path], side: str
) -> None:
    server, path = serve(CLASSIFIER), checkpoint(CLASSIFIER)
    expected = oracles.sequence_logits(path, cut_rows(path, TEXTS, limit_of(server), side))
    for is_active, wanted in ((False, expected), (True, expected.double().softmax(dim=-1))):
        body = {"input": TEXTS, "use_activation": is_active, "truncation_direction": side}
        rows = post(server, "/v1/classify", body)["data"]
        assert_near([row["probs"] for row in rows], wanted, RAW_ATOL)
        best = [f"LABEL_{index}" for index in expected.argmax(dim=-1).tolist()]
        assert [row["label"] for row in rows] == best


@pytest.mark.parametrize("cell", TOKENS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("ignored", [["O"], [], ["PER", "B-PER"]], ids=["o", "none", "per"])
def test_entities_are_those_of_the_pipeline(
    serve: Callable[[Cell], ServerProcess],
    checkpoint: Callable[[Cell], Path],
    cell: Cell,
    side: str,
    ignored: list[str],
) -> None:
    server = serve(cell)
    pipeline = oracles.entity_pipeline(checkpoint(cell), max_tokens=limit_of(server), side=side)
    for strategy in STRATEGIES:
        body = {
            "inputs": TEXTS,
            "aggregation_strategy": strategy,
            "ignore_labels": ignored,
            "truncation_direction": side,
        }
        for text, found in zip(TEXTS, post(server, "/predict_tokens", body), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = pipeline(text, aggregation_strategy=strategy, ignore_labels=ignored)
            names = [next(iter(entity["results"].items())) for entity in found]
            spans = [(entity["start"], entity["end"]) for entity in found]
            key = "entity" if strategy == "none" else "entity_group"
            assert [name for name, _ in names] == [entity[key] for entity in wanted]
            assert spans == [(entity["start"], entity["end"]) for entity in wanted]
            scores = [float(entity["score"]) for entity in wanted]
            assert [score for _, score in names] == pytest.approx(scores, abs=SCORE_ATOL)


def asks_of(cell: Cell) -> list[Ask]:
    """Requests of one server; what they answer does not depend on the moment."""
    if cell is RERANKER:
        ranked: list[Ask] = [
            ("/rerank", {"query": query, "texts": TEXTS, "raw_scores": True}) for query in QUERIES
        ]
        pairs = [["the dog", text] for text in TEXTS]
        return [*ranked, ("/predict", {"inputs": pairs, "raw_scores": True})]
    if cell is CLASSIFIER:
        return [("/predict", {"inputs": [[text] for text in TEXTS]})]
    return [
        ("/predict_tokens", {"inputs": TEXTS, "aggregation_strategy": strategy})
        for strategy in STRATEGIES
    ]


@pytest.mark.parametrize("cell", [RERANKER, CLASSIFIER, TOKENS[1]], ids=lambda cell: cell.name)
def test_a_busy_server_answers_as_an_idle_one(
    serve: Callable[[Cell], ServerProcess], cell: Cell
) -> None:
    server, asks = serve(cell), asks_of(cell)
    alone = [leaves(post(server, *ask)) for ask in asks]
    before = read_metrics(server)
    leaving = threading.Thread(target=leave_often, args=(server, asks[0]))
    leaving.start()
    order = [index % len(asks) for index in range(NUM_THREADS * 10)]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        answers = list(pool.map(lambda index: leaves(post(server, *asks[index])), order))
    leaving.join()
    for index, found in zip(order, answers, strict=True):
        assert found == pytest.approx(alone[index], abs=ALONE_ATOL)
    wait_until_idle(server)
    after = read_metrics(server)

    def grown(name: str) -> float:
        return series(after, name) - series(before, name)

    ended = grown("te_request_success") + grown("te_request_failure")
    assert grown("te_request_count") == ended >= len(order)
    assert grown("te_request_success") >= len(order)
    assert grown("infinity_tokens_total") == grown("te_request_input_length_sum")


def leaves(value: object) -> list[float | str]:
    """The numbers and words of a document in its order."""
    if isinstance(value, Mapping):
        value = [item for pair in value.items() for item in pair]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    assert isinstance(value, int | float | str)
    return [value]


def leave_often(server: ServerProcess, ask: Ask) -> None:
    """Send a request and close the connection without reading, again and again."""
    path, body = ask[0], json.dumps(ask[1]).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    port = int(server.base_url.rpartition(":")[2])
    for _ in range(NUM_LEAVING):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head.encode() + body)


def test_a_drained_reranker_answers_what_it_admitted(compiled_artifact: CompiledArtifacts) -> None:
    artifact = cell_artifact(RERANKER, compiled_artifact)
    documents = [f"{number} dogs " * 100 for number in range(200)]
    with ServerProcess(artifact, "--dtype", "float32") as server, ThreadPoolExecutor(4) as pool:
        body = {"query": "which dog", "texts": documents}
        waiting = [pool.submit(server.post, "/rerank", body) for _ in range(4)]
        while series(read_metrics(server), "infinity_requests_in_flight{") < len(waiting):
            assert not any(future.done() for future in waiting)
        server.process.send_signal(signal.SIGTERM)
        assert [future.result().status for future in waiting] == [200] * len(waiting)
        assert server.process.wait(40) == 0


def test_two_kinds_in_one_process(compiled_artifact: CompiledArtifacts) -> None:
    ranker, tagger = (cell_artifact(cell, compiled_artifact) for cell in (RERANKER, TOKENS[1]))
    names = ("--served-model-name", "ranker", "--served-model-name", "tagger")
    pair = {"query": "a", "texts": ["b"]}
    with ServerProcess(ranker, "--model-id", str(tagger), *names) as server:
        assert server.post("/rerank", {**pair, "model": "ranker"}).status == 200
        assert server.post("/rerank", {**pair, "model": "tagger"}).status == 424
        assert server.post("/rerank", {**pair, "model": "other"}).status == 404
        assert server.post("/rerank", pair).status == 422
        assert server.post("/", {**pair, "model": "ranker"}).status == 200
        assert server.post("/", {"inputs": "a", "model": "tagger"}).status == 200
        assert server.post("/predict_tokens", {"inputs": "a", "model": "ranker"}).status == 424
