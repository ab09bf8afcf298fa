"""Fixtures for the tiny artifacts that several test files use."""

import pytest

from compiled import CompiledArtifacts
from tiny_artifacts import (
    BERT,
    ROBERTA,
    SMALL,
    SMALL_AVX2,
    SMALL_KEPT,
    SMALL_OTHER_SEED,
    SMALL_SHARED,
    TinyArtifact,
    make_artifact,
)


@pytest.fixture(scope="session")
def small(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """One layer, 32 positions, one target."""
    return make_artifact(compiled_artifact, SMALL)


@pytest.fixture(scope="session")
def other(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """As `small`, with other weights."""
    return make_artifact(compiled_artifact, SMALL_OTHER_SEED)


@pytest.fixture(scope="session")
def shared(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """As `small`, with its weights beside the engine."""
    return make_artifact(compiled_artifact, SMALL_SHARED)


@pytest.fixture(scope="session")
def kept(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """As `shared`, with its program."""
    return make_artifact(compiled_artifact, SMALL_KEPT)


@pytest.fixture(scope="session")
def avx2(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """As `kept`, without its program and for hosts with AVX2."""
    return make_artifact(compiled_artifact, SMALL_AVX2)


@pytest.fixture(scope="session")
def bert(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """Every target of this host, every pooling, token types."""
    return make_artifact(compiled_artifact, BERT)


@pytest.fixture(scope="session")
def roberta(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    """Positions with an offset, two poolings concatenated."""
    return make_artifact(compiled_artifact, ROBERTA)
