"""Documents that are ranked for one query share their prompt: computed once, scored the same."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, cell_artifact
from server_process import ServerProcess

SCORE_ATOL = 1e-5
QUERY = "which of the dogs sleeps in the old house behind the river and the forest " * 3
DOCUMENTS = [f"document {number} about a dog and {number % 7} cats" for number in range(40)]


@pytest.fixture(scope="module")
def server(compiled_artifact: CompiledArtifacts) -> Iterator[ServerProcess]:
    artifact = cell_artifact(Cell(family="qwen3", task="yes_no_reranker"), compiled_artifact)
    with ServerProcess(artifact, "--dtype", "float32") as running:
        yield running


def rank(server: ServerProcess, documents: list[str]) -> dict[str, float]:
    reply = server.post("/rerank", {"query": QUERY, "texts": documents, "raw_scores": True})
    assert reply.status == 200, reply.body
    rows: Any = reply.json()
    return {documents[row["index"]]: row["score"] for row in rows}


def counter(server: ServerProcess, name: str) -> float:
    text = server.get("/metrics").body.decode()
    return sum(
        float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
    )


def test_prompts_are_folded_and_scores_stay(server: ServerProcess) -> None:
    alone = {document: rank(server, [document])[document] for document in DOCUMENTS[:8]}
    assert counter(server, "infinity_tokens_folded_total") == 0
    together = rank(server, DOCUMENTS)
    folded = counter(server, "infinity_tokens_folded_total")
    assert folded > 0.5 * counter(server, "infinity_tokens_total") * len(DOCUMENTS) / 48
    for document, score in alone.items():
        assert together[document] == pytest.approx(score, abs=SCORE_ATOL)
    assert len(set(together.values())) > 20, "all documents look alike"
