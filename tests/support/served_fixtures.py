"""Servers that many test files ask: started when first needed, gone with the test run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from compiled import CompiledArtifacts
from edge_case import CLASSIFIER, KEY, RANKER, SHORT, SLOTLESS
from server_process import ServerProcess


@pytest.fixture(scope="session")
def reranker_artifact(compiled_artifact: CompiledArtifacts) -> Path:
    """One label, pairs, token types."""
    return _cell("bert", "reranker", compiled_artifact)


@pytest.fixture(scope="session")
def classifier_artifact(compiled_artifact: CompiledArtifacts) -> Path:
    """Three labels, no token types."""
    return _cell("distilbert", "classifier", compiled_artifact)


@pytest.fixture(scope="session")
def tagger_artifact(compiled_artifact: CompiledArtifacts) -> Path:
    """Labels of tokens."""
    return _cell("bert", "token_classifier", compiled_artifact)


def _cell(family: str, task: str, compiled: CompiledArtifacts) -> Path:
    from matrix import Cell, cell_artifact  # loads torch

    return cell_artifact(Cell(family=family, task=task), compiled)


@pytest.fixture(scope="session")
def minilm_server(minilm_artifact: Path) -> Iterator[ServerProcess]:
    """all-MiniLM-L6-v2 in float32, every other option by default."""
    with ServerProcess(minilm_artifact, "--dtype", "float32") as server:
        yield server


@pytest.fixture(scope="session")
def several_server(
    minilm_artifact: Path, reranker_artifact: Path, classifier_artifact: Path
) -> Iterator[ServerProcess]:
    """Four models behind a key: all-MiniLM-L6-v2 twice with small limits, and two tiny ones."""
    models = (minilm_artifact, reranker_artifact, classifier_artifact)
    with ServerProcess(
        minilm_artifact,
        *(word for path in models for word in ("--model-id", str(path))),
        *("--served-model-name", f"{SLOTLESS};{SHORT};{RANKER};{CLASSIFIER}"),
        *("--max-concurrent-requests", "1;512;512;512"),
        *("--max-queue-tokens", "none;100;none;none"),
        *("--dtype", "float32"),
        env={"INFINITY_API_KEY": KEY},
    ) as server:
        yield server
