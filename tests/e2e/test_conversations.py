"""Conversations end to end: compiled, served, compared with what transformers makes of them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import family_oracles as oracles
from compiled import CompiledArtifacts
from matrix import TASKS, Cell, cell_artifact
from reference_library import load_reference_tokenizer
from server_process import ServerProcess

CELL = Cell(family="qwen3", task="embedding")
VECTOR_ATOL = 1e-5
CONVERSATIONS: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "where does the quick fox sleep?"}],
    [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "深度学习 é\n"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "the dog and the cat " * 20},
    ],
)


def reference_ids(checkpoint: Path, messages: list[dict[str, str]]) -> list[int]:
    """What transformers' own tokenizer makes of a conversation."""
    tokenizer: Any = load_reference_tokenizer(checkpoint)
    return list(tokenizer.apply_chat_template(messages, return_dict=False))


@pytest.fixture(scope="module")
def checkpoint(compiled_artifact: CompiledArtifacts) -> Path:
    make = TASKS[CELL.task].make
    return compiled_artifact(f"matrix-{CELL.name}.checkpoint", lambda path: make(CELL.family, path))


@pytest.fixture(scope="module")
def server(compiled_artifact: CompiledArtifacts) -> Iterator[ServerProcess]:
    artifact = cell_artifact(CELL, compiled_artifact)
    environment = {"AIP_PREDICT_ROUTE": "/score:predict", "AIP_HEALTH_ROUTE": "/alive"}
    with ServerProcess(artifact, "--dtype", "float32", env=environment) as running:
        yield running


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[torch.Tensor]:
    """The last token's vector of what transformers makes of each conversation, normalised."""
    rows = [
        oracles.TokenRow(ids=reference_ids(checkpoint, messages), types=[])
        for messages in CONVERSATIONS
    ]
    hidden = oracles.hidden_states(checkpoint, rows)
    return [torch.nn.functional.normalize(states[-1].double(), dim=0) for states in hidden]


def post(server: ServerProcess, path: str, body: object) -> Any:  # noqa: ANN401  # a document
    reply = server.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json()


def assert_near(found: Sequence[Sequence[float]], expected: Sequence[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert np.abs(np.asarray(row) - wanted.numpy()).max() <= VECTOR_ATOL


def test_vectors_are_those_of_the_reference(
    server: ServerProcess, expected: list[torch.Tensor]
) -> None:
    assert_near(post(server, "/embed", {"inputs": list(CONVERSATIONS)}), expected)
    for messages, wanted in zip(CONVERSATIONS, expected, strict=True):
        reply = post(server, "/v1/embeddings", {"messages": messages})
        assert_near([reply["data"][0]["embedding"]], [wanted])


def test_usage_counts_the_tokens_of_the_template(server: ServerProcess, checkpoint: Path) -> None:
    for messages in CONVERSATIONS:
        wanted = len(reference_ids(checkpoint, messages))
        reply = post(server, "/v1/embeddings", {"messages": messages})
        assert reply["usage"] == {"prompt_tokens": wanted, "total_tokens": wanted}


def test_a_platform_names_paths_of_its_own(
    server: ServerProcess, expected: list[torch.Tensor]
) -> None:
    instances = [{"inputs": messages} for messages in CONVERSATIONS]
    for path in ("/vertex", "/score:predict"):
        predictions = post(server, path, {"instances": instances})["predictions"]
        assert_near([rows[0] for rows in predictions], expected)
    assert server.get("/alive").status == 200
    assert json.loads(server.get("/info").body)["model_type"] == {
        "embedding": {"pooling": "last_token"}
    }
