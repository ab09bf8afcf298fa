"""8-bit engines end to end: compiled for who asks, served for who asks, near the reference."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import family_oracles as oracles
from compiled import CompiledArtifacts, compile_checkpoint
from infinity_v3.artifacts.store import open_artifact
from kernel_calls import INT8_TARGETS
from reference_library import load_reference_tokenizer
from server_process import ServerProcess
from tiny_checkpoints import make_tiny_checkpoint

pytestmark = pytest.mark.skipif(
    not INT8_TARGETS, reason="this CPU lacks avx512_vnni or avx512_bf16, which 8-bit engines need"
)
FLOAT32 = "cpu-x86_64-avx2-f32"
INT8 = INT8_TARGETS[0].name if INT8_TARGETS else ""
"""The best one of this host."""
TEXTS = ["the quick brown fox", "a", "the dog and the cat " * 20, "深度学习 é"]
MIN_COSINE = 0.99


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("bert", tmp_path_factory.mktemp("int8") / "bert", hidden_size=64)


@pytest.fixture(scope="module")
def artifact(checkpoint: Path, compiled_artifact: CompiledArtifacts) -> Path:
    targets = ("--target", FLOAT32, "--target", INT8)
    return compiled_artifact(
        "tiny-int8", lambda path: compile_checkpoint(checkpoint, path, *targets)
    )


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[ServerProcess]:
    with ServerProcess(artifact, "--dtype", "int8") as running:
        yield running


def dtype_of(server: ServerProcess) -> object:
    info: Any = server.get("/info").json()
    return info["model_dtype"]


def test_the_figures_of_the_gate_are_recorded(artifact: Path) -> None:
    opened = open_artifact(artifact)
    (target,) = (found for found in opened.manifest.targets if found.name == INT8)
    assert target.parity.passed
    assert target.parity.bounds.min_cosine == MIN_COSINE
    figures = json.loads((artifact / "build.json").read_text())["parity"][INT8]
    assert figures["pooled.min_cosine"] >= MIN_COSINE
    assert figures["pooled.rank_agreement"] >= 0.98


def test_vectors_are_near_the_reference(server: ServerProcess, checkpoint: Path) -> None:
    assert dtype_of(server) == "int8"
    tokenizer: Any = load_reference_tokenizer(checkpoint)
    ids = [list(tokenizer(text)["input_ids"]) for text in TEXTS]
    rows = [oracles.TokenRow(ids=row, types=[0] * len(row)) for row in ids]
    expected = [
        torch.nn.functional.normalize(states.double().mean(0), dim=0).numpy()
        for states in oracles.hidden_states(checkpoint, rows)
    ]
    found = np.asarray(server.post("/embed", {"inputs": TEXTS}).json())
    cosines = [float(np.dot(left, right)) for left, right in zip(found, expected, strict=True)]
    assert min(cosines) >= MIN_COSINE
    # Not the float32 engine by mistake.
    assert max(cosines) < 1.0 - 1e-7


def test_nobody_gets_them_by_themselves(artifact: Path) -> None:
    with ServerProcess(artifact) as server:
        assert dtype_of(server) == "float32"
