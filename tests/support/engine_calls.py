"""Runs engines of compiled artifacts as the server does, and compares arrays in plain words.

Knows nothing of how artifacts are made.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.manifest import Target
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.engine import Engine, EngineSettings, load_engine

Ids = Sequence[int] | NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class OpenedEngine:
    """One target, loaded."""

    artifact: Artifact
    target: Target
    engine: Engine

    @property
    def output_names(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.engine.graph.outputs)

    def run(
        self, texts: Sequence[Ids], *, position_offset: int | None = None
    ) -> Mapping[str, Floats]:
        """All outputs of one packed batch; `position_offset` None = as the manifest says."""
        encoded = [EncodedText(input_ids=np.asarray(ids, dtype=np.int64)) for ids in texts]
        if position_offset is None:
            position_offset = self.artifact.manifest.model.position_offset
        batch = pack(encoded, position_offset=position_offset)
        return self.engine.run(batch, self.output_names).tensors


def open_engine(
    path: Path,
    target_name: str | None = None,
    *,
    num_threads: int = 1,
    digests: DigestPolicy = DigestPolicy.AUTO,
) -> OpenedEngine:
    """Load a target of an artifact, its first one by default."""
    artifact = open_artifact(path, digests=digests)
    targets = {target.name: target for target in artifact.manifest.targets}
    target = targets[target_name] if target_name is not None else artifact.manifest.targets[0]
    engine = load_engine(artifact, target, EngineSettings(num_threads=num_threads))
    return OpenedEngine(artifact=artifact, target=target, engine=engine)


@contextmanager
def opened_engine(
    path: Path, target_name: str | None = None, *, num_threads: int = 1
) -> Iterator[OpenedEngine]:
    """As `open_engine`, closed at the end."""
    opened = open_engine(path, target_name, num_threads=num_threads)
    try:
        yield opened
    finally:
        opened.engine.close()


def random_ids(
    rng: np.random.Generator, lengths: Sequence[int], vocab_size: int, *, first: int = 5
) -> list[NDArray[np.int64]]:
    """Seeded ids from `first` on, which leaves padding and its neighbours out."""
    return [rng.integers(first, vocab_size, length) for length in lengths]


def normalized(vectors: Floats) -> NDArray[np.float64]:
    """(B, D) scaled to length 1, in float64."""
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=-1, keepdims=True))


def assert_near(found: Floats, expected: Floats, *, atol: float, what: str) -> None:
    """Compare vectors after normalisation, or fail with maximum and mean difference."""
    assert found.shape == expected.shape, f"{what}: {found.shape}, expected {expected.shape}"
    difference = np.abs(normalized(found) - normalized(expected))
    assert difference.max() <= atol, f"{what}: {_figures(difference)}, allowed {atol:g}"


def assert_tokens_near(found: Floats, expected: Floats, *, rtol: float, what: str) -> None:
    """Compare token outputs relative to max(1, |expected|), or fail with the figures."""
    assert found.shape == expected.shape, f"{what}: {found.shape}, expected {expected.shape}"
    wide = expected.astype(np.float64)
    difference = np.abs(found - wide) / np.maximum(1.0, np.abs(wide))
    assert difference.max() <= rtol, f"{what}: {_figures(difference)}, allowed {rtol:g}"


def assert_cosine(found: Floats, expected: Floats, *, at_least: float, what: str) -> None:
    """Compare the directions of vectors row by row."""
    cosines = (normalized(found) * normalized(expected)).sum(axis=-1)
    assert cosines.min() >= at_least, f"{what}: cosine {cosines.min():.6f}, needed {at_least:g}"


def _figures(difference: NDArray[np.float64]) -> str:
    return f"max {difference.max():.3g}, mean {difference.mean():.3g}"
